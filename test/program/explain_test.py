"""`millstream explain`: what it says of recipes and queries, before and after reading."""

import pyarrow as pa

from harness import DATA, SOURCE, ProgramTest, main


class Explain(ProgramTest):
    def setUp(self):
        super().setUp()
        for part in range(2):
            rows = list(range(part * 100, part * 100 + 100))
            self.write(f"t/{part}.parquet", pa.table({"k": pa.array(rows, pa.int64() if part else pa.int32()),
                                                      "x": pa.array([i / 4 for i in rows], pa.float64()),
                                                      "s": pa.array([f"name {i}" for i in rows])}),
                       row_group_size=50)

    def explain(self, *arguments):
        return self.run_program("explain", *arguments)

    def test_text(self):
        text = self.explain("--query", "SELECT k + 1 AS k1, x FROM 't/*.parquet' WHERE k >= 120 LIMIT 5").out
        for part in ("Limit 5", "121 (typed) … 200 (claimed)", "(2 not read)", "not read: s", "INTEGER in 1 file (0.parquet)",
                     "BIGINT in 1 file (1.parquet)", "at least -0.0 (claimed)"):
            self.assertIn(part, text)

    def test_analyze_sees_what_passes(self):
        query = "SELECT x FROM 't/*.parquet' WHERE k >= 120"
        for ranks in (1, 2):
            told = self.explain("--query", query, "--analyze", "--json", "--ranks", ranks).json()["queries"][0]
            self.assertEqual((told["measured"]["rows_read"], told["measured"]["rows"]), (100, 80))
            self.assertEqual((told["row_groups"], told["row_groups_pruned"], told["rows_pruned"]), (4, 2, 100))
            self.assertEqual(told["outputs"][0]["bounds"],
                             {"low": "30.0", "low_origin": "observed", "high": "49.75", "high_origin": "observed"})
            self.assertEqual(told["columns_pruned"], ["s"])

    def test_analyze_counts_what_was_not_read(self):
        # Three row groups of 10,000 rows in pages of 1,000 rows.
        rows = list(range(30000))
        self.write("p.parquet", pa.table({"k": pa.array([2 * i for i in rows], pa.int64()),
                                          "s": pa.array([f"name {i}" for i in rows]),
                                          "x": pa.array([i / 4 for i in rows], pa.float64())}),
                   row_group_size=10000, write_page_index=True, max_rows_per_page=1000, write_batch_size=1000,
                   use_dictionary=False, bloom_filter_options={"k": {"ndv": 10000, "fpp": 0.0001}})

        def counts(where):
            query = f"SELECT k, s, x FROM 'p.parquet' WHERE {where}"
            measured = self.explain("--query", query, "--analyze", "--json").json()["queries"][0]["measured"]
            self.assertGreater(measured.pop("seconds"), 0)
            read = measured.pop("bytes_read")
            self.assertEqual(read > 0, measured["pages_read"] > 0)
            return measured

        nothing = {"rows_read": 0, "rows": 0, "row_groups_pruned": 3, "row_groups_pruned_by_bloom_filters": 0,
                   "row_groups_pruned_by_page_index": 0, "rows_pruned": 30000, "rows_skipped": 0, "rows_filtered": 0,
                   "pages_read": 0, "pages_skipped": 0}
        self.assertEqual(counts("k < 0"), nothing)
        self.assertEqual(counts("k = 30001"), {**nothing, "row_groups_pruned_by_bloom_filters": 1})
        one = {**nothing, "rows_read": 1000, "rows": 1, "row_groups_pruned": 2, "rows_pruned": 20000,
               "rows_skipped": 9000, "rows_filtered": 999, "pages_read": 3, "pages_skipped": 27}
        self.assertEqual(counts("k = 30002"), one)
        self.assertEqual(counts("k BETWEEN 30000 AND 30050"), {**one, "rows": 26, "rows_filtered": 974})
        self.assertEqual(counts("x < 125"), {**one, "rows": 500, "rows_filtered": 500})
        text = self.explain("--query", "SELECT s FROM 'p.parquet' WHERE k = 30001", "--analyze").out
        self.assertIn("3 of 3 row groups not read: 2 by statistics, 1 by bloom filters, 0 by the page index", text)
        text = self.explain("--query", "SELECT s, x FROM 'p.parquet' WHERE k = 30002", "--analyze").out
        self.assertIn("9,000 rows not looked at by the page index", text)
        self.assertIn("3 pages decompressed, 27 passed over", text)

    def test_errors(self):
        self.assert_fails(["explain"], 2, "a recipe, or --query")
        self.assert_fails(["explain", "r.toml", "--query", "SELECT 1"], 2, "exclude each other")
        self.assert_fails(["explain", "--query", "SELECT y FROM 't/*.parquet'"], 2, "no column 'y'")


class Green(ProgramTest):
    def test_real_months(self):
        if not (DATA / "green").is_dir():
            self.skipTest(f"no {DATA / 'green'}")
        recipe = SOURCE / "examples" / "green" / "green.toml"
        setting = ("--set", f"define.green={DATA / 'green'}")
        told = self.run_program("explain", recipe, *setting, "--json").json()["queries"]
        self.assertEqual([query["name"] for query in told], ["data.train", "data.valid"])
        columns = {column["name"]: column for column in told[0]["columns"]}
        pickup = columns["lpep_pickup_datetime"]
        self.assertTrue(pickup["nullable_filtered"] is False)
        self.assertIn("VendorID", told[0]["columns_pruned"])
        self.assertEqual(told[0]["files"], 10)
        zone = columns["PULocationID"]
        self.assertEqual(zone["type"], "BIGINT")
        self.assertEqual({kind["type"] for kind in zone["file_types"]}, {"BIGINT", "INTEGER"})
        # Some months have no statistics: what is claimed of all is nothing, until all was read.
        seen = self.run_program("explain", recipe, *setting, "--analyze", "--json").json()["queries"][0]
        zone = {column["name"]: column for column in seen["columns"]}["PULocationID"]
        self.assertEqual((zone["bounds"]["low_origin"], zone["bounds"]["high_origin"]), ("observed", "observed"))
        self.assertGreaterEqual(int(zone["bounds"]["low"]), 1)
        self.assertLessEqual(int(zone["bounds"]["high"]), 265)
        self.assertGreater(seen["measured"]["rows"], 500000)
        text = self.run_program(
            "explain", "--query",
            f"SELECT hour(lpep_pickup_datetime) AS h FROM '{DATA}/green/*.parquet'").out
        self.assertIn("0 … 23 (typed)", text)


if __name__ == "__main__":
    main()
