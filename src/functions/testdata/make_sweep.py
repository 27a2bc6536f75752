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
    "time": ["10:11:12.5", "24:00:00", "10:11", "25:00:00", "x", "42", "2024-02-29", "2024-02-29 10:11:12", "10:11:12+02", "infinity", "12:", "12:00:", "12::"],
    "interval": ["1 day 2 hours", "01:02:03", "1 year ago", "-1 month 25 hours", "1.5 days", "3 weeks", "5 foo", "", "90 minutes",
                 "1.5 hours", "2 quarters", "1 decade", "42", " 7 ", "-1.5", "1.", "42 7", "5 ago", "1 day 5", "1.0000005", "4.1785808", "12:", "12:5:", "12::", "1:2:3."],
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
BACKWARDS = ["-1 month", "1 month -1 day", "-1 month -2 days -30:00:00", "1 month 1 day 01:00:00", "1 year -25:00:00"]
for operator in ["+", "-"]:
    infix(operator, ["TIMESTAMP WITH TIME ZONE", "INTERVAL"], values=[["2024-03-31 23:30:00+00", "2024-03-01 00:30:00+00",
          "2024-02-29 23:59:59.999999+00"], BACKWARDS + ["18 months 0.000001 seconds", "18 months 0.001 seconds"]], most=60)
    infix(operator, ["TIMESTAMP", "INTERVAL"], values=[["2024-03-31 23:30:00", "2024-03-01 00:30:00"], BACKWARDS])
group("date_sub", ["='day'", "TIMESTAMP", "TIMESTAMP"], "date_sub('day', {0}, {1})",
      values=[["2012-08-15 00:00:00", "290308-12-22 (BC) 00:00:00"], ["290000-01-01 00:00:00", "290308-12-22 (BC) 00:00:00"]])

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
        call("trunc", [t, digits])
for name in ["ln", "log10", "log2", "log", "exp", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians"]:
    for t in ["DOUBLE", "INTEGER", "DECIMAL(10,2)"]:
        call(name, [t])
for name in ["power", "atan2", "log"]:
    call(name, ["DOUBLE", "DOUBLE"], most=60)
for name in ["isnan", "isinf", "isfinite"]:
    for t in ["DOUBLE", "FLOAT", "DATE", "TIMESTAMP"]:
        call(name, [t])

BIT_PAIRS = [(t, t) for t in INTEGERS] + [("TINYINT", "INTEGER"), ("UTINYINT", "TINYINT"), ("USMALLINT", "BIGINT")]
for a, b in BIT_PAIRS:
    for operator in ["&", "|"]:
        infix(operator, [a, b], most=24)
    call("xor", [a, b], most=24)
    shifts = [VALUES[a] + ["7", "64"], VALUES[b] + ["2", "3", "8", "31"]]
    for operator in ["<<", ">>"]:
        infix(operator, [a, b], values=shifts, most=60)
for t in INTEGERS:
    group("~", [t], "(~{0})")
    call("bit_count", [t])

for name in ["cot", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "gamma", "lgamma", "even"]:
    for t in ["DOUBLE", "FLOAT", "INTEGER", "DECIMAL(10,2)"]:
        call(name, [t])
for t in FLOATS:
    for name in ["nextafter", "fmod"]:
        call(name, [t, t], most=60)
    call("signbit", [t])
for a, b in [("BIGINT", "BIGINT"), ("INTEGER", "INTEGER"), ("TINYINT", "UINTEGER")]:
    for name in ["gcd", "lcm"]:
        call(name, [a, b], values=[VALUES[a] + ["12", "42"], VALUES[b] + ["18", "57"]], most=80)
call("factorial", ["INTEGER"], values=[["0", "1", "5", "20", "33", "34", "-1", "2147483647"]])
for t in NUMERIC:
    for digits in ["=0", "=1", "=-1", "=-3"]:
        call("round_even", [t, digits])

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

MOMENTS = VALUES["TIMESTAMP"] + ["2024-12-31 12:00:00.5", "2023-01-01 00:00:00", "1999-06-06 06:06:06.000006"]
for name in ["last_day", "dayname", "monthname", "julian", "nanosecond", "epoch_ns"]:
    for t in CALENDAR + ["INTERVAL", "TIME", "TIMESTAMP_NS"]:
        call(name, [t], **({"values": [["1970-01-01 00:00:00", "2024-02-29 23:59:59.999999999", "1969-12-31 23:59:59.5"]]}
                           if t == "TIMESTAMP_NS" else {}))
call("epoch_ms", ["TIMESTAMP"], values=[["1969-12-31 23:59:59.9985", "1969-12-31 23:59:59.998501", "1969-12-31 23:59:59.9995",
     "1970-01-01 00:00:00.0005", "1970-01-01 00:00:00.000499", "1970-01-01 00:00:00.0015"]])
call("epoch_ms", ["BIGINT"], values=[["0", "1500", "-1", "1700000000123", "9223372036854775807", "-9223372036854775808"]])
for t in ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]:
    call("age", [t, t], values=[MOMENTS[:-1] if t == "TIMESTAMP" else VALUES[t] + ["2020-05-31 00:00:00+00"]] * 2, most=160)
call("make_date", ["BIGINT", "BIGINT", "BIGINT"], values=[["2024", "2023", "0", "-44", "9999", "6000000"], ["1", "2", "12", "0", "13"],
     ["1", "28", "29", "30", "31", "0", "-1", "32"]], most=200)
call("make_date", ["INTEGER"], values=[["0", "1", "-1", "19782", "2147483646"]])
hours, minutes = ["0", "10", "23", "24", "25", "-1"], ["0", "59", "60", "-1"]
seconds = ["0", "12.5", "59.9999999", "60", "60.5", "61", "-1", "0.0000005", "nan", "inf"]
call("make_time", ["BIGINT", "BIGINT", "DOUBLE"], values=[hours, minutes, seconds], most=200)
for name in ["make_timestamp", "make_timestamptz"]:
    call(name, ["BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "DOUBLE"],
         values=[["2024", "1969", "-1"] if name == "make_timestamp" else ["2024", "1968"], ["2", "12"], ["1", "29"],
                 ["0", "23", "24"] if name == "make_timestamp" else ["0", "23"], ["0", "59"], ["0", "12.5", "59.5"]], most=120)
call("make_timestamp", ["BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "DOUBLE"],
     values=[["2024", "6000000"], ["2", "13"], ["29", "31"], ["23", "24"], ["59", "60"], seconds[:5]], most=120)
for name in ["make_timestamp", "make_timestamptz", "make_timestamp_ms", "make_timestamp_ns"]:
    call(name, ["BIGINT"], values=[["0", "1", "-1", "1700000000123456", "9223372036854775806", "-9223372036854775807"]])
call("to_timestamp", ["DOUBLE"], values=[["0", "1.5", "-1.5", "1700000000.25", "1.0000005", "9223372036854", "1e15", "nan", "inf", "-1e15"]])
for name in ["to_decades", "to_centuries", "to_millennia", "to_years", "to_quarters", "to_months", "to_weeks", "to_days"]:
    call(name, ["INTEGER"])
for name in ["to_hours", "to_minutes", "to_microseconds"]:  # the time of an interval ends at 292 years here
    call(name, ["INTEGER"], values=[["0", "1", "-1", "25", "2000000"]])
for name in ["to_seconds", "to_milliseconds"]:
    call(name, ["DOUBLE"], values=[["0", "1.5", "-2.5", "90", "1.0000005", "1e9", "0.001"]])

zones = ["UTC", "America/New_York", "america/new_york", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe",
         "Pacific/Apia", "EST", "EST5EDT", "CET", "PST", "IST", "GMT+3", "UTC-3", "GMT-03:30", "Etc/GMT+3", "nowhere"]
local = ["2024-07-01 12:00:00", "2024-01-01 00:00:00", "2024-03-10 02:30:00", "2024-11-03 01:30:00.25", "2024-03-31 02:30:00",
         "2024-10-27 02:30:00", "1950-06-01 00:00:00", "2100-07-01 00:00:00", "2100-01-01 00:00:00", "2011-12-30 12:00:00",
         "infinity", "2024-04-07 01:45:00", "2024-10-06 02:15:00", "2050-07-01 00:00:00"]
call("timezone", ["VARCHAR", "TIMESTAMP"], values=[zones, local], most=400)
call("timezone", ["VARCHAR", "TIMESTAMP WITH TIME ZONE"], values=[zones, [m + ("+00" if m != "infinity" else "") for m in local]], most=400)

for t, zone in [("TIMESTAMP", ""), ("TIMESTAMP WITH TIME ZONE", "+00")]:
    call("timezone", ["VARCHAR", t], values=[["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata"],
         ["294247-01-10 04:00:54" + zone, "290309-12-22 (BC) 00:00:00" + zone, "-infinity"]])

formats = ["%Y-%m-%d %H:%M:%S.%f", "%a %A %w %u %d %b %B %m %y", "%I %p %g %n %z", "%Z|%j|%U|%W|%V|%G", "%c / %x / %X %%",
           "%-d %-m %-y %-H %-I %-M %-S %-j", "text", "%Q", "%", "é%Y"]
for t in ["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]:
    moments = MOMENTS if t == "TIMESTAMP" else VALUES[t]
    call("strftime", [t, "VARCHAR"], values=[moments, formats], most=200)
call("strftime", ["VARCHAR", "TIMESTAMP"], values=[formats, MOMENTS], most=60)
call("strftime", ["TIMESTAMP_NS", "VARCHAR"], values=[["2024-02-29 23:59:59.123456789"], formats])
readings = {
    "%Y-%m-%d": ["2024-02-29", "2023-02-29", "2024-1-2", " 2024-01-02 ", "2024-01-02 x", "12345-01-01", "-5-01-01", "infinity",
                 "-Infinity", "epoch", "", "2024-13-01", "2024-01-32", "2024-00-10", "99-01-01"],
    "%Y-%m-%d %H:%M:%S": ["2024-01-02 03:04:05", "2024-01-02   3:4:5", "2024-01-02 24:00:00", "2024-01-02 23:60:00", "2024-01-0203:04:05"],
    "%m/%d/%y %I:%M %p": ["02/29/24 01:02 PM", "1/2/69 12:00 am", "1/2/68 12:00 pm", "1/2/70 13:00 pm", "1/2/70 0:00 pm", "1/2/70 1:00 x"],
    "%Y-%m-%d %H:%M:%S.%f": ["2024-01-02 03:04:05.1", "2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.1234567", "2024-01-02 03:04:05."],
    "%S.%g": ["05.1", "05.123", "05.1234"],
    "%S.%n": ["05.1", "05.123456789"],
    "%Y-%m-%d %z": ["2024-01-02 +02", "2024-01-02 -0230", "2024-01-02 +02:30", "2024-01-02 +2", "2024-01-02 Z"],
    "%Y-%m-%d %Z": ["2024-01-02 UTC", "2024-07-02 America/New_York", "2024-01-02 EST"],
    "%A, %-d %B %Y": ["Tuesday, 2 January 2024", "tuesday, 02 JANUARY 2024", "Tue, 2 January 2024"],
    "%a %d %b %Y": ["Wed 2 Jan 2024", "wed 2 jan 2024", "Mond 2 Jan 2024", "Wed 2 January 2024"],
    "%Y %j": ["2024 060", "2024 366", "2023 366", "2023 0", "2024 1"],
    "%G W%V %u": ["2024 W05 3", "2020 W53 7", "2021 W01 1", "2020 W54 1", "2020 W01 0"],
    "%G": ["2024", "2025", "2021"],
    "%Y %U %w": ["2024 05 3", "2024 00 1", "2023 01 0", "2024 54 1", "2023 53 0"],
    "%Y %W %w": ["2024 05 3", "2024 00 1", "2023 01 0", "2024 53 1"],
    "%Y %W": ["2024 10", "2023 00", "2023 01"],
    "%Y %U": ["2024 10", "2023 00", "2023 01"],
    "%H": ["12", "24", "7"],
    "x%%é %Y": ["x%é 2024", "x%e 2024"],
    "%c": ["2024-01-02 03:04:05", "2024-01-02"],
    "%x": ["2024-01-02"],
    "%X": ["03:04:05"],
    "%Y%m%d": ["20240102", "2024010", "202412", "20241231x"],
}
for format_, texts in readings.items():
    for name in ["strptime", "try_strptime"]:
        call(name, ["VARCHAR", f"='{format_}'"], values=[texts])

FAR = ["5881580-07-10", "294247-01-10", "290309-12-22 (BC)", "infinity", "-infinity"]
for operator in ["+", "-"]:
    infix(operator, ["DATE", "INTERVAL"], values=[FAR, ["00:00:00", "1 day", "-1 day", "600000 years"]], most=60)
infix("+", ["DATE", "TIME"], values=[FAR, ["00:00:00", "10:11:12"]])
for part in ["hour", "minute", "second"]:
    call("date_diff", [f"='{part}'", "DATE", "DATE"], values=[["2024-01-01", "5881580-07-10", "infinity"], ["2024-01-01", "5877642-06-25 (BC)"]])

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

TEXTS = VALUES["VARCHAR"]
for name in ["left", "right"]:
    call(name, ["VARCHAR", "BIGINT"], values=[TEXTS, numbers + ["4000000000", "-9223372036854775808"]], most=80)
for name in ["lpad", "rpad"]:
    call(name, ["VARCHAR", "INTEGER", "VARCHAR"], values=[TEXTS, ["0", "1", "3", "7", "-1"], ["", " ", "xy", "日本"]], most=120)
call("repeat", ["VARCHAR", "BIGINT"], values=[TEXTS, ["0", "1", "3", "-1"]], most=60)
call("replace", ["VARCHAR", "VARCHAR", "VARCHAR"], values=[TEXTS, ["", "a", "b", "日", "xx", "x"], ["", "Q", "本本"]], most=120)
call("translate", ["VARCHAR", "VARCHAR", "VARCHAR"], values=[TEXTS, ["", "a", "ab", "日a", "aa", "cba"], ["", "Q", "本b"]], most=120)
call("split_part", ["VARCHAR", "VARCHAR", "BIGINT"],
     values=[TEXTS + ["a-b-c", "--", "日-本"], ["", "-", "a", "b c"], ["0", "1", "2", "3", "-1", "-2", "9"]], most=200)
call("overlay", ["VARCHAR", "VARCHAR", "BIGINT"], values=[TEXTS, ["", "Q", "日本"], ["1", "2", "3", "9", "0", "-2"]], most=80)
call("overlay", ["VARCHAR", "VARCHAR", "BIGINT", "BIGINT"],
     values=[TEXTS, ["", "Q", "日本"], ["1", "2", "3", "9", "0", "-2"], ["0", "1", "3"]], most=160)
for name in ["strpos", "instr", "levenshtein", "editdist3", "damerau_levenshtein", "jaccard", "hamming", "mismatches"]:
    call(name, ["VARCHAR", "VARCHAR"], values=[TEXTS + ["kitten", "sitting"], TEXTS + ["kittens", "b", "c", "ba"]], most=120)
for name in ["ascii", "unicode", "ord", "reverse", "bit_length", "hex", "bin", "url_encode", "md5", "sha256"]:
    call(name, ["VARCHAR"])
call("chr", ["INTEGER"], values=[["65", "233", "26085", "128512", "-1", "55296", "1114112"]])
for name in ["hex", "bin"]:
    for t in INTEGERS:
        call(name, [t])
call("to_base", ["BIGINT", "INTEGER"], values=[["0", "1", "255", "9223372036854775807", "-1"], ["2", "10", "16", "36", "1", "37"]])
call("to_base", ["BIGINT", "INTEGER", "INTEGER"], values=[["0", "255"], ["2", "16"], ["0", "3", "12", "64", "65", "-1"]])
call("concat_ws", ["VARCHAR", "VARCHAR", "VARCHAR"], values=[["", ",", "日"], TEXTS, TEXTS], most=80)
call("concat_ws", ["VARCHAR", "INTEGER", "DOUBLE"], most=30)
infix("ilike", ["VARCHAR", "VARCHAR"], "ILIKE", values=[TEXTS, patterns + ["ÀÉ", "àé", "À_", "STRASSE", "%ß%"]], most=200)
globs = ["", "*", "a*", "*c", "*b*", "a?c", "?", "???", "[a-c]b?", "[!a]*", "[]a]*", "a[", "日?語", "[日]*", "a\\*b", "*?", "[a-", "a%b"]
infix("glob", ["VARCHAR", "VARCHAR"], "GLOB", values=[TEXTS + ["]b", "a*b", "a["], globs], most=300)
group("like", ["VARCHAR", "VARCHAR", "VARCHAR"], "({0} LIKE {1} ESCAPE {2})",
      values=[TEXTS, patterns + ["a!%b", "%!", "a!!b", "%!_%"], ["!", "", "xx", "\\"]], most=200)

regexes = ["", "a", "^a", "b$", "a.c", "[A-Z]+", "(a)(b)", "(x)?b", "日", "\\s", "(a|ab)(c|bcd)?", "(?i)ABC", "^$", ".*", "a*"]
for options in [[], ["='i'"], ["='c'"], ["='l'"], ["='s'"], ["='n'"], ["='is'"]]:
    for name in ["regexp_matches", "regexp_full_match"]:
        call(name, ["VARCHAR", "VARCHAR"] + options, values=[TEXTS, regexes], most=120)
    call("regexp_extract", ["VARCHAR", "VARCHAR", "=0"] + options, values=[TEXTS, regexes], most=120)
for index in ["=0", "=1", "=2", "=3", "=9"]:
    call("regexp_extract", ["VARCHAR", "VARCHAR", index], values=[TEXTS, regexes], most=120)
call("regexp_extract", ["VARCHAR", "VARCHAR"], values=[TEXTS, regexes], most=120)
for options in [[], ["='g'"], ["='i'"], ["='gi'"], ["='gl'"], ["='gs'"]]:
    call("regexp_replace", ["VARCHAR", "VARCHAR", "VARCHAR"] + options,
         values=[TEXTS, regexes, ["", "Q", "\\0\\0", "<\\1>", "\\2"]], most=200)
call("regexp_escape", ["VARCHAR"], values=[TEXTS + ["a.b", "[x]*", "a\\b", "\t"]])

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
