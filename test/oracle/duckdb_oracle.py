"""Random typed expressions over a random table, held against DuckDB.

    duckdb_oracle.py --runner build/test/query_runner [--seed 2] [--count 2000]

A difference is made smaller before it is shown: parts of the expression stand for the whole while they still differ,
and other parts become columns. `--count 20000 --seed N` is the long run. Both sides see the same rows: ours as Parquet files, DuckDB as a loaded table (what it does to Parquet files is
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
INFINITE_DATE, INFINITE_TIME = 2**31 - 1, 2**63 - 1

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

# Of the expressions alone: more types, and values at the ends of their types.
EXTREMES = {
    "u4": ("int", pa.uint32()),
    "x1": ("int", pa.int8()),
    "x8": ("int", pa.int64()),
    "xf": ("float", pa.float64()),
    "xd": ("decimal", pa.decimal128(18, 3)),
    "xday": ("date", pa.date32()),
    "xts": ("timestamp", pa.timestamp("us")),
    "tz": ("zoned", pa.timestamp("us", "UTC")),
    "t": ("time", pa.time64("us")),
    "xs": ("text", pa.string()),
}


def extreme_value(rng, name):
    pick = rng.choice
    if name == "u4":
        return pick([0, 1, 7, 2**31, 2**32 - 1])
    if name == "x1":
        return pick([-128, 127, 0, -1, 64])
    if name == "x8":
        return pick([-(2**63), 2**63 - 1, 0, -1, 2**53 + 1, 10**18])
    if name == "xf":
        return pick([math.nan, math.inf, -math.inf, -0.0, 1.7976931348623157e308, 5e-324, -2.5, 1e18, 2147483647.5, 0.1])
    if name == "xd":
        return decimal.Decimal(pick([999999999999999999, -999999999999999999, 0, 1, -500, 500, 1500, 2500])).scaleb(-3)
    if name == "xday":  # leap days, the year 0, the ends, infinities
        return pick([0, -1, 11016, 19782, -25508, -719528, -719893, 2932896, 106751991, INFINITE_DATE, -INFINITE_DATE, 2147483646, -800000])
    if name == "xts":
        return pick([0, -1, 1709251199999999, -62135596800000000, -62135596800000001, 253402300799999999, INFINITE_TIME, -INFINITE_TIME,
                     9223372036854000000, -9223372022400000000, 951782400000000, -500])
    if name == "tz":
        return pick([0, -1, 1709251199999999, 1710054000000000, 1730610000000000, 951782400000000, INFINITE_TIME])
    if name == "t":
        return pick([0, 1, 86399999999, 36672345678, 43200000000])
    return pick(["", " ", "日本語", "ÀÉ", "a.b", "-", "a-b-c", "%_", "\\", "0", "1e3", "inf", "2024-02-30", "12:00:00", "NaN", "x" * 40])


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


def make_table(rng, extremes=False):
    arrays = {}
    for name, (kind, arrow_type) in COLUMNS.items():
        nulls = 0.0 if name == "k" else 0.15
        arrays[name] = pa.array([None if rng.random() < nulls else random_value(rng, name, kind) for _ in range(ROWS)], arrow_type)
    columns = dict(COLUMNS)
    if extremes:
        columns.update(EXTREMES)
        for name, (kind, arrow_type) in EXTREMES.items():
            values = [None if rng.random() < 0.15 else extreme_value(rng, name) for _ in range(ROWS)]
            as_integer = {"date": pa.int32(), "timestamp": pa.int64(), "zoned": pa.int64(), "time": pa.int64()}.get(kind)
            arrays[name] = pa.array(values, as_integer).view(arrow_type) if as_integer else pa.array(values, arrow_type)
    fields = [pa.field(name, arrow_type, nullable=name != "k") for name, (_, arrow_type) in columns.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


PARTS = ["year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "decade", "century"]
TIME_PARTS = PARTS + ["hour", "minute", "second", "millisecond", "microsecond"]
TYPE_NAMES = {"bool": "BOOLEAN", "int": "INTEGER", "float": "DOUBLE", "decimal": "DECIMAL(6, 2)", "date": "DATE",
              "timestamp": "TIMESTAMP", "text": "VARCHAR", "interval": "INTERVAL", "time": "TIME", "zoned": "TIMESTAMPTZ"}
INTERVAL_PARTS = ["year", "month", "day", "hour", "minute", "second", "quarter", "decade"]
ZONES = ["'UTC'", "'America/New_York'", "'Europe/Berlin'", "'Asia/Kolkata'"]
REGEXES = ["'a'", "'^a'", "'[a-z]+'", "'(a)(b)?'", "'b$'", "'.'", "'x|y'", "'日'"]
FORMATS = ["'%Y-%m-%d %H:%M:%S.%f'", "'%a %-d %b %y'", "'%j %U %W %V %G'", "'%I %p %c'"]
UNITS = ["year", "month", "day", "week", "quarter", "hour", "minute", "second"]


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return self.rng.choice(choices)

    def column(self, kind):
        extreme = self.rng.random() < 0.15 or kind in ("time", "zoned")
        return self.rng.choice([name for name, (k, _) in (EXTREMES if extreme else COLUMNS).items() if k == kind] or ["b"])

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
        if kind == "time":
            return self.pick("TIME '10:11:12.5'", "TIME '00:00:00'", "TIME '23:59:59.999999'")
        if kind == "zoned":
            return self.pick("TIMESTAMPTZ '2024-03-10 07:30:00+00'", "TIMESTAMPTZ '1969-12-31 23:59:59.5+00'")
        return self.pick("''", "'a'", "'abc'", "'x''y'", "'42'", "'%b%'", "'2024-01-01'", "'日本'", "'a-b'")

    def number(self, depth):
        return self.make(self.pick("int", "int", "float", "decimal"), depth)

    def same(self):
        """A kind that can be compared."""
        return self.pick("int", "float", "decimal", "date", "timestamp", "text", "bool", "number", "int", "float", "text", "time", "zoned",
                         "interval")

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
        if kind != "bool":
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
            lambda: f"TRY_CAST({m('text', d)} AS BOOLEAN)",
            lambda: f"({m('text', d)} {self.pick('', 'NOT ')}ILIKE {self.pick(repr('a%'), repr('%B%'), repr('_'), m('text', 0))})",
            lambda: f"({m('text', d)} {self.pick('', 'NOT ')}GLOB {self.pick(repr('a*'), repr('?'), repr('[a-c]*'), repr('*[!b]'))})",
            lambda: f"({m('text', d)} {self.pick('~', '!~', 'SIMILAR TO')} {self.pick(*REGEXES)})",
            lambda: f"{self.pick('starts_with', 'ends_with', 'contains')}({m('text', d)}, {m('text', 0)})",
            lambda: f"{self.pick('isnan', 'isinf', 'isfinite', 'signbit')}({m('float', d)})",
            lambda: f"{self.pick('isinf', 'isfinite')}({m(self.pick('date', 'timestamp', 'zoned'), d)})",
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
            lambda: f"({m('int', d)} {self.pick('&', '|')} {m('int', d)})",
            lambda: f"xor({m('int', d)}, {m('int', d)})",
            lambda: f"({m('int', d)} {self.pick('<<', '>>')} {self.pick('1', '3', 'i1', '0')})",
            lambda: f"(~ ({m('int', d)}))",
            lambda: f"bit_count({m('int', d)})",
            lambda: f"{self.pick('gcd', 'lcm')}({m('int', d)}, {m('int', d)})",
            lambda: f"sign({m('number', d)})",
            lambda: f"{self.pick('round', 'trunc')}({m('int', d)}, {self.pick('0', '-1', '-2', '1')})",
            lambda: f"round_even({m('int', d)}, {self.pick('0', '-1', '-2')})",
            lambda: f"{self.pick('length', 'strlen', 'ascii', 'unicode', 'bit_length')}({m('text', d)})",
            lambda: f"strpos({m('text', d)}, {m('text', 0)})",
            lambda: f"{self.pick('levenshtein', 'damerau_levenshtein')}({m('text', d)}, {m('text', 0)})",
            lambda: f"{self.pick('epoch_ms', 'epoch_us', 'epoch_ns')}({m(self.pick('timestamp', 'interval', 'time', 'zoned'), d)})",
            lambda: f"{self.pick(*INTERVAL_PARTS)}({m('interval', d)})",
            lambda: f"{self.pick('hour', 'minute', 'second', 'millisecond', 'nanosecond')}({m(self.pick('time', 'zoned', 'date'), d)})",
            lambda: f"{self.pick('week', 'isoyear', 'yearweek', 'century', 'era')}({m(self.pick('date', 'timestamp', 'zoned'), d)})",
            lambda: f"date_sub('{self.pick(*UNITS)}', {m('timestamp', d)}, {m('timestamp', d)})",
            lambda: f"date_diff('{self.pick('hour', 'minute', 'second')}', {m('time', d)}, {m('time', d)})",
            lambda: f"TRY_CAST({m(self.pick('int', 'float', 'decimal', 'text'), d)} AS {self.pick('UTINYINT', 'UINTEGER', 'UBIGINT', 'USMALLINT')})",
            lambda: f"TRY_CAST({m(self.pick('int', 'decimal', 'text'), d)} AS BIGINT)",
        ]

    def make_time(self, d):
        m = self.make
        return [
            lambda: f"({m('time', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"CAST({m('timestamp', d)} AS TIME)",
            lambda: f"TRY_CAST({m('text', d)} AS TIME)",
            lambda: f"make_time({self.pick('0', '23')}, {self.pick('59', '0')}, {self.pick('12.5', '0')})",
        ]

    def make_zoned(self, d):
        m = self.make
        return [
            lambda: f"({m('timestamp', d)} AT TIME ZONE {self.pick(*ZONES)})",
            lambda: f"CAST({m(self.pick('timestamp', 'date'), d)} AS TIMESTAMPTZ)",
            lambda: f"to_timestamp({m('number', d)})",
            lambda: f"({m('zoned', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"date_trunc('{self.pick('year', 'month', 'day', 'hour')}', {m('zoned', d)})",
            lambda: f"TRY_CAST({m('text', d)} AS TIMESTAMPTZ)",
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
            lambda: f"{self.pick('sin', 'cos', 'tan', 'atan', 'tanh', 'sinh', 'cosh', 'asinh', 'cbrt', 'degrees', 'radians', 'even')}({m('float', d)})",
            lambda: f"{self.pick('asin', 'acos', 'atanh', 'acosh', 'gamma', 'lgamma', 'log2', 'log10', 'sqrt', 'ln')}({m('float', d)})",
            lambda: f"{self.pick('atan2', 'fmod', 'nextafter', 'log')}({m('float', d)}, {m('float', d)})",
            lambda: f"({m('float', d)} {self.pick('%', '//')} {m('float', d)})",
            lambda: f"{self.pick('round', 'trunc', 'round_even')}({m('float', d)}, {self.pick('0', '1', '3', '-1')})",
            lambda: f"julian({m(self.pick('date', 'timestamp'), d)})",
            lambda: f"epoch({m(self.pick('interval', 'time', 'date'), d)})",
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
            lambda: f"TRY_CAST({m(self.pick('number', 'text', 'bool'), d)} AS DECIMAL({self.pick('18,3', '10,2', '12,0', '38,10', '4,4')}))",
            lambda: f"({m('decimal', 0)} % {m(self.pick('decimal', 'int'), 0)})",
            lambda: f"{self.pick('trunc', 'round_even')}({m('decimal', d)}, {self.pick('0', '1', '-1')})",
            lambda: f"trunc({m('decimal', d)})",
        ]

    def make_date(self, d):
        m = self.make
        return [
            lambda: f"({m('date', d)} {self.pick('+', '-')} {self.pick('1', '30', 'k', 'i1')})",
            lambda: f"CAST({m('timestamp', d)} AS DATE)",
            lambda: f"TRY_CAST({m('text', d)} AS DATE)",
            lambda: f"last_day({m(self.pick('date', 'timestamp'), d)})",
            lambda: f"make_date({self.pick('2024', '1900', 'k')}, {self.pick('2', '12')}, {self.pick('28', '29')})",
            lambda: f"CAST({m('zoned', d)} AS DATE)",
        ]

    def make_timestamp(self, d):
        m = self.make
        return [
            lambda: f"({m('timestamp', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"({m('date', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"CAST({m('date', d)} AS TIMESTAMP)",
            lambda: f"date_trunc('{self.pick('year', 'month', 'day', 'hour', 'week', 'minute')}', {m(self.pick('timestamp', 'date'), d)})",
            lambda: f"({m('zoned', d)} AT TIME ZONE {self.pick(*ZONES)})",
            lambda: f"({m('date', d)} + {m('time', d)})",
            lambda: f"TRY_CAST({m('text', d)} AS TIMESTAMP)",
            lambda: f"CAST({m('zoned', d)} AS TIMESTAMP)",
            lambda: f"epoch_ms({m('int', d)})",
            lambda: f"make_timestamp({m('int', d)})",
            lambda: f"date_trunc('{self.pick('decade', 'quarter', 'century', 'millennium', 'isoyear', 'second', 'millisecond')}', {m('timestamp', d)})",
            lambda: f"try_strptime({m('text', d)}, {self.pick(repr('%Y-%m-%d'), repr('%d'), repr('%H:%M:%S'))})",
        ]

    def make_interval(self, d):
        m = self.make
        return [
            lambda: f"({m('interval', d)} {self.pick('+', '-')} {m('interval', d)})",
            lambda: f"({m('interval', d)} * {self.pick('2', '-3', 'i1', 'k')})",
            lambda: f"(-{m('interval', d)})",
            lambda: f"{self.pick('to_days', 'to_months', 'to_years', 'to_weeks', 'to_hours', 'to_minutes', 'to_quarters')}({self.pick('k', 'i1', 'i2', '3')})",
            lambda: f"{self.pick('to_seconds', 'to_milliseconds')}({self.pick('k', 'i1', '1.5')})",
            lambda: f"age({m('timestamp', d)}, {m('timestamp', d)})",
            lambda: f"TRY_CAST({m('text', d)} AS INTERVAL)",
            lambda: f"date_trunc('{self.pick('year', 'month', 'day', 'hour')}', {m('interval', d)})",
            lambda: f"({m('timestamp', d)} - {m('timestamp', d)})",
            lambda: self.literal("interval"),
        ]

    def make_text(self, d):
        m = self.make
        return [
            lambda: f"({m('text', d)} || {m('text', d)})",
            lambda: f"CAST({m(self.pick('int', 'decimal', 'bool', 'date', 'timestamp'), d)} AS VARCHAR)",
            lambda: f"CAST({m('float', 0)} AS VARCHAR)",  # of more the last digit may be another
            lambda: f"CAST({m(self.pick('interval', 'time', 'zoned'), d)} AS VARCHAR)",
            lambda: f"{self.pick('lower', 'upper', 'trim', 'ltrim', 'rtrim', 'reverse', 'hex', 'md5', 'regexp_escape')}({m('text', d)})",
            lambda: f"{self.pick('trim', 'ltrim', 'rtrim')}({m('text', d)}, {self.pick(repr('a'), repr('x-'), m('text', 0))})",
            lambda: f"substring({m('text', d)}, {self.pick('1', '2', '-1', 'i1')}, {self.pick('1', '3', '-2', 'k')})",
            lambda: f"substring({m('text', d)}, {self.pick('2', '-2', 'i1')})",
            lambda: f"{self.pick('left', 'right', 'repeat')}({m('text', d)}, {self.pick('0', '2', '-1', 'i1')})",
            lambda: f"{self.pick('lpad', 'rpad')}({m('text', d)}, {self.pick('0', '5', 'k')}, {self.pick(repr('x'), repr('日b'))})",
            lambda: f"replace({m('text', d)}, {m('text', 0)}, {m('text', 0)})",
            lambda: f"translate({m('text', d)}, {m('text', 0)}, {m('text', 0)})",
            lambda: f"split_part({m('text', d)}, {self.pick(repr('-'), repr(''), repr('b'))}, {self.pick('1', '2', '-1', 'i1')})",
            lambda: f"concat({m('text', d)}, {m(self.pick('int', 'text', 'date', 'bool'), d)})",
            lambda: f"concat_ws({self.pick(repr(','), m('text', 0))}, {m('text', d)}, {m(self.pick('int', 'text', 'date'), d)})",
            lambda: f"regexp_replace({m('text', d)}, {self.pick(*REGEXES)}, {self.pick(repr('<x>'), repr(''))}{self.pick('', ', ' + repr('g'))})",
            lambda: f"regexp_extract({m('text', d)}, {self.pick(*REGEXES)}, {self.pick('0', '1')})",
            lambda: f"strftime({m(self.pick('date', 'timestamp', 'zoned'), d)}, {self.pick(*FORMATS)})",
            lambda: f"{self.pick('dayname', 'monthname')}({m(self.pick('date', 'timestamp'), d)})",
            lambda: f"bin({m('int', d)})",
        ]


KINDS = ["bool", "int", "int", "float", "float", "decimal", "date", "timestamp", "text", "text", "interval", "time", "zoned"]


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


RUNTIME = ("Out of Range Error", "Conversion Error", "Invalid Input Error")


def guarded(query, ours, reference):
    """Chosen differences (docs/sql.md): of AND, OR and BETWEEN we evaluate later sides only for rows that need them, so
    an error there may be DuckDB's alone; and an expression with a constant NULL in it DuckDB does not evaluate."""
    if "error" not in ours and str(reference.get("error", "")).startswith(RUNTIME):
        return any(word in query for word in (" AND ", " OR ", " BETWEEN "))
    return "error" not in reference and ours.get("category") == "data" and ("CAST(NULL" in query or "TRY_CAST('" in query)


def difference(ours, reference, query=""):
    if ("error" in ours) != ("error" in reference) and guarded(query, ours, reference):
        return None
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


class Sides:
    """Asks both for a query."""

    def __init__(self, runner, connection):
        self.runner = runner
        self.connection = connection

    def difference(self, query):
        self.runner.stdin.write(json.dumps(query.replace("@T", "'t/*.parquet'")) + "\n")
        self.runner.stdin.flush()
        line = self.runner.stdout.readline()
        if not line:
            raise RuntimeError(f"the runner died at: {query}")
        ours = json.loads(line)
        return difference(ours, theirs(self.connection, query.replace("@T", "T")), query), "error" in ours


def parts(text):
    """The spans of a text that stand in parentheses, arguments one by one; strings are left alone."""
    spans, stack, quoted = [], [], False
    for i, c in enumerate(text):
        if c == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif c == "(":
            begin = i
            while begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] == "_"):
                begin -= 1
            stack.append((begin, [i + 1]))
        elif c == "," and stack:
            stack[-1][1].append(i + 1)
        elif c == ")" and stack:
            begin, starts = stack.pop()
            spans.append((begin, i + 1))
            for start, end in zip(starts, starts[1:] + [i + 1]):
                spans.append((start, end - 1))
    return sorted(set(spans), key=lambda span: span[1] - span[0])


def shrink(sides, expression):
    """A small expression that differs still, and how."""
    def differs(candidate):
        found, _ = sides.difference(f"SELECT {candidate} AS v FROM @T")
        # Where one side just does not bind, the candidate is another mistake.
        return found if found and not any(word in found for word in MISTAKES) else None

    best = differs(expression)
    if not best:
        return None
    smaller = True
    while smaller:
        smaller = False
        for begin, end in parts(expression):
            inner = expression[begin:end].strip()
            candidates = [inner] if len(inner) < len(expression) else []
            if len(inner) > 4:
                candidates += [expression[:begin] + name + expression[end:] for name in STANDING_IN]
            for candidate in candidates:
                found = differs(candidate) if len(candidate) < len(expression) else None
                if found:
                    expression, best, smaller = candidate, found, True
                    break
            if smaller:
                break
    return expression, best


STANDING_IN = ["k", "s", "f8", "b", "d1", "day", "ts", "i8", "xf", "xday", "xts", "x8", "xd", "t", "tz"]
MISTAKES = ["Binder Error", "Parser Error", "Catalog Error", "there is no ", "syntax", "unknown function", "expected", "can't be cast",
            "must be a literal"]


def queries(rng, count):
    generator = Generator(rng)
    for number in range(count):
        expression = generator.make(rng.choice(KINDS), rng.choice([1, 2, 2, 3]))
        shape = number % 4
        if shape == 0:
            yield expression, f"SELECT k, {expression} AS v FROM @T WHERE {generator.make('bool', 2)}"
        elif shape == 1:
            yield expression, f"SELECT {expression} AS v, k FROM (SELECT * FROM @T WHERE k IS NOT NULL) WHERE k > 0"
        else:
            yield expression, f"SELECT {expression} AS v FROM @T"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--show", type=int, default=20, help="differences shown")
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    table = make_table(rng, extremes=True)
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
        sides = Sides(runner, connection)
        for expression, query in queries(rng, arguments.count):
            found, failed = sides.difference(query)
            if found is None:
                failed_both += failed
                continue
            differences += 1
            if differences <= arguments.show:
                print(f"{query}\n    {found}")
                smaller = shrink(sides, expression)
                if smaller:
                    print(f"  smaller: {smaller[0]}\n    {smaller[1]}")
                print(flush=True)
        runner.stdin.close()
        runner.wait()
    print(f"{arguments.count} queries, {failed_both} fail on both sides, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
