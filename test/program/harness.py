"""What the whole-program tests share: a scratch folder, the program run with a limit, small tables."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SOURCE = Path(os.environ.get("MILLSTREAM_SOURCE", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("MILLSTREAM_BUILD", SOURCE / "build"))
PROGRAM = BUILD / "bin" / "millstream"
DATA = Path(os.environ.get("MILLSTREAM_DATA", SOURCE.parent / "shared" / "data"))
TIME_LIMIT = 120  # seconds a run may take before it counts as a hang

FEATURES = ["a", "b", "c"]


class Ended:
    """How a run of the program ended."""

    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"{' '.join(map(str, self.command))}\nexit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


def environment(scratch):
    env = dict(os.environ)
    env["XDG_CACHE_HOME"] = str(scratch / "cache")
    env.pop("MILLSTREAM_CACHE", None)
    return env


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "millstream" in name.lower()}


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.scratch = Path(tempfile.mkdtemp(prefix="millstream_program_"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def start(self, *arguments, variables=None):
        """The running program, in a process group of its own."""
        command = [str(PROGRAM), *map(str, arguments)]
        env = {**environment(self.scratch), **(variables or {})}
        return subprocess.Popen(command, cwd=self.scratch, env=env, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)

    def end(self, process, limit=TIME_LIMIT):
        """Waits for its end; a run that does not end is a failed test."""
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.fail(f"a hang: {' '.join(process.args)}\n--- out\n{out}\n--- err\n{err}")
        return Ended(process.args, process.returncode, out, err)

    def run_program(self, *arguments, code=0, limit=TIME_LIMIT, variables=None):
        ended = self.end(self.start(*arguments, variables=variables), limit)
        if code is not None and ended.code != code:
            self.fail(f"exit code {code} expected\n{ended}")
        return ended

    # Inputs.

    def table(self, rows=2000, **columns):
        """a, b and c are features, y = 2a - b is the target."""
        a = [float(i % 97) for i in range(rows)]
        b = [float(i * 31 % 53) for i in range(rows)]
        c = [float(i % 5) for i in range(rows)]
        y = [2 * p - q for p, q in zip(a, b)]
        table = {"a": pa.array(a), "b": pa.array(b), "c": pa.array(c), "y": pa.array(y)}
        table.update(columns)
        return pa.table(table)

    def write(self, name, table=None, **options):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.table() if table is None else table, path, **options)
        return path

    def recipe(self, query="SELECT a, b, c, y FROM 'data.parquet'", data="", features="", loader="", train="", more="",
               target="y", columns=FEATURES, name="recipe.toml"):
        columns = ", ".join(f'"{column}"' for column in columns)
        text = f"""
[data]
train = \"\"\"{query}\"\"\"
target = "{target}"
{data}
[[feature]]
columns = [{columns}]
{features or 'steps = ["standard_scale"]'}
[loader]
batch_size = 256
{loader}
[model]
hidden = [8]
[train]
epochs = 2
{train}
{more}
"""
        path = self.scratch / name
        path.write_text(text)
        return path

    # Expectations.

    def assert_one_error(self, ended):
        """One paragraph on standard error, nothing on standard output."""
        self.assertEqual(ended.out, "", ended)
        errors = [line for line in ended.err.splitlines() if line.startswith("millstream: error: ")]
        self.assertEqual(len(errors), 1, ended)
        self.assertNotIn("\n\n", ended.err.strip(), ended)
        self.assertNotIn("terminate", ended.err)

    def assert_fails(self, arguments, code, *parts, ranks=(1, 3)):
        """The same one error on any number of ranks, with every one of `parts` in it."""
        texts = []
        for count in ranks:
            ended = self.run_program(*arguments, *(["--ranks", count] if count > 1 else []), code=code)
            self.assert_one_error(ended)
            for part in parts:
                self.assertIn(part, ended.err)
            texts.append(ended.err)
        for text in texts[1:]:
            self.assertEqual(text, texts[0])
        return texts[0]


def main():
    unittest.main(verbosity=2)
