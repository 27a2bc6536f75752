"""The main example: the recipe, the same program in C++, Parquet and CSV, under mpiexec."""

import re
import subprocess

from harness import BUILD, DATA, SOURCE, ProgramTest, environment, main

RECIPE = SOURCE / "examples" / "taxi" / "taxi.toml"


class Taxi(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_program("generate", "hvfhv", "--rows", 60000, "--files", 3, "--out", "trips")

    def test_the_recipe(self):
        summary = self.run_program("train", RECIPE, "--set", "define.trips=trips", "--set", "loader.batch_size=1024",
                                   "--ranks", 2, "--out", "run", "--json").json()
        self.assertLess(summary["loss_last"], summary["loss_first"])
        self.assertGreater(summary["valid"]["r2"], 0.8)
        self.assertTrue((self.scratch / "run" / "bundle" / "weights.safetensors").exists())

    def test_the_same_in_cpp_and_modules_of_ones_own(self):
        # A module that takes the five features of the example.
        (self.scratch / "five.toml").write_text("""
[data]
train = "SELECT * FROM 'trips/fhvhv_tripdata_*.parquet' WHERE trip_miles > 0 AND trip_time > 0"
target = "trip_miles"
[[feature]]
columns = ["trip_time", "base_passenger_fare", "tolls", "tips", "driver_pay"]
steps = ["standard_scale"]
[train]
epochs = 1
""")
        self.run_program("train", "five.toml", "--out", "five")
        self.run_program("export", "five/bundle", "--to", "torchscript", "-o", "net.pt")
        for command in (["taxi_example", "trips"], ["custom_example", "trips"], ["custom_example", "trips", "net.pt"]):
            done = subprocess.run([BUILD / "bin" / command[0], *command[1:]], cwd=self.scratch,
                                  env=environment(self.scratch), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            errors = [float(error) for error in re.findall(r"rmse (\d+\.\d+)", done.stdout)]
            self.assertLess(errors[-1], errors[0], done.stdout)

    def test_joins_the_job_of_mpiexec(self):
        mpiexec = SOURCE / ".venv" / "bin" / "mpiexec"
        if not mpiexec.exists():
            self.skipTest("no mpiexec in the environment")
        done = subprocess.run([mpiexec, "-launcher", "fork", "-rmk", "user", "-n", "3", BUILD / "bin" / "millstream",
                               "batches", RECIPE, "--set", "define.trips=trips", "--json"], cwd=self.scratch,
                              env=environment(self.scratch), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"ranks": 3', done.stdout)
        self.assertEqual(done.stdout.count("\n"), 1, done.stdout)

    def test_ranks_under_a_launcher_of_another_size(self):
        mpiexec = SOURCE / ".venv" / "bin" / "mpiexec"
        if not mpiexec.exists():
            self.skipTest("no mpiexec in the environment")
        done = subprocess.run([mpiexec, "-launcher", "fork", "-rmk", "user", "-n", "2", BUILD / "bin" / "millstream",
                               "info", "--ranks", "3"], cwd=self.scratch, env=environment(self.scratch), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("--ranks 3"), 1, done.stderr)

    def test_the_citys_csv(self):
        if not (DATA / "hvfhv").is_dir():
            self.skipTest(f"no {DATA / 'hvfhv'}")
        for ranks in (1, 3):
            summary = self.run_program("train", RECIPE, "--set", f"define.trips={DATA / 'hvfhv'}", "--set",
                                       "define.files=*.csv", "--set", "loader.batch_size=100", "--ranks", ranks,
                                       "--out", f"run{ranks}", "--json").json()
            self.assertGreater(summary["rows"], 3000)
            self.assertLess(summary["loss_last"], summary["loss_first"])


if __name__ == "__main__":
    main()
