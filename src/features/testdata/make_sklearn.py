"""Writes sklearn.json beside this file: what scikit-learn makes of columns with nulls, for steps_test.cc.

    python make_sklearn.py CALIFORNIA_HOUSING.csv      (needs numpy and scikit-learn)
"""

import csv
import json
import pathlib
import sys
import warnings

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import (KBinsDiscretizer, MaxAbsScaler, MinMaxScaler, QuantileTransformer, RobustScaler,
                                   StandardScaler, TargetEncoder)

warnings.simplefilter("ignore")
random = np.random.default_rng(8)


def with_nulls(values, part):
    return np.where(random.random(len(values)) < part, np.nan, values)


columns = {
    "skewed": np.exp(random.normal(1, 2, 211)),
    "holes": with_nulls(random.normal(-3, 5, 157), 0.2),
    "counts": with_nulls(random.poisson(2, 180).astype(float), 0.1),
    "large": with_nulls(1e9 + random.normal(0, 1, 64), 0.05),
    "constant": np.full(40, 0.1),
    "constant_and_nulls": with_nulls(np.full(40, -7.5), 0.3),
    "one": np.array([4.25]),
    "zeros": np.zeros(9),
}


def bins(n):
    return KBinsDiscretizer(n, encode="ordinal", strategy="quantile", quantile_method="linear", subsample=None)


SCALERS = {
    "standard_scale": StandardScaler(),
    "min_max_scale": MinMaxScaler(),
    "min_max_scale(-1,3)": MinMaxScaler((-1, 3)),
    "max_abs_scale": MaxAbsScaler(),
    "robust_scale": RobustScaler(),
    "robust_scale(0.1,0.8)": RobustScaler(quantile_range=(10, 80)),
    "quantile_transform(10)": QuantileTransformer(n_quantiles=10, subsample=None),
    "fill_null(mean)": SimpleImputer(strategy="mean"),
    "fill_null(median)": SimpleImputer(strategy="median"),
    "fill_null(most_frequent)": SimpleImputer(strategy="most_frequent"),
    "fill_null(-2.5)": SimpleImputer(strategy="constant", fill_value=-2.5),
}


def numbers(values):
    return [None if np.isnan(v) else float(v) for v in values]


cases = []
for name, values in columns.items():
    def case(steps, result, column=name):
        cases.append({"column": column, "steps": steps, "result": numbers(np.ravel(result))})

    column = values.reshape(-1, 1)
    for step, scaler in SCALERS.items():
        case([step], scaler.fit_transform(column))
    low, high = np.nanquantile(values, [0.05, 0.9])
    case(["clip(quantiles,0.05,0.9)"], np.where(np.isnan(values), np.nan, np.clip(values, low, high)))
    case(["clip(-1,2)"], np.clip(values, -1, 2))
    case(["clip(none,2)"], np.clip(values, None, 2))
    edges = [-1, 0, 0.5, 2]
    case(["bucketize(-1,0,0.5,2)"], np.where(np.isnan(values), np.nan, np.digitize(values, edges)))
    full = values[~np.isnan(values)].reshape(-1, 1)
    # Of the values that are there: scikit-learn takes as many quantiles as there are rows, missing ones counted.
    result = np.full(len(values), np.nan)
    result[~np.isnan(values)] = QuantileTransformer(subsample=None).fit_transform(full).ravel()
    case(["quantile_transform"], result)
    if len(full) > 1:
        for n in (2, 5, 10):
            binned = bins(n).fit(full)
            result = np.full(len(values), np.nan)
            result[~np.isnan(values)] = binned.transform(full).ravel()
            case([f"bucketize(quantiles,{n})"], result)
    filled = SimpleImputer(strategy="median").fit_transform(column)
    case(["fill_null(median)", "standard_scale"], StandardScaler().fit_transform(filled))
    case(["min_max_scale", "log1p"], np.log1p(MinMaxScaler().fit_transform(column)))
    case(["fill_null(most_frequent)", "min_max_scale", "power(0.5)", "robust_scale"],
         RobustScaler().fit_transform(np.sqrt(MinMaxScaler().fit_transform(
             SimpleImputer(strategy="most_frequent").fit_transform(column)))))

# Encodings of the whole, as prediction has them: scikit-learn's folds are others than ours.
categories = [None if random.random() < 0.1 else f"town {int(random.exponential(4))}" for _ in range(300)]
targets = [float(random.normal(len(category or ""), 2)) for category in categories]
encoders = []
for smooth in (10.0, 0.5):
    encoder = TargetEncoder(smooth=smooth, target_type="continuous")
    encoder.fit(np.array(categories, dtype=object).reshape(-1, 1), np.array(targets))
    encoded = encoder.transform(np.array(categories + ["never seen"], dtype=object).reshape(-1, 1))
    encoders.append({"smooth": smooth, "result": numbers(encoded.ravel())})

# The fitted numbers of a real table.
california = []
with open(sys.argv[1]) as file:
    rows = list(csv.DictReader(file))
for name in rows[0]:
    if name == "ocean_proximity":
        continue
    column = np.array([[float(row[name]) if row[name] else np.nan] for row in rows])
    standard, minmax = StandardScaler().fit(column), MinMaxScaler().fit(column)
    robust = RobustScaler().fit(column)
    edges = bins(8).fit(column[~np.isnan(column)].reshape(-1, 1)).bin_edges_[0][1:-1]
    california.append({"column": name, "fitted": {
        "standard_scale": {"mean": standard.mean_[0], "scale": standard.scale_[0]},
        "min_max_scale": {"min": minmax.data_min_[0], "max": minmax.data_max_[0]},
        "max_abs_scale": {"scale": MaxAbsScaler().fit(column).scale_[0]},
        "robust_scale": {"center": robust.center_[0], "scale": robust.scale_[0]},
        "fill_null(mean)": {"mean": SimpleImputer(strategy="mean").fit(column).statistics_[0]},
        "fill_null(median)": {"median": SimpleImputer(strategy="median").fit(column).statistics_[0]},
        "fill_null(most_frequent)":
            {"most_frequent": SimpleImputer(strategy="most_frequent").fit(column).statistics_[0]},
        "bucketize(quantiles,8)": {f"edge_{i + 1}": edge for i, edge in enumerate(edges)},
    }})

out = {"columns": {name: numbers(values) for name, values in columns.items()}, "cases": cases, "california": california,
       "target_encode": {"categories": categories, "targets": targets, "encoders": encoders}}
text = json.dumps(out).replace('{"column"', '\n{"column"').replace("], \"", "],\n\"")
(pathlib.Path(__file__).parent / "sklearn.json").write_text(text + "\n")
