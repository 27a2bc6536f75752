"""Ranks killed at named places (base/kill_point.h): a feeder, a trainer, rank 0, in both transports. The job ends with
code 4 and the rank's name, leaves no shared memory, and goes on to the weights of a run that was not disturbed."""

from harness import ProgramTest, main, shared_memory

# Place, rank, and the how-manieth time; rank 0 and 1 train, 2 feeds (with one thread a rank). The transport alternates
# where both come by the place.
PLACES = [
    ("survey", 2, 1, None), ("survey.block", 1, 2, None), ("survey.gathered", 0, 1, None), ("survey.kept", 0, 1, None),
    ("survey.kept", 2, 1, None), ("survey.committed", 0, 1, None), ("planned", 1, 1, None), ("surveyed", 2, 1, None),
    ("rings", 0, 1, None), ("rings", 2, 1, "messages"), ("feeding", 2, 1, None), ("feeding", 1, 1, "messages"),
    ("next", 0, 1, None), ("next", 1, 30, "messages"), ("taken", 0, 25, None), ("released", 1, 60, None),
    ("released", 0, 40, "messages"), ("finish", 2, 1, None), ("finish", 0, 1, "messages"), ("stream", 2, 1, None),
    ("pass.end", 2, 3, None), ("room", 2, 40, None), ("window", 2, 20, None), ("window", 2, 9, "messages"),
    ("filled", 2, 50, None), ("added", 2, 51, None), ("send", 2, 33, "messages"), ("sent", 2, 70, "messages"),
    ("post", 1, 55, "messages"),
]


class Kill(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("data.parquet", self.table(rows=12000), row_group_size=500)
        self.recipe(data="valid = 0.1", loader="lanes = 6\nwindow = 3000\nprefetch = 3", train="checkpoint_every = 5")

    def train(self, out, cache, *more, transport=None, code=0, variables=None):
        return self.run_program("train", "recipe.toml", "--out", out, "--cache", cache, "--ranks", 3, "--trainers", 2,
                                "--threads", 1, "--resume", "auto", "--json", "--quiet",
                                *(["--transport", transport] if transport else []), *more, code=code, variables=variables)

    def test_everywhere(self):
        undisturbed = self.train("whole", "cache").json()
        weights = (self.scratch / "whole" / "bundle" / "weights.safetensors").read_bytes()
        self.assertGreater(undisturbed["steps"], 80)
        for number, (place, rank, time, transport) in enumerate(PLACES):
            with self.subTest(place=place, rank=rank, time=time, transport=transport):
                before = shared_memory()
                out, cache = f"run{number}", f"cache{number}"
                ended = self.train(out, cache, transport=transport, code=4,
                                   variables={"MILLSTREAM_TEST_KILL_AT": f"{place}@{rank}:{time}"})
                self.assertRegex(ended.err, rf"[Rr]ank {rank}\b.*(killed|SIGKILL|signal 9)")
                self.assertEqual(shared_memory() - before, set())
                again = self.train(out, cache, transport=transport).json()
                self.assertEqual((again["steps"], again["rows"]), (undisturbed["steps"], undisturbed["rows"]))
                self.assertTrue((self.scratch / out / "bundle" / "weights.safetensors").read_bytes() == weights,
                                "other weights than without the kill")


if __name__ == "__main__":
    main()
