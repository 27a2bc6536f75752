"""Shows from a trace that feeding runs ahead of training: while the trainer takes step k, batch k+3 is being filled
or already full. Fails (exit 1) where fewer than 95 % of the steps show it. Usage: bench/overlap.py DATA_DIR"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AHEAD = 3
root = pathlib.Path(__file__).resolve().parent.parent
with tempfile.TemporaryDirectory() as scratch:
    out = os.path.join(scratch, "run")
    command = [str(root / "build/bin/millstream"), "train", str(root / "examples/taxi/taxi.toml"), "--set",
               f"define.trips={os.path.abspath(sys.argv[1])}", "--set", "train.epochs=1", "--set", "data.valid=0",
               "--ranks", "2", "--trainers", "1", "--threads", "1", "--cache", os.path.join(scratch, "cache"), "--out", out,
               "--trace", "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    events = json.load(open(os.path.join(out, "trace.json")))
    events = events["traceEvents"] if isinstance(events, dict) else events

fill_begin, steps = {}, {}
for event in events:
    n = event.get("args", {}).get("n")
    if event["name"] == "fill batch":
        fill_begin[n] = min(fill_begin.get(n, float("inf")), event["ts"])
    elif event["name"] == "step":
        steps[n] = (event["ts"], event["ts"] + event["dur"])
checked = [k for k in steps if k + AHEAD in steps]
if len(checked) < 10:
    sys.exit(f"only {len(checked)} steps in the trace: use more data")
ahead = [k for k in checked if fill_begin.get(k + AHEAD, float("inf")) < steps[k][1]]
print(f"{'step k':>8} {'step begins':>12} {'step ends':>12} {'fill of k+3 begins':>20}   (ms after the first step began)")
zero = min(begin for begin, _ in steps.values())
for k in checked[:: max(1, len(checked) // 12)]:
    print(f"{k:8} {(steps[k][0] - zero) / 1e3:12.2f} {(steps[k][1] - zero) / 1e3:12.2f} "
          f"{(fill_begin.get(k + AHEAD, float('nan')) - zero) / 1e3:20.2f}")
share = len(ahead) / len(checked)
print(f"batch k+{AHEAD} was being filled, or full, before step k ended in {share:.1%} of {len(checked)} steps")
sys.exit(share < 0.95)
