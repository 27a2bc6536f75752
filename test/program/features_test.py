"""Feature steps from recipe to bundle: the same batches on any number of ranks and threads, and in predict."""

import datetime
import random

import pyarrow as pa
import pyarrow.parquet as pq

from harness import DATA, SOURCE, ProgramTest, main

RECIPE = """
[data]
train = "SELECT *, s AS s2 FROM 'rows_*.parquet'"
valid = 0.2
target = "y"

[[feature]]
columns = ["a"]
steps = ["null_indicator", "fill_null(median)", "clip(quantiles, 0.01, 0.99)", "robust_scale"]

[[feature]]
columns = ["b"]
steps = ["fill_null(most_frequent)", "bucketize(quantiles, 5)", "min_max_scale"]

[[feature]]
columns = ["t"]
steps = ["datetime(hour, dayofweek)", "cyclical(24)"]

[[feature]]
columns = ["seen"]
steps = ["elapsed", "standard_scale"]

[[feature]]
columns = ["s"]
steps = ["hash_bucket(16)", "max_abs_scale"]

[[feature]]
columns = ["s2"]
steps = ["one_hot(min_count=10)"]

[loader]
batch_size = 500
window = 1000

[train]
epochs = 1
"""

ENCODING = """
[data]
train = "SELECT *, s AS s2 FROM 'rows_*.parquet'"
valid = 0.2
target = "y"

[[feature]]
columns = ["s"]
steps = ["target_encode(smooth=5, folds=3)", "standard_scale"]

[[feature]]
columns = ["s2"]
steps = ["cross(b)", "target_encode"]

[[feature]]
columns = ["a"]
steps = ["fill_null(median)", "quantile_transform(20)"]

[loader]
batch_size = 500
window = 1000

[train]
epochs = 1
"""


class Features(ProgramTest):
    def make_rows(self):
        source = random.Random(8)
        start = datetime.datetime(2024, 1, 1)
        for file in range(3):
            rows = [{
                "a": None if source.random() < 0.1 else source.gauss(3, 5),
                "b": None if source.random() < 0.1 else source.randrange(9),
                "t": start + datetime.timedelta(minutes=source.randrange(500000)),
                "seen": (start + datetime.timedelta(days=source.randrange(300))).date(),
                "s": None if source.random() < 0.1 else source.choice(["x", "y y", "", "z'"]),
                "y": source.random(),
            } for _ in range(2000)]
            pq.write_table(pa.Table.from_pylist(rows), self.scratch / f"rows_{file}.parquet", row_group_size=700)
        (self.scratch / "r.toml").write_text(RECIPE)

    def test_the_same_batches_on_any_number_of_ranks(self):
        self.make_rows()
        digests = set()
        for ranks in (1, 2, 3, 4):
            for threads in (1, 2):
                out = self.run_program("batches", "r.toml", "--digest", "--epochs", 1, "--ranks", ranks, "--threads",
                                       threads, "--cache", f"cache_{ranks}_{threads}").out
                self.assertGreater(len(out.splitlines()), 5)
                digests.add(out)
        self.assertEqual(len(digests), 1, digests)

    def test_embeddings_and_weights(self):
        """Ids and weights beside the numbers: the same on any number of ranks, in training and from the bundle."""
        self.make_rows()
        text = (self.scratch / "r.toml").read_text()
        text = text.replace('"hash_bucket(16)", "max_abs_scale"', '"hash_bucket(16)", "embedding(4)"')
        text = text.replace('"one_hot(min_count=10)"', '"categorify(min_count=10)", "embedding(3)"')
        text = text.replace("[data]", '[data]\nweight = "w"').replace("SELECT ", "SELECT 0.5 + abs(coalesce(a, 0)) AS w, ")
        (self.scratch / "e.toml").write_text(text)
        digests = {self.run_program("batches", "e.toml", "--digest", "--ranks", ranks, "--transport", transport).out
                   for ranks in (1, 3) for transport in ("shared", "messages")}
        self.assertEqual(len(digests), 1, digests)
        for kind in ("mlp", "wide_deep", "dcn"):
            for ranks in (1, 2):
                summary = self.run_program(
                    "train", "e.toml", "--out", "run", "--overwrite", "--json", "--ranks", ranks, "--trainers", "all", "--set",
                    f"model.kind={kind}", "--set", "model.batch_norm=true", "--set", "model.dropout=0.1").json()
            scored = self.run_program("evaluate", "run/bundle", "rows_*.parquet", "--json").json()
            self.assertLess(scored["rmse"], 1.0)
            self.run_program("predict", "run/bundle", "rows_*.parquet", "-o", f"{kind}.parquet")
            self.assertEqual(pq.read_table(self.scratch / f"{kind}.parquet").num_rows, 6000)
            self.assertGreater(summary["parameters"], 17 * 4)
        self.assertIn("the weight column 'y' is also the target",
                      self.run_program("batches", "e.toml", "--set", "data.weight=y", code=2).err)
    def test_encoded_targets_crossed_columns_and_quantiles(self):
        self.make_rows()
        (self.scratch / "e.toml").write_text(ENCODING)
        for valid in ("0.2", '"SELECT *, s AS s2 FROM \'rows_2.parquet\'"'):
            digests = set()
            for ranks in (1, 2, 4):
                for cache in ("none", "disk"):
                    out = self.run_program("batches", "e.toml", "--digest", "--ranks", ranks, "--set", f"data.valid={valid}",
                                           "--set", f"loader.cache={cache}", "--cache", f"c_{ranks}_{cache}").out
                    digests.add(out)
            self.assertEqual(len(digests), 1)
        self.run_program("train", "e.toml", "--out", "run", "--ranks", 2)
        # "b" is only crossed with, and still needed.
        table = pq.read_table(self.scratch / "rows_0.parquet")
        pq.write_table(table.select(["s", "a", "b"]), self.scratch / "some.parquet")
        self.run_program("predict", "run/bundle", "some.parquet", "-o", "p.parquet")
        self.assertEqual(pq.read_metadata(self.scratch / "p.parquet").num_rows, 2000)
        pq.write_table(table.select(["s", "a"]), self.scratch / "few.parquet")
        done = self.run_program("predict", "run/bundle", "few.parquet", "-o", "q.parquet", code=3)
        self.assertIn("has no column 'b'", done.err)

    def test_an_encoded_target_does_not_leak(self):
        # Every row has a category of its own and the target is noise: encoded with its own target a row would tell it.
        source = random.Random(4)
        rows = 4000
        table = pa.table({"s": [f"row {i}" for i in range(rows)], "y": [source.gauss(0, 1) for _ in range(rows)]})
        pq.write_table(table, self.scratch / "noise.parquet")
        (self.scratch / "n.toml").write_text("""
[data]
train = "SELECT s, y FROM 'noise.parquet'"
target = "y"
[[feature]]
columns = ["s"]
steps = ["target_encode(smooth=0)", "standard_scale"]
[loader]
batch_size = 256
[train]
epochs = 4
""")
        summary = self.run_program("train", "n.toml", "--out", "run", "--json").json()
        self.assertGreater(summary["loss_last"], 0.8)

    def test_the_bundle_does_the_same(self):
        self.make_rows()
        summary = self.run_program("train", "r.toml", "--out", "run", "--json", "--ranks", 2).json()
        self.assertTrue(summary["valid"])
        self.run_program("predict", "run/bundle", "rows_0.parquet", "-o", "p.parquet")
        self.assertEqual(pq.read_metadata(self.scratch / "p.parquet").num_rows, 2000)
        scores = self.run_program("evaluate", "run/bundle", "rows_0.parquet", "--json").json()
        self.assertEqual(scores["rows"], 2000)

    def test_unseen_texts_are_as_good_as_seen_ones(self):
        self.make_rows()
        self.run_program("train", "r.toml", "--out", "run")
        table = pq.read_table(self.scratch / "rows_0.parquet")
        index = table.schema.get_field_index("s")
        unseen = table.set_column(index, "s", pa.array(["never seen"] * len(table)))
        pq.write_table(unseen.select(list(reversed(unseen.column_names))), self.scratch / "unseen.parquet")
        self.run_program("predict", "run/bundle", "unseen.parquet", "-o", "p.parquet")
        self.assertEqual(pq.read_metadata(self.scratch / "p.parquet").num_rows, 2000)

    def test_predict_on_other_files(self):
        """Columns in another order, others besides, texts that were never seen, optional and missing columns."""
        source = random.Random(3)
        rows = [{"a": None if source.random() < 0.2 else source.gauss(0, 1), "s": source.choice("xyz"),
                 "n": float(source.randrange(5)), "kind": source.choice(["train", "other"]), "w": 1.0, "customer": i % 50,
                 "y": source.random()} for i in range(3000)]
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, self.scratch / "rows.parquet", row_group_size=500)
        (self.scratch / "r.toml").write_text("""
[data]
train = "SELECT a, s, n * 2 AS n2, w, customer, y FROM 'rows.parquet' WHERE kind = 'train'"
valid = 0.2
split_by = "customer"
weight = "w"
target = "y"
[[feature]]
columns = ["a"]
steps = ["null_indicator", "fill_null(median)", "standard_scale"]
[[feature]]
columns = ["s"]
steps = ["categorify", "embedding(2)"]
[[feature]]
columns = ["n2"]
[train]
epochs = 1
""")
        self.run_program("train", "r.toml", "--out", "run", "--ranks", 2)

        def predictions(table, *more, ranks=1):
            pq.write_table(table, self.scratch / "new.parquet", row_group_size=400)
            done = self.run_program("predict", "run/bundle", "new.parquet", "-o", "p.parquet", "--overwrite", "--ranks", ranks, *more)
            return pq.read_table(self.scratch / "p.parquet").column(0).to_pylist(), done.err
        whole, _ = predictions(table)
        self.assertEqual(len(whole), 3000)
        # Target, weight, filter and split are optional; order and other columns are nothing to it.
        mixed = table.select(["n", "s", "a"]).append_column("more", pa.array([None] * 3000))
        self.assertEqual(predictions(mixed, ranks=3)[0], whole)
        # What was never seen is one category, and not that of null.
        def with_texts(texts):
            return predictions(table.set_column(table.column_names.index("s"), "s", pa.array(texts, pa.string())))[0]
        unseen = with_texts(["never seen"] * 3000)
        self.assertEqual(unseen, with_texts(["nor this"] * 3000))
        self.assertNotEqual(unseen, with_texts([None] * 3000))
        # A feature's column that is missing is an error, or nulls if so asked.
        few = table.select(["n", "s"])
        pq.write_table(few, self.scratch / "few.parquet")
        error = self.assert_fails(["predict", "run/bundle", "few.parquet", "-o", "q.parquet"], 3,
                                  "few.parquet has no column 'a': the bundle's features need it, with type DOUBLE; "
                                  "--missing-as-null takes it for one of nulls")
        self.assertNotIn("'s'", error)
        null = predictions(few.append_column("a", pa.nulls(3000, pa.float64())))[0]
        for ranks in (1, 3):
            taken, told = predictions(few, "--missing-as-null", ranks=ranks)
            self.assertEqual(taken, null)
            self.assertEqual(told.count("the input has no column 'a': it is taken for one of nulls"), 1, told)
        # Where no step fills nulls they stay an error, with its place.
        pq.write_table(table.select(["a", "s"]), self.scratch / "few.parquet")
        self.assert_fails(["predict", "run/bundle", "few.parquet", "-o", "q.parquet", "--missing-as-null"], 3,
                          "'n2' is null in ", "row 0")

    def test_california_reaches_what_scikit_learn_does(self):
        if not (DATA / "tabular").is_dir():
            self.skipTest(f"no {DATA / 'tabular'}")
        recipe = SOURCE / "examples" / "california" / "california.toml"
        summary = self.run_program("train", recipe, "--set", f"define.tabular={DATA / 'tabular'}", "--out", "run",
                                   "--json", limit=300).json()
        # MLPRegressor with the same features, widths, batch size and epochs: RMSE 0.519 and 0.523, R2 0.801, for two
        # seeds and splits.
        self.assertLess(summary["valid"]["rmse"], 0.55)
        self.assertGreater(summary["valid"]["r2"], 0.77)
        self.run_program("evaluate", "run/bundle", DATA / "tabular" / "california_housing.csv")

    def example(self, name, *more):
        if not (DATA / "tabular").is_dir():
            self.skipTest(f"no {DATA / 'tabular'}")
        recipe = SOURCE / "examples" / name / f"{name}.toml"
        return self.run_program("train", recipe, "--set", f"define.tabular={DATA / 'tabular'}", "--out", "run",
                                "--overwrite", "--json", *more, limit=300).json()

    def test_adults_reaches_what_scikit_learn_does(self):
        summary = self.example("adults")
        # MLPClassifier with the same features, widths, batch size and epochs (bench/examples.py): see the recipe.
        for part in ("valid", "test"):
            self.assertGreater(summary[part]["accuracy"], 0.84)
            self.assertGreater(summary[part]["auc"], 0.9)
        self.assertLess(abs(summary["rows_test"] / 48842 - 0.2), 0.005)
        self.run_program("evaluate", "run/bundle", DATA / "tabular" / "adults.parquet")

    def test_titanic_reaches_what_scikit_learn_does(self):
        accuracy = [self.example("titanic", "--set", f"data.fold={fold}")["valid"]["accuracy"] for fold in range(5)]
        self.assertGreater(sum(accuracy) / 5, 0.79)

    def test_a_wrong_type_is_named(self):
        self.make_rows()
        (self.scratch / "w.toml").write_text(RECIPE.replace('"elapsed", "standard_scale"', '"standard_scale"'))
        done = self.run_program("batches", "w.toml", code=2)
        self.assertIn("feature column 'seen': standard_scale takes a number, and it is a date32[day] there",
                      done.err)


if __name__ == "__main__":
    main()
