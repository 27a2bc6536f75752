"""A rank that dies or stops, and a user who interrupts, end the job at once, with a message and nothing left over."""

import os
import re
import signal
import time

from harness import ProgramTest, main, shared_memory


def processes():
    """pid -> (parent, command line)."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{entry}/cmdline") as file:
                    found[int(entry)] = (parent, file.read().split("\0"))
            except (OSError, IndexError):
                pass
    return found


def descendants(root):
    table = processes()
    chosen, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, _) in table.items() if parent in chosen} - chosen
        chosen |= more
        grown = bool(more)
    return {pid: table[pid] for pid in chosen if pid in table}


def rank_process(root, rank):
    """The process that is rank `rank` of the job below `root`: the deepest of those that the launcher gave it."""
    below = descendants(root)
    mine = []
    for pid in below:
        try:
            with open(f"/proc/{pid}/environ") as file:
                if f"PMI_RANK={rank}" in file.read().split("\0"):
                    mine.append(pid)
        except OSError:
            pass
    parents = {below[pid][0] for pid in mine}
    leaves = [pid for pid in mine if pid not in parents]
    return leaves[0] if leaves else None


class Stop(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("data.parquet", self.table(rows=20000), row_group_size=1000)
        self.shared_before = shared_memory()

    def training(self, *more):
        """A training job on three ranks that is under way and would take minutes."""
        process = self.start("train", self.recipe(data="valid = 0.1"), "--out", "run", "--ranks", 3, "--trainers", "2",
                             "--set", "train.epochs=100000", "--quiet", *more)
        metrics = self.scratch / "run" / "metrics.jsonl"
        limit = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size > 0):
            if process.poll() is not None:
                self.fail(f"ended early\n{self.end(process)}")
            if time.monotonic() > limit:
                self.fail(f"does not train\n{self.kill(process)}")
            time.sleep(0.02)
        return process

    def kill(self, process):
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        return self.end(process)

    def ends(self, process, code, limit=30):
        below = set(descendants(process.pid))
        ended = self.end(process, limit)
        self.assertEqual(ended.code, code, ended)
        self.assertEqual(shared_memory() - self.shared_before, set())
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in below) and time.monotonic() < deadline:
            time.sleep(0.02)
        left = {pid: command for pid, (_, command) in processes().items() if pid in below}
        self.assertEqual(left, {})
        return ended

    def test_killed_rank(self):
        for rank, transport in ((0, "shared"), (1, "messages"), (2, "shared"), (2, "messages")):
            with self.subTest(rank=rank, transport=transport):
                process = self.training("--overwrite", "--transport", transport)
                os.kill(rank_process(process.pid, rank), signal.SIGKILL)
                ended = self.ends(process, 4)
                self.assert_one_error(ended)
                self.assertRegex(ended.err, rf"\brank {rank}\b")
                for other in {0, 1, 2} - {rank}:
                    self.assertNotRegex(ended.err, rf"\brank {other}\b")
                (self.scratch / "run" / "metrics.jsonl").unlink()

    def test_stopped_rank(self):
        for transport in ("shared", "messages"):
            with self.subTest(transport=transport):
                process = self.training("--overwrite", "--deadline", "2", "--transport", transport)
                os.kill(rank_process(process.pid, 1), signal.SIGSTOP)
                ended = self.ends(process, 4)
                self.assertRegex(ended.err, r"\brank 1\b")
                self.assertEqual(len(re.findall("millstream: ", ended.err)), 1, ended)
                (self.scratch / "run" / "metrics.jsonl").unlink()

    def test_terminated(self):
        process = self.training()
        process.send_signal(signal.SIGTERM)
        ended = self.ends(process, 130)
        self.assert_one_error(ended)
        self.assertIn("SIGTERM", ended.err)

    def test_interrupted_from_the_keyboard(self):
        """^C goes to the whole process group."""
        process = self.training()
        os.killpg(process.pid, signal.SIGINT)
        self.ends(process, 130)

    def test_killed_supervisor_takes_its_ranks_along(self):
        process = self.training()
        below = set(descendants(process.pid)) - {process.pid}
        process.kill()
        self.end(process)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and any(os.path.exists(f"/proc/{pid}") for pid in below):
            time.sleep(0.05)
        self.assertEqual([pid for pid in below if os.path.exists(f"/proc/{pid}")], [])
        self.assertEqual(shared_memory() - self.shared_before, set())

    def test_single_process(self):
        process = self.start("train", self.recipe(), "--out", "run", "--set", "train.epochs=100000", "--quiet")
        metrics = self.scratch / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size > 0):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        ended = self.ends(process, 130)
        self.assert_one_error(ended)


if __name__ == "__main__":
    main()
