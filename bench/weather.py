"""The taxi x weather query (join, six keys, order, write): ours beside DuckDB and Polars, process start included.

    bench/weather.py TRIPS_FOLDER WEATHER_CSV [--peers PYTHON] [--runs 5]

`--peers` is a Python that has duckdb and polars. Rounds are interleaved; medians are printed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]

DUCKDB = """
import sys, duckdb
duckdb.sql(f"copy ({sys.argv[1]}) to 'duckdb.parquet' (format parquet, compression zstd)")
"""
POLARS = """
import sys, polars as pl
t, w, hour = pl.scan_parquet(sys.argv[1] + "/*.parquet"), pl.scan_csv(sys.argv[2], try_parse_dates=True), pl.col("pickup_datetime").dt.hour()
part = (pl.when(hour.is_in([8, 9, 10])).then(pl.lit("morning")).when(hour.is_in([11, 12, 13, 14, 15])).then(pl.lit("midday"))
        .when(hour.is_in([16, 17, 18])).then(pl.lit("afternoon")).when(hour.is_in([19, 20, 21])).then(pl.lit("evening")).otherwise(pl.lit("other")))
keys = ["PULocationID", "DOLocationID", "month", "weekday", "wet", "time_of_day"]
(t.join(w, left_on=pl.col("pickup_datetime").dt.date(), right_on="DATE")
 .with_columns(month=pl.col("pickup_datetime").dt.month(), weekday=pl.col("pickup_datetime").dt.weekday() <= 5, wet=pl.col("PRCP") > 0.1, time_of_day=part)
 .group_by(keys).agg(trips=pl.col("hvfhs_license_num").count(), average_miles=pl.col("trip_miles").mean()).sort(keys)
 .collect(engine="streaming").write_parquet("polars.parquet", compression="zstd"))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trips")
    parser.add_argument("weather")
    parser.add_argument("--peers")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    trips, weather = os.path.abspath(arguments.trips), os.path.abspath(arguments.weather)
    query = (SOURCE / "examples" / "weather" / "weather.sql").read_text()
    query = query.replace("'trips/", f"'{trips}/").replace("'central_park_weather.csv'", f"'{weather}'")
    program = str(SOURCE / "build" / "bin" / "millstream")
    ours = [program, "query", query, "-o", "ours.parquet", "--overwrite", "--quiet"]
    commands = {"millstream, 1 rank": ours, "millstream, 2 ranks": [*ours, "--ranks", "2"]}
    if arguments.peers:
        commands["DuckDB"] = [arguments.peers, "-c", DUCKDB, query]
        commands["Polars"] = [arguments.peers, "-c", POLARS, trips, weather]
    seconds = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.runs):
            for name, command in commands.items():
                begin = time.time()
                subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
                seconds[name].append(time.time() - begin)
    for name, times in seconds.items():
        print(f"{name:<20} {statistics.median(times):6.2f} s   ({min(times):.2f} to {max(times):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
