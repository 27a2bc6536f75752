"""Splits and the tensor contract from recipe to summary: which rows train, validate and test, what is left out and
why; the same on any number of ranks."""

import json
import math
import random

import pyarrow as pa
import pyarrow.parquet as pq

from harness import ProgramTest, main


class Splits(ProgramTest):
    def make_rows(self, files=3, rows=1000):
        for file in range(files):
            self.write_file(file, rows)

    def write_file(self, file, rows=1000):
        source = random.Random(file)
        table = [{"day": file * rows + i, "who": f"customer {source.randrange(40)}", "kind": i % 10 == 0,
                  "a": float(source.randrange(100)), "y": 0.0} for i in range(rows)]
        for row in table:
            row["y"] = 2 * row["a"] + 1
        pq.write_table(pa.Table.from_pylist(table), self.scratch / f"rows_{file}.parquet", row_group_size=250)

    def split_recipe(self, data, features='steps = ["standard_scale"]', columns=("a",)):
        return self.recipe("SELECT day, who, kind, a, y FROM 'rows_*.parquet'", data=data, columns=columns,
                           features=features, more="")

    def rows_of(self, recipe):
        summaries = set()
        for ranks in (1, 3):
            out = self.run_program("batches", recipe, "--digest", "--ranks", ranks, "--cache", f"c{ranks}").out
            summaries.add(out)
        self.assertEqual(len(summaries), 1)
        train = sum(int(line.split()[2]) for line in out.splitlines() if not line.endswith("valid"))
        valid = sum(int(line.split()[2]) for line in out.splitlines() if line.endswith("valid"))
        return train, valid

    def test_by_time(self):
        self.make_rows()
        recipe = self.split_recipe('valid = "day >= 2000 AND day < 2500"\ntest = "day >= 2500"')
        summary = self.run_program("train", recipe, "--out", "run", "--json", "--ranks", 2).json()
        self.assertEqual(summary["rows"], 2 * 2000)
        self.assertEqual(summary["rows_test"], 500)
        self.assertEqual(set(summary["test"]), set(summary["valid"]))
        # The test is what evaluate says of the same rows.
        table = pa.concat_tables(pq.read_table(self.scratch / f"rows_{f}.parquet") for f in range(3))
        pq.write_table(table.slice(2500), self.scratch / "late.parquet")
        scores = self.run_program("evaluate", "run/bundle", "late.parquet", "--json").json()
        self.assertEqual(scores["rows"], 500)
        for name, value in summary["test"].items():
            self.assertAlmostEqual(scores[name], value, places=9)
        # Prediction needs none of what splits.
        pq.write_table(table.select(["a"]), self.scratch / "a.parquet")
        self.run_program("predict", "run/bundle", "a.parquet", "-o", "p.parquet")
        # The fit is of training rows alone.
        fitted = json.loads((self.scratch / "run" / "bundle" / "bundle.json").read_text())["fitted"]["values"]
        mean = next(value["value"] for value in fitted if value["name"] == "mean")
        self.assertAlmostEqual(mean, sum(table["a"].to_pylist()[:2000]) / 2000, places=9)

    def test_test_rows_of_a_fraction_and_of_a_query(self):
        self.make_rows()
        first = self.run_program("train", self.split_recipe("valid = 0.1\ntest = 0.2"), "--out", "r1", "--json").json()
        self.assertGreater(first["rows_test"], 450)
        self.assertLess(first["rows_test"], 750)
        query = self.split_recipe("test = \"SELECT a, y FROM 'rows_1.parquet'\"")
        second = self.run_program("train", query, "--out", "r2", "--json", "--ranks", 3).json()
        self.assertEqual(second["rows_test"], 1000)
        self.assertEqual(second["rows"], 2 * 3000)

    def test_folds_and_strata(self):
        self.make_rows()
        valid = [self.rows_of(self.split_recipe(f"folds = 4\nfold = {fold}"))[1] for fold in range(4)]
        train = [self.rows_of(self.split_recipe(f"folds = 4\nfold = {fold}"))[0] for fold in range(4)]
        self.assertEqual({a + b for a, b in zip(train, valid)}, {3000})
        strata = self.run_program("train", self.split_recipe('valid = 0.25\nstratify_by = "kind"'), "--out", "run",
                                  "--json").json()
        # 12 row groups of 25 and 225 rows: each off by less than 3.
        self.assertLess(abs(strata["rows"] / 2 - 2250), 36)

    def test_a_side_stays_when_files_are_added(self):
        for data in ("valid = 0.3", 'valid = 0.3\nsplit_by = "who"', 'valid = 0.3\nstratify_by = "kind"'):
            for file in range(2):
                self.write_file(file)
            two = self.rows_of(self.split_recipe(data))
            self.write_file(2)
            three = self.rows_of(self.split_recipe(data))
            alone = self.scratch / "rows_0.parquet", self.scratch / "rows_1.parquet"
            for path in alone:
                path.unlink()
            third = self.rows_of(self.split_recipe(data))
            self.assertEqual((two[0] + third[0], two[1] + third[1]), three, data)
            (self.scratch / "rows_2.parquet").unlink()

    def test_mistakes(self):
        self.make_rows()
        self.assert_fails(["batches", self.split_recipe('valid = 0.1\nsplit_by = "whoo"')], 2, "did you mean 'who'?")
        self.assert_fails(["batches", self.split_recipe('valid = "dai > 5"')], 2, "data.valid", "did you mean 'day'?")
        self.assert_fails(["batches", self.split_recipe("valid = 0.1\nfolds = 3")], 2, "give one of them")
        self.assert_fails(["batches", self.split_recipe('valid = "day >= 0"')], 1, "no rows are left to train on")


class Contract(ProgramTest):
    def make_rows(self):
        for file in range(2):
            a = [float(i % 50) for i in range(1000)]
            b = [float(i % 7) for i in range(1000)]
            y = [p + q for p, q in zip(a, b)]
            for i in range(file * 5 + 5):
                a[i] = None
            for i in range(10, 17):
                a[i] = math.nan
            b[20] = math.inf
            b[11] = None  # a is NaN there: that comes first
            y[30] = None
            pq.write_table(pa.table({"a": pa.array(a, pa.float64()), "b": pa.array(b, pa.float64()),
                                     "y": pa.array(y, pa.float64())}), self.scratch / f"rows_{file}.parquet",
                           row_group_size=100)

    def ledger(self, *data, code=0, features='steps = ["standard_scale"]'):
        recipe = self.recipe("SELECT a, b, y FROM 'rows_*.parquet'", data="\n".join(data), columns=["a", "b"],
                             features=features)
        found = set()
        for ranks in (1, 3):
            report = self.run_program("batches", recipe, "--json", "--ranks", ranks).json()
            found.add(json.dumps(report["dropped"]))
        self.assertEqual(len(found), 1)
        entries = [({"rows_0.parquet": 0, "rows_1.parquet": 1}[entry["file"].split("/")[-1]], entry.get("column"),
                    entry["reason"], entry["rows"]) for entry in report["dropped"]]
        return entries, report["rows"]

    def test_the_ledger(self):
        self.make_rows()
        entries, rows = self.ledger('on_null = "drop"', 'on_null_target = "drop"')
        self.assertEqual(entries, [
            (0, "a", "null", 5), (0, "a", "NaN", 7), (0, "b", "infinite", 1), (0, "y", "null", 1),
            (1, "a", "null", 10), (1, "a", "NaN", 7), (1, "b", "infinite", 1), (1, "y", "null", 1)])
        self.assertEqual(rows, 2000 - 33)

    def test_it_is_in_the_summary_and_the_metrics(self):
        self.make_rows()
        recipe = self.recipe("SELECT a, b, y FROM 'rows_*.parquet'", data='on_null = "drop"\non_null_target = "drop"',
                             columns=["a", "b"])
        summary = self.run_program("train", recipe, "--out", "run", "--json", "--ranks", 2).json()
        self.assertEqual(sum(entry["rows"] for entry in summary["dropped"]), summary["rows_dropped"])
        lines = [json.loads(line) for line in (self.scratch / "run" / "metrics.jsonl").read_text().splitlines()]
        dropped = [{k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == "dropped"]
        self.assertEqual(dropped, summary["dropped"])
        text = self.run_program("train", recipe, "--out", "run2").out
        self.assertIn("5 rows where a is null, in ", text)

    def test_nan_on_its_own(self):
        self.make_rows()
        filled = 'steps = ["fill_null(0)", "standard_scale"]'
        entries, rows = self.ledger('on_nan = "null"', 'on_null_target = "drop"', features=filled)
        self.assertEqual(entries, [(0, "y", "null", 1), (1, "y", "null", 1)])
        entries, rows = self.ledger('on_nan = "drop"', 'on_null_target = "drop"', features=filled)
        self.assertEqual([entry[1:3] for entry in entries[:3]], [("a", "NaN"), ("b", "infinite"), ("y", "null")])
        # A feature's own word counts, not the data's.
        entries, _ = self.ledger('on_null = "error"', 'on_nan = "error"', 'on_null_target = "drop"',
                                 features='on_null = "drop"\non_nan = "drop"')
        self.assertEqual(entries[0], (0, "a", "null", 5))
        recipe = self.recipe("SELECT a, b, y FROM 'rows_*.parquet'",
                             data='on_null = "drop"\non_nan = "error"\non_null_target = "drop"', columns=["a", "b"])
        self.assert_fails(["batches", recipe], 3, "feature column 'a' is NaN in", "rows_0.parquet, row group 0, row 10")

    def test_nan_as_null_in_prediction(self):
        self.make_rows()
        recipe = self.recipe("SELECT a, b, y FROM 'rows_*.parquet'",
                             data='on_nan = "null"\non_null_target = "drop"', columns=["a", "b"],
                             features='steps = ["fill_null(mean)", "standard_scale"]')
        self.run_program("train", recipe, "--out", "run")
        self.run_program("predict", "run/bundle", "rows_0.parquet", "-o", "p.parquet")
        predicted = pq.read_table(self.scratch / "p.parquet")["prediction"].to_pylist()
        self.assertEqual(len(predicted), 1000)
        self.assertNotIn(None, predicted)
        self.assertEqual(predicted[0] == predicted[0], True)

    def test_corrupt_row_groups(self):
        self.make_rows()
        path = self.scratch / "rows_1.parquet"
        group = pq.ParquetFile(path).metadata.row_group(3).column(1)
        data = bytearray(path.read_bytes())
        start = group.dictionary_page_offset or group.data_page_offset
        for i in range(start, start + group.total_compressed_size):
            data[i] = 0xAA
        path.write_bytes(bytes(data))
        clean = ['on_null = "drop"', 'on_null_target = "drop"']
        recipe = self.recipe("SELECT a, b, y FROM 'rows_*.parquet'", data="\n".join(clean), columns=["a", "b"])
        self.assert_fails(["batches", recipe], 3, "rows_1.parquet, row group 3")
        entries, rows = self.ledger(*clean, 'on_corrupt = "skip"')
        self.assertIn((1, None, "corrupt", 100), entries)
        self.assertEqual(rows, 2000 - 33 - 100)
        recipe = self.recipe("SELECT a, b, y FROM 'rows_*.parquet'", data="\n".join([*clean, 'on_corrupt = "skip"']),
                             columns=["a", "b"])
        for cache in ("none", "memory", "disk"):
            summary = self.run_program("train", recipe, "--out", f"run_{cache}", "--json", "--ranks", 2, "--set",
                                       f"loader.cache={cache}").json()
            self.assertEqual(summary["rows"], 2 * rows)
        limited = self.run_program("batches", recipe, "--json", "--limit-rows", 1350).json()
        self.assertEqual(limited["rows"] + limited["rows_dropped"], 1350)


if __name__ == "__main__":
    main()
