"""Expressions over columns in memory, single thread: Millstream compiled and interpreted, DuckDB, Polars.

    ninja -C build expressions
    python -m venv /tmp/bench && /tmp/bench/bin/pip install duckdb polars pyarrow numpy
    /tmp/bench/bin/python bench/expressions.py [--rows 4000000] [--passes 5] [--json]

Each expression is evaluated over whole columns, with NULLs in a tenth of the rows and without; the result is a column
in memory for all (DuckDB: an Arrow table). Passes alternate between the engines; the median counts. "of memory
bandwidth": the bytes that the expression reads and writes, a second, over what copying an array moves a second."""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["POLARS_MAX_THREADS"] = "1"
import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow as pa  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MILLSTREAM_BUILD", pathlib.Path(__file__).resolve().parent.parent / "build"))
c = pl.col
# Name, columns that are read, SQL for Millstream and DuckDB, Polars.
EXPRESSIONS = [
    ("add int", "i j", "i + j", c("i") + c("j")),
    ("multiply bigint", "k", "k * 3", c("k") * 3),
    ("polynomial", "x", "(x * x + 3e0 * x - 1e0) / 7e0", (c("x") * c("x") + 3.0 * c("x") - 1.0) / 7.0),
    ("standardise", "x", "(x - 12.5e0) / 3.25e0", (c("x") - 12.5) / 3.25),
    ("ratio", "x y", "x / (y + 1e0)", c("x") / (c("y") + 1.0)),
    ("cast and scale", "i", "i::DOUBLE / 60e0", c("i").cast(pl.Float64) / 60.0),
    ("float32 cast", "x", "x::FLOAT", c("x").cast(pl.Float32)),
    ("compare", "x y", "x < y", c("x") < c("y")),
    ("between", "x", "x BETWEEN 2e0 AND 20e0", c("x").is_between(2.0, 20.0)),
    ("and or", "i x j", "(i > 10 AND x < 20e0) OR j = 7", ((c("i") > 10) & (c("x") < 20.0)) | (c("j") == 7)),
    ("in list", "j", "j IN (1, 3, 7, 12, 40)", c("j").is_in([1, 3, 7, 12, 40])),
    ("case", "x y", "CASE WHEN x > 20e0 THEN y WHEN x > 10e0 THEN x ELSE 0e0 END",
     pl.when(c("x") > 20.0).then(c("y")).when(c("x") > 10.0).then(c("x")).otherwise(0.0)),
    ("case of integers", "i", "CASE WHEN i < 5 THEN 1 WHEN i < 50 THEN 2 ELSE 3 END",
     pl.when(c("i") < 5).then(1).when(c("i") < 50).then(2).otherwise(3).cast(pl.Int32)),
    ("coalesce", "x y", "coalesce(x, y, 0e0)", pl.coalesce(c("x"), c("y"), 0.0)),
    ("sqrt of sum", "x y", "sqrt(x * x + y * y)", (c("x") * c("x") + c("y") * c("y")).sqrt()),
    ("log", "x", "ln(x + 1e0)", (c("x") + 1.0).log()),
    ("hour", "t", "hour(t)", c("t").dt.hour()),
    ("day of week", "t", "dayofweek(t)", c("t").dt.weekday() % 7),
    ("seconds between", "t u", "(epoch_us(u) - epoch_us(t)) / 1000000e0",
     (c("u").dt.epoch("us") - c("t").dt.epoch("us")) / 1e6),
    ("text length", "s", "length(s)", c("s").str.len_chars()),
    ("text prefix", "s", "starts_with(s, 'ab')", c("s").str.starts_with("ab")),
]


def make_table(rows, nulls):
    random = np.random.default_rng(0)
    words = np.array(["abc", "abd", "hello", "a longer text here", "x", "", "millstream", "ab"])
    start = np.datetime64("2021-01-01", "us").astype(np.int64)
    t = start + random.integers(0, 3 * 365 * 86400 * 10**6, rows)
    arrays = {
        "i": random.integers(0, 100, rows).astype(np.int32), "j": random.integers(0, 50, rows).astype(np.int32),
        "k": random.integers(-10**12, 10**12, rows), "x": random.gamma(2.0, 6.0, rows), "y": random.normal(5, 2, rows),
        "t": t.astype("datetime64[us]"), "u": (t + random.integers(0, 10**10, rows)).astype("datetime64[us]"),
        "s": words[random.integers(0, len(words), rows)],
    }
    mask = lambda: random.random(rows) < 0.1 if nulls else None
    return pa.table({name: pa.array(values, mask=mask()) for name, values in arrays.items()})


def seconds_of(run):
    """Of the processor, as bench/expressions.cc counts them: other work on the machine does not count."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    block = np.zeros(options.rows)
    target = np.empty_like(block)
    copy = statistics.median(seconds_of(lambda: np.copyto(target, block)) for _ in range(7))
    bandwidth = 2 * block.nbytes / copy
    results = []
    for nulls in (False, True):
        table = make_table(options.rows, nulls)
        schema = pa.schema([f.with_nullable(nulls) for f in table.schema])
        frame = pl.from_arrow(table).rechunk()
        connection = duckdb.connect()
        connection.execute("SET threads = 1")
        connection.register("arrow_columns", table)
        connection.execute("CREATE TABLE columns AS SELECT * FROM arrow_columns")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            with pa.ipc.new_file(path / "columns.arrow", schema) as writer:
                writer.write_table(pa.Table.from_arrays(table.columns, schema=schema), max_chunksize=options.rows)
            for name, columns, sql, polars in EXPRESSIONS:
                (path / "expressions.txt").write_text(sql + "\n")
                command = [str(BUILD / "bench" / "expressions"), str(path / "columns.arrow"),
                           str(path / "expressions.txt"), str(options.passes)]
                ours = [float(t) for t in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]
                select = f"SELECT {sql} AS v FROM columns"
                out = connection.sql(select).to_arrow_table()
                frame.select(polars)
                duck, pol = [], []
                for _ in range(options.passes):
                    duck.append(seconds_of(lambda: connection.sql(select).to_arrow_table()))
                    pol.append(seconds_of(lambda: frame.select(polars)))
                compiled, interpreted = statistics.median(ours[0::2]), statistics.median(ours[1::2])
                moved = sum(table.column(n).nbytes for n in columns.split()) + out.nbytes
                results.append({"name": name, "nulls": nulls, "compiled": compiled, "interpreter": interpreted,
                                "duckdb": statistics.median(duck), "polars": statistics.median(pol),
                                "of_bandwidth": moved / compiled / bandwidth})
    if options.json:
        print(json.dumps(results))
        return
    print(f"{options.rows} rows; copying moves {bandwidth / 1e9:.1f} GB/s; ns a row, then others over compiled")
    for r in results:
        print(f"{r['name']:18} {'nulls' if r['nulls'] else '     '} {r['compiled'] / options.rows * 1e9:7.2f} ns"
              f"  interpreter {r['interpreter'] / r['compiled']:6.2f}  duckdb {r['duckdb'] / r['compiled']:6.2f}"
              f"  polars {r['polars'] / r['compiled']:6.2f}  of bandwidth {r['of_bandwidth']:5.2f}")
    for other in ("interpreter", "duckdb", "polars"):
        ratios = [r[other] / r["compiled"] for r in results]
        print(f"geometric mean over {other}: {math.exp(statistics.mean(map(math.log, ratios))):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    sys.exit(main())
