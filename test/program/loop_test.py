"""The loader in a loop of one's own (examples/own_loop): interrupted anywhere, on other ranks each time, the result is
that of one run."""

import subprocess

from harness import BUILD, SOURCE, TIME_LIMIT, ProgramTest, environment, main

LOOP = BUILD / "bin" / "own_loop"
MPIEXEC = SOURCE / ".venv" / "bin" / "mpiexec"
ALL = 10**9


class OwnLoop(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_program("generate", "hvfhv", "--rows", 50000, "--files", 3, "--out", "trips")

    def loop(self, state, steps, ranks=1, code=0):
        command = [LOOP, "trips", state, str(steps)]
        if ranks > 1:
            command = [MPIEXEC, "-launcher", "fork", "-rmk", "user", "-n", str(ranks), *command]
        done = subprocess.run(list(map(str, command)), cwd=self.scratch, env=environment(self.scratch), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIME_LIMIT)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_goes_on_bit_for_bit(self):
        if not MPIEXEC.exists():
            self.skipTest("no mpiexec in the environment")
        whole = self.loop("whole", ALL)
        self.assertIn("steps ", whole.stdout)
        for ranks, steps in ((1, 7), (3, 0), (3, 40), (2, 1), (1, ALL)):
            self.loop("parts", steps, ranks)
        self.assertEqual((self.scratch / "parts").read_text(), (self.scratch / "whole").read_text())

    def test_other_data_is_refused(self):
        self.loop("state", 3)
        self.run_program("generate", "hvfhv", "--rows", 50001, "--files", 3, "--out", "others")
        for file in (self.scratch / "others").iterdir():
            file.replace(self.scratch / "trips" / file.name)
        refused = self.loop("state", 3, code=2)
        self.assertIn("the data (files, query, features or split)", refused.stderr)


if __name__ == "__main__":
    main()
