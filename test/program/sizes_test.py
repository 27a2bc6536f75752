"""Data of unusual shapes: ten thousand tiny files; ten epochs, and four and sixteen times the rows, in the same memory; a
small budget that is held."""

import pyarrow as pa
import pyarrow.parquet as pq

from harness import ProgramTest, main

MIB = 1 << 20


class Sizes(ProgramTest):
    def test_ten_thousand_tiny_files(self):
        folder = self.scratch / "tiny"
        folder.mkdir()
        rows = 0
        for number in range(10000):
            count = number % 4  # of which a quarter have no rows at all
            values = [float(rows + i) for i in range(count)]
            rows += count
            table = pa.table({"a": pa.array(values, pa.float64()), "b": pa.array([v % 7 for v in values], pa.float64()),
                              "c": pa.array([v % 3 for v in values], pa.float64()),
                              "y": pa.array([2 * v for v in values], pa.float64())})
            pq.write_table(table, folder / f"part-{number:05}.parquet", compression="none")
        recipe = self.recipe(query="SELECT a, b, c, y FROM 'tiny/part-*.parquet'")
        digests = set()
        for ranks in (1, 3):
            out = self.run_program("batches", recipe, "--digest", "--quiet", "--ranks", ranks, "--cache", f"cache{ranks}").out
            self.assertEqual(sum(int(line.split()[2]) for line in out.splitlines()), rows)
            digests.add(out)
        self.assertEqual(len(digests), 1)

    def peak(self, rows, epochs, *more):
        if not (self.scratch / f"trips{rows}").exists():
            self.run_program("generate", "hvfhv", "--rows", rows, "--files", max(1, rows // 250000), "--out", f"trips{rows}")
        self.recipe(query=f"SELECT trip_time AS a, base_passenger_fare AS b, tips AS c, trip_miles AS y FROM "
                          f"'trips{rows}/*.parquet' WHERE trip_miles > 0", loader="window = 65536\nbatch_size = 4096"
                    ).write_text((self.scratch / "recipe.toml").read_text().replace("batch_size = 256\n", ""))
        summary = self.run_program("batches", "recipe.toml", "--epochs", epochs, "--json", "--quiet", *more).json()
        self.assertGreater(summary["rows"], 0.9 * rows * epochs)
        return summary["peak_rss_bytes"]

    def test_memory_does_not_grow_with_epochs_or_rows(self):
        for shape in (["--set", "loader.cache=disk"], ["--set", "loader.shuffle=none", "--set", "loader.cache=none"]):
            with self.subTest(shape=shape):
                once = self.peak(500_000, 2, *shape)
                self.assertLess(self.peak(500_000, 10, *shape), once + 24 * MIB)
                self.assertLess(self.peak(2_000_000, 2, *shape), once + 24 * MIB)
                self.assertLess(self.peak(8_000_000, 2, *shape), once + 48 * MIB)

    def test_a_small_budget_is_held(self):
        for ranks in (1, 2):
            peak = self.peak(2_000_000, 2, "--ranks", ranks, "--memory", "256MiB")
            # Code and libraries come on top of the budget: about 80 MiB.
            self.assertLess(peak, (256 + 128) * MIB)


if __name__ == "__main__":
    main()
