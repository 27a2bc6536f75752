"""One epoch of TaxiDemandNN end to end, 2 ranks, 1 trainer, batch 16384: Millstream beside the Bodo + MPI + PyTorch
script that inspired it, alternating in one run; medians. Usage:

    bench/end_to_end.py DATA_DIR [--baseline-python PYTHON --baseline-script SCRIPT] [--repeat 5]

DATA_DIR holds HVFHV Parquet files. PYTHON is an environment with bodo, torch, scikit-learn and mpi4py, and the
script takes DATA_DIR, the trainer ranks and the batch size. Without them only our side runs. Prints a table and one
JSON line. `cold` runs have an empty survey cache."""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--baseline-python")
parser.add_argument("--baseline-script")
parser.add_argument("--repeat", type=int, default=5)
arguments = parser.parse_args()


def ours(cache, out):
    command = [str(root / "build/bin/millstream"), "train", str(root / "examples/taxi/taxi.toml"), "--set",
               f"define.trips={os.path.abspath(arguments.data)}", "--set", "train.epochs=1", "--set", "data.valid=0",
               "--ranks", "2", "--trainers", "1", "--threads", "1", "--cache", cache, "--out", out, "--overwrite",
               "--json", "--quiet"]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    summary = json.loads(done.stdout)
    return {"total": time.perf_counter() - begin, "first_batch": summary["seconds_to_first_batch"],
            "rows_per_s": summary["rows_per_second"], "wait": summary["wait_fraction"],
            "rss_gb": summary["peak_rss_bytes"] / 1e9, "loss": summary["loss_last"]}


def baseline():
    python = pathlib.Path(arguments.baseline_python)
    mpiexec = python.parent / "mpiexec"
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    begin = time.perf_counter()
    done = subprocess.run([str(mpiexec), "-n", "2", str(python), arguments.baseline_script, arguments.data, "0", "16384"],
                          capture_output=True, text=True, env=environment)
    total = time.perf_counter() - begin
    text = done.stdout
    before = re.search(r"preprocess ([\d.]+)", text)
    after = re.search(r"train ([\d.]+) rows/s ([\d.]+) trainer wait frac ([\d.]+) loss ([\d.]+).*maxrss GB ([\d.]+)", text)
    if done.returncode != 0 or not before or not after:
        sys.exit(f"the baseline failed ({done.returncode}):\n{text}\n{done.stderr[-3000:]}")
    return {"total": total, "first_batch": float(before.group(1)), "rows_per_s": float(after.group(2)),
            "wait": float(after.group(3)), "rss_gb": float(after.group(5)), "loss": float(after.group(4))}


with tempfile.TemporaryDirectory() as scratch:
    runs = {"millstream, nothing cached": [], "millstream, survey cached": [], "bodo script": []}
    if arguments.baseline_python:
        baseline()  # pays for cold files and Bodo's compiler
    for _ in range(arguments.repeat):
        cache = os.path.join(scratch, "cache")
        shutil.rmtree(cache, ignore_errors=True)
        runs["millstream, nothing cached"].append(ours(cache, os.path.join(scratch, "run")))
        runs["millstream, survey cached"].append(ours(cache, os.path.join(scratch, "run")))
        if arguments.baseline_python:
            runs["bodo script"].append(baseline())

medians = {name: {key: statistics.median(r[key] for r in rows) for key in rows[0]} for name, rows in runs.items() if rows}
print(f"{'':28} {'total s':>8} {'first batch s':>14} {'rows/s':>10} {'waiting':>8} {'GB a rank':>10}")
for name, m in medians.items():
    print(f"{name:28} {m['total']:8.2f} {m['first_batch']:14.2f} {m['rows_per_s']:10.0f} {m['wait']:8.1%} {m['rss_gb']:10.2f}")
if arguments.baseline_python:
    ratio = medians["bodo script"]["total"] / medians["millstream, nothing cached"]["total"]
    print(f"end to end, nothing cached: {ratio:.2f} times as fast as the script")
print(json.dumps(medians))
