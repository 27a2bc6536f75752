"""Random joining, grouping and ordering queries over a random table, held against DuckDB.

    aggregate_oracle.py --runner build/test/oracle/query_runner [--seed 1] [--count 400]

Rows are compared in order where the query orders them by all its columns, else as sets. Sums of doubles may differ in
the last digits: ours are exact. Exit code 77 (skipped) without DuckDB.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

try:
    import duckdb
    import pyarrow.parquet as pq
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from duckdb_oracle import COLUMNS, make_table

KEYS = ["b", "i1 % 3", "i2", "i4 % 5", "k % 4", "k % 7", "u1", "d1 > 0", "year(day) // 10", "month(ts)", "s", "s2",
        "f8", "f4", "day", "ts", "d2", "upper(s)", "CASE WHEN k % 2 = 0 THEN s ELSE 'odd' END", "i8", "b2"]
NUMBERS = [name for name, (kind, _) in COLUMNS.items() if kind in ("int", "decimal")]
# Without NaN and infinities, which DuckDB's variances refuse, and with few digits.
ANY = list(COLUMNS)


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def aggregate(self):
        rng = self.rng
        column = rng.choice(NUMBERS)
        call = rng.choice([
            "count(*)", f"count({rng.choice(ANY)})", f"sum({column})", f"avg({column})", f"min({rng.choice(ANY)})",
            f"max({rng.choice(ANY)})", f"sum({column} * 0.5e0)", f"avg(i4 / 4e0)", f"sum(f8) FILTER (WHERE isfinite(f8))",
            f"stddev({rng.choice(['i1', 'd1', 'k'])})", f"var_pop({rng.choice(['i2', 'd2', 'k'])})",
            f"stddev_pop({rng.choice(['i1', 'd1'])})", f"var_samp({rng.choice(['i1', 'u1'])})", "bool_and(b)", "bool_or(b2)",
            f"count(DISTINCT {rng.choice(ANY)})", f"sum(DISTINCT {column})", "sum(b::INT)", f"avg(DISTINCT {column})",
            f"max(k) - min({column})", "count(*) + sum(k)",
        ])
        if call.startswith(("count(*)", "sum(i", "min(", "count(DISTINCT")) and call.endswith(")") and rng.random() < 0.3:
            call += f" FILTER (WHERE {rng.choice(['b', 'k > 30', 'i1 > 0', 's IS NOT NULL', 'd1 < 100'])})"
        return call

    def where(self):
        return self.rng.choice(["", "", " WHERE k > 20", " WHERE b", " WHERE i1 > 0 OR s IS NULL", " WHERE k < 0"])

    def grouped(self):
        rng = self.rng
        keys = rng.sample(KEYS, rng.choice([0, 1, 1, 2, 2, 3, 4]))
        items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        items += [f"{self.aggregate()} AS a{i}" for i in range(rng.choice([1, 2, 3]))]
        text = f"SELECT {', '.join(items)} FROM @T{self.where()}"
        if keys:
            forms = ["ALL", ", ".join(f"k{i}" for i in range(len(keys))), ", ".join(str(i + 1) for i in range(len(keys)))]
            text += " GROUP BY " + rng.choice(forms)
            if rng.random() < 0.3:
                text += rng.choice([" HAVING count(*) > 1", " HAVING min(k) < 30", " HAVING a0 IS NOT NULL"])
        if rng.random() < 0.5:
            text += " ORDER BY ALL" + rng.choice(["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"])
            if rng.random() < 0.4:
                text += f" LIMIT {rng.randint(0, 9)} OFFSET {rng.randint(0, 4)}"
            return text, True
        return text, False

    def ordered(self):
        rng = self.rng
        columns = rng.sample(ANY, 3)
        order = ", ".join(f"{c}{rng.choice(['', ' DESC', ' ASC'])}{rng.choice(['', ' NULLS FIRST', ' NULLS LAST'])}"
                          for c in columns + ["k"])
        # k is not unique: whole rows are ordered.
        rest = ", ".join(c for c in ANY if c not in columns and c != "k")
        text = f"SELECT * FROM @T{self.where()} ORDER BY {order}, {rest}"
        if rng.random() < 0.5:
            text += f" LIMIT {rng.randint(0, 20)} OFFSET {rng.randint(0, 9)}"
        return text, True

    def distinct(self):
        keys = self.rng.sample(KEYS, self.rng.choice([1, 2]))
        items = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        return f"SELECT DISTINCT {items} FROM @T{self.where()}", False

    def joined(self):
        rng = self.rng
        kind = rng.choice(["JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
        pairs = [("i1", "i2"), ("i1", "i1"), ("s", "s2"), ("d1", "i1"), ("f8", "f4"), ("day", "day2"), ("b", "b2"), ("u1", "i8"),
                 ("i4", "k"), ("f8b", "f8b"), ("d2", "d2"), ("ts", "ts"), ("k % 5", "i1 % 5"), ("year(day)", "year(day2)")]
        on = " AND ".join(self.key(*pair) for pair in rng.sample(pairs, rng.choice([1, 1, 2])))
        if rng.random() < 0.4:
            on += rng.choice([" AND l.k < r.k", " AND l.b", " AND r.k > 20", " AND l.i2 <> r.i4", " AND (l.s = r.s OR l.k = r.k)"])
        text = f"FROM {rng.choice(['@T', '(SELECT * FROM @T WHERE k % 3 = 0)'])} AS l {kind} {rng.choice(['@T', '(SELECT * FROM @T WHERE b)'])} AS r ON {on}"
        half = kind in ("SEMI JOIN", "ANTI JOIN")
        if rng.random() < 0.3:
            side = "l" if half else rng.choice("lr")
            return f"SELECT {side}.i1 % 4 AS g, count(*) AS n, sum({side}.k) AS t {text} GROUP BY g ORDER BY ALL", True
        columns = "l.k AS lk, l.s AS ls, l.d1 AS ld" + ("" if half else ", r.k AS rk, r.s AS rs, r.f8 AS rf")
        if rng.random() < 0.3:
            text += " WHERE " + ("l.k > 10" if half else rng.choice(["l.k > 10", "r.k < 40", "l.k + r.k > 50", "r.k IS NULL"]))
        return f"SELECT {columns} {text}", False

    def key(self, a, b):
        columns = re.compile(r"\b(%s)\b" % "|".join(COLUMNS))
        left, right = columns.sub(r"l.\1", a), columns.sub(r"r.\1", b)
        return f"{left} = {right}" if self.rng.random() < 0.5 else f"{right} = {left}"

    def query(self):
        return self.rng.choice([self.grouped, self.grouped, self.joined, self.joined, self.ordered, self.distinct])()


def same_value(a, b):
    if a is None or b is None:
        return a is b
    if a == b:
        return True
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    return abs(x - y) <= 1e-9 * max(abs(x), abs(y), 1e-6)


def same_rows(ours, theirs, ordered):
    if len(ours) != len(theirs):
        return False
    if not ordered:
        # Zeros are written +0 here.
        key = lambda row: [(value is None, "0.0" if value == "-0.0" else value or "") for value in row]
        ours, theirs = sorted(ours, key=key), sorted(theirs, key=key)
    return all(all(same_value(x, y) for x, y in zip(a, b)) for a, b in zip(ours, theirs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    table = make_table(rng)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    connection.register("source", table)
    connection.execute("CREATE TABLE T AS SELECT * FROM source")
    generator = Generator(rng)
    differences = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "t"))
        for part, (begin, end) in enumerate([(0, 20), (20, 20), (20, table.num_rows)]):
            pq.write_table(table.slice(begin, end - begin), os.path.join(folder, "t", f"{part}.parquet"), row_group_size=7)
        runner = subprocess.Popen([arguments.runner, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(arguments.count):
            query, ordered = generator.query()
            runner.stdin.write(json.dumps(query.replace("@T", "'t/*.parquet'")) + "\n")
            runner.stdin.flush()
            line = runner.stdout.readline()
            if not line:
                print(f"the runner died at: {query}")
                return 1
            ours = json.loads(line)
            text = query.replace("@T", "T")
            try:
                names = [column[0] for column in connection.execute("DESCRIBE " + text).fetchall()]
                inner = ", ".join(f"c{i}" for i in range(len(names)))
                outer = ", ".join(f"CAST(v.c{i} AS VARCHAR)" for i in range(len(names)))
                rows = [list(row) for row in connection.execute(f"SELECT {outer} FROM ({text}) AS v({inner})").fetchall()]
                theirs = {"rows": rows}
            except duckdb.Error as error:
                theirs = {"error": str(error)}
            if "error" in ours or "error" in theirs:
                failed += 1
                if ("error" in ours) == ("error" in theirs) and ours.get("category") != "bug":
                    continue
                found = f"ours {ours.get('error', 'succeeds')}; DuckDB {theirs.get('error', 'succeeds')}"
            elif same_rows(ours["rows"], theirs["rows"], ordered):
                continue
            else:
                found = f"{ours['rows'][:8]}\n    {theirs['rows'][:8]}"
            differences += 1
            if differences <= 20:
                print(f"{query}\n    {found}\n")
        runner.stdin.close()
        runner.wait()
    print(f"{arguments.count} queries, {failed} fail on both sides or one, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
