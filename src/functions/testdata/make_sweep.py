#!/usr/bin/env python3
"""Writes sweep.txt: what DuckDB gives for every function over edge values, for sweep_test.cc.

A group is a line "@name|type,type|result type" and one line a row: arguments and result, separated by tabs; \\N is
NULL, \\E an error. An argument type "='hour'" or "=2" is a literal and has no column. Run with the pinned DuckDB.
"""
import itertools
import pathlib
import random

import duckdb

connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
connection.execute("SET threads = 1")

VALUES = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["0", "1", "-1", "127", "-128", "50"],
    "SMALLINT": ["0", "1", "-1", "32767", "-32768", "150"],
    "INTEGER": ["0", "1", "-1", "2", "2147483647", "-2147483648", "1250", "-7"],
    "BIGINT": ["0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "4294967296", "-1250"],
    "UTINYINT": ["0", "1", "255", "128"],
    "USMALLINT": ["0", "1", "65535"],
    "UINTEGER": ["0", "1", "4294967295"],
    "UBIGINT": ["0", "1", "18446744073709551615", "9223372036854775808"],
    "FLOAT": ["0", "1.5", "-2.5", "3.4e38", "inf", "nan", "0.1"],
    "DOUBLE": ["0", "-0", "0.5", "1.5", "2.5", "-2.5", "1e300", "-1e-300", "inf", "-inf", "nan", "1234.5678", "1e18", "7"],
    "DECIMAL(4,1)": ["0.0", "1.5", "-2.5", "999.9", "-999.9"],
    "DECIMAL(10,2)": ["0.00", "0.05", "1.25", "-1.25", "99999999.99", "-7.00"],
    "DECIMAL(38,5)": ["0.00000", "1.00005", "-123456789012345678901234567890123.99999"],
    "VARCHAR": ["", " ", "a", "abc", "ABC", "  a b ", "straße", "ÀÉ", "a%b", "日本語", "xx"],
    "DATE": ["1970-01-01", "2024-02-29", "2023-12-31", "2024-12-30", "1969-07-20", "0044-03-15 (BC)", "infinity",
             "9999-12-31", "2000-01-01", "1900-03-01"],
    "TIMESTAMP": ["1970-01-01 00:00:00", "2024-02-29 23:59:59.999999", "2024-01-31 10:11:12.345678",
                  "1969-12-31 23:59:59.5", "infinity", "-infinity", "2024-03-31 02:30:00", "0001-01-01 00:00:00",
                  "1582-10-15 12:00:00", "290000-01-01 00:00:00"],
    "TIMESTAMP WITH TIME ZONE": ["2024-02-29 23:59:59.999999+00", "1969-12-31 23:59:59.5+00"],
    "TIME": ["00:00:00", "10:11:12.345678", "23:59:59.999999"],
    "INTERVAL": ["00:00:00", "1 day", "1 month", "24:00:00", "-1 year", "14 months 3 days 04:05:06.789", "30 days"],
}
INTEGERS = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]
FLOATS = ["FLOAT", "DOUBLE"]
DECIMALS = ["DECIMAL(4,1)", "DECIMAL(10,2)", "DECIMAL(38,5)"]
NUMERIC = INTEGERS + FLOATS + DECIMALS
CALENDAR = ["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]
ALL = list(VALUES)

CAST_TEXTS = {
    "number": ["42", " 42 ", "4.5", "4.4", "-0.5", "1e3", "1e-3", "0x1F", "1_000", "1__0", "abc", "", ".", ".5", "1.", "+5",
               "300", "-1", "99999999999999999999", "12a", "1e400", "inf", "-inf", "nan", "1 2", "--1", "2.5", "-2.5"],
    "boolean": ["true", "T", "yes", "1", "f", "No", "on", "2", " true", ""],
    "date": ["2024-02-29", "2023-02-29", " 2024-1-2 ", "2024/01/02", "20240102", "2024-01-02 10:00:00", "infinity",
             "0044-03-15 (BC)", "12345-01-01", "-5-01-01", "2024-13-01", "2024-01-32", "abc", "", "2024-01-02x"],
    "timestamp": ["2024-01-02", "2024-01-02T10:11", "2024-01-02 10:11:12", "2024-01-02 10:11:12.1234567",
                  "2024-01-02T10:11:12Z", "2024-01-02 10:11:12+02", "2024-01-02 10:11:12-02:30", "2024-01-02 24:00:00",
                  "2024-01-02 25:00:00", "2024-01-02 10", "2024-01-02 1:2:3", "abc", "-infinity", "2024-01-02 10:60:00"],
    "time": ["10:11:12.5", "24:00:00", "10:11", "25:00:00", "x"],
    "interval": ["1 day 2 hours", "01:02:03", "1 year ago", "-1 month 25 hours", "1.5 days", "3 weeks", "5 foo", "", "90 minutes",
                 "1.5 hours", "2 quarters", "1 decade"],
}

out = []


def literal(value, type_):
    if value is None:
        return f"CAST(NULL AS {type_})"
    return "CAST('" + value.replace("'", "''") + f"' AS {type_})"


def query(sql):
    return connection.execute(f"SELECT typeof(x), CAST(x AS VARCHAR) FROM (SELECT {sql} AS x)").fetchone()


def show(value):
    if value is None:
        return "\\N"
    return value.replace("-nan", "nan")


def group(name, types, template, values=None, most=40):
    """One group; `template` has {0}, {1} for the arguments that are columns."""
    columns = [t for t in types if not t.startswith("=")]
    choices = [(values[i] if values else VALUES[t]) + [None] for i, t in enumerate(columns)]
    rows = list(itertools.product(*choices))
    if len(rows) > most:
        rows = random.Random(name + ",".join(types)).sample(rows, most)
    result_type = None
    succeeded = False
    lines = []
    for row in rows:
        sql = template.format(*(literal(v, t) for v, t in zip(row, columns)))
        try:
            type_, value = query(sql)
            result_type = type_
            succeeded = succeeded or (value is not None and None not in row)
            lines.append("\t".join([show(v) for v in row] + [show(value)]))
        except duckdb.BinderException:
            return
        except duckdb.Error:
            lines.append("\t".join([show(v) for v in row] + ["\\E"]))
    if not succeeded:
        return
    result_type = result_type.replace("UHUGEINT", "DECIMAL(38,0)").replace("HUGEINT", "DECIMAL(38,0)")
    out.append(f"@{name}|{';'.join(types)}|{result_type}")
    out.extend(lines)


def call(name, types, **kw):
    shown, n = [], 0
    for t in types:
        if t.startswith("="):
            shown.append(t[1:])
        else:
            shown.append("{%d}" % n)
            n += 1
    group(name, types, f"{name}({', '.join(shown)})", **kw)


def infix(name, types, symbol=None, **kw):
    group(name, types, "({0} " + (symbol or name) + " {1})", **kw)


pairs = [(a, a) for a in NUMERIC] + [("TINYINT", "INTEGER"), ("UTINYINT", "TINYINT"), ("UBIGINT", "BIGINT"), ("BIGINT", "DOUBLE"),
         ("FLOAT", "INTEGER"), ("FLOAT", "DOUBLE"), ("DECIMAL(4,1)", "DECIMAL(10,2)"), ("DECIMAL(10,2)", "BIGINT"),
         ("INTEGER", "DECIMAL(4,1)"), ("DECIMAL(4,1)", "DOUBLE"), ("DECIMAL(10,2)", "DECIMAL(38,5)"), ("UINTEGER", "INTEGER")]
for operator in ["+", "-", "*", "/", "//", "%"]:
    for a, b in pairs:
        infix(operator, [a, b], most=24)
for t in NUMERIC + ["INTERVAL"]:
    # The negative of a constant minimum has a wider type there, that of a column's is an error.
    group("-", [t], "(-{0})", values=[[v for v in VALUES[t] if not (v.startswith("-") and v.endswith("8"))]])
for a, b in [("DATE", "INTEGER"), ("INTEGER", "DATE"), ("DATE", "INTERVAL"), ("TIMESTAMP", "INTERVAL"), ("INTERVAL", "TIMESTAMP"),
             ("TIMESTAMP WITH TIME ZONE", "INTERVAL"), ("INTERVAL", "INTERVAL"), ("DATE", "TIME"), ("TIME", "INTERVAL")]:
    infix("+", [a, b])
for a, b in [("DATE", "DATE"), ("DATE", "INTEGER"), ("TIMESTAMP", "TIMESTAMP"), ("DATE", "TIMESTAMP"), ("DATE", "INTERVAL"),
             ("TIMESTAMP", "INTERVAL"), ("INTERVAL", "INTERVAL"), ("TIME", "INTERVAL")]:
    infix("-", [a, b])
infix("*", ["INTERVAL", "BIGINT"])

compared = [(t, t) for t in ALL] + [("INTEGER", "DOUBLE"), ("BIGINT", "DECIMAL(4,1)"), ("UBIGINT", "BIGINT"), ("DATE", "TIMESTAMP"),
            ("BOOLEAN", "INTEGER"), ("DECIMAL(4,1)", "DECIMAL(10,2)"), ("FLOAT", "DOUBLE"), ("TINYINT", "UBIGINT")]
for a, b in compared:
    for operator in ["=", "<", ">="]:
        infix(operator, [a, b], most=24)
for t in ["INTEGER", "DOUBLE", "VARCHAR", "BOOLEAN", "INTERVAL"]:
    for operator in ["<>", "<=", ">"]:
        infix(operator, [t, t], most=40)
    infix("is_distinct_from", [t, t], "IS DISTINCT FROM", most=40)
    infix("is_not_distinct_from", [t, t], "IS NOT DISTINCT FROM", most=40)
for t in ALL:
    call("least", [t, t], most=16)
    call("greatest", [t, t, t], most=16)
    call("nullif", [t, t], most=12)

for name in ["abs", "sign", "round", "floor", "ceil", "trunc"]:
    for t in NUMERIC:
        call(name, [t])
for t in NUMERIC:
    for digits in ["=0", "=1", "=2", "=-1", "=-3"]:
        call("round", [t, digits])
for name in ["ln", "log10", "log2", "log", "exp", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians"]:
    for t in ["DOUBLE", "INTEGER", "DECIMAL(10,2)"]:
        call(name, [t])
for name in ["power", "atan2", "log"]:
    call(name, ["DOUBLE", "DOUBLE"], most=60)
for name in ["isnan", "isinf", "isfinite"]:
    for t in ["DOUBLE", "FLOAT", "DATE", "TIMESTAMP"]:
        call(name, [t])

parts = ["year", "month", "day", "decade", "century", "millennium", "quarter", "week", "isoyear", "dayofweek", "isodow", "dayofyear",
         "yearweek", "era", "hour", "minute", "second", "millisecond", "microsecond", "epoch"]
for part in parts + ["epoch_ms", "epoch_us"]:
    for t in CALENDAR + ["INTERVAL", "TIME"]:
        call(part, [t])
for part in ["year", "month", "day", "decade", "century", "millennium", "quarter", "week", "isoyear", "hour", "minute", "second",
             "millisecond", "microsecond"]:
    for t in CALENDAR + ["INTERVAL"]:
        call("date_trunc", [f"='{part}'", t])
    for t in CALENDAR + ["TIME"]:
        call("date_diff", [f"='{part}'", t, t], most=30)
        if t != "TIMESTAMP WITH TIME ZONE":  # ICU counts them in another way; ours count like timestamps
            call("date_sub", [f"='{part}'", t, t], most=30)

for name in ["lower", "upper", "length", "trim", "ltrim", "rtrim", "strlen"]:
    call(name, ["VARCHAR"])
numbers = ["0", "1", "2", "-1", "-3", "100", "-100"]
call("substring", ["VARCHAR", "BIGINT"], values=[VALUES["VARCHAR"], numbers], most=60)
call("substring", ["VARCHAR", "BIGINT", "BIGINT"], values=[VALUES["VARCHAR"], numbers, numbers], most=120)
for name in ["starts_with", "ends_with", "contains", "trim", "ltrim", "rtrim", "concat"]:
    call(name, ["VARCHAR", "VARCHAR"], most=60)
infix("||", ["VARCHAR", "VARCHAR"])
for t in ["INTEGER", "DOUBLE", "DATE", "BOOLEAN", "DECIMAL(10,2)"]:
    infix("||", ["VARCHAR", t], most=15)
patterns = ["", "%", "a%", "%c", "%b%", "a_c", "_", "___", "%a%b%", "ABC", "a\\%b", "日_語", "%%", "_%"]
infix("like", ["VARCHAR", "VARCHAR"], "LIKE", values=[VALUES["VARCHAR"], patterns], most=150)
infix("not_like", ["VARCHAR", "VARCHAR"], "NOT LIKE", values=[VALUES["VARCHAR"], patterns])

targets = ["BOOLEAN"] + NUMERIC + ["VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS",
           "TIMESTAMP_NS", "TIME", "INTERVAL"]
kinds = {"BOOLEAN": "boolean", "DATE": "date", "TIME": "time", "INTERVAL": "interval"}
for target in targets:
    kind = kinds.get(target, "timestamp" if target.startswith("TIMESTAMP") else "number")
    if target != "VARCHAR":
        group("cast", ["VARCHAR", f"={target}"], "CAST({0} AS " + target + ")", values=[CAST_TEXTS[kind]])
        group("try_cast", ["VARCHAR", f"={target}"], "TRY_CAST({0} AS " + target + ")", values=[CAST_TEXTS[kind]])
    for source in ALL:
        if source in ("VARCHAR", target):
            continue
        group("cast", [source, f"={target}"], "CAST({0} AS " + target + ")")

path = pathlib.Path(__file__).with_name("sweep.txt")
path.write_text("\n".join(out) + "\n")
print(len(out), "lines,", path.stat().st_size, "bytes")
