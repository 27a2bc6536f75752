"""Random whole queries over two tables of random schema, held against DuckDB: joins on nullable keys of every type,
grouping, ordering, UNION, queries in expressions, windows.

    query_oracle.py --runner build/test/query_runner [--seed 1] [--count 500]

Rows are compared in order where the query orders them by all its columns, else as bags. `--count 5000 --seed N` is the
long run. Exit code 77 (skipped) without DuckDB.
"""

import argparse
import datetime
import decimal
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

try:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from aggregate_oracle import same_rows

QUERIES_A_SCHEMA = 25

TYPES = {
    "bool": pa.bool_(), "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "u1": pa.uint8(), "u4": pa.uint32(),
    "f4": pa.float32(), "f8": pa.float64(), "d1": pa.decimal128(6, 2), "d2": pa.decimal128(20, 4), "date": pa.date32(),
    "ts": pa.timestamp("us"), "tz": pa.timestamp("us", "UTC"), "time": pa.time64("us"), "text": pa.string(), "blob": pa.binary(),
}
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u4")
NUMBERS = INTEGERS + ("f4", "f8", "d1", "d2")


def value(rng, kind):
    small = rng.randint(0, 5)
    if kind == "bool":
        return rng.random() < 0.5
    if kind in INTEGERS:
        if rng.random() < 0.03:
            return {"i1": -128, "i2": 32767, "i4": -(2**31), "i8": 2**62, "u1": 255, "u4": 2**32 - 1}[kind]
        return small if kind[0] == "u" else small - 2
    if kind in ("f4", "f8"):
        return rng.choice([math.nan, math.inf, -0.0]) if rng.random() < 0.06 else small / 2 - 1
    if kind in ("d1", "d2"):
        return decimal.Decimal(small * 50 - 100).scaleb(-2)
    if kind == "date":
        return datetime.date(2024, 1, 29) + datetime.timedelta(days=small)
    if kind in ("ts", "tz"):
        return datetime.datetime(2024, 1, 29) + datetime.timedelta(hours=small * 12)
    if kind == "time":
        return datetime.time(small * 4, 30)
    text = rng.choice(["", "a", "b", "ab", "ü", "a longer text that no prefix holds", "a longer text that no prefix keeps"])
    return text.encode() if kind == "blob" else text


class Table:
    def __init__(self, rng, name):
        self.name = name
        self.columns = {"id": "i4"}
        for i in range(rng.randint(3, 8)):
            self.columns[f"c{i}"] = rng.choice(list(TYPES))
        rows = rng.choice([0, 1, 2, 17, 40, 60])
        arrays = {}
        for column, kind in self.columns.items():
            nulls = rng.choice([0, 0.15, 0.15, 0.5, 1]) if column != "id" else 0
            values = list(range(rows)) if column == "id" else [None if rng.random() < nulls else value(rng, kind) for _ in range(rows)]
            arrays[column] = pa.array(values, TYPES[kind])
        self.data = pa.table(arrays)

    def write(self, rng, folder):
        os.makedirs(os.path.join(folder, self.name))
        cuts = sorted(rng.randint(0, self.data.num_rows) for _ in range(rng.randint(0, 3)))
        for part, (begin, end) in enumerate(zip([0] + cuts, cuts + [self.data.num_rows])):
            pq.write_table(self.data.slice(begin, end - begin), os.path.join(folder, self.name, f"{part}.parquet"),
                           row_group_size=rng.choice([3, 7, 100]))


class Generator:
    """Columns are written alias.name; `columns` maps such names to kinds."""

    def __init__(self, rng, tables):
        self.rng = rng
        self.tables = tables

    def pick(self, columns, kinds=None):
        names = [name for name, kind in columns.items() if kinds is None or kind in kinds]
        return self.rng.choice(names) if names else None

    def columns(self, table, alias):
        return {f"{alias}.{name}": kind for name, kind in table.columns.items()}

    def scalar(self, columns):
        """An expression that groups, orders and partitions."""
        rng = self.rng
        name = self.pick(columns)
        kind = columns[name]
        forms = [name] * 4 + [f"{name} IS NULL"]
        if kind in INTEGERS:
            forms += [f"{name} % 3", f"abs({name}::BIGINT)"]
        if kind in ("date", "ts"):
            forms += [f"day({name})", f"date_trunc('month', {name})"]
        if kind == "text":
            forms += [f"upper({name})", f"length({name})", f"coalesce({name}, 'none')"]
        if kind in ("f4", "f8", "d1", "d2"):
            forms += [f"{name} > 0", f"CASE WHEN {name} < 0 THEN 'low' WHEN {name} > 0 THEN 'high' END"]
        return rng.choice(forms)

    def condition(self, columns, subqueries=True):
        rng = self.rng
        name = self.pick(columns)
        kind = columns[name]
        forms = [f"{name} IS NOT NULL", f"{name} IS NULL"]
        if kind in NUMBERS:
            forms += [f"{name} > 0", f"{name} BETWEEN -1 AND 1", f"{name} IN (0, 1, NULL)", f"{name} NOT IN (0, 2)"]
        if kind == "text":
            forms += [f"{name} LIKE 'a%'", f"{name} < 'b'"]
        if kind == "bool":
            forms += [name, f"NOT {name}"]
        if kind in ("date", "ts"):
            forms += [f"{name} >= '2024-01-31'"]
        if subqueries and rng.random() < 0.3:
            forms = [self.subquery(name, kind)]
        text = rng.choice(forms)
        if rng.random() < 0.3:
            text = f"({text} {rng.choice(['AND', 'OR'])} {self.condition(columns, False)})"
        return text

    def subquery(self, name, kind):
        rng = self.rng
        table = rng.choice(self.tables)
        inner = self.columns(table, "q")
        where = rng.choice(["", f" WHERE {self.condition(inner, False)}", " WHERE q.id < 0"])
        same = self.pick(inner, (kind,)) or (self.pick(inner, NUMBERS) if kind in NUMBERS else None)
        forms = [f"EXISTS (FROM {table.name} AS q{where})", f"NOT EXISTS (SELECT q.id FROM {table.name} AS q{where})"]
        if same is not None:
            forms += [f"{name} IN (SELECT {same} FROM {table.name} AS q{where})", f"{name} NOT IN (SELECT {same} FROM {table.name} AS q{where})",
                      f"{name} >= (SELECT {rng.choice(['min', 'max'])}({same}) FROM {table.name} AS q{where})"] * 2
        return rng.choice(forms)

    def aggregate(self, columns, over=False):
        rng = self.rng
        number, any_column = self.pick(columns, NUMBERS), self.pick(columns)
        whole = self.pick(columns, INTEGERS + ("d1", "d2"))
        flag = self.pick(columns, ("bool",))
        forms = ["count(*)", f"count({any_column})", f"min({any_column})", f"max({any_column})", f"sum({whole})", f"avg({whole})",
                 f"count(DISTINCT {any_column})", f"sum(DISTINCT {whole})", f"stddev({whole})" if over else f"round(stddev({whole}), 6)", f"sum({number})", f"avg({number})"]
        part = rng.choice(["0", "0.07", "0.25", "0.5", "0.9", "1"])
        middle = self.pick(columns, NUMBERS + ("date", "ts", "tz", "time"))
        near, nearer = self.pick(columns, ("i1", "u1", "d1")), self.pick(columns, ("i1", "u1", "d1"))
        forms += [f"median({any_column})", f"quantile_disc({any_column}, {part})", f"quantile_cont({middle}, {part})", f"median(DISTINCT {middle})"]
        if near:
            pair = f"{rng.choice(['corr', 'covar_pop', 'covar_samp'])}({near}, {nearer})"
            forms += [pair if over else f"round({pair}, 6)"]  # the last digits differ, and rows may be ordered by them
        if flag:
            forms += [f"bool_and({flag})", f"bool_or({flag})", f"count(*) FILTER (WHERE {flag})", f"sum({whole}) FILTER (WHERE {flag})"]
        return rng.choice(forms)

    def source(self):
        """What stands after FROM, its columns, and WHERE."""
        rng = self.rng
        left = rng.choice(self.tables)
        columns = self.columns(left, "l")
        text = f"{left.name} AS l"
        if rng.random() < 0.55:
            right = rng.choice(self.tables)
            others = self.columns(right, "r")
            kind = rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
            keys = []
            for _ in range(rng.choice([1, 1, 2])):
                a = self.pick(columns)
                b = self.pick(others, (columns[a],)) or (self.pick(others, NUMBERS) if columns[a] in NUMBERS else None)
                keys.append(f"{a} = {b}" if b and rng.random() < 0.8 else "l.id % 4 = r.id % 5")
            on = " AND ".join(keys)
            if rng.random() < 0.3:
                on += " AND " + rng.choice(["l.id < r.id", "r.id > 3", "l.id % 2 = 0", self.condition({**columns, **others}, False)])
            text += f" {kind} {right.name} AS r ON {on}"
            if kind not in ("SEMI JOIN", "ANTI JOIN"):
                columns.update(others)
        if rng.random() < 0.4:
            text += f" WHERE {self.condition(columns)}"
        return text, columns

    def finish(self, text, outputs):
        """ORDER BY all of the outputs, and LIMIT."""
        rng = self.rng
        if rng.random() < 0.5:
            return text, False
        if rng.random() < 0.5:
            text += " ORDER BY ALL" + rng.choice(["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"])
        else:
            order = list(range(1, outputs + 1))
            rng.shuffle(order)
            text += " ORDER BY " + ", ".join(f"{i}{rng.choice(['', ' DESC'])}{rng.choice(['', ' NULLS FIRST', ' NULLS LAST'])}" for i in order)
        if rng.random() < 0.5:
            text += f" LIMIT {rng.randint(0, 12)} OFFSET {rng.randint(0, 5)}"
        return text, True

    def plain(self):
        source, columns = self.source()
        items = [self.scalar(columns) for _ in range(self.rng.randint(1, 4))]
        distinct = self.rng.choice(["", "", "DISTINCT "])
        return self.finish(f"SELECT {distinct}{', '.join(f'{e} AS o{i}' for i, e in enumerate(items))} FROM {source}", len(items))

    def grouped(self):
        rng = self.rng
        source, columns = self.source()
        keys = [self.scalar(columns) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        items = keys + [self.aggregate(columns) for _ in range(rng.randint(1, 3))]
        text = f"SELECT {', '.join(f'{e} AS o{i}' for i, e in enumerate(items))} FROM {source}"
        if keys:
            text += " GROUP BY " + rng.choice(["ALL", ", ".join(str(i + 1) for i in range(len(keys)))])
            if rng.random() < 0.3:
                other = rng.choice(self.tables)
                text += " HAVING " + rng.choice(["count(*) > 1", "min(l.id) % 2 = 0", f"count(*) IN (SELECT id FROM {other.name})"])
        return self.finish(text, len(items))

    def over(self, columns, unique):
        """A window; of one with `unique` no two rows are equal in its order."""
        rng = self.rng
        parts = []
        if rng.random() < 0.6:
            parts.append("PARTITION BY " + ", ".join(self.scalar(columns) for _ in range(rng.choice([1, 1, 2]))))
        order = [f"{self.scalar(columns)}{rng.choice(['', ' DESC'])}{rng.choice(['', ' NULLS FIRST', ' NULLS LAST'])}"
                 for _ in range(rng.choice([0, 1, 1, 2]))]
        if unique:
            order += [name for name in columns if name.endswith(".id")]
        if order:
            parts.append("ORDER BY " + ", ".join(order))
        return parts, bool(order)

    def window(self, columns):
        rng = self.rng
        kind = rng.choice(["rank", "place", "value", "sum", "sum", "sum"])
        parts, ordered = self.over(columns, unique=kind in ("place", "value"))
        if kind == "rank":
            return f"{rng.choice(['rank', 'dense_rank', 'percent_rank', 'cume_dist'])}() OVER ({' '.join(parts)})"
        if kind == "place":
            name = self.pick(columns)
            call = rng.choice(["row_number()", f"ntile({rng.randint(1, 7)})", f"lag({name})", f"lead({name}, {rng.randint(-1, 3)})",
                               f"lag({name}, {rng.randint(0, 2)}, {name})"])
            return f"{call} OVER ({' '.join(parts)})"
        unit = rng.choice(["", "ROWS", "ROWS", "GROUPS" if ordered else "ROWS"])
        if kind == "sum" and unit == "ROWS":
            parts, ordered = self.over(columns, unique=True)  # which rows are near is a question of the order
        if unit:
            begin = rng.choice(["UNBOUNDED PRECEDING", "3 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "1 PRECEDING"])
            ends = ["CURRENT ROW", "2 FOLLOWING", "UNBOUNDED FOLLOWING"]
            if begin.endswith("PRECEDING"):
                ends.append("2 PRECEDING")
            if begin.endswith("FOLLOWING"):
                ends.remove("CURRENT ROW")
            parts.append(f"{unit} BETWEEN {begin} AND {rng.choice(ends)}")
        if kind == "value":
            name = self.pick(columns)
            call = rng.choice([f"first_value({name})", f"last_value({name})", f"nth_value({name}, 2)"])
        else:
            call = self.aggregate(columns, over=True)
            while "DISTINCT" in call or call.startswith(("corr", "covar", "stddev")) and rng.random() < 0.9:
                call = self.aggregate(columns, over=True)
        return f"{call} OVER ({' '.join(parts)})"

    def windowed(self):
        rng = self.rng
        source, columns = self.source()
        calls = [self.window(columns) for _ in range(rng.randint(1, 3))]
        items = [name for name in columns if name.endswith(".id")] + [self.scalar(columns)] + calls
        text = f"SELECT {', '.join(f'{e} AS o{i}' for i, e in enumerate(items))} FROM {source}"
        if rng.random() < 0.2:
            text += f" QUALIFY o{len(items) - 1} IS NOT NULL"
        if any(call.startswith(("corr", "covar", "stddev")) for call in calls):
            return text, False
        return self.finish(text, len(items))

    def united(self):
        rng = self.rng
        branches = []
        first = None
        for _ in range(rng.randint(2, 3)):
            table = rng.choice(self.tables)
            columns = self.columns(table, "t")
            if first is None:
                names = rng.sample(list(columns), min(3, len(columns)))
                first = [columns[name] for name in names]
            else:
                names = [self.pick(columns, (kind,)) or (self.pick(columns, NUMBERS) if kind in NUMBERS else f"NULL::{self.sql(kind)}")
                         for kind in first]
            where = f" WHERE {self.condition(columns)}" if rng.random() < 0.3 else ""
            branches.append(f"SELECT {', '.join(f'{e} AS o{i}' for i, e in enumerate(names))} FROM {table.name} AS t{where}")
        text = rng.choice([" UNION ALL ", " UNION ALL ", " UNION "]).join(branches)
        if rng.random() < 0.3:
            return self.finish(f"SELECT o0, count(*) AS n, max(o1) AS m FROM ({text}) GROUP BY o0", 3)
        return self.finish(text, len(first))

    @staticmethod
    def sql(kind):
        return {"bool": "BOOLEAN", "date": "DATE", "ts": "TIMESTAMP", "tz": "TIMESTAMPTZ", "time": "TIME", "text": "VARCHAR", "blob": "BLOB"}[kind]

    def query(self):
        return self.rng.choice([self.plain, self.grouped, self.grouped, self.united, self.windowed, self.windowed])()


def plain_blobs(rows):
    """Bytes as DuckDB writes them: those of letters as they are."""
    def plain(match):
        code = int(match.group(1), 16)
        return chr(code) if 32 <= code < 127 else match.group(0)

    return [[v if v is None else re.sub(r"\\x([0-9A-F]{2})", plain, v) for v in row] for row in rows]


def duckdb_rows(connection, text):
    try:
        names = [column[0] for column in connection.execute("DESCRIBE " + text).fetchall()]
        inner = ", ".join(f"c{i}" for i in range(len(names)))
        outer = ", ".join(f"CAST(v.c{i} AS VARCHAR)" for i in range(len(names)))
        return {"rows": [list(row) for row in connection.execute(f"SELECT {outer} FROM ({text}) AS v({inner})").fetchall()]}
    except duckdb.Error as error:
        return {"error": str(error)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    differences = failed = done = 0
    with tempfile.TemporaryDirectory() as folder:
        runner = subprocess.Popen([arguments.runner, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while done < arguments.count:
            schema = f"s{done // QUERIES_A_SCHEMA}"
            tables = [Table(rng, f"{schema}_{side}") for side in ("x", "y")]
            connection = duckdb.connect()
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET threads = 1")
            for table in tables:
                table.write(rng, folder)
                connection.register("source", table.data)
                connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM source")
            generator = Generator(rng, tables)
            for _ in range(min(QUERIES_A_SCHEMA, arguments.count - done)):
                done += 1
                query, ordered = generator.query()
                text = query
                for table in tables:
                    text = text.replace(table.name, f"'{table.name}/*.parquet'")
                runner.stdin.write(json.dumps(text) + "\n")
                runner.stdin.flush()
                line = runner.stdout.readline()
                if not line:
                    print(f"the runner died at: {text}")
                    return 1
                ours, theirs = json.loads(line), duckdb_rows(connection, query)
                if "error" in ours or "error" in theirs:
                    failed += 1
                    if ("error" in ours) == ("error" in theirs) and ours.get("category") != "bug":
                        continue
                    found = f"ours {ours.get('error', 'succeeds')}; DuckDB {theirs.get('error', 'succeeds')}"
                elif same_rows(plain_blobs(ours["rows"]), theirs["rows"], ordered):
                    continue
                else:
                    found = f"{len(ours['rows'])} and {len(theirs['rows'])} rows: {ours['rows'][:8]}\n    {theirs['rows'][:8]}"
                differences += 1
                if differences <= 20:
                    kinds = "; ".join(f"{t.name}: " + ", ".join(f"{n} {k}" for n, k in t.columns.items()) for t in tables)
                    print(f"{query}\n    {kinds}\n    {found}\n")
        runner.stdin.close()
        runner.wait()
    print(f"{done} queries, {failed} fail on both sides or one, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
