"""The sequence of global batches is the same whatever the shape of the job."""

from harness import DATA, SOURCE, ProgramTest, main

RECIPE = SOURCE / "examples" / "green" / "green.toml"
SHAPES = ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 3))


class Shapes(ProgramTest):
    def setUp(self):
        super().setUp()
        if not (DATA / "green").is_dir():
            self.skipTest(f"no {DATA / 'green'}")

    def digests(self, *more, variables=None):
        return self.run_program("batches", RECIPE, "--set", f"define.green={DATA / 'green'}", "--digest", "--quiet",
                                *more, variables=variables).out

    def same_over_shapes(self, *more):
        expected = self.digests(*more)
        self.assertGreater(len(expected.splitlines()), 600)
        for transport in ("shared", "messages"):
            for ranks, trainers in SHAPES:
                with self.subTest(transport=transport, ranks=ranks, trainers=trainers):
                    got = self.digests("--ranks", ranks, "--trainers", trainers, "--transport", transport, *more)
                    self.assertTrue(got == expected, f"{self.first_difference(got, expected)}")
        return expected

    def first_difference(self, a, b):
        for number, (x, y) in enumerate(zip(a.splitlines(), b.splitlines())):
            if x != y:
                return f"line {number}: {x} instead of {y}"
        return f"{len(a.splitlines())} lines instead of {len(b.splitlines())}"

    def test_window(self):
        self.same_over_shapes()

    def test_a_window_smaller_than_the_epoch(self):
        small = self.same_over_shapes("--set", "loader.window=20000")
        self.assertNotEqual(small, self.digests())

    def test_a_feeder_that_sleeps(self):
        expected = self.digests()
        for transport in ("shared", "messages"):
            slow = self.digests("--ranks", 3, "--trainers", 1, "--transport", transport,
                                variables={"MILLSTREAM_TEST_SLOW_FEEDER": "1:5"})
            self.assertTrue(slow == expected, self.first_difference(slow, expected))

    def test_two_epochs_differ_in_order(self):
        lines = self.digests("--epochs", 2, "--ranks", 2).splitlines()
        train = [line.split() for line in lines if not line.endswith("valid")]
        epochs = [[line[3] for line in train if line[0] == epoch] for epoch in ("0", "1")]
        self.assertEqual(len(epochs[0]), len(epochs[1]))
        self.assertFalse(set(epochs[0]) & set(epochs[1]))

    def test_threads_and_file_order(self):
        for shuffle in ("none", "window"):
            outputs = {self.digests("--set", f"loader.shuffle={shuffle}", "--threads", threads, "--ranks", ranks)
                       for threads, ranks in ((1, 1), (4, 1), (1, 2), (3, 2))}
            self.assertEqual(len(outputs), 1, shuffle)


if __name__ == "__main__":
    main()
