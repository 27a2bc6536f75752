"""`profile` and `init`: what they say of tables, the same on any number of ranks, and recipes that train untouched."""

import datetime
import math
import random
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq

from harness import DATA, ProgramTest, main

TABLES = {
    "adults.parquet": [("class", "bce", "accuracy", 0.84)],
    "titanic.csv": [("survived", "bce", "accuracy", 0.7), ("class", "cross_entropy", "accuracy", 0.5),
                    ("fare", "mse", "r2", 0.2), ("alive", "bce", "accuracy", 0.7)],
    "california_housing.csv": [("median_house_value", "mse", "r2", 0.72)],
}


def without_times(report):
    for key in ("seconds", "peak_rss_bytes"):
        report.pop(key)
    return report


class Profile(ProgramTest):
    def make_rows(self, files=4, rows=3000):
        source = random.Random(5)
        for file in range(files):
            table = []
            for i in range(rows):
                x = source.gauss(10, 3)
                table.append({
                    "id": file * rows + i,
                    "x": None if source.random() < 0.1 else x,
                    "odd": math.nan if i % 100 == 0 else math.inf if i % 150 == 1 else x,
                    "town": source.choice(["Ulm", "Köln", "Bonn", None]),
                    "day": datetime.date(2024, 1, 1) + datetime.timedelta(days=source.randrange(400)),
                    "at": datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=source.randrange(500000)),
                    "same": 7,
                    "none": None,
                    "flag": source.random() < 0.25,
                    "y": 2 * x + source.gauss(0, 1),
                    "leak": 0.0,
                    "list": [1],
                })
                table[-1]["leak"] = 3 - table[-1]["y"]
            schema = pa.Table.from_pylist(table).schema
            index = schema.get_field_index("none")
            schema = schema.set(index, pa.field("none", pa.float64()))
            pq.write_table(pa.Table.from_pylist(table, schema=schema), self.scratch / f"rows_{file}.parquet",
                           row_group_size=800)

    def test_what_it_says(self):
        self.make_rows()
        report = self.run_program("profile", "rows_*.parquet", "--target", "y", "--json").json()
        self.assertEqual(report["rows"], 12000)
        columns = {column["name"]: column for column in report["columns"]}
        table = pa.concat_tables(pq.read_table(self.scratch / f"rows_{f}.parquet") for f in range(4))
        x = sorted(v for v in table["x"].to_pylist() if v is not None)
        self.assertEqual(columns["x"]["nulls"], 12000 - len(x))
        self.assertEqual(columns["x"]["min"], x[0])
        self.assertEqual(columns["x"]["max"], x[-1])
        mean = math.fsum(x) / len(x)
        self.assertAlmostEqual(columns["x"]["mean"], mean, places=12)
        self.assertAlmostEqual(columns["x"]["std"],
                               math.sqrt(math.fsum((v - mean) ** 2 for v in x) / (len(x) - 1)), places=12)
        self.assertEqual(columns["x"]["rank_error"], 0)
        position = 0.75 * (len(x) - 1)
        low = x[int(position)]
        self.assertAlmostEqual(columns["x"]["quantiles"]["0.75"],
                               low + (x[int(position) + 1] - low) * (position - int(position)), places=12)
        self.assertEqual(sum(columns["x"]["histogram"]["counts"]), len(x))
        self.assertLess(abs(columns["x"]["distinct"] / len(x) - 1), 0.05)
        self.assertFalse(columns["x"]["distinct_exact"])
        self.assertEqual(columns["odd"]["nans"], 120)
        self.assertEqual(columns["town"]["distinct"], 3)
        self.assertEqual(sum(value["count"] for value in columns["town"]["top"]), 12000 - columns["town"]["nulls"])
        self.assertEqual(columns["day"]["min"], str(min(table["day"].to_pylist())))
        self.assertEqual(columns["flag"]["top"][0], {"value": False, "count": table["flag"].to_pylist().count(False)})
        warnings = {name: [w["kind"] for w in column["warnings"]] for name, column in columns.items()}
        self.assertEqual(warnings, {
            "id": ["id"], "x": [], "odd": ["not_finite"], "town": [], "day": [], "at": [], "same": ["constant"],
            "none": ["all_null"], "flag": [], "y": [], "leak": ["copies_target"], "list": ["not_usable"]})
        text = self.run_program("profile", "rows_*.parquet", "--target", "y").out
        self.assertIn("leak has correlation -1 with y: it gives the answer away", text)
        self.assertIn("12,000 rows, 12 columns", text)

    def test_the_same_on_any_number_of_ranks_and_threads(self):
        self.make_rows()
        reports = set()
        for ranks in (1, 2, 3, 4):
            for threads in (1, 2):
                report = self.run_program("profile", "rows_*.parquet", "--target", "y", "--json", "--ranks", ranks,
                                          "--threads", threads).json()
                reports.add(str(without_times(report)))
        self.assertEqual(len(reports), 1)

    def test_queries(self):
        self.make_rows(files=1)
        streamed = self.run_program("profile", "SELECT x * 2 AS twice FROM 'rows_0.parquet' WHERE x > 10",
                                    "--json").json()
        self.assertGreater(streamed["columns"][0]["min"], 20)
        query = "SELECT town, count(*) AS n FROM 'rows_0.parquet' GROUP BY town"
        for ranks in (1, 3):
            grouped = self.run_program("profile", query, "--json", "--ranks", ranks).json()
            self.assertEqual(grouped["rows"], 4)
            self.assertEqual([c["nulls"] for c in grouped["columns"]], [1, 0])
        empty = self.run_program("profile", "SELECT x FROM 'rows_0.parquet' WHERE x > 1000", "--json").json()
        self.assertEqual(empty["rows"], 0)

    def test_mistakes(self):
        self.make_rows(files=1)
        self.assert_fails(["profile", "rows_0.parquet", "--target", "yy"], 2, "--target yy: there is no such column",
                          "did you mean 'y'?")
        self.assert_fails(["profile", "nowhere.parquet"], 3, "nowhere.parquet")
        self.assert_fails(["init", "rows_0.parquet", "--target", "same"], 2, "has one value only")
        self.assert_fails(["init", "rows_0.parquet", "--target", "none"], 2, "is null in all")
        self.assert_fails(["init", "rows_0.parquet", "--target", "day"], 2, "is DATE")
        self.assert_fails(["init", "rows_0.parquet"], 2, "--target is missing")
        self.assert_fails(["init", "rows_0.parquet", "--target", "y", "-o", "r.txt"], 2, "NAME.toml")
        (self.scratch / "r.toml").write_text("mine")
        self.assert_fails(["init", "rows_0.parquet", "--target", "y", "-o", "r.toml"], 3, "--overwrite")
        self.assertEqual((self.scratch / "r.toml").read_text(), "mine")

    def test_a_recipe_of_awkward_columns_trains(self):
        self.make_rows()
        (self.scratch / "deep").mkdir()
        summary = self.run_program("init", "rows_*.parquet", "--target", "y", "-o", "deep/r.toml", "--json").json()
        self.assertEqual(summary["loss"], "mse")
        self.assertEqual(sorted(item["column"] for item in summary["left_out"]), ["id", "leak", "list", "none", "same"])
        self.assertEqual(sorted(summary["features"]), ["at", "day", "flag", "odd", "town", "x"])
        trained = self.run_program("train", "deep/r.toml", "--out", "run", "--json", "--set", "train.epochs=5").json()
        self.assertGreater(trained["valid"]["r2"], 0.8)

    def test_names_that_need_quotes(self):
        rows = 400
        source = random.Random(3)
        a = [source.random() for _ in range(rows)]
        pq.write_table(pa.table({
            'say "a" and \\': a, "select": [source.random() for _ in a],
            "it's": ['q"""uo\'te' if v > 0.5 else "back\\slash" for v in a]}), self.scratch / "odd.parquet")
        summary = self.run_program("init", "odd.parquet", "--target", "it's", "-o", "odd.toml", "--json").json()
        self.assertEqual(summary["loss"], "bce")
        recipe = tomllib.loads((self.scratch / "odd.toml").read_text())
        self.assertEqual(recipe["feature"][0]["columns"], ['say "a" and \\', "select"])
        trained = self.run_program("train", "odd.toml", "--out", "run", "--json").json()
        self.assertGreater(trained["valid"]["accuracy"], 0.9)

    def test_each_table_of_the_data_trains_untouched(self):
        if not (DATA / "tabular").is_dir():
            self.skipTest(f"no {DATA / 'tabular'}")
        for name, targets in TABLES.items():
            for target, loss, metric, least in targets:
                with self.subTest(table=name, target=target):
                    run = f"{name.split('.')[0]}_{target}"
                    recipe = f"{run}.toml"
                    made = self.run_program("init", DATA / "tabular" / name, "--target", target, "-o", recipe,
                                            "--json").json()
                    self.assertEqual(made["loss"], loss)
                    trained = self.run_program("train", recipe, "--out", run, "--json").json()
                    self.assertGreater(trained["valid"][metric], least)
                    self.run_program("predict", f"{run}/bundle", DATA / "tabular" / name, "-o",
                                     f"{run}.parquet")


if __name__ == "__main__":
    main()
