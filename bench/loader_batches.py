#!/usr/bin/env python3
"""Shuffled, standardised batches of 16384 for a consumer that does nothing: `millstream batches` beside loops on other
libraries, alternating in one run; medians. Usage:

    bench/loader_batches.py DATA_DIR [--baselines DIR --python PYTHON] [--run NAME:SCRIPT:VARIANT]... [--repeat 5]

DATA_DIR holds HVFHV Parquet files. A SCRIPT in DIR takes the folder in $BENCH_DATA and the kind of shuffle in $VARIANT,
runs one epoch when given the argument `a`, and prints a line `RESULT {...}` with rows, epoch_s (from the fit on),
first_batch_s and total_s. Without --baselines only our side runs. `cold` runs have an empty cache; `warm` ones find the
survey. Prints a table and one JSON line."""
import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--baselines")
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--run", action="append", default=[])
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--ranks", type=int, default=1)
arguments = parser.parse_args()
data = os.path.abspath(arguments.data)

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
"""


def peak_gb(command, environment, name):
    """Runs a command to its end: standard output, and the largest resident set of a process in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{name} failed ({done.returncode}):\n{done.stdout}\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # The maximum is over all children so far: known only for the one that raised it.
    return done.stdout, after * 1024 / 1e9 if after > before else None


def ours(recipe, cache, extra):
    command = [str(root / "build/bin/millstream"), "batches", recipe, "--epochs", "1", "--cache", cache, "--json",
               "--quiet", "--ranks", str(arguments.ranks)] + extra
    out, _ = peak_gb(command, None, "millstream")
    summary = json.loads(out)
    epoch = summary["seconds"] + summary["seconds_to_first_batch"] - summary["seconds_survey"]
    return {"rows_per_s": summary["rows"] / epoch, "first_batch_s": summary["seconds_to_first_batch"],
            "total_s": summary["seconds"] + summary["seconds_to_first_batch"],
            "gb": summary["peak_rss_bytes"] / 1e9, "quality": summary.get("shuffle_quality")}


def baseline(script, variant):
    environment = dict(os.environ, BENCH_DATA=data, VARIANT=variant)
    out, gb = peak_gb([arguments.python, os.path.join(arguments.baselines, script), "a"], environment, script)
    lines = [line for line in out.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{script} printed no RESULT:\n{out}")
    result = json.loads(lines[-1][7:])
    return {"rows_per_s": result["rows"] / result["epoch_s"], "first_batch_s": result["first_batch_s"],
            "total_s": result["total_s"], "gb": gb, "quality": None}


runs = {}
others = [text.split(":") for text in arguments.run]
if arguments.baselines and not others:
    others = [["Polars, local shuffle", "polars_batches.py", "local"], ["PyTorch DataLoader on pyarrow", "torch_pyarrow.py", ""]]
with tempfile.TemporaryDirectory() as scratch:
    recipe = os.path.join(scratch, "recipe.toml")
    pathlib.Path(recipe).write_text(RECIPE.replace("DATA", data))
    cache = os.path.join(scratch, "cache")
    for _ in range(arguments.repeat):
        shutil.rmtree(cache, ignore_errors=True)
        for name, extra in (("millstream window, cold", []), ("millstream window, warm", []),
                            ("millstream none, cold", ["--set", 'loader.shuffle="none"'])):
            runs.setdefault(name, []).append(ours(recipe, cache, extra))
        for name, script, variant in others:
            runs.setdefault(name, []).append(baseline(script, variant))

def median(rows, key):
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.median(values) if values else None


medians = {name: {key: median(rows, key) for key in rows[0]} for name, rows in runs.items()}


def text(value, form):
    return "-" if value is None else format(value, form)


print(f"{'':32} {'rows/s of the epoch':>20} {'first batch s':>14} {'with the fit s':>15} {'GB':>6} {'shuffle':>8}")
for name, m in medians.items():
    print(f"{name:32} {m['rows_per_s']:20.0f} {m['first_batch_s']:14.2f} {m['total_s']:15.2f} {text(m['gb'], '.2f'):>6} "
          f"{text(m['quality'], '.3f'):>8}")
print(json.dumps(medians))
