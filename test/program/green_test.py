"""The quality job: real green-taxi months, trained on ten and tested on the last, on 1 to 4 ranks."""

import json

import pyarrow.parquet as pq

from harness import DATA, SOURCE, ProgramTest, main

RECIPE = SOURCE / "examples" / "green" / "green.toml"


class Green(ProgramTest):
    def setUp(self):
        super().setUp()
        if not (DATA / "green").is_dir():
            self.skipTest(f"no {DATA / 'green'}")

    def train(self, ranks, *more):
        return self.run_program("train", RECIPE, "--set", f"define.green={DATA / 'green'}", "--ranks", ranks, "--out",
                                f"run{ranks}", "--json", *more, limit=300).json()

    def test_quality_and_the_bundle(self):
        summary = self.train(2)
        self.assertLess(summary["valid"]["rmse"], 1.05)
        self.assertGreater(summary["valid"]["r2"], 0.86)
        last_month = DATA / "green" / "green_tripdata_2024-01.parquet"
        scores = self.run_program("evaluate", "run2/bundle", last_month, "--json").json()
        self.assertEqual(scores["rows"], self.rows_of_last_month(last_month))
        for metric in ("rmse", "mae", "r2"):
            self.assertAlmostEqual(scores[metric], summary["valid"][metric], delta=1e-9 * abs(scores[metric]))
        self.run_program("predict", "run2/bundle", last_month, "-o", "p.parquet", "--ranks", 3)
        self.assertEqual(pq.read_metadata(self.scratch / "p.parquet").num_rows,
                         pq.read_metadata(last_month).num_rows)
        metrics = [json.loads(line) for line in (self.scratch / "run2" / "metrics.jsonl").read_text().splitlines()]
        self.assertTrue(metrics)

    def rows_of_last_month(self, path):
        table = pq.read_table(path, columns=["lpep_pickup_datetime", "lpep_dropoff_datetime", "trip_distance"])
        pickup, dropoff, miles = (column.to_pylist() for column in table.columns)
        return sum(0 < m < 100 and 0 < int(d.timestamp()) - int(p.timestamp()) < 4 * 3600
                   for p, d, m in zip(pickup, dropoff, miles))

    def test_the_same_rows_and_steps_on_any_number_of_ranks(self):
        seen = set()
        for ranks in (1, 2, 3, 4):
            summary = self.train(ranks, "--set", "train.epochs=1")
            seen.add((summary["rows"], summary["steps"]))
            self.assertLess(summary["valid"]["rmse"], 1.5)
        self.assertEqual(len(seen), 1, seen)


if __name__ == "__main__":
    main()
