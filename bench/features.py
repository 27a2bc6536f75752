#!/usr/bin/env python3
"""What fitting and profiling cost: the survey with 8 standardised HVFHV features beside one that fits nothing, and
`millstream profile` beside DuckDB's SUMMARIZE, on the same files, alternating, medians.

    bench/features.py DATA_DIR [--runs 5] [--program build/bin/millstream]

DATA_DIR has the Parquet files of `millstream generate hvfhv`. Needs DuckDB's Python package for the second part.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
FEATURES = ["PULocationID", "DOLocationID", "trip_time", "base_passenger_fare", "tolls", "sales_tax", "tips", "driver_pay"]

RECIPE = """
[data]
train = "SELECT {columns}, trip_miles FROM '{data}/*.parquet' WHERE trip_miles > 0 AND trip_time > 0"
target = "trip_miles"
[[feature]]
columns = [{quoted}]
steps = [{steps}]
[loader]
cache = "none"
shuffle = "none"
"""


def run(command):
    begin = time.perf_counter()
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    return time.perf_counter() - begin, ran.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=Path, default=SOURCE / "build" / "bin" / "millstream")
    options = parser.parse_args()
    data = options.data.resolve()
    times = {"fit": [], "decode": [], "profile": [], "SUMMARIZE": []}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for name, steps in (("fit", '"standard_scale"'), ("decode", "")):
            quoted = ", ".join(f'"{column}"' for column in FEATURES)
            (scratch / f"{name}.toml").write_text(
                RECIPE.format(columns=", ".join(FEATURES), data=data, quoted=quoted, steps=steps))
        summarize = ("import duckdb, sys; duckdb.execute(f'SET threads = {sys.argv[2]}'); "
                     "duckdb.execute(f\"SUMMARIZE SELECT * FROM '{sys.argv[1]}/*.parquet'\").fetchall()")
        for _ in range(options.runs):
            for name in ("fit", "decode"):
                shutil.rmtree(scratch / "cache", ignore_errors=True)
                _, out = run([options.program, "batches", scratch / f"{name}.toml", "--json", "--quiet", "--threads",
                              options.threads, "--cache", scratch / "cache"])
                times[name].append(json.loads(out)["seconds_survey"])
            times["profile"].append(run([options.program, "profile", data / "*.parquet", "--json", "--quiet", "--threads",
                                         options.threads])[0])
            times["SUMMARIZE"].append(run([sys.executable, "-c", summarize, data, options.threads])[0])
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:<10} {median[name]:6.2f} s   ({', '.join(f'{value:.2f}' for value in values)})")
    print(f"survey that fits / survey that only decodes   {median['fit'] / median['decode']:.2f}")
    print(f"SUMMARIZE / profile                           {median['SUMMARIZE'] / median['profile']:.2f}")


if __name__ == "__main__":
    main()
