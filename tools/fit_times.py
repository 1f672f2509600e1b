"""Processor seconds of default fits to all data sets of a folder, next to LightGBM's.

    pip install lightgbm
    python tools/fit_times.py --data FOLDER [NAMES ...] [--rows N] [--columns]

A set is a file NAME.npz with arrays X and y, and groups if its rows have some, or NAME.parquet, whose target
``tables.json`` names. Both methods fit nine tenths of the rows, at random or whole groups, with default parameters, in
one process and with one thread. The last line has the largest ratio. ``--columns`` measures 300 rows of 5000 random
columns instead, with random labels and with labels that 50 of the columns determine.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier


def load(folder, name):
    """Rows, labels and groups or None."""
    if (path := folder / f"{name}.npz").is_file():
        with np.load(path, allow_pickle=False) as file:
            return file["X"].astype(np.float64), file["y"], file.get("groups")
    import pandas as pd

    table, target = pd.read_parquet(folder / f"{name}.parquet"), json.loads((folder / "tables.json").read_text())
    X = table.drop(columns=target[name]["target"])
    for column in X.select_dtypes(["object", "string"]):
        X[column] = X[column].astype("category")
    return X, table[target[name]["target"]].to_numpy(), None


def part(X, rows):
    return X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]


def timed(model, X, y, **options):
    began = time.process_time()
    model.fit(X, y, **options)
    return time.process_time() - began


def compare(name, X, y, groups, n_rows):
    """Print and return the ratio of the processor seconds of both methods."""
    rng = np.random.default_rng(0)
    units = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
    is_test = np.isin(units, rng.choice(np.max(units) + 1, max(1, (np.max(units) + 1) // 10), replace=False))
    train, test = (rng.permutation(np.flatnonzero(rows)) for rows in (~is_test, is_test))
    train = train[:n_rows]
    options = {} if groups is None else {"groups": groups[train]}
    models = GPClassifier(random_state=0, n_jobs=1), LGBMClassifier(n_jobs=1, verbose=-1)
    with threadpool_limits(1):
        seconds = [
            timed(model, part(X, train), y[train], **(options if model is models[0] else {})) for model in models
        ]
    losses = []
    for model in models:
        seen = np.isin(y[test], model.classes_)
        p = np.clip(model.predict_proba(part(X, test[seen])), 1e-15, 1.0)
        losses.append(log_loss(y[test[seen]], p / p.sum(axis=1, keepdims=True), labels=model.classes_))
    ratio = seconds[0] / seconds[1]
    print(
        f"{name:24s} {len(train):7d} rows {X.shape[1]:5d} columns {len(models[0].classes_):3d} classes: "
        f"{seconds[0]:7.2f} s, LightGBM {seconds[1]:6.2f} s, ratio {ratio:6.1f}; NLL {losses[0]:.4f}, {losses[1]:.4f}",
        flush=True,
    )
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=None, help="largest number of rows to fit")
    parser.add_argument("--columns", action="store_true", help="tables of 5000 columns in place of data sets")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.columns:
        rng = np.random.default_rng(0)
        X, weight = rng.normal(size=(330, 5000)), np.where(np.arange(5000) < 50, rng.choice([-1.0, 1.0], 5000), 0.0)
        for name, y in {"noise": rng.integers(0, 2, 330), "50 columns": (X @ weight > 0.0).astype(int)}.items():
            compare(name, X, y, None, arguments.rows)
        return
    names = arguments.names or sorted(
        path.stem for path in arguments.data.iterdir() if path.suffix in (".npz", ".parquet")
    )
    ratios = {name: compare(name, *load(arguments.data, name), arguments.rows) for name in names}
    worst = max(ratios, key=ratios.get)
    print(f"largest ratio {ratios[worst]:.1f}: {worst}")


if __name__ == "__main__":
    main()
