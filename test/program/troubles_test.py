"""Troubles that others had with features and tables (design, section 13, 4 to 9), each as a user would meet it."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.parquet as pq

from harness import ProgramTest, main

Y = [float(i % 7) for i in range(400)]


class Troubles(ProgramTest):
    def digests(self, recipe, *more, ranks=(1, 2, 4)):
        """Of all batches, the same on any number of ranks."""
        outs = {self.run_program("batches", recipe, "--digest", "--ranks", count, "--cache", f"c{count}", *more).out
                for count in ranks}
        self.assertEqual(len(outs), 1, outs)
        return outs.pop()

    def fitted(self, recipe):
        """The bundle's fitted values by (column, name), after an epoch."""
        self.run_program("train", recipe, "--out", "run", "--overwrite", "--quiet")
        values = self.bundle()["fitted"]["values"]
        return {(value["column"], value["name"]): value["value"] for value in values}

    def bundle(self):
        import json
        return json.loads((self.scratch / "run" / "bundle" / "bundle.json").read_text())

    def predictions(self, name):
        self.run_program("predict", "run/bundle", name, "-o", "p.parquet", "--overwrite")
        return pq.read_table(self.scratch / "p.parquet").column(0).to_pylist()

    # 4. Null integers crash the reader (Petastorm); an all-null column breaks the scaler (Ray); zero-variance columns
    # divide by zero.

    def test_trouble_4_null_integers(self):
        ints = [None if i % 3 == 0 else i % 50 for i in range(400)]
        self.write("data.parquet", pa.table({"a": pa.array(ints, pa.int64()), "b": pa.array(ints, pa.int8()),
                                             "c": pa.array([None if v is None else v % 2 == 0 for v in ints]), "y": Y}))
        recipe = self.recipe(features='steps = ["null_indicator", "fill_null(median)", "standard_scale"]')
        self.digests(recipe)
        there = sorted(v for v in ints if v is not None)
        middle = (there[(len(there) - 1) // 2] + there[len(there) // 2]) / 2
        self.assertEqual(self.fitted(recipe)[("a", "median")], middle)

    def test_trouble_4_an_all_null_column(self):
        self.write("data.parquet", pa.table({"a": pa.nulls(400, pa.float64()), "b": pa.nulls(400, pa.int32()),
                                             "c": pa.nulls(400), "y": Y}))
        for scaler in ("standard_scale", "min_max_scale", "max_abs_scale", "robust_scale", "quantile_transform",
                       "clip(quantiles, 0.1, 0.9)", "bucketize(quantiles, 4)"):
            self.digests(self.recipe(features=f'steps = ["{scaler}", "fill_null(3)"]'), ranks=(1, 3))
        self.assert_fails(["batches", self.recipe(features='steps = ["fill_null(mean)"]')], 3,
                          "fill_null(mean) of column 'a': all its values in the training rows are null")

    def test_trouble_4_zero_variance(self):
        self.write("data.parquet", self.table(rows=400, a=pa.array([0.1] * 400), b=pa.array([10**9] * 400), c=pa.array([0] * 400)))
        for scaler in ("standard_scale", "min_max_scale", "max_abs_scale", "robust_scale", "quantile_transform",
                       "bucketize(quantiles, 4)"):
            self.digests(self.recipe(features=f'steps = ["{scaler}"]'), ranks=(1, 3))
        self.assertEqual(self.fitted(self.recipe())[("b", "scale")], 1)

    # 5. Categories: out of memory at 250 k values, off-by-one ids for unknown and null (NVTabular); an encoder that
    # fails when a block lacks a value (Ray).

    def test_trouble_5_three_hundred_thousand_categories(self):
        rows = 400_000
        texts = [f"value {i * 7919 % 300_000}" for i in range(rows)]
        self.write("data.parquet", pa.table({"a": texts, "y": [float(i % 7) for i in range(rows)]}), row_group_size=30_000)
        recipe = self.recipe("SELECT a, y FROM 'data.parquet'", columns=["a"],
                             features='steps = ["categorify", "embedding(1)"]')
        ample = self.digests(recipe)
        for ranks in (1, 3):
            out = self.run_program("batches", recipe, "--json", "--ranks", ranks, "--memory", "48MiB", "--threads", 2,
                                   "--cache", f"small{ranks}").json()
            self.assertGreater(out["spilled_bytes"], 0)
            # The list is in the cache now.
            again = self.run_program("batches", recipe, "--json", "--ranks", ranks, "--memory", "48MiB", "--cache",
                                     f"small{ranks}").json()
            self.assertEqual(again["spilled_bytes"], 0)
            little = self.run_program("batches", recipe, "--digest", "--ranks", ranks, "--memory", "48MiB", "--cache",
                                      f"tiny{ranks}").out
            self.assertEqual(little, ample)
            known = self.run_program("batches", recipe, "--digest", "--ranks", ranks, "--cache", f"small{ranks}").out
            self.assertEqual(known, ample)

    def test_trouble_5_ids_of_unknown_and_null(self):
        """A linear model of the id tells the id: 0 unknown, 1 null, then by count and value, on either side of the size
        from which ids are looked up in a table."""
        for number in (5, 500):
            # Value v is there number - v times; "z" and "A" once each, behind the smaller ones of the same count.
            texts = [f"v{v:03}" for v in range(number) for _ in range(number - v)] + ["z", "A", None, None]
            self.write("data.parquet", pa.table({"a": texts, "y": [0.0] * len(texts)}), row_group_size=1000)
            recipe = self.recipe("SELECT a, y FROM 'data.parquet'", columns=["a"], features='steps = ["categorify"]',
                                 train="learning_rate = 1e-12", more="").read_text().replace("hidden = [8]", "hidden = []")
            (self.scratch / "linear.toml").write_text(recipe)
            self.run_program("train", "linear.toml", "--out", "run", "--overwrite", "--quiet", "--ranks", 2)
            asked = ["never seen", None] + [f"v{v:03}" for v in range(number - 1)] + ["A", f"v{number - 1:03}", "z", ""]
            self.write("new.parquet", pa.table({"a": asked}))
            predicted = self.predictions("new.parquet")
            step = predicted[1] - predicted[0]
            ids = [round((value - predicted[0]) / step) for value in predicted]
            self.assertEqual(ids, list(range(number + 4)) + [0])
            self.assertEqual((self.scratch / "run" / "bundle" / "categories.safetensors").exists(), number > 64)

    def test_trouble_5_a_block_that_lacks_a_value(self):
        # Every row group has values of its own; one has nulls alone.
        texts = [None if i // 50 == 3 else f"group {i // 50}" for i in range(400)]
        self.write("data.parquet", pa.table({"a": texts, "y": Y}), row_group_size=50)
        for step in ("one_hot", "categorify", "target_encode", "fill_null(most_frequent)\", \"hash_bucket(9)"):
            self.digests(self.recipe("SELECT a, y FROM 'data.parquet'", columns=["a"], features=f'steps = ["{step}"]'))

    # 6. Time zones lost (Ray); ns in one month's file and us in the next; decimals and timestamps that cannot become
    # tensors; dictionary columns unreadable (Polars).

    def test_trouble_6_time_zones(self):
        start = datetime.datetime(2024, 3, 10, 6, tzinfo=datetime.timezone.utc)
        instants = [start + datetime.timedelta(minutes=7 * i) for i in range(400)]
        zoned = pa.array(instants, pa.timestamp("us", "America/New_York"))
        self.write("zoned.parquet", pa.table({"t": zoned, "y": Y}))
        self.write("utc.parquet", pa.table({"t": zoned.cast(pa.timestamp("us", "UTC")), "y": Y}))
        feature = 'steps = ["datetime(hour, day)"]'
        zoned, utc = (self.digests(self.recipe(f"SELECT t, y FROM '{name}.parquet'", columns=["t"], features=feature,
                                               loader='shuffle = "none"')) for name in ("zoned", "utc"))
        self.assertEqual(zoned, utc)
        # Local hours are the query's: two ways to say them.
        local = [self.digests(self.recipe(f"SELECT {hour} AS h, y FROM 'zoned.parquet'", columns=["h"], features="steps = []",
                                          loader='shuffle = "none"'))
                 for hour in ("hour(timezone('America/New_York', t))", "date_part('hour', timezone('America/New_York', t))")]
        self.assertEqual(*local)
        self.assertNotEqual(local[0], self.digests(self.recipe("SELECT hour(t) AS h, y FROM 'utc.parquet'", columns=["h"],
                                                               features="steps = []", loader='shuffle = "none"')))

    def test_trouble_6_units_that_change_from_file_to_file(self):
        start = datetime.datetime(2024, 1, 1)
        instants = [start + datetime.timedelta(minutes=7 * i) for i in range(400)]
        for i, unit in enumerate(("ns", "us", "ms", "s")):
            part = pa.array(instants[100 * i:100 * i + 100], pa.timestamp("us")).cast(pa.timestamp(unit))
            self.write(f"months/{i}.parquet", pa.table({"t": part, "y": Y[:100]}))
            self.write(f"same/{i}.parquet", pa.table({"t": part.cast(pa.timestamp("us")), "y": Y[:100]}))
        mixed, same = (self.digests(self.recipe(f"SELECT t, y FROM '{folder}/*.parquet'", columns=["t"],
                                                features='steps = ["elapsed", "standard_scale"]'))
                       for folder in ("months", "same"))
        self.assertEqual(mixed, same)

    def test_trouble_6_decimals_timestamps_and_dictionaries(self):
        cents = [decimal.Decimal(i * 37 % 1000) / 100 for i in range(400)]
        colours = ["red", "green", None, "blue"]
        texts = [colours[i % 4] for i in range(400)]
        days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(400)]
        money, day = pa.array(cents, pa.decimal128(9, 2)), pa.array(days)
        self.write("odd.parquet", pa.table({"a": money, "b": pa.array(texts).dictionary_encode(), "c": day, "y": Y}))
        self.write("plain.parquet", pa.table({"a": pa.array([float(c) for c in cents]), "b": pa.array(texts, pa.large_string()),
                                              "c": day.cast(pa.timestamp("s")), "y": Y}))
        features = ('steps = ["standard_scale"]\n[[feature]]\ncolumns = ["b"]\nsteps = ["one_hot"]\n'
                    '[[feature]]\ncolumns = ["c"]\nsteps = ["elapsed", "min_max_scale"]')
        odd, plain = (self.digests(self.recipe(f"SELECT a, b, c, y FROM '{name}.parquet'", columns=["a"], features=features))
                      for name in ("odd", "plain"))
        self.assertEqual(odd, plain)

    # 7. Errors that omit file and column (Polars); schema errors that abort after an hour.

    def test_trouble_7_errors_name_file_and_column(self):
        self.write("rows/1.parquet", self.table(rows=400))
        values = [float(i) for i in range(400)]
        values[317] = None
        self.write("rows/2.parquet", self.table(rows=400, b=pa.array(values)), row_group_size=100)
        self.assert_fails(["batches", self.recipe("SELECT a, b, c, y FROM 'rows/*.parquet'")], 3, "'b' is null in ",
                          "rows/2.parquet, row group 3, row 317")

    def test_trouble_7_schemas_are_checked_before_rows_are_read(self):
        self.write("rows/1.parquet", self.table(rows=400))
        # The file that does not fit comes last; the pages of the first are damaged, which nobody gets to see.
        damaged = self.write("rows/0.parquet", self.table(rows=400), compression="none")
        content = bytearray(damaged.read_bytes())
        content[4:400] = bytes(396)
        damaged.write_bytes(content)
        self.write("rows/9.parquet", self.table(rows=400, b=pa.array(["text"] * 400)))
        error = self.assert_fails(["train", self.recipe("SELECT a, b, c, y FROM 'rows/*.parquet'"), "--out", "run",
                                   "--overwrite"], 3, "9.parquet", "there is no type that holds both")
        self.assertIn("column 'b'", error)

    # 8. string against large_string; 32-bit offset overflow in big string columns (Arrow, Ray).

    def test_trouble_8_string_and_large_string(self):
        texts = pa.array([f"t{i % 9}" for i in range(200)])
        for i, kind in enumerate((pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))):
            self.write(f"rows/{i}.parquet", pa.table({"a": texts.cast(kind), "y": Y[:200]}))
            self.write(f"same/{i}.parquet", pa.table({"a": texts, "y": Y[:200]}))
        mixed, same = (self.digests(self.recipe(f"SELECT a, y FROM '{folder}/*.parquet'", columns=["a"],
                                                features='steps = ["categorify"]')) for folder in ("rows", "same"))
        self.assertEqual(mixed, same)

    def test_trouble_8_more_than_two_gigabytes_of_text_in_a_row_group(self):
        # 2.2 GiB of text in one row group of one file; few different texts, so that the file is small.
        texts = [chr(97 + i) * 12_000 for i in range(3)]
        places = pa.array([i % 3 for i in range(196_608)], pa.int32())
        self.write("data.parquet", pa.table({"a": pa.DictionaryArray.from_arrays(places, pa.array(texts)),
                                             "y": places.cast(pa.float64())}), compression="zstd")
        recipe = self.recipe("SELECT a, length(a) AS n, y FROM 'data.parquet'", columns=["a"],
                             features='steps = ["categorify", "embedding(2)"]\n[[feature]]\ncolumns = ["n"]', loader='cache = "none"')
        self.digests(recipe, "--threads", 1, ranks=(1, 2))

    # 9. Zero-row files and partitions crash (Polars, Daft); fewer row groups than ranks refused (Horovod).

    def test_trouble_9_files_without_rows(self):
        empty = self.table(rows=0).cast(self.table(rows=1).schema)
        for name in ("0", "2", "4"):
            self.write(f"rows/{name}.parquet", empty)
        for name in ("1", "3"):
            self.write(f"rows/{name}.parquet", self.table(rows=300))
            self.write(f"same/{name}.parquet", self.table(rows=300))
        query = "SELECT a, b, c, y FROM '{}/*.parquet'"
        some, same = (self.digests(self.recipe(query.format(folder))) for folder in ("rows", "same"))
        self.assertEqual(some, same)
        self.assert_fails(["batches", self.recipe("SELECT a, b, c, y FROM 'rows/[024].parquet'")], 1, "no rows")

    def test_trouble_9_fewer_row_groups_than_ranks(self):
        self.write("data.parquet", self.table(rows=90), row_group_size=50)
        self.digests(self.recipe(), ranks=(1, 2, 4))
        for rows in (1, 2):
            self.write("data.parquet", self.table(rows=rows))
            self.digests(self.recipe(), ranks=(1, 4))


if __name__ == "__main__":
    main()
