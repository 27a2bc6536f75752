#!/usr/bin/env python3
"""What categorify of a text column costs, 10 M rows with 1 M different values: fitting (counting, ordering by count and
value) and looking up all rows, beside Polars and scikit-learn, whole processes, alternating, medians. And 10 M different
values within 512 MiB: what goes to disk, how much memory it takes.

    bench/categorify.py [--rows 10000000] [--values 1000000] [--runs 5] [--sklearn-runs 1] [--program build/bin/millstream]

Needs pyarrow, numpy, Polars and scikit-learn.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SOURCE = Path(__file__).resolve().parents[1]

RECIPE = """
[data]
train = "SELECT s, y FROM '{file}'"
target = "y"
[[feature]]
columns = ["s"]
steps = ["categorify", "embedding(1)"]
[loader]
cache = "none"
shuffle = "none"
"""

POLARS = """
import polars as pl, sys
s = pl.read_parquet(sys.argv[1], columns=["s"])
table = (s.group_by("s").len().sort(["len", "s"], descending=[True, False]).select("s")
         .with_row_index("id").with_columns((pl.col("id") + 2).cast(pl.Int32)))
ids = s.join(table, on="s", how="left", maintain_order="left").get_column("id").fill_null(1).to_numpy()
print(len(table), int(ids.max()))
"""

SKLEARN = """
import sys, pyarrow.parquet as pq
from sklearn.preprocessing import OrdinalEncoder
s = pq.read_table(sys.argv[1], columns=["s"]).column(0).to_numpy().reshape(-1, 1)
ids = OrdinalEncoder(dtype="int32").fit_transform(s)
print(int(ids.max()))
"""


def run(command):
    """Seconds by the clock, seconds of CPUs, and what was printed."""
    def cpu():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    begin, cpu_begin = time.perf_counter(), cpu()
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stdout + ran.stderr)
    return time.perf_counter() - begin, cpu() - cpu_begin, ran.stdout


def write(path, values):
    """Values are drawn so that the lower half comes three times as often."""
    table = pa.table({"s": pa.array(np.char.add("customer-", values.astype(str))), "y": pa.array(values % 7, pa.float32())})
    pq.write_table(table, path, row_group_size=1 << 18)


def write_both(folder, options):
    random = np.random.default_rng(5)
    high = np.where(random.random(options.rows) < 0.5, options.values // 2, options.values)
    write(folder / "some.parquet", (random.random(options.rows) * high).astype(np.int64))
    write(folder / "all.parquet", random.permutation(options.rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sklearn-runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=Path, default=SOURCE / "build" / "bin" / "millstream")
    options = parser.parse_args()
    times = {"millstream": [], "Polars": [], "scikit-learn": []}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        # In a process of its own: a process starts with its parent's peak of memory.
        writer = multiprocessing.Process(target=write_both, args=(scratch, options))
        writer.start()
        writer.join()
        for name in ("some", "all"):
            (scratch / f"{name}.toml").write_text(RECIPE.format(file=scratch / f"{name}.parquet"))

        def ours(name, cache, *more):
            return run([options.program, "batches", scratch / f"{name}.toml", "--json", "--quiet", "--threads", options.threads,
                        "--cache", scratch / cache, *more])
        for i in range(options.runs):
            times["millstream"].append(ours("some", f"cache{i}")[:2])
            times["Polars"].append(run(["env", f"POLARS_MAX_THREADS={options.threads}", sys.executable, "-c", POLARS,
                                        scratch / "some.parquet"])[:2])
            if i < options.sklearn_runs:
                times["scikit-learn"].append(run([sys.executable, "-c", SKLEARN, scratch / "some.parquet"])[:2])
        median = {name: [statistics.median(run[i] for run in runs) for i in (0, 1)] for name, runs in times.items() if runs}
        for name, (wall, cpu) in median.items():
            own_wall, own_cpu = median["millstream"]
            print(f"{name:<13} {wall:7.2f} s ({wall / own_wall:5.2f})   {cpu:7.2f} CPU s ({cpu / own_cpu:5.2f})   of "
                  f"{len(times[name])} runs: {', '.join(f'{run[0]:.2f}' for run in times[name])}")
        for memory in ("512MiB", "8GiB"):
            took, _, out = ours("all", f"all-{memory}", "--memory", memory)
            out = json.loads(out)
            print(f"{options.rows:,} different values, --memory {memory}: {took:.1f} s, {out['spilled_bytes'] / 2**20:.0f} MiB to "
                  f"disk, {out['peak_rss_bytes'] / 2**20:.0f} MiB at most")


if __name__ == "__main__":
    main()
