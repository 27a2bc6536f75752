"""`millstream query`: what it prints and what it writes, the same on any number of ranks and threads."""

import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from harness import ProgramTest, main

KEYS = "rows seconds seconds_compile peak_rss_bytes spilled_bytes data".split()


class Query(ProgramTest):
    def setUp(self):
        super().setUp()
        for part in range(3):
            rows = range(part * 1000, (part + 1) * 1000)
            table = pa.table({"k": pa.array(rows, pa.int64()),
                              "x": pa.array([i / 8 if i % 7 else None for i in rows], pa.float64()),
                              "s": pa.array([f"name {i % 11}" for i in rows])})
            self.write(f"t/{part}.parquet", table, row_group_size=170)

    def everywhere(self, *arguments):
        """The output of one rank, the same as that of any ranks and threads."""
        outs = [self.run_program("query", *arguments, "--ranks", ranks, "--threads", threads).out
                for ranks, threads in ((1, 1), (1, 3), (2, 1), (3, 2))]
        for out in outs[1:]:
            self.assertEqual(out, outs[0])
        return outs[0]

    def test_table(self):
        text = self.everywhere("SELECT k, x, s FROM 't/*.parquet' WHERE k % 2 = 0")
        lines = text.splitlines()
        self.assertEqual(lines[1], "│      k │      x │ s       │")
        self.assertEqual(lines[2], "│ BIGINT │ DOUBLE │ VARCHAR │")
        self.assertEqual(sum("···" in line for line in lines), 1)
        self.assertIn(" 2998 ", lines[-3])
        self.assertEqual(lines[-1], "  1,500 rows, 40 shown")
        self.assertEqual(len({len(line) for line in lines[:-1]}), 1)

    def test_limit(self):
        for limit, expected in (("LIMIT 5", range(5)), ("LIMIT 5 OFFSET 168", range(168, 173)),
                                ("OFFSET 2990", range(2990, 3000)), ("OFFSET 5000", []), ("LIMIT 0", []),
                                ("LIMIT 1700 OFFSET 1200", range(1200, 2900))):
            for ranks in (1, 3):
                answer = self.run_program("query", f"SELECT k FROM 't/*.parquet' {limit}", "--json",
                                          "--ranks", ranks).json()
                self.assertEqual([row[0] for row in answer["data"]], list(expected), limit)
                self.assertEqual(answer["rows"], len(expected))
        nested = self.run_program("query", "SELECT k FROM (SELECT k FROM 't/*.parquet' LIMIT 400) WHERE k > 390",
                                  "--json", "--ranks", 2).json()
        self.assertEqual([row[0] for row in nested["data"]], list(range(391, 400)))

    def test_json(self):
        table = pa.table({"n": pa.array([1.5, math.nan, math.inf, -math.inf, None]),
                          "d": pa.array([None, *map(Decimal, "1234")], pa.decimal128(6, 2)),
                          "t": pa.array([0, 1, 2, 3, 10**15], pa.timestamp("us")),
                          "s": ['q"', "", None, "ü", "\n"], "b": [True, False, None, True, False]})
        self.write("j.parquet", table)
        answer = self.run_program("query", "SELECT * FROM 'j.parquet'", "--json").json()
        self.assertEqual(list(answer), KEYS)
        self.assertEqual(answer["data"][0], [1.5, None, "1970-01-01T00:00:00", 'q"', True])
        self.assertEqual(answer["data"][1][:2], ["NaN", "1.00"])
        self.assertEqual([row[0] for row in answer["data"][2:]], ["Infinity", "-Infinity", None])
        self.assertEqual(answer["data"][4][2:4], ["2001-09-09T01:46:40", "\n"])

    def test_files(self):
        source = pa.concat_tables(pq.read_table(path) for path in sorted((self.scratch / "t").iterdir()))
        for ranks in (1, 3):
            name = f"o{ranks}"
            said = self.run_program("query", "FROM 't/*.parquet'", "-o", f"{name}.parquet", "--ranks", ranks).out
            self.assertIn("3,000 rows written to", said)
            written = pq.read_table(self.scratch / f"{name}.parquet")
            self.assertEqual(written.to_pydict(), source.to_pydict())
            summary = self.run_program("query", "FROM 't/*.parquet'", "-o", f"{name}.csv", "--json", "--ranks",
                                       ranks).json()
            self.assertEqual(summary["rows"], 3000)
            self.assertNotIn("data", summary)
            read = pa.csv.read_csv(self.scratch / f"{name}.csv")
            self.assertEqual(read.to_pydict(), source.to_pydict())
        self.assert_fails(["query", "FROM 't/*.parquet'", "-o", "o1.csv"], 3, "--overwrite")
        self.run_program("query", "FROM 't/*.parquet' LIMIT 1", "-o", "o1.csv", "--overwrite")
        self.assertEqual((self.scratch / "o1.csv").read_text(), "k,x,s\n0,,name 0\n")
        self.assertEqual({path.name for path in self.scratch.iterdir() if path.is_file()},
                         {"o1.csv", "o3.csv", "o1.parquet", "o3.parquet"})

    def test_query_in_a_file(self):
        (self.scratch / "q.sql").write_text("SELECT count_me FROM 't/*.parquet';")
        self.assert_fails(["query", "-f", "q.sql"], 2, "q.sql, line 1, column 8", "count_me")
        (self.scratch / "q.sql").write_text("SELECT k FROM 't/*.parquet' LIMIT 1;\n")
        self.assertEqual(self.run_program("query", "-f", "q.sql", "--json").json()["data"], [[0]])

    def test_groups_and_orders_have_the_same_bits_everywhere(self):
        text = self.everywhere("SELECT s, k % 3 AS m, sum(x / 3) AS total, stddev(x) AS d, first(k) AS f, count(DISTINCT "
                               "k % 100) AS c FROM 't/*.parquet' GROUP BY ALL")
        self.assertIn("33 rows", text)
        text = self.everywhere("SELECT k, x FROM 't/*.parquet' ORDER BY s DESC, x NULLS FIRST LIMIT 30 OFFSET 5")
        self.assertIn("30 rows", text)
        for ranks in (1, 3):  # how much was needed when it was too much is not the same
            self.assert_fails(["query", "SELECT a.k FROM 't/*.parquet' AS a JOIN 't/*.parquet' AS b ON a.k = b.k",
                               "--memory", "20000"], 1, "right side", ranks=[ranks])

    def test_what_does_not_fit_into_memory_waits_on_disk(self):
        query = "SELECT k, s FROM 't/*.parquet' ORDER BY s, x DESC"
        roomy = self.run_program("query", query, "-o", "roomy.parquet", "--json").json()
        self.assertEqual(roomy["spilled_bytes"], 0)
        for ranks in (1, 2, 3):
            tight = self.run_program("query", query, "-o", f"tight{ranks}.parquet", "--json", "--memory", "60000",
                                     "--ranks", ranks).json()
            self.assertGreater(tight["spilled_bytes"], 0)
            self.assertEqual(pq.read_table(self.scratch / f"tight{ranks}.parquet"),
                             pq.read_table(self.scratch / "roomy.parquet"))

    def test_errors(self):
        self.assert_fails(["query"], 2, "-f FILE")
        self.assert_fails(["query", "FROM 't/*.parquet'", "-o", "x.txt"], 2, "x.txt", ".parquet")
        self.assert_fails(["query", "FROM 'no.parquet'"], 3, "no.parquet")
        # The first failing row of the source, whichever rank meets one first; and none behind the limit.
        self.assert_fails(["query", "SELECT k // (k - 1500) AS q FROM 't/*.parquet'"], 3, "1.parquet", "row 500")
        self.run_program("query", "SELECT k // (k - 1500) AS q FROM 't/*.parquet' LIMIT 1000", "--ranks", 2)
        self.assert_fails(["query", "SELECT k FROM 't/*.parquet' LIMIT 2000", "--json", "--memory", "4096"], 1,
                          "--memory")


if __name__ == "__main__":
    main()
