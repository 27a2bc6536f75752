"""Every feature step held against scikit-learn (or numpy, where that is the reference), in double.

    sklearn_oracle.py --program build/bin/millstream [--data ../shared/data] [--table random]

For each table a model is trained for one epoch on one column for each chain of steps and column of the table. The
bundle then has the fitted expressions as SQL, which `millstream query` evaluates in double; they must agree with what
scikit-learn makes of the same column to 1e-9 of the value (of 1 where the value is smaller). The batches' digest must be the
same on 1 to 4 ranks and 1 and 2 threads, also where counted values have hardly any memory. Tables: random numbers with nulls, NaN and infinities, and, where the
data are, california housing, adults, titanic and green taxis (of each the first rows). Exit code 77 (skipped) without scikit-learn.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq
    import sklearn
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.preprocessing import (KBinsDiscretizer, MaxAbsScaler, MinMaxScaler, OneHotEncoder, OrdinalEncoder,
                                       QuantileTransformer, RobustScaler, StandardScaler, TargetEncoder)
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOLERANCE = 1e-9
MARK = -77.0  # what nulls become behind a step that leaves them null


def of_column(transformer):
    """What a transformer of numbers makes of a column, in which NaN is missing."""
    def apply(x, _):
        return [np.where(np.isnan(x), MARK, transformer().fit_transform(x.reshape(-1, 1)).ravel())]
    return apply


def of_values(transformer):
    """The same of one that takes no missing values."""
    def apply(x, _):
        there = ~np.isnan(x)
        out = np.full(len(x), MARK)
        out[there] = np.asarray(transformer().fit_transform(x[there].reshape(-1, 1))).ravel()
        return [out]
    return apply


def by_numpy(function):
    def apply(x, _):
        return [np.where(np.isnan(x), MARK, function(x))]
    return apply


def imputed(**options):
    def apply(x, _):
        return [SimpleImputer(**options).fit_transform(x.reshape(-1, 1)).ravel()]
    return apply


def indicated(x, _):
    return [MissingIndicator(features="all").fit_transform(x.reshape(-1, 1)).ravel().astype(float),
            np.where(np.isnan(x), 1.5, x)]


def quantile_clip(low, high):
    def clip(x):
        ends = np.nanquantile(x, [low, high])
        return np.clip(x, *ends)
    return clip


def bins(n):
    return lambda: KBinsDiscretizer(n, encode="ordinal", strategy="quantile", quantile_method="linear", subsample=None)


def quantiles(n, distribution="uniform"):
    def apply(x, _):
        # scikit-learn counts missing values too where there are fewer rows than quantiles; docs/features.md.
        number = min(n, int(np.sum(~np.isnan(x))))
        made = QuantileTransformer(n_quantiles=number, output_distribution=distribution, subsample=None)
        return [np.where(np.isnan(x), MARK, made.fit_transform(x.reshape(-1, 1)).ravel())]
    return apply


FILL = f"fill_null({MARK:g})"
NUMBERS = {
    ("standard_scale", FILL): of_column(StandardScaler),
    ("min_max_scale", FILL): of_column(MinMaxScaler),
    ("min_max_scale(-1, 3)", FILL): of_column(lambda: MinMaxScaler((-1, 3))),
    ("max_abs_scale", FILL): of_column(MaxAbsScaler),
    ("robust_scale", FILL): of_column(RobustScaler),
    ("robust_scale(0.1, 0.8)", FILL): of_column(lambda: RobustScaler(quantile_range=(10, 80))),
    ("fill_null(mean)",): imputed(strategy="mean"),
    ("fill_null(median)",): imputed(strategy="median"),
    ("fill_null(most_frequent)",): imputed(strategy="most_frequent"),
    ("fill_null(-2.5)",): imputed(strategy="constant", fill_value=-2.5),
    ("fill_null(median)", "standard_scale"): lambda x, y: [StandardScaler().fit_transform(
        SimpleImputer(strategy="median").fit_transform(x.reshape(-1, 1))).ravel()],
    ("null_indicator", "fill_null(1.5)"): indicated,
    ("max_abs_scale", "power(2)", "log1p", FILL): by_numpy(lambda x: np.log1p(np.power(x / (np.nanmax(np.abs(x)) or 1), 2))),
    ("clip(-1.5, 20)", FILL): by_numpy(lambda x: np.clip(x, -1.5, 20)),
    ("clip(quantiles, 0.05, 0.9)", FILL): by_numpy(quantile_clip(0.05, 0.9)),
    ("bucketize(-3, 0, 2.5, 30)", FILL): by_numpy(lambda x: np.digitize(x, [-3, 0, 2.5, 30])),
    ("bucketize(quantiles, 6)", FILL): of_values(bins(6)),
    ("quantile_transform(40)", FILL): quantiles(40),
    ("quantile_transform(30, normal)", FILL): quantiles(30, "normal"),
    ("cyclical(24)", FILL): lambda x, y: [np.where(np.isnan(x), MARK, f(2 * np.pi * x / 24)) for f in (np.sin, np.cos)],
}


def by_count(values, min_count=1):
    there = [v for v in values if v is not None]
    counts = {v: there.count(v) if len(there) < 2000 else 0 for v in set(there)}
    if len(there) >= 2000:
        for v in there:
            counts[v] += 1
    return [v for v, n in sorted(counts.items(), key=lambda item: (-item[1], item[0].encode())) if n >= min_count]


def categorified(min_count=1):
    """OrdinalEncoder with the categories in our order: its numbers are two less, and null and others have their own."""
    def apply(s, _):
        kept = by_count(s, min_count)
        if not kept:
            return [np.array([1.0 if v is None else 0.0 for v in s])]
        encoder = OrdinalEncoder(categories=[kept], handle_unknown="use_encoded_value", unknown_value=-2)
        codes = encoder.fit(np.array(kept, dtype=object).reshape(-1, 1)).transform(
            np.array(["" if v is None else v for v in s], dtype=object).reshape(-1, 1)).ravel() + 2
        return [np.where([v is None for v in s], 1, codes)]
    return apply


def hot(s, _):
    kept = by_count(s)
    encoder = OneHotEncoder(categories=[kept], handle_unknown="ignore", sparse_output=False)
    encoder.fit(np.array(kept, dtype=object).reshape(-1, 1))
    columns = encoder.transform(np.array(["\0" if v is None else v for v in s], dtype=object).reshape(-1, 1))
    return list(columns.T)


def target_encoded(s, y):
    encoder = TargetEncoder(smooth=7.0, target_type="continuous")
    x = np.array(["\0null" if v is None else v for v in s], dtype=object).reshape(-1, 1)
    return [encoder.fit(x, y).transform(x).ravel()]


TEXTS = {
    ("one_hot",): hot,
    ("categorify",): categorified(),
    ("categorify(min_count=30)",): categorified(30),
    ("target_encode(smooth=7)",): target_encoded,
    ("fill_null(most_frequent)", "categorify"): lambda s, y: categorified()(
        [by_count(s)[0] if v is None else v for v in s], y),
}


def times(column):
    """Parts, as numpy has them, and seconds since the first."""
    t = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).astype("datetime64[us]")
    days = t.astype("datetime64[D]")
    months = t.astype("datetime64[M]")
    seconds = (t - t.min()).astype("int64") / 1e6
    return {
        ("datetime(year, quarter, month, day, dayofweek, dayofyear, hour, minute, second)",): [
            months.astype("datetime64[Y]").astype(int) + 1970.0,
            months.astype(int) % 12 // 3 + 1.0,
            months.astype(int) % 12 + 1.0,
            (days - months.astype("datetime64[D]")).astype(int) + 1.0,
            (days.astype(int) + 4) % 7 + 0.0,
            (days - days.astype("datetime64[Y]").astype("datetime64[D]")).astype(int) + 1.0,
            ((t - days).astype("timedelta64[h]")).astype(int) + 0.0,
            ((t - days).astype("timedelta64[m]")).astype(int) % 60 + 0.0,
            ((t - days).astype("timedelta64[s]")).astype(int) % 60 + 0.0,
        ],
        ("elapsed",): [seconds],
        ("elapsed", "standard_scale"): [StandardScaler().fit_transform(seconds.reshape(-1, 1)).ravel()],
    }


def random_table():
    random = np.random.default_rng(8)
    n = 5000

    def holes(values, part, wrong=True):
        values = values.astype(float)
        missing = random.random(n) < part
        if wrong:  # a NaN or infinity in a hundred is as a null
            for bad in (np.nan, np.inf, -np.inf):
                values[random.random(n) < 0.004] = bad
        return pa.array(values, mask=missing)
    words = np.array(["N", "Y", "", "it's", "10", "9", "Zürich", "a|b"] + [f"w{i}" for i in range(30)])
    return pa.table({
        "skewed": holes(np.exp(random.normal(1, 2, n)), 0.1),
        "holes": holes(random.normal(-3, 5, n), 0.5),
        "counts": holes(random.poisson(2, n), 0.05, wrong=False),
        # Far from 0, but not so far that the mean itself has fewer digits than are compared.
        "large": holes(1e5 + random.normal(0, 1, n), 0.02),
        "tiny": holes(random.normal(0, 1e-12, n), 0.02),
        "constant": holes(np.full(n, 0.1), 0.3),
        "whole": pa.array(random.integers(-50, 50, n)),
        "word": pa.array(words[np.minimum(random.geometric(0.12, n) - 1, len(words) - 1)], mask=random.random(n) < 0.07),
        "y": pa.array(random.normal(0, 1, n)),
    })


def clean(column):
    """Numbers with NaN for everything that is null to us with on_nan = "null"."""
    x = np.array([np.nan if v is None else float(v) for v in column.to_pylist()])
    return np.where(np.isfinite(x), x, np.nan)


# Of each table the test has so many rows: scikit-learn's side is slow.
ROWS = 12_000


class Table:
    def __init__(self, name, table, target, folder):
        self.name, self.table, self.target = name, table.slice(0, ROWS), target
        self.file = folder / f"{name}.parquet"  # both sides see the same types
        pq.write_table(self.table, self.file, row_group_size=1000)


def tables(data, folder):
    made = random_table()
    yield Table("random", made, "y", folder)
    if not data.is_dir():
        print(f"only random numbers: {data} is not there")
        return
    for name, source, target in (("california", "tabular/california_housing.csv", "median_house_value"),
                                 ("titanic", "tabular/titanic.csv", "survived"),
                                 ("adults", "tabular/adults.parquet", "hours-per-week"),
                                 ("green", "green/green_tripdata_2023-08.parquet", "trip_distance")):
        path = data / source
        if name == "adults":
            table = pq.read_table(path)
        elif name == "green":
            table = pq.read_table(path, columns=["lpep_pickup_datetime", "PULocationID", "passenger_count", "fare_amount",
                                                 "tip_amount", "total_amount", "store_and_fwd_flag", "trip_distance"])
        else:
            options = pa.csv.ConvertOptions(strings_can_be_null=True)
            table = pa.csv.read_csv(path, convert_options=options)
        yield Table(name, table, target, folder)


def cases(table):
    """(column, steps, expected columns): what is asked of a table."""
    y = clean(table.table[table.target])
    for name in table.table.column_names:
        if name == table.target:
            continue
        column = table.table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            texts = column.to_pylist()
            if len(set(texts)) > 60:
                continue
            for steps, expected in TEXTS.items():
                yield name, steps, expected(texts, y)
            places = sorted({v for v in texts if v})[:3]
            written = ["'" + v.replace("'", "''") + "'" for v in places]
            codes = [MARK if v is None else float(places.index(v)) if v in places else -1.0 for v in texts]
            yield name, (f"ordinal({', '.join(written)})", FILL), [np.array(codes)]
        elif pa.types.is_temporal(column.type):
            for steps, expected in times(column).items():
                yield name, steps, expected
        elif not pa.types.is_boolean(column.type):
            x = clean(column)
            for steps, expected in NUMBERS.items():
                yield name, steps, expected(x, y)


def run(options, folder, *arguments):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    ran = subprocess.run([options.program, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, ran.args))}: exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check(options, folder, table):
    asked = list(cases(table))
    names = ", ".join(f'"{column}" AS c{i}' for i, (column, _, _) in enumerate(asked))
    query = f"SELECT {names}, \"{table.target}\" AS y FROM '{table.file}'"
    recipe = f'[data]\ntrain = """{query}"""\ntarget = "y"\non_nan = "null"\n'
    for i, (_, steps, _) in enumerate(asked):
        recipe += f'[[feature]]\ncolumns = ["c{i}"]\nsteps = [{", ".join(map(quoted, steps))}]\n'
    recipe += "[loader]\nbatch_size = 2048\nwindow = 8192\n[model]\nhidden = []\n[train]\nepochs = 1\nlearning_rate = 1e-9\n"
    (folder / "recipe.toml").write_text(recipe)
    digests = {}
    for ranks in (1, 2, 3, 4):
        for threads in (1, 2):
            for memory in ("2GiB",) if ranks != 2 else ("2GiB", "300MiB"):
                out = run(options, folder, "batches", "recipe.toml", "--digest", "--ranks", ranks, "--threads", threads,
                          "--memory", memory, "--cache", folder / f"cache_{ranks}_{threads}_{memory}")
                digests.setdefault(out, []).append((ranks, threads, memory))
    if len(digests) > 1:
        sys.exit(f"{table.name}: other batches on other ranks and threads: {list(digests.values())}")
    run(options, folder, "train", "recipe.toml", "--out", "run", "--overwrite", "--quiet")
    fitted = json.loads((folder / "run" / "bundle" / "bundle.json").read_text())["fitted"]["columns"]
    expressions = ", ".join(f"{column['sql']} AS f{i}" for i, column in enumerate(fitted))
    inner = query.replace(f", \"{table.target}\" AS y", "")
    # What on_nan = "null" does to a column is in its expression.
    (folder / "features.sql").write_text(f"SELECT {expressions} FROM ({inner})")
    run(options, folder, "query", "--file", "features.sql", "-o", "features.parquet", "--overwrite")
    features = pq.read_table(folder / "features.parquet")
    place = compared = 0
    worst = 0.0
    for column, steps, expected in asked:
        for part, want in enumerate(expected):
            name = fitted[place]["name"] if place < len(fitted) else "none"
            where = f"{table.name}, {column}, {', '.join(steps)}, part {part} ({name})"
            if place >= len(fitted):
                sys.exit(f"{where}: there is no such column")
            got = features.column(place).to_numpy(zero_copy_only=False).astype(float)
            place += 1
            off = np.abs(got - want) / np.maximum(1, np.abs(want))
            if not np.all(off <= TOLERANCE):
                row = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
                sys.exit(f"{where}: row {row} is {got[row]!r}, scikit-learn says {want[row]!r}")
            worst = max(worst, float(np.max(off)))
            compared += len(want)
    if place != len(fitted):
        sys.exit(f"{table.name}: {len(fitted)} columns came of {place} that were expected")
    print(f"{table.name}: {len(asked)} chains of steps, {compared:,} values, off by at most {worst:.1e}; "
          "the same batches on 1 to 4 ranks, 1 and 2 threads")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get(
        "MILLSTREAM_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")))
    parser.add_argument("--table", help="only this one")
    options = parser.parse_args()
    options.program = str(Path(options.program).resolve())
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="millstream_oracle_") as scratch:
        for table in tables(options.data.resolve(), Path(scratch)):
            if options.table in (None, table.name):
                check(options, Path(scratch), table)
    print(f"agreed with scikit-learn {sklearn.__version__}")


if __name__ == "__main__":
    main()
