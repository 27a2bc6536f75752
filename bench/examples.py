#!/usr/bin/env python3
"""What the recipes of examples/ reach beside scikit-learn's MLP of the same widths, batch size, epochs and features, on
the same rows: each table is split at random into nine tenths and one tenth (titanic: four fifths and one), and both
train on the one part and are scored on the other.

    bench/examples.py TABULAR_DIR [--seeds 3] [--program build/bin/millstream]

Needs numpy, scikit-learn and pyarrow. Prints the medians over the seeds and exits with 1 where ours is worse by more
than 0.02.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

warnings.simplefilter("ignore")
SOURCE = Path(__file__).resolve().parents[1]


class Columns:
    """Inputs of one kind after the other, fitted on the training rows."""

    def __init__(self, train, valid):
        self.train, self.valid = train, valid
        self.parts = ([], [])

    def numbers(self, name, log=False, fill=False, clip=None):
        a, b = (np.array([np.nan if v is None else float(v) for v in t[name].to_pylist()]) for t in (self.train, self.valid))
        if fill:
            self.parts[0].append(np.isnan(a)[:, None])
            self.parts[1].append(np.isnan(b)[:, None])
            median = np.nanmedian(a)
            a, b = np.where(np.isnan(a), median, a), np.where(np.isnan(b), median, b)
        if log:
            a, b = np.log1p(a), np.log1p(b)
        if clip is not None:
            a, b = np.minimum(a, clip), np.minimum(b, clip)
        scaler = StandardScaler().fit(a[:, None])
        self.parts[0].append(scaler.transform(a[:, None]))
        self.parts[1].append(scaler.transform(b[:, None]))

    def texts(self, *names):
        sides = []
        for table in (self.train, self.valid):
            columns = [[str(v) if v is not None else "" for v in table[name].to_pylist()] for name in names]
            sides.append(np.array(["|".join(row) for row in zip(*columns)], dtype=object)[:, None])
        return sides

    def one_hot(self, *names):
        a, b = self.texts(*names)
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(a)
        self.parts[0].append(encoder.transform(a))
        self.parts[1].append(encoder.transform(b))

    def encode_target(self, name, y):
        a, b = self.texts(name)
        encoder = TargetEncoder(smooth=10.0, random_state=0)
        a, b = encoder.fit_transform(a, y), encoder.transform(b)
        scaler = StandardScaler().fit(a)
        self.parts[0].append(scaler.transform(a))
        self.parts[1].append(scaler.transform(b))

    def matrices(self):
        return np.hstack(self.parts[0]), np.hstack(self.parts[1])


def adults(train, valid):
    columns = Columns(train, valid)
    y, z = (np.array([v == ">50K" for v in t["class"].to_pylist()], dtype=float) for t in (train, valid))
    for name in ("age", "fnlwgt", "education-num", "hours-per-week"):
        columns.numbers(name)
    for name in ("capital-gain", "capital-loss"):
        columns.numbers(name, log=True)
    for name in ("workclass", "education", "marital-status", "occupation", "relationship", "race", "sex"):
        columns.one_hot(name)
    columns.encode_target("native-country", y)
    return *columns.matrices(), y, z


def titanic(train, valid):
    columns = Columns(train, valid)
    y, z = (np.array(t["survived"].to_pylist(), dtype=float) for t in (train, valid))
    columns.numbers("age", fill=True)
    columns.numbers("fare", log=True)
    for name in ("sibsp", "parch"):
        columns.numbers(name, clip=4)
    columns.one_hot("pclass", "sex")
    for name in ("sex", "embarked", "who", "deck", "alone"):
        columns.one_hot(name)
    return *columns.matrices(), y, z


def california(train, valid):
    columns = Columns(train, valid)
    y, z = (np.array(t["median_house_value"].to_pylist(), dtype=float) / 100000 for t in (train, valid))
    for name in ("longitude", "latitude", "housing_median_age"):
        columns.numbers(name)
    for name in ("total_rooms", "total_bedrooms", "population", "households", "median_income"):
        columns.numbers(name, log=True, fill=name == "total_bedrooms")
    columns.one_hot("ocean_proximity")
    return *columns.matrices(), y, z


EXAMPLES = {  # name: file, columns, widths, batch, epochs, fraction of validation
    "california": ("california_housing.csv", california, (64, 32), 128, 20, 0.1),
    "adults": ("adults.parquet", adults, (64, 32), 256, 12, 0.1),
    "titanic": ("titanic.csv", titanic, (32, 16), 32, 20, 0.2),
}


def theirs(matrices, widths, batch, epochs, seed):
    x, x_valid, y, y_valid = matrices
    kind = MLPClassifier if set(np.unique(y)) == {0, 1} else MLPRegressor
    model = kind(hidden_layer_sizes=widths, batch_size=batch, max_iter=epochs, alpha=0, n_iter_no_change=epochs, random_state=seed)
    model.fit(x, y)
    if kind is MLPRegressor:
        return {"r2": r2_score(y_valid, model.predict(x_valid))}
    p = model.predict_proba(x_valid)[:, 1]
    return {"accuracy": accuracy_score(y_valid, p > 0.5), "auc": roc_auc_score(y_valid, p), "log_loss": log_loss(y_valid, p)}


def ours(program, name, file, train, valid, seed, scratch):
    """Trains the recipe with the split taken out of it, on files of one part each."""
    for part, table in (("train", train), ("valid", valid)):
        (scratch / part).mkdir(exist_ok=True)
        path = scratch / part / file
        pq.write_table(table, path) if file.endswith(".parquet") else pa.csv.write_csv(table, path)
    text = (SOURCE / "examples" / name / f"{name}.toml").read_text()
    text = re.sub(r"(?m)^(valid|test|stratify_by|folds|fold)\s*=.*\n", "", text)
    query = re.search(r'train = """(.*?)"""', text, re.S).group(1).replace("${tabular}", str(scratch / "valid"))
    text = text.replace("[data]\n", f'[data]\nvalid = """{query}"""\n', 1)
    recipe = scratch / f"{name}.toml"
    recipe.write_text(text)
    command = [program, "train", recipe, "--set", f"define.tabular={scratch / 'train'}", "--set", f"train.seed={seed}",
               "--out", scratch / "run", "--overwrite", "--json", "--quiet", "--cache", scratch / "cache"]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    last = [json.loads(line) for line in (scratch / "run" / "metrics.jsonl").read_text().splitlines()]
    # scikit-learn's has its last weights, so that ours is judged by its last epoch too.
    return [line for line in last if line["kind"] == "epoch"][-1]["valid"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--program", type=Path, default=SOURCE / "build" / "bin" / "millstream")
    parser.add_argument("--only", choices=EXAMPLES)
    options = parser.parse_args()
    worse = False
    for name, (file, columns, widths, batch, epochs, fraction) in EXAMPLES.items():
        if options.only not in (None, name):
            continue
        path = options.data / file
        table = pq.read_table(path) if file.endswith(".parquet") else pa.csv.read_csv(
            path, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))
        results = {"ours": [], "scikit-learn": []}
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(table))
            cut = int(len(table) * fraction)
            valid, train = table.take(np.sort(order[:cut])), table.take(np.sort(order[cut:]))
            results["scikit-learn"].append(theirs(columns(train, valid), widths, batch, epochs, seed))
            with tempfile.TemporaryDirectory() as scratch:
                results["ours"].append(ours(options.program, name, file, train, valid, seed, Path(scratch)))
        for metric in results["scikit-learn"][0]:
            mine, other = ([run[metric] for run in results[who]] for who in ("ours", "scikit-learn"))
            sign = -1 if metric == "log_loss" else 1
            paired = statistics.median(sign * (a - b) for a, b in zip(mine, other))
            print(f"{name:<12}{metric:<10} ours {statistics.median(mine):.4f}   "
                  f"scikit-learn {statistics.median(other):.4f}   median difference {sign * paired:+.4f}")
            worse = worse or paired < -0.02
    sys.exit(worse)


if __name__ == "__main__":
    main()
