"""The engines: batches, predictions and query results are the same bits whether expressions are compiled or
interpreted; nothing of the examples is left to the interpreter; compiled code is kept for the next run."""

import pathlib

import pyarrow as pa

from harness import DATA, SOURCE, ProgramTest, main


class Engine(ProgramTest):
    def setUp(self):
        super().setUp()
        if "no code generator" in self.start_compiled():
            self.skipTest("this build has no code generator")

    def start_compiled(self):
        ended = self.end(self.start("info", "--engine", "compiled"))
        return ended.err

    def digests(self, recipe, *settings):
        seen = set()
        for engine in ("compiled", "interpreter", "auto"):
            for ranks in (1, 2):
                out = self.run_program("batches", recipe, *settings, "--digest", "--engine", engine, "--ranks", ranks,
                                       "--cache", f"cache-{engine}-{ranks}", limit=300).out
                seen.add(out)
        self.assertEqual(len(seen), 1)
        self.assertGreater(len(out.splitlines()), 3)

    def test_batches_of_the_examples(self):
        for name, folder in (("green", "green"), ("california", "tabular")):
            if not (DATA / folder).is_dir():
                self.skipTest(f"no {DATA / folder}")
            with self.subTest(name):
                recipe = SOURCE / "examples" / name / f"{name}.toml"
                self.digests(recipe, "--set", f"define.{folder}={DATA / folder}")
                told = self.run_program("explain", recipe, "--set", f"define.{folder}={DATA / folder}", "--json").json()
                self.assertEqual([query["compiled"]["not_fused"] for query in told["queries"]], [[]] * len(told["queries"]))

    def test_batches_of_the_taxi_example(self):
        self.run_program("generate", "hvfhv", "--rows", 200000, "--files", 2, "--out", "trips")
        recipe = SOURCE / "examples" / "taxi" / "taxi.toml"
        self.digests(recipe, "--set", f"define.trips={self.scratch / 'trips'}")
        told = self.run_program("explain", recipe, "--set", f"define.trips={self.scratch / 'trips'}", "--json").json()
        for query in told["queries"]:
            self.assertEqual(query["compiled"]["not_fused"], [])
            self.assertGreater(query["compiled"]["loops"], 0)

    def write_rows(self):
        rows = range(-500, 20000)
        self.write("t.parquet", pa.table({"i": pa.array([None if i % 11 == 0 else i % 97 for i in rows], pa.int32()),
                                          "x": pa.array([None if i % 7 == 0 else i / 8 for i in rows]),
                                          "s": pa.array([f"text {i % 13}" for i in rows])}))

    def test_queries(self):
        self.write_rows()
        query = ("SELECT i * 2 AS a, CASE WHEN i <> 0 THEN 1000 // i END AS b, x / 3 AS c, x < i AS d, upper(s) AS e, "
                 "length(s) + i AS f FROM 't.parquet' WHERE x > 10 AND (i IS NULL OR i > 5)")
        results = [self.run_program("query", query, "--engine", engine, "--json").json()["data"]
                   for engine in ("compiled", "interpreter")]
        self.assertEqual(*results)
        self.assertGreater(len(results[0]), 10000)
        for engine in ("compiled", "interpreter"):
            self.assert_fails(["query", "SELECT 10 // (i - 5) FROM 't.parquet'", "--engine", engine], 3,
                              "division by zero in 10 // 0", "row 20")

    def test_what_is_not_fused_is_named(self):
        self.write_rows()
        text = self.run_program("explain", "--query", "SELECT length(upper(s)) + i AS n FROM 't.parquet'", "--ir",
                                "loops.ll").out
        self.assertIn("1 loop", text)
        self.assertIn("not fused  upper(\"s\"): 'upper' has no body", text)
        ir = (self.scratch / "loops.ll").read_text()
        self.assertIn("define i32 @loop", ir)
        self.assertIn("optimised", ir)
        text = self.run_program("explain", "--query", "SELECT i + 1 AS n FROM 't.parquet'", "--engine", "interpreter").out
        self.assertIn("the interpreter evaluates everything", text)

    def test_code_is_kept(self):
        self.write_rows()
        run = ["query", "SELECT i + 1 AS n FROM 't.parquet'", "--engine", "compiled", "--json"]
        first = self.run_program(*run, variables={"MILLSTREAM_CACHE": str(self.scratch / "kept")}).json()["data"]
        objects = sorted(pathlib.Path(self.scratch / "kept" / "code").glob("*.o"))
        self.assertGreaterEqual(len(objects), 1)
        times = [path.stat().st_mtime_ns for path in objects]
        again = self.run_program(*run, variables={"MILLSTREAM_CACHE": str(self.scratch / "kept")}).json()["data"]
        self.assertEqual(first, again)
        self.assertEqual(times, [path.stat().st_mtime_ns for path in objects])

    def test_a_wrong_engine(self):
        self.assert_fails(["query", "SELECT 1", "--engine", "fast"], 2, "auto, compiled or interpreter")


if __name__ == "__main__":
    main()
