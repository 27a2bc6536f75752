#!/usr/bin/env bash
# The figures of docs/performance.md. Usage: bench/run.sh [DATA_DIR]
#   BASELINE_PYTHON, BASELINE_SCRIPT   the Bodo script to run beside ours (see bench/end_to_end.py)
#   WEATHER_CSV, PEERS_PYTHON          the weather for bench/weather.py, and a Python with duckdb and polars
#   TORCH_PYTHON                       a Python with torch, for bench/train_steps.py
#   LOADER_BASELINES, LOADER_PYTHON     scripts of other loaders (see bench/loader_batches.py)
# Without DATA_DIR, 10 M synthetic trips in four files are generated under data/trips10m.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
data=${1:-data/trips10m}
[ -d "$data" ] || build/bin/millstream generate hvfhv --rows 10000000 --files 4 --out "$data"
python=${MILLSTREAM_ENV:-.venv}/bin/python
"$python" bench/end_to_end.py "$data" ${BASELINE_PYTHON:+--baseline-python "$BASELINE_PYTHON" --baseline-script "$BASELINE_SCRIPT"}
"$python" bench/loader_batches.py "$data" ${LOADER_BASELINES:+--baselines "$LOADER_BASELINES" --python "${LOADER_PYTHON:-python3}"}
"$python" bench/overlap.py "$data"
ninja -C build scan_bench >/dev/null && build/bench/scan "$data"
if [ -n "${WEATHER_CSV:-}" ]; then "$python" bench/weather.py "$data" "$WEATHER_CSV" ${PEERS_PYTHON:+--peers "$PEERS_PYTHON"}; fi
if [ -n "${TORCH_PYTHON:-}" ]; then ninja -C build train_steps >/dev/null && "$python" bench/train_steps.py --python "$TORCH_PYTHON"; fi
