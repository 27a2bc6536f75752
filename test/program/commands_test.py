"""The commands, their options and what they print."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq

from harness import SOURCE, ProgramTest, main

TRAIN_KEYS = ("rows rows_dropped steps epochs ranks trainers seconds_total seconds_survey seconds_to_first_batch "
              "seconds_training rows_per_second wait_fraction loss_first loss_last valid peak_rss_bytes bundle "
              "run").split()
BATCHES_KEYS = "rows batches rows_per_second seconds_to_first_batch cache shuffle_quality".split()


class CommandLine(ProgramTest):
    def test_version_and_help(self):
        self.assertRegex(self.run_program("--version").out, r"^millstream \d+\.\d+\.\d+\n$")
        text = self.run_program("--help").out
        for command in ("train", "batches", "predict", "evaluate", "export", "query", "explain", "generate", "info"):
            self.assertIn(command, text)
            self.assertIn("Usage", self.run_program(command, "--help").out)

    def test_train_help_lists_every_key_of_the_document(self):
        text = self.run_program("train", "--help").out
        document = (SOURCE / "docs" / "recipe.md").read_text().split("## Keys")[1]
        keys = re.findall(r"^\| `(\w+)` \|", document, re.M)
        self.assertGreater(len(keys), 15)
        for key in keys:
            self.assertRegex(text, rf"(?m)^  {key} ")

    def test_slips(self):
        for arguments, part in ((["trian"], "did you mean 'train'?"),
                                (["train", "r.toml", "--rank", "3"], "did you mean '--ranks'?"),
                                (["info", "--ranks", "many"], "--ranks many"),
                                (["info", "--memory", "much"], "--memory much"),
                                (["predict", "bundle"], "INPUT is missing")):
            ended = self.run_program(*arguments, code=2)
            self.assert_one_error(ended)
            self.assertIn(part, ended.err)

    def test_what_does_not_train_does_not_load_torch(self):
        self.write("data.parquet")
        for arguments in (["--version"], ["trian"], ["batches", self.recipe()]):
            loaded = self.run_program(*arguments, code=None, variables={"LD_DEBUG": "files"}).err
            self.assertIn("libarrow", loaded)
            self.assertNotIn("torch", loaded)

    def test_trainers_that_do_not_exist(self):
        self.assert_fails(["info", "--trainers", "0,9"], 2, "there is no rank 9; the job has 3 ranks", ranks=[3])
        self.assert_fails(["info", "--trainers", "some"], 2, "some")


class Info(ProgramTest):
    def test_ranks_and_roles(self):
        info = self.run_program("info", "--json", "--ranks", 3, "--trainers", "1,2", "--memory", "1GiB").json()
        self.assertEqual([rank["trains"] for rank in info["ranks"]], [False, True, True])
        self.assertEqual([rank["memory_bytes"] for rank in info["ranks"]], [1 << 30] * 3)
        self.assertEqual(len(info["hosts"]), 1)
        for name in ("millstream", "arrow", "mpi_compiled", "mpi_running", "torch"):
            self.assertTrue(info["versions"][name], name)

    def test_text(self):
        self.assertIn("Arrow", self.run_program("info").out)


class Generate(ProgramTest):
    def test_same_files_on_any_number_of_ranks(self):
        for ranks in (1, 3):
            summary = self.run_program("generate", "hvfhv", "--rows", 1001, "--files", 4, "--out", f"d{ranks}", "--json",
                                       "--ranks", ranks).json()
            self.assertEqual((summary["rows"], summary["files"]), (1001, 4))
        names = sorted(path.name for path in (self.scratch / "d1").iterdir())
        self.assertEqual(len(names), 4)
        total = 0
        for name in names:
            one, three = (pq.read_table(self.scratch / folder / name) for folder in ("d1", "d3"))
            self.assertTrue(one.equals(three), name)
            total += one.num_rows
        self.assertEqual(total, 1001)

    def test_existing_files_are_kept(self):
        arguments = ["generate", "hvfhv", "--rows", 10, "--files", 1, "--out", "d"]
        self.run_program(*arguments)
        self.assert_fails(arguments, 3, "--overwrite")
        self.run_program(*arguments, "--overwrite")


class Training(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("data.parquet", row_group_size=300)

    def test_json_has_the_promised_keys(self):
        summary = self.run_program("train", self.recipe(data="valid = 0.2"), "--out", "run", "--json", "--ranks", 2,
                                   "--trainers", "all").json()
        self.assertEqual([key for key in TRAIN_KEYS if key not in summary], [])
        self.assertEqual((summary["ranks"], summary["trainers"], summary["epochs"]), (2, 2, 2))
        self.assertTrue({"rmse", "mae", "r2"} <= set(summary["valid"]))
        self.assertTrue(0 < summary["rows"] < 4000)
        self.assertTrue((self.scratch / summary["bundle"]).is_dir())
        for line in (self.scratch / summary["run"] / "metrics.jsonl").read_text().splitlines():
            json.loads(line)

    def test_the_summary_for_people(self):
        ended = self.run_program("train", self.recipe(), "--out", "run")
        self.assertIn("4,000 rows in 2 epochs", ended.out)
        self.assertIn("run/bundle", ended.out)

    def test_the_run_directory_has_a_name_by_default(self):
        summary = self.run_program("train", self.recipe(), "--json", "--quiet").json()
        self.assertRegex(summary["run"], r"runs/recipe-\d{8}-\d{6}$")

    def test_quiet_is_quiet(self):
        self.assertEqual(self.run_program("train", self.recipe(), "--quiet", "--out", "run").err, "")

    def test_limit_rows(self):
        summary = self.run_program("train", self.recipe(), "--out", "run", "--limit-rows", 500, "--json").json()
        self.assertEqual(summary["rows"], 1000)

    def test_trace(self):
        self.run_program("train", self.recipe(), "--out", "run", "--trace", "--ranks", 2)
        trace = json.loads((self.scratch / "run" / "trace.json").read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        self.assertEqual({event["pid"] for event in events if event.get("ph") == "X"}, {0, 1})

    def test_same_result_on_any_number_of_feeders(self):
        losses = {self.run_program("train", self.recipe(), "--out", f"run{ranks}", "--json", "--ranks", ranks,
                                   "--trainers", 1).json()["loss_last"] for ranks in (1, 2, 3)}
        self.assertEqual(len(losses), 1)

    def test_bundle_predicts_and_evaluates_without_the_recipe(self):
        recipe = self.recipe(train="learning_rate = 1")  # a linear model: the target is linear
        self.run_program("train", recipe, "--out", "run", "--set", "train.epochs=40", "--set", "model.hidden=[]")
        recipe.unlink()
        self.write("new.parquet", self.table(rows=777), row_group_size=100)
        for ranks in (1, 3):
            self.run_program("predict", "run/bundle", "new.parquet", "-o", f"p{ranks}.parquet", "--ranks", ranks)
        one, three = (pq.read_table(self.scratch / f"p{ranks}.parquet") for ranks in (1, 3))
        self.assertEqual(one.num_rows, 777)
        self.assertTrue(one.equals(three))
        # Row order: the prediction of row i follows the target of row i.
        target = self.table(rows=777)["y"].to_pylist()
        predicted = one.column(one.num_columns - 1).to_pylist()
        error = sum(abs(p - t) for p, t in zip(predicted, target)) / 777
        spread = sum(abs(t - sum(target) / 777) for t in target) / 777
        self.assertLess(error, spread / 10)
        rmse = (sum((p - t) ** 2 for p, t in zip(predicted, target)) / 777) ** 0.5
        for ranks in (1, 3):
            scores = self.run_program("evaluate", "run/bundle", "new.parquet", "--json", "--ranks", ranks).json()
            self.assertEqual(scores["rows"], 777)
            self.assertAlmostEqual(scores["rmse"], rmse, delta=1e-5 * rmse)

    def test_bundle_fills_nulls_that_training_never_saw(self):
        # The training file's statistics say that nothing is null; what fills nulls must outlive them.
        self.write("data.parquet")
        rows = 100
        nulls = pa.array([None if i % 5 == 0 else float(i % 7) for i in range(rows)])
        self.write("new.parquet", self.table(rows=rows, a=nulls, b=nulls))
        recipe = self.recipe(query="SELECT COALESCE(a, 0) AS a, b, c, y FROM 'data.parquet'",
                             features='steps = ["fill_null(mean)", "standard_scale"]')
        self.run_program("train", recipe, "--out", "run", "--set", "data.valid=SELECT a, b, c, y FROM 'new.parquet'")
        for ranks in (1, 3):
            self.run_program("predict", "run/bundle", "new.parquet", "-o", f"p{ranks}.parquet", "--ranks", ranks)
            scores = self.run_program("evaluate", "run/bundle", "new.parquet", "--json", "--ranks", ranks).json()
            self.assertEqual(scores["rows"], rows)
        predicted = pq.read_table(self.scratch / "p1.parquet")["prediction"]
        self.assertEqual((len(predicted), predicted.null_count), (rows, 0))

    def test_names_in_another_case_are_the_same_columns(self):
        self.write("data.parquet")
        self.run_program("train", self.recipe(query="SELECT * FROM 'data.parquet'"), "--out", "run")
        self.write("new.parquet")
        self.write("capitals.parquet", self.table().rename_columns(["A", "B", "C", "Y"]))
        plain, capitals = (self.run_program("evaluate", "run/bundle", f"{name}.parquet", "--json").json()
                           for name in ("new", "capitals"))
        self.assertEqual(plain, capitals)

    def test_predict_refuses(self):
        self.run_program("train", self.recipe(), "--out", "run")
        predict = ["predict", "run/bundle", "new.parquet", "-o", "p.parquet"]
        self.assert_fails(predict, 3, "new.parquet")
        self.write("new.parquet", self.table().drop_columns(["b"]))
        self.assert_fails(predict, 3, "b")
        self.write("new.parquet")
        self.run_program(*predict)
        self.assert_fails(predict, 3, "p.parquet", "--overwrite")
        self.run_program(*predict, "--overwrite")
        before = (self.scratch / "new.parquet").read_bytes()
        (self.scratch / "link.parquet").symlink_to("new.parquet")
        for output in ("new.parquet", "link.parquet"):
            self.assert_fails(["predict", "run/bundle", "new.parquet", "-o", output, "--overwrite"], 2, output,
                              "is the input", "name another file")
        self.assert_fails(["query", "SELECT a FROM 'new.parquet'", "-o", "new.parquet", "--overwrite"], 2, "is the input")
        self.assertEqual((self.scratch / "new.parquet").read_bytes(), before)
        self.assert_fails(["predict", "nowhere", "new.parquet", "-o", "q.parquet"], 3, "nowhere")

    def test_bad_rows_for_a_bundle(self):
        """The first bad row in the data is named on any number of ranks, with advice for who has no recipe."""
        self.run_program("train", self.recipe(), "--out", "run")
        for name, bad, says in (("b", None, "null"), ("b", float("nan"), "NaN"), ("y", None, "null")):
            values = self.table(rows=3000)[name].to_pylist()
            for row in (1750, 1850, 2400, 2999):
                values[row] = bad
            self.write("new.parquet", self.table(rows=3000, **{name: pa.array(values)}), row_group_size=100)
            commands = [["evaluate", "run/bundle", "new.parquet"]]
            if name != "y":
                commands.append(["predict", "run/bundle", "new.parquet", "-o", "p.parquet"])
            for command in commands:
                text = self.assert_fails(command, 3, f"'{name}' is {says}", "row 1750", "leave such rows out of the files")
                self.assertNotIn("WHERE", text)

    def test_nan_is_not_filled(self):
        values = self.table()["b"].to_pylist()
        values[7] = float("nan")
        self.write("data.parquet", self.table(b=pa.array(values)))
        self.assert_fails(["batches", self.recipe(features='steps = ["fill_null(mean)"]')], 3, "'b' is NaN",
                          "fill_null fills nulls, not NaN", 'on_null = "drop"')

    def test_messages_change_no_role(self):
        self.write("data.parquet")
        for transport in ("auto", "messages"):
            text = self.run_program("batches", self.recipe(), "--ranks", 3, "--transport", transport).out
            self.assertRegex(text, "ranks +3, of which 1 takes batches")

    def test_a_model_larger_than_the_memory(self):
        self.assert_fails(["train", self.recipe(), "--out", "run", "--overwrite", "--set", "model.hidden=[1000000,1000000]"], 2,
                          "1000006000001 parameters", "model.hidden")


class Batches(ProgramTest):
    def test_json_keys(self):
        self.write("data.parquet")
        summary = self.run_program("batches", self.recipe(), "--json", "--epochs", 3, "--ranks", 2).json()
        self.assertEqual([key for key in BATCHES_KEYS if key not in summary], [])
        self.assertEqual((summary["rows"], summary["batches"]), (6000, 24))

    def test_digest_lines(self):
        self.write("data.parquet")
        lines = self.run_program("batches", self.recipe(), "--digest", "--epochs", 2).out.splitlines()
        self.assertEqual(len(lines), 16)
        for i, line in enumerate(lines):
            epoch, step, rows, digest = line.split()
            self.assertEqual((int(epoch), int(step)), (i // 8, i % 8))
            self.assertEqual(int(rows), 256 if i % 8 < 7 else 2000 - 7 * 256)
            self.assertRegex(digest, "^[0-9a-f]{32}$")
        self.assertEqual(len({line.split()[3] for line in lines}), 16)

    def test_set_data_train_reads_from_the_working_directory(self):
        self.write("data.parquet")
        (self.scratch / "recipes").mkdir()
        recipe = self.recipe(name="recipes/r.toml", data="valid = 0.1")
        self.assert_fails(["batches", recipe], 3, "data.parquet")
        summary = self.run_program("batches", recipe, "--json", "--set",
                                   "data.train=SELECT a, b, c, y FROM 'data.parquet'").json()
        self.assertEqual(summary["rows"] + summary["rows_valid"], 2000)


if __name__ == "__main__":
    main()
