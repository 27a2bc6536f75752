"""Whole queries on real data: green taxi months joined with zones and weather, held against DuckDB, on 1 and 3 ranks."""

import unittest

import pyarrow.parquet as pq

from harness import DATA, ProgramTest, main

try:
    import duckdb
except ImportError:
    duckdb = None

MONTHS = ["2021-01", "2022-02", "2023-03"]

QUERIES = {
    "boroughs and rain": """
        SELECT z.Borough, w.PRCP > 0.1 AS wet, count(*) AS trips, avg(t.trip_distance) AS miles, median(t.fare_amount) AS fare,
               quantile_disc(t.tip_amount, 0.9) AS tip, count(DISTINCT t.PULocationID) AS places, corr(t.trip_distance, t.fare_amount) AS c
        FROM {green} AS t JOIN {zones} AS z ON t.PULocationID = z.LocationID
        LEFT JOIN {weather} AS w ON CAST(t.lpep_pickup_datetime AS DATE) = w.DATE
        WHERE t.trip_distance BETWEEN 0 AND 100 GROUP BY ALL ORDER BY ALL""",
    "zones without a trip": """
        SELECT z.Zone, z.LocationID FROM {zones} AS z ANTI JOIN {green} AS t ON z.LocationID = t.DOLocationID ORDER BY z.LocationID""",
    "the longest trips of each borough": """
        SELECT z.Borough, t.lpep_pickup_datetime AS at, t.trip_distance AS miles,
               row_number() OVER (PARTITION BY z.Borough ORDER BY t.trip_distance DESC, t.lpep_pickup_datetime, t.fare_amount, t.DOLocationID) AS n,
               rank() OVER (PARTITION BY z.Borough ORDER BY t.trip_distance DESC) AS r
        FROM {green} AS t JOIN {zones} AS z ON t.PULocationID = z.LocationID WHERE t.trip_distance < 100
        QUALIFY n <= 5 ORDER BY z.Borough, n""",
    "days beside the days before": """
        SELECT day, trips, trips - lag(trips) OVER (ORDER BY day) AS more, avg(trips) OVER (ORDER BY day ROWS 6 PRECEDING) AS week,
               sum(trips) OVER (ORDER BY day) AS so_far, TMAX
        FROM (SELECT CAST(lpep_pickup_datetime AS DATE) AS day, count(*) AS trips FROM {green} GROUP BY day) AS d
        JOIN {weather} AS w ON d.day = w.DATE ORDER BY day""",
    "trips from busy places on wet days": """
        SELECT PULocationID, count(*) AS n, sum(total_amount) AS paid FROM {green}
        WHERE PULocationID IN (SELECT PULocationID FROM {green} GROUP BY PULocationID HAVING count(*) > 2000)
          AND CAST(lpep_pickup_datetime AS DATE) IN (SELECT DATE FROM {weather} WHERE PRCP > 0.5)
          AND trip_distance > (SELECT avg(trip_distance) FROM {green} WHERE trip_distance < 100)
        GROUP BY PULocationID ORDER BY ALL""",
    "both ends in one table": """
        SELECT z.Borough, kind, count(*) AS n FROM (
          SELECT 'from' AS kind, PULocationID AS place FROM {green} UNION ALL SELECT 'to', DOLocationID FROM {green}) AS e
        FULL JOIN {zones} AS z ON e.place = z.LocationID GROUP BY ALL ORDER BY ALL""",
}


@unittest.skipIf(duckdb is None, "DuckDB is the oracle")
@unittest.skipUnless((DATA / "green").is_dir(), f"no real data at {DATA}")
class RealJoins(ProgramTest):
    def test_the_same_rows_as_duckdb(self):
        months = ", ".join(f"'{DATA}/green/green_tripdata_{month}.parquet'" for month in MONTHS)
        zones, weather = f"'{DATA}/zones/taxi_zone_lookup.csv'", f"'{DATA}/weather/central_park_weather.csv'"
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE green AS FROM read_parquet([{months}], union_by_name = true)")
        connection.execute(f"CREATE TABLE zones AS FROM {zones}")
        connection.execute(f"CREATE TABLE weather AS FROM {weather}")
        for name, query in QUERIES.items():
            with self.subTest(name):
                expected = connection.execute(query.format(green="green", zones="zones", weather="weather")).fetchall()
                text = query.format(green=f"read_parquet([{months}])", zones=zones, weather=weather)
                tables = []
                for ranks in (1, 3):
                    self.run_program("query", text, "-o", "out.parquet", "--overwrite", "--ranks", ranks)
                    tables.append(pq.read_table(self.scratch / "out.parquet"))
                self.assertTrue(tables[0].equals(tables[1]))
                rows = [tuple(row.values()) for row in tables[0].to_pylist()]
                self.assertGreater(len(rows), 1)
                self.assertEqual(len(rows), len(expected))
                for ours, theirs in zip(rows, expected):
                    for x, y in zip(ours, theirs):
                        if isinstance(y, float) and x is not None:
                            self.assertAlmostEqual(float(x), y, delta=1e-9 * max(1.0, abs(y)), msg=f"{ours} {theirs}")
                        else:
                            self.assertEqual(x, y, f"{ours} {theirs}")


if __name__ == "__main__":
    main()
