"""Random typed expressions over a random table, held against DuckDB.

    duckdb_oracle.py --runner build/test/query_runner [--seed 2] [--count 1500]

Both sides see the same rows: ours as Parquet files, DuckDB as a loaded table (what it does to Parquet files is
not always what it does to tables), with TimeZone UTC. Values, types and output names must agree; where one side
fails with an error, so must the other. Exit code 77 (skipped) without DuckDB.
"""

import argparse
import datetime
import decimal
import json
import math
import os
import random
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

ROWS = 60

COLUMNS = {
    "b": ("bool", pa.bool_()),
    "b2": ("bool", pa.bool_()),
    "i1": ("int", pa.int8()),
    "i2": ("int", pa.int16()),
    "i4": ("int", pa.int32()),
    "i8": ("int", pa.int64()),
    "u1": ("int", pa.uint8()),
    "k": ("int", pa.int32()),  # never null
    "f4": ("float", pa.float32()),
    "f8": ("float", pa.float64()),
    "f8b": ("float", pa.float64()),
    "d1": ("decimal", pa.decimal128(6, 2)),
    "d2": ("decimal", pa.decimal128(12, 4)),
    "day": ("date", pa.date32()),
    "day2": ("date", pa.date32()),
    "ts": ("timestamp", pa.timestamp("us")),
    "ts2": ("timestamp", pa.timestamp("us")),
    "s": ("text", pa.string()),
    "s2": ("text", pa.string()),
}


def random_value(rng, name, kind):
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "int":
        edge = {"i1": [-128, 127], "i2": [-32768, 32767], "i4": [2**31 - 1], "i8": [2**40], "u1": [255]}.get(name, [])
        small = [rng.randint(0 if name == "u1" else -9, 9) for _ in range(8)]
        return rng.choice(small + (edge if rng.random() < 0.05 else []))
    if kind == "float":
        special = [math.nan, math.inf, -math.inf, 0.0, -0.0]
        value = rng.choice(special) if rng.random() < 0.08 else rng.choice([rng.uniform(-5, 5), float(rng.randint(-4, 4)), rng.randint(-9, 9) / 2])
        return value
    if kind == "decimal":
        scale = 2 if name == "d1" else 4
        return decimal.Decimal(rng.randint(-99999, 99999)).scaleb(-scale)
    if kind == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=rng.randint(-9000, 25000))
    if kind == "timestamp":
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=rng.randint(-(10**14), 2 * 10**15))
    return rng.choice(["", "a", "b", "ab", "abc", "A%", "x_y", "42", " 7 ", "ü", "2024-02-29", "-1.5", "true"])


def make_table(rng):
    arrays = {}
    for name, (kind, arrow_type) in COLUMNS.items():
        nulls = 0.0 if name == "k" else 0.15
        arrays[name] = pa.array([None if rng.random() < nulls else random_value(rng, name, kind) for _ in range(ROWS)], arrow_type)
    fields = [pa.field(name, arrow_type, nullable=name != "k") for name, (_, arrow_type) in COLUMNS.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


PARTS = ["year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "decade", "century"]
TIME_PARTS = PARTS + ["hour", "minute", "second", "millisecond", "microsecond"]
TYPE_NAMES = {"bool": "BOOLEAN", "int": "INTEGER", "float": "DOUBLE", "decimal": "DECIMAL(6, 2)", "date": "DATE",
              "timestamp": "TIMESTAMP", "text": "VARCHAR", "interval": "INTERVAL"}
UNITS = ["year", "month", "day", "week", "quarter", "hour", "minute", "second"]


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return self.rng.choice(choices)

    def column(self, kind):
        return self.rng.choice([name for name, (k, _) in COLUMNS.items() if k == kind])

    def literal(self, kind):
        rng = self.rng
        if rng.random() < 0.06:
            # Typed: a bare NULL makes calls ambiguous in DuckDB.
            return f"CAST(NULL AS {TYPE_NAMES[kind]})"
        if kind == "bool":
            return self.pick("TRUE", "FALSE")
        if kind == "int":
            return str(rng.randint(-9, 9)) if rng.random() < 0.9 else self.pick("127", "128", "40000", "3000000000")
        if kind == "float":
            return self.pick("1e0", "-2.5e0", "1e-3", "0e0", "3.5e1", "'nan'::DOUBLE", "'inf'::DOUBLE")
        if kind == "decimal":
            return self.pick("0.1", "2.50", "-1.005", "100.0", "0.5", "3.14159")
        if kind == "date":
            return self.pick("DATE '2024-02-29'", "DATE '1999-12-31'", "DATE '1970-01-01'")
        if kind == "timestamp":
            return self.pick("TIMESTAMP '2024-02-29 23:59:59.5'", "TIMESTAMP '1969-12-31 12:00:00'", "TIMESTAMP '2001-01-01'")
        if kind == "interval":
            return self.pick("INTERVAL '3' DAY", "INTERVAL 2 MONTH", "INTERVAL '36 hours'", "INTERVAL 90 SECOND", "INTERVAL '1 year 2 days'")
        return self.pick("''", "'a'", "'abc'", "'x''y'", "'42'", "'%b%'", "'2024-01-01'")

    def number(self, depth):
        return self.make(self.pick("int", "int", "float", "decimal"), depth)

    def same(self):
        """A kind that can be compared."""
        return self.pick("int", "float", "decimal", "date", "timestamp", "text", "bool", "number")

    def make(self, kind, depth):
        if kind == "number":
            return self.number(depth)
        if depth <= 0 or self.rng.random() < 0.12:
            if kind == "interval":
                return self.literal(kind)
            return self.literal(kind) if self.rng.random() < 0.3 else self.column(kind)
        d = depth - 1
        general = [
            lambda: f"CASE WHEN {self.make('bool', d)} THEN {self.make(kind, d)} ELSE {self.make(kind, d)} END",
            lambda: f"CASE WHEN {self.make('bool', d)} THEN {self.make(kind, d)} WHEN {self.make('bool', d)} THEN {self.make(kind, d)} END",
            lambda: f"COALESCE({self.make(kind, d)}, {self.make(kind, d)})",
        ]
        if kind not in ("interval", "bool"):
            general += [
                lambda: f"{self.pick('least', 'greatest')}({self.make(kind, d)}, {self.make(kind, d)})",
                lambda: f"nullif({self.make(kind, d)}, {self.make(kind, d)})",
            ]
        special = getattr(self, "make_" + kind)(d)
        return self.rng.choice(special if self.rng.random() < 0.75 else general)()

    def make_bool(self, d):
        m = self.make
        comparison = ["=", "<>", "<", "<=", ">", ">=", "!="]

        def compare():
            kind = self.same()
            return f"({m(kind, d)} {self.pick(*comparison)} {m(kind, d)})"

        def distinct():
            kind = self.same()
            return f"({m(kind, d)} IS {self.pick('', 'NOT ')}DISTINCT FROM {m(kind, d)})"

        def between():
            kind = self.same()
            return f"({m(kind, d)} {self.pick('', 'NOT ')}BETWEEN {m(kind, d)} AND {m(kind, d)})"

        def in_list():
            kind = self.pick("int", "text", "float", "decimal", "date")
            values = ", ".join(self.literal(kind) if self.rng.random() < 0.8 else m(kind, 0) for _ in range(self.rng.randint(1, 4)))
            return f"({m(kind, d)} {self.pick('', 'NOT ')}IN ({values}))"

        return [
            compare,
            compare,
            distinct,
            between,
            in_list,
            lambda: f"({m('bool', d)} {self.pick('AND', 'OR')} {m('bool', d)})",
            lambda: f"({m('bool', d)} {self.pick('AND', 'OR')} {m('bool', d)} {self.pick('AND', 'OR')} {m('bool', d)})",
            lambda: f"(NOT {m('bool', d)})",
            lambda: f"({m(self.same(), d)} IS {self.pick('', 'NOT ')}NULL)",
            lambda: f"({m('bool', d)} IS {self.pick('', 'NOT ')}{self.pick('TRUE', 'FALSE')})",
            lambda: f"({m('text', d)} {self.pick('', 'NOT ')}LIKE {self.pick(repr('a%'), repr('%b%'), repr('_'), repr('A%'), m('text', 0))})",
            lambda: f"CAST({m('int', d)} AS BOOLEAN)",
        ]

    def make_int(self, d):
        m = self.make
        return [
            lambda: f"({m('int', d)} {self.pick('+', '-', '*')} {m('int', d)})",
            lambda: f"({m('int', d)} {self.pick('//', '%')} {self.pick('3', '-2', '7', m('int', 0))})",
            lambda: f"(-{m('int', d)})",
            lambda: f"abs({m('int', d)})",
            lambda: f"{self.pick('CAST', 'TRY_CAST')}({m('number', d)} AS {self.pick('INTEGER', 'BIGINT', 'BIGINT', 'SMALLINT', 'TINYINT')})",
            lambda: f"CAST({m('bool', d)} AS INTEGER)",
            lambda: f"TRY_CAST({m('text', d)} AS {self.pick('INTEGER', 'BIGINT')})",
            lambda: f"date_diff('{self.pick(*UNITS)}', {m('timestamp', d)}, {m('timestamp', d)})",
            lambda: f"date_diff('{self.pick('day', 'month', 'year', 'week')}', {m('date', d)}, {m('date', d)})",
            lambda: f"EXTRACT({self.pick(*TIME_PARTS)} FROM {m('timestamp', d)})",
            lambda: f"date_part('{self.pick(*PARTS)}', {m('date', d)})",
            lambda: f"{self.pick('year', 'month', 'day', 'hour', 'minute', 'second')}({m('timestamp', d)})",
            lambda: f"({m('date', d)} - {m('date', d)})",
        ]

    def make_float(self, d):
        m = self.make
        return [
            lambda: f"({m('float', d)} {self.pick('+', '-', '*', '/')} {m('number', d)})",
            lambda: f"({m('number', d)} / {m('number', d)})",
            lambda: f"(-{m('float', d)})",
            lambda: f"abs({m('float', d)})",
            lambda: f"{self.pick('floor', 'ceil', 'round')}({m('float', d)})",
            lambda: f"round({m('float', d)}, {self.pick('0', '1', '2', '-1')})",
            lambda: f"sqrt(abs({m('number', d)}))",
            lambda: f"ln(abs({m('number', d)}) + 1)",
            lambda: f"exp({m('float', d)} / 10)",
            lambda: f"power({m('number', d)}, {self.pick('2', '0.5', '-1', m('int', 0))})",
            lambda: f"CAST({m('number', d)} AS {self.pick('DOUBLE', 'DOUBLE', 'FLOAT')})",
            lambda: f"TRY_CAST({m('text', d)} AS DOUBLE)",
            lambda: f"epoch({m('timestamp', d)} - {m('timestamp', d)})",
            lambda: f"epoch({m('timestamp', d)})",
        ]

    def make_decimal(self, d):
        m = self.make
        return [
            lambda: f"({m('decimal', d)} {self.pick('+', '-')} {m(self.pick('decimal', 'int'), d)})",
            lambda: f"({m('decimal', 0)} * {m(self.pick('decimal', 'int'), 0)})",
            lambda: f"(-{m('decimal', d)})",
            lambda: f"abs({m('decimal', d)})",
            lambda: f"{self.pick('floor', 'ceil', 'round')}({m('decimal', d)})",
            lambda: f"round({m('decimal', d)}, {self.pick('0', '1', '2')})",
            lambda: f"TRY_CAST({m('number', d)} AS DECIMAL({self.pick('18,3', '10,2', '12,0')}))",
        ]

    def make_date(self, d):
        m = self.make
        return [
            lambda: f"({m('date', d)} {self.pick('+', '-')} {self.pick('1', '30', 'k', 'i1')})",
            lambda: f"CAST({m('timestamp', d)} AS DATE)",
            lambda: f"TRY_CAST({m('text', d)} AS DATE)",
        ]

    def make_timestamp(self, d):
        m = self.make
        return [
            lambda: f"({m('timestamp', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"({m('date', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"CAST({m('date', d)} AS TIMESTAMP)",
            lambda: f"date_trunc('{self.pick('year', 'month', 'day', 'hour', 'week', 'minute')}', {m(self.pick('timestamp', 'date'), d)})",
        ]

    def make_interval(self, d):
        m = self.make
        return [
            lambda: f"({m('timestamp', d)} - {m('timestamp', d)})",
            lambda: self.literal("interval"),
        ]

    def make_text(self, d):
        m = self.make
        return [
            lambda: f"({m('text', d)} || {m('text', d)})",
            lambda: f"CAST({m(self.pick('int', 'decimal', 'bool', 'date', 'timestamp', 'float'), d)} AS VARCHAR)",
        ]


KINDS = ["bool", "int", "int", "float", "float", "decimal", "date", "timestamp", "text", "interval"]


def same_type(ours, theirs):
    if theirs in ("HUGEINT", "BIGNUM"):
        theirs = "DECIMAL(38,0)"
    return ours == theirs


def same_value(ours, theirs, type_name):
    """Both as text or None; floats are compared as numbers."""
    if ours is None or theirs is None:
        return ours is theirs
    if type_name in ("DOUBLE", "FLOAT"):
        a, b = float(ours), float(theirs)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or math.isclose(a, b, rel_tol=1e-14 if type_name == "DOUBLE" else 1e-6)
    if type_name.startswith("DECIMAL"):
        return decimal.Decimal(ours) == decimal.Decimal(theirs)
    # The sign of a NaN is no part of its text here.
    return ours == theirs.replace("-nan", "nan")


def theirs(connection, query):
    """Types, and rows as text: what text a value has is then compared too."""
    try:
        described = connection.execute("DESCRIBE " + query).fetchall()
        names = [row[0] for row in described]
        types = [row[1] for row in described]
        columns = []
        for i, type_name in enumerate(types):
            columns.append(f"CAST(v.c{i} AS VARCHAR)")
        inner = ", ".join(f"c{i}" for i in range(len(types)))
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM ({query}) AS v({inner})").fetchall()
        return {"names": names, "types": types, "rows": [list(row) for row in rows]}
    except duckdb.Error as error:
        return {"error": str(error)}


def difference(ours, reference):
    if "error" in ours or "error" in reference:
        if ("error" in ours) == ("error" in reference) and ours.get("category") != "bug":
            return None
        return f"ours {ours.get('error', 'succeeds')}; DuckDB {reference.get('error', 'succeeds')}"
    if ours["names"] != reference["names"]:
        return f"names {ours['names']} and {reference['names']}"
    for i, (a, b) in enumerate(zip(ours["types"], reference["types"])):
        # DuckDB types date_part of a constant NULL as DOUBLE.
        nulls = a == "BIGINT" and b == "DOUBLE" and all(row[i] is None for row in reference["rows"])
        if not same_type(a, b) and not nulls:
            return f"types {ours['types']} and {reference['types']}"
    if len(ours["rows"]) != len(reference["rows"]):
        return f"{len(ours['rows'])} and {len(reference['rows'])} rows"
    for number, (a, b) in enumerate(zip(ours["rows"], reference["rows"])):
        for i, type_name in enumerate(ours["types"]):
            if not same_value(a[i], b[i], type_name):
                return f"row {number}: {a} and {b}"
    return None


def queries(rng, count):
    generator = Generator(rng)
    for number in range(count):
        expression = generator.make(rng.choice(KINDS), rng.choice([1, 2, 2, 3]))
        shape = number % 4
        if shape == 0:
            yield f"SELECT k, {expression} AS v FROM @T WHERE {generator.make('bool', 2)}"
        elif shape == 1:
            yield f"SELECT {expression} AS v, k FROM (SELECT * FROM @T WHERE k IS NOT NULL) WHERE k > 0"
        else:
            yield f"SELECT {expression} AS v FROM @T"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--show", type=int, default=20, help="differences shown")
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    table = make_table(rng)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    connection.register("source", table)
    connection.execute("CREATE TABLE T AS SELECT * FROM source")

    differences = 0
    failed_both = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "t"))
        for part, (begin, end) in enumerate([(0, 25), (25, 25), (25, ROWS)]):
            pq.write_table(table.slice(begin, end - begin), os.path.join(folder, "t", f"{part}.parquet"), row_group_size=10)
        runner = subprocess.Popen([arguments.runner, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for query in queries(rng, arguments.count):
            runner.stdin.write(json.dumps(query.replace("FROM @T", "FROM 't/*.parquet'")) + "\n")
            runner.stdin.flush()
            line = runner.stdout.readline()
            if not line:
                print(f"the runner died at: {query}")
                return 1
            ours = json.loads(line)
            reference = theirs(connection, query.replace("@T", "T"))
            found = difference(ours, reference)
            if found is None:
                failed_both += "error" in ours
                continue
            differences += 1
            if differences <= arguments.show:
                print(f"{query}\n    {found}\n")
        runner.stdin.close()
        runner.wait()
    print(f"{arguments.count} queries, {failed_both} fail on both sides, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
