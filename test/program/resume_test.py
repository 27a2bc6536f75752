"""Training that is interrupted or killed goes on and ends with the bytes of one that was not."""

import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time

from harness import PROGRAM, ProgramTest, environment, main
from stop_test import rank_process


class Resume(ProgramTest):
    EPOCHS = 60

    def setUp(self):
        super().setUp()
        self.write("data.parquet", self.table(rows=6000), row_group_size=500)
        self.plan = self.recipe(data="valid = 0.1", train='learning_rate = 0.01\nschedule = "cosine"\naccumulate = 2\n'
                                                          'clip_norm = 5', loader="lanes = 4\nwindow = 2000")
        self.fixed = ["--quiet", "--threads", "1", "--set", f"train.epochs={self.EPOCHS}"]
        self.random = random.Random(os.environ.get("MILLSTREAM_TEST_SEED", "1"))

    def train(self, out, *more, code=0):
        return self.run_program("train", self.plan, *self.fixed, *(["--out", out] if out else []), *more, code=code)

    def weights(self, run):
        return (self.scratch / run / "bundle" / "weights.safetensors").read_bytes()

    def checkpoints(self, run):
        folder = self.scratch / run / "checkpoints"
        return sorted((p.name for p in folder.iterdir() if p.name.startswith("step-")), key=lambda n: int(n[5:]))

    def interrupt(self, process, run, signal_number):
        """Sends the signal after a random number of lines of metrics; True where the run had not ended before."""
        metrics, wanted = self.scratch / run / "metrics.jsonl", self.random.randrange(1, 900)
        limit = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= wanted:
                break
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal_number)
        return self.end(process)

    def lines_of(self, run):
        """metrics.jsonl without what depends on time."""
        lines = [json.loads(line) for line in (self.scratch / run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            for name in ("seconds", "rows_per_second", "wait_fraction"):
                line.pop(name, None)
        return lines

    def test_interrupted_or_killed_anywhere_on_one_and_three_ranks(self):
        for ranks in ([], ["--ranks", "3", "--trainers", "2"]):
            name = "whole" + "".join(ranks[1:2])
            self.train(name, *ranks)
            for number, kind in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGINT)):
                with self.subTest(ranks=ranks, signal=kind):
                    run = f"run{number}{''.join(ranks[1:2])}"
                    process = self.start("train", self.plan, *self.fixed, "--out", run, *ranks,
                                         "--set", "train.checkpoint_every=7")
                    ended = self.interrupt(process, run, kind)
                    if kind != signal.SIGKILL and ended.code != 0:
                        self.assertEqual(ended.code, 130, ended)
                        self.assert_one_error(ended)
                        self.assertRegex(ended.err, rf"interrupted by {kind.name} after step \d+, of which a checkpoint "
                                                    rf"was made; --resume {run} goes on from there")
                    if (self.scratch / run / "bundle").exists():
                        self.assertEqual(ended.code, 0, ended)
                        shutil.rmtree(self.scratch / run / "bundle")
                    again = self.train(None, "--resume", run, "--json", *ranks, "--set", "train.checkpoint_every=7")
                    self.assertEqual(self.weights(run), self.weights(name))
                    self.assertEqual(len(self.checkpoints(run)), 2)
                    if not ranks:
                        self.assertEqual(self.lines_of(run), self.lines_of(name))
                        self.assertEqual(again.json()["steps"], self.lines_of(name)[-1]["steps"])

    def test_started_again_after_lost_ranks(self):
        """Three trainers, dropout and momentum; MILLSTREAM_KILLS says how often (a long run: 50)."""
        more = ["--ranks", "3", "--trainers", "all", "--set", "model.dropout=0.2", "--set", "model.batch_norm=true",
                "--set", "train.optimizer=sgd", "--set", "train.momentum=0.9", "--set", "train.checkpoint_every=10"]
        loud = [option for option in self.fixed if option != "--quiet"]
        self.train("whole", *more)
        for number in range(int(os.environ.get("MILLSTREAM_KILLS", "2"))):
            run = f"lost{number}"
            process = self.start("train", self.plan, *loud, *more, "--out", run, "--max-restarts", "2")
            metrics, wanted = self.scratch / run / "metrics.jsonl", self.random.randrange(0, 900)
            limit = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < limit:
                if metrics.exists() and metrics.read_bytes().count(b"\n") >= wanted:
                    break
                time.sleep(0.005)
            killed = process.poll() is None and rank_process(process.pid, self.random.randrange(3))
            if killed:
                os.kill(killed, signal.SIGKILL)
            ended = self.end(process)
            self.assertEqual(ended.code, 0, ended)
            if killed and "was killed by" in ended.err:
                self.assertIn("the ranks are started again, from the newest checkpoint (restart 1 of 2)", ended.err)
            self.assertEqual(self.weights(run), self.weights("whole"), ended)

    def test_restarts_come_to_an_end(self):
        process = self.start("train", self.plan, *self.fixed, "--set", "train.epochs=100000", "--out", "run", "--ranks",
                             "2", "--max-restarts", "1")
        for _ in range(2):
            rank, limit = None, time.monotonic() + 60
            while rank is None and time.monotonic() < limit:
                rank = rank_process(process.pid, 1)
                time.sleep(0.01)
            os.kill(rank, signal.SIGKILL)
            while os.path.exists(f"/proc/{rank}") and time.monotonic() < limit:
                time.sleep(0.01)
        ended = self.end(process)
        self.assertEqual(ended.code, 4, ended)
        self.assertEqual(ended.err.count("millstream: error: "), 2, ended)
        for options, part in ((["--max-restarts", "2"], "--max-restarts needs --out DIR"),
                              (["--max-restarts", "2", "--out", "run", "--overwrite"], "remove run first"),
                              (["--max-restarts", "x", "--out", "run"], "--max-restarts x")):
            self.assertIn(part, self.run_program("train", self.plan, *options, code=2).err)

    def test_another_number_of_ranks_goes_on_with_the_same_rows(self):
        """float64, so that the order of sums hardly matters."""
        precise = ["--set", "train.precision=float64", "--json"]
        whole = self.train("whole", *precise).json()
        process = self.start("train", self.plan, *self.fixed, *precise, "--out", "run")
        self.interrupt(process, "run", signal.SIGTERM)
        parted = self.train(None, "--resume", "run", "--ranks", 2, "--trainers", "all", *precise).json()
        for name in ("rows", "steps", "epochs"):
            self.assertEqual(parted[name], whole[name])
        self.assertAlmostEqual(parted["loss_last"], whole["loss_last"], delta=1e-6 * whole["loss_last"])

    def test_auto_starts_or_goes_on(self):
        first = self.train("run", "--resume", "auto", "--set", "train.epochs=3", "--json").json()
        self.assertEqual(first["resumed_at_step"], 0)
        # Finished: there is nothing left to train, and the bundle is made again.
        again = self.train("run", "--resume", "auto", "--set", "train.epochs=3", "--json").json()
        self.assertEqual((again["steps"], again["resumed_at_step"]), (first["steps"], first["steps"]))
        self.assertEqual(again["valid"], first["valid"])
        # No checkpoint yet: it starts anew in its place.
        shutil.rmtree(self.scratch / "run" / "checkpoints")
        anew = self.train("run", "--resume", "auto", "--set", "train.epochs=3", "--json").json()
        self.assertEqual(anew["resumed_at_step"], 0)

    def test_usr1_makes_a_checkpoint_and_goes_on(self):
        process = self.start("train", self.plan, *self.fixed, "--out", "run", "--ranks", 2, "--trainers", "all",
                             "--set", "train.epochs=100000", "--set", "train.checkpoint_every=0")
        metrics, folder = self.scratch / "run" / "metrics.jsonl", self.scratch / "run" / "checkpoints"
        limit = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < limit:
            time.sleep(0.01)
        self.assertFalse(folder.exists())
        process.send_signal(signal.SIGUSR1)
        while not (folder.exists() and self.checkpoints("run")) and time.monotonic() < limit:
            time.sleep(0.01)
        lines = metrics.read_bytes().count(b"\n")
        while metrics.read_bytes().count(b"\n") <= lines + 5 and time.monotonic() < limit:
            time.sleep(0.01)
        self.assertIsNone(process.poll())
        self.assertEqual(len(self.checkpoints("run")), 1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process).code, 130)

    def test_another_recipe_or_other_data_is_refused(self):
        short = ["--set", "train.epochs=3", "--set", "train.schedule=constant"]
        self.train("run", *short)
        ended = self.train(None, "--resume", "run", *short, "--set", "train.learning_rate=0.02",
                           "--set", "model.hidden=[9]", code=2)
        self.assert_one_error(ended)
        self.assertIn("this is not the run that was interrupted: model.hidden was [8] and is [9], train.learning_rate "
                      "was 0.01 and is 0.02; undo that", ended.err)
        # More epochs are no other run.
        more = self.train(None, "--resume", "run", *short, "--set", "train.epochs=5", "--json").json()
        self.assertEqual(more["epochs"], 5)
        self.train(None, "--resume", "run", *short, "--set", "train.learning_rate=0.02", "--set", "train.epochs=6",
                   "--resume-anyway")
        self.write("data.parquet", self.table(rows=6001), row_group_size=500)
        ended = self.train(None, "--resume", "run", *short, "--set", "train.learning_rate=0.02",
                           "--set", "train.epochs=7", "--ranks", 2, code=2)
        self.assertIn("its data has changed", ended.err)
        ended = self.train(None, "--resume", "nothing", code=3)
        self.assertIn("there is no checkpoint in nothing/checkpoints to go on from", ended.err)
        self.train(None, "--resume", "auto", code=2)

    def test_damaged_checkpoints_are_told_and_passed_over(self):
        short = ["--set", "train.epochs=3", "--set", "train.schedule=constant"]
        self.train("run", *short)
        older, newer = self.checkpoints("run")
        state = self.scratch / "run" / "checkpoints" / newer / "state.safetensors"
        damaged = bytearray(state.read_bytes())
        damaged[-1] ^= 1
        state.write_bytes(damaged)
        ended = self.run_program("train", self.plan, "--resume", f"run/checkpoints/{newer}", *self.fixed, *short, code=3)
        self.assertIn("is damaged: its checksums don't match", ended.err)
        loud = [option for option in self.fixed if option != "--quiet"]
        ended = self.run_program("train", self.plan, "--resume", "run", *loud, *short, "--json")
        self.assertRegex(ended.err, rf"{newer} is damaged.*going on from .*{older}")
        self.assertEqual(ended.json()["resumed_at_step"], int(older[5:]))

    def test_a_full_disk_keeps_the_checkpoint_before(self):
        """A limit on the size of files stands for the disk: the second checkpoint, with more in it, meets it."""
        more = ["--set", "model.hidden=[64, 64]", "--set", "train.schedule=constant"]  # larger than metrics.jsonl
        self.train("run", *more, "--set", "train.epochs=2")
        before = self.checkpoints("run")[-1]
        size = (self.scratch / "run" / "checkpoints" / before / "state.safetensors").stat().st_size

        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1))

        done = subprocess.run([str(PROGRAM), "train", str(self.plan), "--resume", "run", *self.fixed,
                               *more, "--set", "train.epochs=4"],
                              cwd=self.scratch, env=environment(self.scratch), text=True, capture_output=True,
                              preexec_fn=limited, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"the checkpoint of step \d+ can't be written \(.*File too large\); the one before "
                                      r"is kept: make room and go on with --resume run")
        self.assertEqual(self.checkpoints("run")[-1], before)
        left = os.listdir(self.scratch / "run" / "checkpoints")
        self.assertEqual([name for name in left if not re.fullmatch(r"step-\d+", name)], [])
        self.train(None, "--resume", "run", *more, "--set", "train.epochs=4")

    def test_a_full_file_system_keeps_the_checkpoints_before(self):
        """A tmpfs with room for two checkpoints, in a mount namespace of its own."""
        more = ["--set", "model.hidden=[256, 256]", "--set", "train.schedule=constant", "--set", "data.valid=0"]
        self.train("run", *more, "--set", "train.epochs=2")
        newest = self.scratch / "run" / "checkpoints" / self.checkpoints("run")[-1]
        size = sum(file.stat().st_size for file in newest.iterdir())
        (self.scratch / "small").mkdir()
        program = " ".join(shlex.quote(str(word)) for word in
                           [PROGRAM, "train", self.plan, "--out", "small/run", *self.fixed, *more])
        script = (f"mount -t tmpfs -o size={size * 5 // 2} none small || exit 99; {program}; code=$?; "
                  "ls small/run/checkpoints; exit $code")
        try:
            done = subprocess.run(["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
                                   script], cwd=self.scratch, env=environment(self.scratch), text=True,
                                  capture_output=True, timeout=60)
        except FileNotFoundError:
            self.skipTest("there is no unshare here")
        if done.returncode == 99 or "unshare" in done.stderr:
            self.skipTest(f"no mount namespaces here: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"the checkpoint of step \d+ can't be written \(.*No space left on device\); the one "
                                      r"before is kept: make room and go on with --resume small/run")
        left = done.stdout.split()
        self.assertEqual(len(left), 2, done.stdout)
        self.assertTrue(all(re.fullmatch(r"step-\d+", name) for name in left), left)


if __name__ == "__main__":
    main()
