"""Bad input gives one error that says what is wrong and where, with the right exit code, on any number of ranks."""

import math
import re
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq

from harness import DATA, PROGRAM, ProgramTest, environment, main


class Files(ProgramTest):
    def batches(self, query, **recipe):
        return ["batches", self.recipe(query, **recipe)]

    def test_missing_file(self):
        self.assert_fails(self.batches("SELECT * FROM 'nothing.parquet'"), 3, "nothing.parquet")

    def test_empty_glob(self):
        (self.scratch / "none").mkdir()
        self.assert_fails(self.batches("SELECT * FROM 'none/*.parquet'"), 3, "none/*.parquet")

    def test_missing_folder(self):
        self.assert_fails(self.batches("SELECT * FROM 'no/such/*.parquet'"), 3, "no/such/*.parquet")

    def test_empty_file(self):
        (self.scratch / "empty.parquet").write_bytes(b"")
        self.assert_fails(self.batches("SELECT * FROM 'empty.parquet'"), 3, "empty.parquet")

    def test_truncated_file(self):
        whole = self.write("whole.parquet").read_bytes()
        (self.scratch / "cut.parquet").write_bytes(whole[:-100])
        self.assert_fails(self.batches("SELECT * FROM 'cut.parquet'"), 3, "cut.parquet")

    def test_damaged_pages(self):
        whole = bytearray(self.write("data.parquet", compression="snappy").read_bytes())
        offset = pq.ParquetFile(self.scratch / "data.parquet").metadata.row_group(0).column(0).data_page_offset
        whole[offset:offset + 400] = bytes(255 - byte for byte in whole[offset:offset + 400])
        (self.scratch / "data.parquet").write_bytes(whole)
        self.assert_fails(self.batches("SELECT * FROM 'data.parquet'"), 3, "data.parquet")

    def test_one_bad_file_among_good_ones(self):
        for i in range(4):
            self.write(f"part{i}.parquet")
        (self.scratch / "part2.parquet").write_bytes(b"PAR1 no parquet")
        text = self.assert_fails(self.batches("SELECT * FROM 'part*.parquet'"), 3, "part2.parquet")
        self.assertNotIn("part1", text)

    def test_columns_that_do_not_unite(self):
        self.write("part1.parquet")
        self.write("part2.parquet", self.table(a=pa.array(["text"] * 2000)))
        self.assert_fails(self.batches("SELECT * FROM 'part*.parquet'"), 3, "part1.parquet", "part2.parquet", "'a'")

    def test_a_bad_csv_cell(self):
        lines = ["a,b,c,y"] + [f"{i},1,2,3" for i in range(300)]
        lines[200] = "199,1,two,3"
        (self.scratch / "data.csv").write_text("\n".join(lines) + "\n")
        # A column with a text in it is a column of text, which is no feature; the text is named.
        for line, recipe in ((200, self.batches("SELECT * FROM 'data.csv'")),
                             (301, self.batches("SELECT * FROM 'data.csv'"))):
            changed = list(lines[:1]) + [f"{i},1,2,3" for i in range(300)]
            changed[line - 1] = f"{line - 2},1,two,3"
            (self.scratch / "data.csv").write_text("\n".join(changed) + "\n")
            self.assert_fails(recipe, 2, "'c'", f"'two' in line {line} of", "data.csv", "TRY_CAST(c AS DOUBLE)")
        # What the error advises works.
        summary = self.run_program(*self.batches("SELECT a, b, TRY_CAST(c AS DOUBLE) AS c, y FROM 'data.csv'",
                                                 features='on_null = "drop"'), "--json").json()
        self.assertEqual(summary["rows"], 299)


class Queries(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("data.parquet")

    def query_fails(self, query, *parts, code=2, **recipe):
        return self.assert_fails(["batches", self.recipe(query, **recipe)], code, *parts)

    def test_unknown_column_names_the_nearest(self):
        self.query_fails("SELECT a, b, c, trip_mils AS y FROM (SELECT *, y AS trip_miles FROM 'data.parquet')",
                         "trip_mils", "trip_miles")

    def test_syntax_error_has_a_caret(self):
        text = self.query_fails("SELECT a, b, c, y\nFROM 'data.parquet'\nWHERE a > > 2", "line 3")
        lines = text.rstrip("\n").splitlines()
        self.assertEqual(lines[-1].strip(), "^")
        self.assertEqual(lines[-2][lines[-1].index("^")], ">")

    def test_type_error(self):
        self.query_fails("SELECT a, b, c, y FROM 'data.parquet' WHERE a + DATE '2024-01-01' > 2", "DATE")

    def test_unknown_function_names_the_nearest(self):
        self.query_fails("SELECT a, b, c, squareroot(y) AS y FROM 'data.parquet'", "squareroot")
        self.query_fails("SELECT a, b, c, flor(y) AS y FROM 'data.parquet'", "flor", "floor")

    def test_a_row_that_fails(self):
        self.query_fails("SELECT a, b, c, CAST(CASE WHEN a = 5 THEN 'five' ELSE '5' END AS DOUBLE) AS y "
                         "FROM 'data.parquet'", "five", "data.parquet", "row", code=3)

    def test_feature_that_is_no_output(self):
        self.query_fails("SELECT a, b, y FROM 'data.parquet'", "c")

    def test_target_that_is_no_output(self):
        self.query_fails("SELECT a, b, c FROM 'data.parquet'", "y")

    def test_target_among_the_features(self):
        self.query_fails("SELECT a, b, c, y FROM 'data.parquet'", "y", columns=["a", "y"])


class Values(ProgramTest):
    def rows_fail(self, column, values, *parts, code=3, **recipe):
        self.write("data.parquet", self.table(**{column: values}), row_group_size=500)
        return self.assert_fails(["batches", self.recipe(**recipe)], code, *parts)

    def with_bad(self, bad, at=1234):
        values = [float(i % 7) for i in range(2000)]
        values[at] = bad
        return pa.array(values, pa.float64())

    def test_null_target(self):
        self.rows_fail("y", self.with_bad(None), "y", "data.parquet", "1234", "row group 2", "on_null_target")

    def test_nan_target(self):
        self.rows_fail("y", self.with_bad(math.nan), "y", "data.parquet", "1234")

    def test_infinite_target(self):
        self.rows_fail("y", self.with_bad(math.inf), "y", "data.parquet", "1234")

    def test_text_target(self):
        self.rows_fail("y", pa.array(["x"] * 2000), "y", code=2)

    def test_null_feature(self):
        self.rows_fail("b", self.with_bad(None), "b", "data.parquet", "1234", "on_null")

    def test_the_first_bad_row_is_named_whoever_meets_it(self):
        values = self.with_bad(None, 1900).to_pylist()
        values[700] = None
        self.rows_fail("b", pa.array(values), "700", "row group 1")

    def test_dropping_counts(self):
        self.write("data.parquet", self.table(b=self.with_bad(None)), row_group_size=500)
        recipe = self.recipe(features='steps = ["standard_scale"]\non_null = "drop"')
        for ranks in (1, 3):
            summary = self.run_program("batches", recipe, "--json", "--ranks", ranks).json()
            self.assertEqual((summary["rows"], summary["rows_dropped"]), (1999, 1))

    def test_filling_needs_no_drop(self):
        self.write("data.parquet", self.table(b=self.with_bad(None)), row_group_size=500)
        recipe = self.recipe(features='steps = ["fill_null(mean)", "standard_scale"]')
        self.assertEqual(self.run_program("batches", recipe, "--json").json()["rows"], 2000)

    def test_a_column_without_any_value(self):
        self.rows_fail("b", pa.array([None] * 2000, pa.float64()), "b",
                       features='steps = ["fill_null(mean)", "standard_scale"]')

    def test_a_constant_column_is_ordinary(self):
        self.write("data.parquet", self.table(b=pa.array([3.0] * 2000)))
        self.assertEqual(self.run_program("batches", self.recipe(), "--json").json()["rows"], 2000)

    def test_zero_rows_after_the_filter(self):
        self.write("data.parquet")
        self.assert_fails(["batches", self.recipe("SELECT * FROM 'data.parquet' WHERE a > 1000")], 1, "no rows")
        self.assert_fails(["train", self.recipe("SELECT * FROM 'data.parquet' WHERE a > 1000"), "--out", "run",
                           "--overwrite"], 1, "no rows")

    def test_a_file_without_rows(self):
        self.write("data.parquet", self.table(rows=0))
        self.assert_fails(["batches", self.recipe()], 1, "no rows")

    def test_a_csv_file_with_only_a_header(self):
        (self.scratch / "data.csv").write_text("a,b,c,y\n")
        self.assert_fails(["batches", self.recipe("SELECT * FROM 'data.csv'")], 1, "no rows")

    def test_a_csv_column_without_a_value(self):
        (self.scratch / "data.csv").write_text("a,b,c,y\n" + "".join(f"{i},1,,3\n" for i in range(300)))
        query = "SELECT * FROM 'data.csv'"
        self.assert_fails(["batches", self.recipe(query)], 3, "'c' is null", "data.csv", "fill_null")
        recipe = self.recipe(query, features='steps = ["fill_null(0)"]')
        for ranks in (1, 3):
            self.assertEqual(self.run_program("batches", recipe, "--json", "--ranks", ranks).json()["rows"], 300)
        self.run_program("train", recipe, "--out", "run")
        self.run_program("predict", "run/bundle", "data.csv", "-o", "p.parquet")
        self.assertEqual(pq.read_table(self.scratch / "p.parquet").num_rows, 300)


class Sizes(ProgramTest):
    """Odd sizes are ordinary."""

    def test_batch_larger_than_the_data(self):
        self.write("data.parquet", self.table(rows=100))
        recipe = self.recipe()
        for ranks in (1, 3):
            summary = self.run_program("batches", recipe, "--set", "loader.batch_size=100000", "--json", "--ranks",
                                       ranks).json()
            self.assertEqual((summary["rows"], summary["batches"]), (100, 1))

    def test_more_ranks_than_blocks(self):
        self.write("data.parquet", self.table(rows=50))
        lines = {self.run_program("batches", self.recipe(), "--digest", "--ranks", ranks, "--trainers", trainers).out
                 for ranks, trainers in ((1, 1), (4, 1), (4, 4))}
        self.assertEqual(len(lines), 1)

    def test_one_row(self):
        self.write("data.parquet", self.table(rows=1))
        summary = self.run_program("train", self.recipe(), "--out", "run", "--json", "--ranks", 3, "--trainers",
                                   "all").json()
        self.assertEqual((summary["rows"], summary["steps"]), (2, 2))

    def test_empty_row_groups_and_files_among_others(self):
        self.write("part1.parquet", self.table(rows=0))
        self.write("part2.parquet", self.table(rows=300))
        self.write("part3.parquet", self.table(rows=0))
        summary = self.run_program("batches", self.recipe("SELECT * FROM 'part*.parquet'"), "--json", "--ranks",
                                   3).json()
        self.assertEqual(summary["rows"], 300)


class Recipes(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("data.parquet")

    def test_unknown_key(self):
        self.assert_fails(["train", self.recipe(train="learning_rat = 1")], 2, "recipe.toml, line ",
                          "learning_rat", "did you mean 'train.learning_rate'?")

    def test_broken_toml(self):
        (self.scratch / "bad.toml").write_text("[data]\ntrain = \"SELECT\n")
        text = self.assert_fails(["train", "bad.toml"], 2, "bad.toml, line 2")
        self.assertEqual(text.rstrip("\n").splitlines()[-1].strip(), "^")

    def test_missing_recipe(self):
        self.assert_fails(["train", "nothing.toml"], 3, "nothing.toml")

    def test_set_of_an_unknown_key(self):
        self.assert_fails(["batches", self.recipe(), "--set", "train.epoch=2"], 2, "--set train.epoch=2",
                          "did you mean 'train.epochs'?")

    def test_set_of_a_number_that_is_too_large(self):
        text = self.assert_fails(["batches", self.recipe(), "--set", "train.seed=99999999999999999999"], 2,
                                 "train.seed", "99999999999999999999, more than an integer holds")
        self.assertNotIn("string", text)

    def test_unknown_step(self):
        self.assert_fails(["batches", self.recipe(features='steps = ["standardscale"]')], 2, "standardscale",
                          "standard_scale")

    def test_window_that_does_not_fit_the_memory(self):
        self.write("data.parquet", self.table(rows=20000), row_group_size=500)
        for ranks in (1, 3):  # each rank holds its own part
            self.assert_fails(["batches", self.recipe(loader="window = 100000000000"), "--memory", "256KiB"], 2,
                              "its budget is 256 KiB", "would fit", "--memory", ranks=[ranks])

    def test_the_advice_on_memory_works(self):
        self.write("data.parquet", self.table(rows=20000), row_group_size=500)
        kinds = set()
        for memory in ("24KiB", "64KiB", "128KiB", "256KiB"):
            for ranks in (1, 3):
                for settings in ("", "batch_size = 20000", 'shuffle = "none"'):
                    recipe = self.recipe(loader=settings.replace("batch_size = 20000", ""))
                    more = ["--set", "loader.batch_size=20000"] if "batch" in settings else []
                    command = ["batches", recipe, "--json", "--memory", memory, "--ranks", ranks, *more]
                    ended = self.run_program(*command, code=None)
                    if ended.code == 0:
                        continue
                    self.assertEqual(ended.code, 2, ended)
                    found = re.search(r"its budget is [^;]*; (.*) would fit, or give more with --memory", ended.err)
                    if found is None:
                        self.assertIn("no settings would fit", ended.err)
                        kinds.add("none")
                        continue
                    advised = [part.replace(" ", "") for part in found[1].split(", ")]
                    kinds.add(" ".join(part.split("=")[0] for part in advised))
                    window = re.search("window=([0-9]+)", " ".join(advised))
                    if window:
                        self.assertLessEqual(int(window[1]), 20000)
                    for part in advised:
                        command += ["--set", part]
                    self.assertEqual(self.run_program(*command).json()["rows"], 20000)
        self.assertGreaterEqual(len(kinds), 3, kinds)


class Directories(ProgramTest):
    """Tests may run as root, so that a folder without permission refuses nothing; a file in the way does."""

    def setUp(self):
        super().setUp()
        self.write("data.parquet")
        (self.scratch / "file").write_text("in the way")

    def test_run_directory_that_cannot_be_made(self):
        self.assert_fails(["train", self.recipe(), "--out", "file/run"], 3, "file/run")

    def test_run_directory_that_is_a_file(self):
        self.assert_fails(["train", self.recipe(), "--out", "file"], 2, "file")

    def test_run_directory_that_exists(self):
        (self.scratch / "run").mkdir()
        (self.scratch / "run" / "metrics.jsonl").write_text("{}\n")
        self.assert_fails(["train", self.recipe(), "--out", "run"], 2, "run", "--overwrite")
        self.run_program("train", self.recipe(), "--out", "run", "--overwrite")

    def test_generate_into_a_file(self):
        self.assert_fails(["generate", "hvfhv", "--rows", 10, "--files", 1, "--out", "file"], 3, "file")


class Output(ProgramTest):
    def test_standard_output_that_is_full(self):
        self.write("data.parquet")
        for ranks in (1, 2):
            command = [PROGRAM, "batches", self.recipe(), "--json", "--ranks", str(ranks)]
            with open("/dev/full", "w") as full:
                done = subprocess.run(command, cwd=self.scratch, stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=environment(self.scratch), timeout=60)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("standard output", done.stderr)


class BrokenParquet(ProgramTest):
    """Files that other projects collected because they broke a reader. None may crash or hang us."""

    def every_column(self, path):
        """A query that reads all columns, whatever their types; or one that opens the file, where pyarrow can't."""
        try:
            names = pq.read_schema(path).names
        except Exception:
            return f"SELECT * FROM read_parquet('{path}')", ["c0"]
        outputs = [f'CASE WHEN "{name}" IS NULL THEN 0 ELSE 1 END AS c{i}' for i, name in enumerate(names)]
        return (f"SELECT {', '.join(outputs)}, 1.0 AS y FROM read_parquet('{path}')",
                [f"c{i}" for i in range(len(names))])

    def test_each(self):
        folder = DATA / "parquet_broken"
        if not folder.is_dir():
            self.skipTest(f"no {folder}")
        read_errors = 0
        for line in (folder / "INDEX.tsv").read_text(errors="replace").splitlines()[1:]:
            name, _, pyarrow_says = line.split("\t")[:3]
            with self.subTest(name):
                query, columns = self.every_column(folder / name)
                recipe = self.recipe(query, columns=columns, features="steps = []")
                ended = self.run_program("batches", recipe, "--json", code=None)
                self.assertIn(ended.code, (0, 1, 2, 3), ended)
                if ended.code:
                    self.assert_one_error(ended)
                    if ended.code == 3:
                        self.assertIn(name, ended.err)
                if pyarrow_says.startswith("OPEN_ERR"):
                    self.assertEqual(ended.code, 3, ended)
                read_errors += ended.code == 3
        self.assertGreater(read_errors, 40)

    def test_some_on_three_ranks(self):
        folder = DATA / "parquet_broken"
        if not folder.is_dir():
            self.skipTest(f"no {folder}")
        for name in ("apache_impala__testdata__data__bad_rle_repeat_count.parquet",
                     "apache_impala__testdata__data__bad_magic_number.parquet",
                     "cudf__python__cudf__cudf__tests__data__parquet__invalid-snappy.parquet"):
            with self.subTest(name):
                query, columns = self.every_column(folder / name)
                self.assert_fails(["batches", self.recipe(query, columns=columns, features="steps = []")], 3, name)


if __name__ == "__main__":
    main()
