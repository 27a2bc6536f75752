"""Training on a query that does not stream: joins, groups, order and LIMIT are run once, and their rows are a table."""

import json
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from harness import ProgramTest, main

JOIN = """SELECT d.a, d.b, k.weight AS c, d.y
          FROM 'data.parquet' AS d JOIN 'kinds.csv' AS k ON CAST(d.c AS INTEGER) = k.kind
          WHERE d.a > 3"""
GROUP = """SELECT a, c, sum(b) AS b, avg(y) AS y FROM 'data.parquet' GROUP BY a, c ORDER BY c DESC, a LIMIT 300"""


class TrainOnQuery(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("data.parquet", self.table(6000))
        (self.scratch / "kinds.csv").write_text("kind,weight\n0,0.5\n1,1.5\n2,2.5\n3,3.5\n")

    def digests(self, recipe, *more):
        return self.run_program("batches", recipe, "--epochs", 2, "--digest", *more).out

    def test_batches_are_the_same_on_any_ranks_and_from_the_cache(self):
        for query in (JOIN, GROUP):
            recipe = self.recipe(query)
            first = self.digests(recipe)
            rows = sum(int(line.split()[2]) for line in first.splitlines())
            self.assertGreater(rows, 100)
            self.assertEqual(self.digests(recipe), first)  # from the cache
            for shape in (("--ranks", 2), ("--ranks", 3, "--trainers", 2), ("--threads", 2)):
                self.assertEqual(self.digests(recipe, *shape, "--cache", f"other{len(shape)}{shape[1]}"), first)

    def test_the_rows_are_those_of_the_query(self):
        self.run_program("query", JOIN, "-o", "rows.parquet")
        expected = pq.read_table(self.scratch / "rows.parquet").num_rows
        recipe = self.recipe(JOIN, loader='shuffle = "none"')
        lines = self.digests(recipe).splitlines()
        self.assertEqual(sum(int(line.split()[2]) for line in lines if line.split()[0] == "0"), expected)
        # The same rows from a file: the same batches.
        plain = self.recipe("SELECT a, b, c, y FROM 'rows.parquet'", loader='shuffle = "none"', name="plain.toml")
        self.assertEqual(self.digests(plain).splitlines(), lines)

    def test_trains_predicts_and_evaluates(self):
        recipe = self.recipe(JOIN, data="valid = 0.2")
        ended = self.run_program("train", recipe, "--ranks", 2, "--json")
        summary = json.loads(ended.out)
        self.write("new.parquet", self.table(500))
        self.run_program("predict", summary["bundle"], "new.parquet", "-o", "out.parquet")
        self.run_program("query", JOIN.replace("data.parquet", "new.parquet"), "-o", "rows.parquet")
        predictions = pq.read_table(self.scratch / "out.parquet")
        self.assertEqual(predictions.num_rows, pq.read_table(self.scratch / "rows.parquet").num_rows)
        evaluated = json.loads(self.run_program("evaluate", summary["bundle"], "new.parquet", "--json").out)
        self.assertEqual(evaluated["rows"], predictions.num_rows)

    def test_changed_files_are_noticed(self):
        recipe = self.recipe(JOIN)
        first = self.digests(recipe)
        (self.scratch / "kinds.csv").write_text("kind,weight\n0,0.5\n1,1.5\n2,2.5\n3,4.5\n")
        self.assertNotEqual(self.digests(recipe), first)

    def test_an_error_of_the_query_is_told_once(self):
        self.write("data.parquet", self.table(6000, c=pa.array(["x"] * 6000)))
        self.assert_fails(["batches", self.recipe(JOIN)], 3, "'x'", "INTEGER", ranks=[1, 3])


if __name__ == "__main__":
    main()
