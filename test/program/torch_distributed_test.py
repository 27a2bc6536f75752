"""torch.distributed in Python on the backend "millstream". MILLSTREAM_TORCH_PYTHON names a Python that has torch."""

import os
import subprocess
import sys
import textwrap

from harness import BUILD, SOURCE, ProgramTest, environment, main

PYTHON = os.environ.get("MILLSTREAM_TORCH_PYTHON", sys.executable)

START = """
import torch, torch.distributed as dist
import millstream_c10d
dist.init_process_group("millstream", store=dist.HashStore(), rank=millstream_c10d.rank(),
                        world_size=millstream_c10d.size())
rank, size = dist.get_rank(), dist.get_world_size()
"""


class TorchDistributed(ProgramTest):
    def setUp(self):
        super().setUp()
        if not (BUILD / "python" / "millstream_c10d.so").exists():
            self.skipTest("millstream_c10d was not built: no headers of Python")
        if subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
            self.skipTest(f"{PYTHON} has no torch; MILLSTREAM_TORCH_PYTHON names one that has")

    def run_ranks(self, ranks, text):
        (self.scratch / "program.py").write_text(START + textwrap.dedent(text))
        mpiexec = SOURCE / ".venv" / "bin" / "mpiexec"
        return subprocess.run([mpiexec, "-launcher", "fork", "-rmk", "user", "-n", str(ranks), PYTHON, "program.py"],
                              cwd=self.scratch, env={**environment(self.scratch), "PYTHONPATH": str(BUILD / "python")},
                              text=True, capture_output=True, timeout=120)

    def test_collectives_and_distributed_data_parallel(self):
        for ranks in (1, 2, 3):
            done = self.run_ranks(ranks, """
                assert dist.get_backend() == "millstream"
                total = torch.full((5,), rank + 1.0)
                dist.all_reduce(total)
                assert total.tolist() == [size * (size + 1) / 2] * 5, total
                parts = [torch.empty(3, dtype=torch.int64) for _ in range(size)]
                dist.all_gather(parts, torch.full((3,), rank))
                assert [int(part[2]) for part in parts] == list(range(size)), parts
                mine, given = torch.empty(2), torch.arange(2.0 * size) + rank
                dist.reduce_scatter_tensor(mine, given)
                assert mine.tolist() == [size * (2 * rank + i) + size * (size - 1) / 2 for i in range(2)], mine
                out = torch.empty(size)
                dist.all_to_all_single(out, torch.arange(float(size)) * 10 + rank)
                assert out.tolist() == [rank * 10.0 + other for other in range(size)], out
                work = dist.broadcast(total, src=0, async_op=True)
                work.wait()
                second = dist.new_group()
                dist.barrier(second)
                torch.manual_seed(0)
                data, target = torch.randn(6 * size, 4), torch.randn(6 * size, 1)
                alone, net = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
                net.load_state_dict(alone.state_dict())
                net = torch.nn.parallel.DistributedDataParallel(net)
                torch.nn.functional.mse_loss(alone(data), target).backward()
                part = slice(6 * rank, 6 * rank + 6)
                torch.nn.functional.mse_loss(net(data[part]), target[part]).backward()
                assert torch.allclose(alone.weight.grad, net.module.weight.grad, atol=1e-6)
                print("rank", rank, "is done", flush=True)
            """)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("is done"), ranks, done.stdout + done.stderr)

    def test_an_exception_ends_the_others(self):
        done = self.run_ranks(2, """
            if rank == 1:
                raise ValueError("no more")
            dist.all_reduce(torch.ones(3))
        """)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no more", done.stderr)

    def test_groups_of_some_ranks_are_refused(self):
        done = self.run_ranks(2, """
            try:
                dist.new_group([rank], use_local_synchronization=True)
            except RuntimeError as error:
                assert "in Python groups are of all ranks" in str(error), error
            else:
                raise AssertionError("it was made")
        """)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    main()
