"""More hosts than one, made of namespaces on this machine, and a host with little shared memory."""

import subprocess

from harness import PROGRAM, SOURCE, TIME_LIMIT, Ended, ProgramTest, environment, main
from two_hosts import NotPossible, TwoHosts

MPIEXEC = SOURCE / ".venv" / "bin" / "mpiexec"


class Hosts(ProgramTest):
    def setUp(self):
        super().setUp()
        if not MPIEXEC.exists():
            self.skipTest("no mpiexec in the environment")
        try:
            self.hosts = TwoHosts(self.scratch)
        except NotPossible as reason:
            self.skipTest(str(reason))
        self.addCleanup(self.hosts.close)
        for number in range(4):
            self.write(f"part-{number}.parquet", self.table(rows=6000 + 500 * number), row_group_size=700)
        self.recipe(query="SELECT a, b, c, y FROM 'part-*.parquet'", data="valid = 0.1")

    def on_hosts(self, ranks, *arguments, code=0):
        command = self.hosts.command(MPIEXEC, ranks, PROGRAM, *arguments)
        done = subprocess.run(command, cwd=self.scratch, env=self.hosts.environment(environment(self.scratch)), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIME_LIMIT)
        ended = Ended(command, done.returncode, done.stdout, done.stderr)
        self.assertEqual(done.returncode, code, ended)
        return ended

    def test_the_same_batches(self):
        for more in ([], ["--set", "loader.shuffle=none"], ["--set", "loader.cache=disk"]):
            expected = self.run_program("batches", "recipe.toml", "--digest", "--quiet", *more).out
            self.assertGreater(len(expected.splitlines()), 90)
            for ranks, trainers in ((2, "1"), (2, "all"), (3, "1"), (4, "2")):
                with self.subTest(more=more, ranks=ranks, trainers=trainers):
                    before = self.hosts.bytes_sent(1)
                    got = self.on_hosts(ranks, "batches", "recipe.toml", "--digest", "--quiet", "--threads", 1, "--trainers",
                                        trainers, *more).out
                    self.assertEqual(got, expected)
                    # Rows crossed: 27000 of 16 bytes, about half of them.
                    self.assertGreater(self.hosts.bytes_sent(1) - before, 100_000)

    def test_trains(self):
        one = self.run_program("train", "recipe.toml", "--out", "one", "--json", "--quiet").json()
        two = self.on_hosts(4, "train", "recipe.toml", "--out", "two", "--json", "--quiet").json()
        self.assertEqual((two["rows"], two["steps"], two["ranks"], two["trainers"]), (one["rows"], one["steps"], 4, 2))
        self.assertAlmostEqual(two["loss_last"], one["loss_last"], delta=1e-3 * one["loss_last"])

    def test_what_one_host_alone_has(self):
        for setting, name in (("loader.cache=memory", 'loader.cache is "memory"'),
                              ("loader.shuffle=full", 'loader.shuffle is "full"')):
            ended = self.on_hosts(2, "batches", "recipe.toml", "--quiet", "--set", setting, code=2)
            self.assertIn(name, ended.err)
            self.assertIn("this one is on 2", ended.err)


class SmallSharedMemory(ProgramTest):
    def test_is_noticed_and_survived(self):
        script = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
        enter = ["unshare", "--mount", "sh", "-c", script, "sh"]
        tried = subprocess.run([*enter, "true"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if tried.returncode != 0:
            self.skipTest(f"mount namespaces are not allowed here: {tried.stdout.strip()}")
        self.write("data.parquet", self.table(rows=40000), row_group_size=2000)
        self.recipe()
        # Slots of 20,000 rows of 16 bytes, 512 of them: 160 MB.
        more = ["--set", "loader.batch_size=20000", "--set", "loader.prefetch=512"]
        expected = self.run_program("batches", "recipe.toml", "--digest", "--quiet", *more).out
        done = subprocess.run([*enter, PROGRAM, "batches", "recipe.toml", "--digest", "--ranks", "2", *more],
                              cwd=self.scratch, env=environment(self.scratch), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=TIME_LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, expected)
        self.assertIn("rows go by messages there", done.stderr)
        refused = subprocess.run([*enter, PROGRAM, "batches", "recipe.toml", "--digest", "--ranks", "2", "--transport",
                                  "shared", *more], cwd=self.scratch, env=environment(self.scratch), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIME_LIMIT)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("shared", refused.stderr)


if __name__ == "__main__":
    main()
