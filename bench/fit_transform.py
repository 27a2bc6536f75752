#!/usr/bin/env python3
"""Fit and transform the 8 HVFHV features to float32 on two threads: `millstream batches` beside Polars. Usage:

    python -m venv /tmp/bench && /tmp/bench/bin/pip install polars pyarrow numpy
    bench/fit_transform.py DATA_DIR [--python /tmp/bench/bin/python] [--repeat 5] [--json]

DATA_DIR holds HVFHV Parquet files. Ours: the survey (decoding, filter, fit) and a pass that packs every row into batches
that nobody consumes, in file order; once with the survey keeping narrow columns, once decoding again. Polars: the same
filter, mean and standard deviation, then the same columns as float32 in memory, by its streaming engine. Runs alternate;
medians. Start of processes and imports are not counted."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

RECIPE = """
[data]
train = '''SELECT PULocationID, DOLocationID, trip_time, base_passenger_fare, tolls, sales_tax, tips, driver_pay, trip_miles
           FROM 'DATA/*.parquet' WHERE trip_miles > 0 AND trip_time > 0'''
target = "trip_miles"
[[feature]]
columns = ["PULocationID", "DOLocationID", "trip_time", "base_passenger_fare", "tolls", "sales_tax", "tips", "driver_pay"]
steps = ["standard_scale"]
[loader]
batch_size = 16384
shuffle = "none"
"""
POLARS = """
import json, os, sys, time
os.environ["POLARS_MAX_THREADS"] = "2"
import polars as pl
features = ["PULocationID", "DOLocationID", "trip_time", "base_passenger_fare", "tolls", "sales_tax", "tips", "driver_pay"]
begin = time.perf_counter()
rows = pl.scan_parquet(sys.argv[1] + "/*.parquet").filter((pl.col("trip_miles") > 0) & (pl.col("trip_time") > 0))
rows = rows.select(features + ["trip_miles"])
aggregates = [pl.col(f).mean().alias(f + "_m") for f in features] + [pl.col(f).std(ddof=0).alias(f + "_s") for f in features]
fitted = rows.select(aggregates).collect(engine="streaming").row(0, named=True)
fit = time.perf_counter()
scaled = [((pl.col(f) - fitted[f + "_m"]) / fitted[f + "_s"]).cast(pl.Float32) for f in features]
matrix = rows.select(scaled + [pl.col("trip_miles").cast(pl.Float32)]).collect(engine="streaming").to_numpy()
print(json.dumps({"fit": fit - begin, "transform": time.perf_counter() - fit, "rows": len(matrix)}))
"""


def ours(program, data, more):
    with tempfile.TemporaryDirectory() as folder:
        recipe = pathlib.Path(folder) / "recipe.toml"
        recipe.write_text(RECIPE.replace("DATA", data))
        command = [program, "batches", str(recipe), "--threads", "2", "--json", "--quiet", "--cache", folder + "/cache",
                   *more]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return {"fit": told["seconds_survey"], "transform": told["seconds"], "rows": told["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root = pathlib.Path(os.environ.get("MILLSTREAM_BUILD", pathlib.Path(__file__).resolve().parent.parent / "build"))
    data = os.path.abspath(options.data)
    program = str(root / "bin" / "millstream")
    ways = {
        "millstream": lambda: ours(program, data, []),
        "millstream, decoding twice": lambda: ours(program, data, ["--set", "loader.cache=none"]),
        "millstream, interpreted": lambda: ours(program, data, ["--engine", "interpreter"]),
        "polars": lambda: json.loads(subprocess.run([options.python, "-c", POLARS, data], check=True,
                                                    capture_output=True, text=True).stdout),
    }
    runs = {name: [] for name in ways}
    for _ in range(options.repeat):
        for name, run in ways.items():
            runs[name].append(run())
    result = {name: {key: statistics.median(run[key] for run in of) for key in of[0]} for name, of in runs.items()}
    for name, of in runs.items():
        result[name]["total"] = statistics.median(run["fit"] + run["transform"] for run in of)
    if options.json:
        print(json.dumps(result))
        return
    for name, of in result.items():
        print(f"{name:28} fit {of['fit']:6.2f} s  transform {of['transform']:6.2f} s  total {of['total']:6.2f} s"
              f"  polars over it {result['polars']['total'] / of['total']:5.2f}")


if __name__ == "__main__":
    main()
