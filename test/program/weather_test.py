"""The example examples/weather: its query over generated trips and made-up weather, held against DuckDB."""

import datetime
import subprocess
import unittest

import pyarrow.parquet as pq

from harness import BUILD, SOURCE, TIME_LIMIT, ProgramTest, main

try:
    import duckdb
except ImportError:
    duckdb = None


class Weather(ProgramTest):
    @unittest.skipIf(duckdb is None, "DuckDB is the oracle")
    def test_the_same_rows_as_duckdb_on_any_ranks(self):
        self.run_program("generate", "hvfhv", "--rows", 40000, "--files", 3, "--out", "trips", "--quiet")
        with open(self.scratch / "central_park_weather.csv", "w") as file:
            file.write('"STATION","DATE","PRCP"\n')
            for day in range(400):
                date = datetime.date(2022, 1, 1) + datetime.timedelta(days=day)
                file.write(f'"USW00094728","{date}","{day % 7 / 10}"\n')
        query = SOURCE / "examples" / "weather" / "weather.sql"
        tables = []
        for ranks, threads in ((1, 1), (1, 2), (2, 1), (3, 1)):
            name = f"out{ranks}{threads}.parquet"
            self.run_program("query", "-f", query, "-o", name, "--ranks", ranks, "--threads", threads)
            tables.append(pq.read_table(self.scratch / name))
        frames = subprocess.run([BUILD / "bin" / "weather_frames"], text=True, stdout=subprocess.PIPE, timeout=TIME_LIMIT, check=True)
        (self.scratch / "frames.sql").write_text(frames.stdout)
        self.run_program("query", "-f", "frames.sql", "-o", "frames.parquet", "--ranks", 2)
        tables.append(pq.read_table(self.scratch / "frames.parquet"))
        for table in tables[1:]:
            self.assertTrue(table.equals(tables[0]))
        text = query.read_text().replace("'trips/", f"'{self.scratch}/trips/")
        text = text.replace("'central_park", f"'{self.scratch}/central_park")
        expected = duckdb.sql(text).fetchall()
        rows = [tuple(row.values()) for row in tables[0].to_pylist()]
        self.assertGreater(len(rows), 1000)
        self.assertEqual([row[:-1] for row in rows], [row[:-1] for row in expected])
        for ours, theirs in zip(rows, expected):
            self.assertAlmostEqual(ours[-1], theirs[-1], places=9)


if __name__ == "__main__":
    main()
