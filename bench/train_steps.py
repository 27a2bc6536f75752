"""Steps a second of TaxiDemandNN on one thread: ours beside PyTorch in Python with fused=True, in turn, the same
malloc settings, medians. Usage: bench/train_steps.py [--python PYTHON_WITH_TORCH] [--rounds 5] [--seconds 1]"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
THEIRS = """
import sys, time, torch
from torch import nn
batch, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
loss_of = nn.MSELoss()
batches = max(1, (1 << 18) // batch)
features = torch.randn(batches * batch, 8)
target = features.sum(1)
def step(n):
    at = n % batches * batch
    optimizer.zero_grad()
    loss = loss_of(model(features[at:at + batch]).squeeze(1), target[at:at + batch])
    loss.backward()
    optimizer.step()
    loss.item()
for n in range(20):
    step(n)
begin, steps = time.perf_counter(), 0
while time.perf_counter() - begin < seconds:
    step(steps)
    steps += 1
print(steps / (time.perf_counter() - begin))
"""
parser = argparse.ArgumentParser()
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=float, default=1)
options = parser.parse_args()
malloc = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
          "MALLOC_TOP_PAD_": str(16 << 20), "OMP_NUM_THREADS": "1"}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **malloc})
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    return float(done.stdout)


print(f"{'batch':>7} {'ours, steps/s':>14} {'PyTorch fused':>14} {'ratio':>6}")
for batch in (256, 1024, 16384):
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(run([str(root / "build/bench/train_steps"), str(batch), str(options.seconds)]))
        theirs.append(run([options.python, "-c", THEIRS, str(batch), str(options.seconds)]))
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(f"{batch:7} {mine:14.1f} {other:14.1f} {mine / other:6.2f}")
