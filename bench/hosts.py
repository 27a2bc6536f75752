#!/usr/bin/env python3
"""How much of the wire between two hosts the loader uses: `millstream batches` with one trainer on the one host and one
feeder on the other, joined at 1 Gbit/s (network namespaces; needs root). Usage:

    bench/hosts.py DATA_DIR [--repeat 5]

DATA_DIR holds HVFHV Parquet files. Prints rows' bytes over the wire's bytes a second; medians. What TCP/IP leaves of
1 Gbit/s for data is 94 % with packets of 1500 bytes."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "test" / "program"))
from two_hosts import TwoHosts  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--repeat", type=int, default=5)
arguments = parser.parse_args()
COLUMNS = ["PULocationID", "DOLocationID", "trip_time", "base_passenger_fare", "tolls", "sales_tax", "tips", "driver_pay"]
RECIPE = f"""
[data]
train = '''SELECT {", ".join(COLUMNS)}, trip_miles FROM '{os.path.abspath(arguments.data)}/*.parquet'
           WHERE trip_miles > 0 AND trip_time > 0'''
target = "trip_miles"
[[feature]]
columns = {json.dumps(COLUMNS)}
steps = ["standard_scale"]
[loader]
cache = "disk"
"""
shares = {}
with tempfile.TemporaryDirectory() as name:
    scratch = pathlib.Path(name)
    (scratch / "recipe.toml").write_text(RECIPE)
    hosts = TwoHosts(scratch)
    try:
        for _ in range(arguments.repeat):
            for batch in (4096, 16384, 65536):
                command = hosts.command(root / ".venv/bin/mpiexec", 2, root / "build/bin/millstream", "batches",
                                        scratch / "recipe.toml", "--cache", scratch / "cache", "--trainers", "1",
                                        "--threads", "1", "--epochs", "2", "--json", "--quiet", "--set",
                                        f"loader.batch_size={batch}")
                done = subprocess.run(command, env=hosts.environment(dict(os.environ)), text=True, capture_output=True)
                if done.returncode != 0:
                    sys.exit(done.stdout + done.stderr)
                summary = json.loads(done.stdout.strip().splitlines()[-1])
                shares.setdefault(batch, []).append(summary["rows_per_second"] * 4 * (len(COLUMNS) + 1) / 125e6)
    finally:
        hosts.close()
for batch, values in shares.items():
    print(f"batch {batch:6}: {100 * statistics.median(values):5.1f} % of the wire ({min(values):.3f} to {max(values):.3f})")
