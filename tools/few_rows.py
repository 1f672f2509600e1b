"""Default fits to few rows of many data sets, next to other methods: mean NLL of test rows, and mean ranks.

    pip install catboost lightgbm
    python tools/few_rows.py --data FOLDER [NAMES ...] [--rows 30 100 300] [--splits N] [--only xgpc] [--save FILE.json]

A set is a file NAME.npz with arrays X and y, or NAME.parquet, whose target ``tables.json`` names. Without names, all
sets are fitted but the eight that no default was chosen on; ``--unseen`` fits these, with nine tenths of their rows.
Every method has its default parameters and one thread; features are scaled for logistic regression, the support vector
machine (with Platt's scaling) and scikit-learn's Gaussian process (a constant times an RBF with one length scale, not
for more than ten classes or 400 rows). Half a vote is added to each class of the random forest. Methods that are not
installed are left out. ``--save`` writes the NLL of each fit.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from fit_times import load, part
from scipy.stats import rankdata
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier

UNSEEN = (
    "glass", "qsar-biodeg", "titanic", "car-evaluation", "telco-churn", "ozone-eighthr", "jm1", "student-dropout",
)  # fmt: skip
MOST_TEST_ROWS, TREES = 1000, 100


def numeric(table):
    """A table, or an array, as numbers for methods that take nothing else."""
    if not hasattr(table, "iloc"):
        return StandardScaler()
    levels = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    numbers = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (levels, make_column_selector(dtype_exclude="number")),
    )


def methods(X, n_classes, seed):
    """Names and estimators."""
    yield "xgpc", GPClassifier(random_state=seed, n_jobs=1)
    yield "logistic", make_pipeline(numeric(X), LogisticRegression(max_iter=1000))
    yield "forest", make_pipeline(numeric(X), RandomForestClassifier(TREES, random_state=seed))
    yield "svm", make_pipeline(numeric(X), SVC(probability=True, random_state=seed))
    if n_classes <= 10 and len(X) <= 400:
        process = GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=seed)
        yield "gp", make_pipeline(numeric(X), process)
    try:
        from lightgbm import LGBMClassifier

        yield "lightgbm", LGBMClassifier(n_jobs=1, verbose=-1)
    except ImportError:
        pass
    try:
        from catboost import CatBoostClassifier
    except ImportError:
        return
    options = {"thread_count": 1, "verbose": False, "allow_writing_files": False, "random_seed": seed}
    if hasattr(X, "iloc"):
        # Missing levels are a level of their own.
        names = list(X.select_dtypes(exclude="number"))
        yield "catboost", WithText(CatBoostClassifier(cat_features=names, **options), names)
    else:
        yield "catboost", CatBoostClassifier(**options)


class WithText:
    """CatBoost takes levels as text."""

    def __init__(self, model, names):
        self.model, self.names = model, names

    def _as_text(self, X):
        return X.assign(**{name: X[name].astype(object).fillna("none").astype(str) for name in self.names})

    def fit(self, X, y):
        self.model.fit(self._as_text(X), y)
        return self

    def predict_proba(self, X):
        return self.model.predict_proba(self._as_text(X))


def losses(X, y, n_rows, seed, only):
    """NLL and seconds by method, of a split."""
    rows = np.random.default_rng([seed, n_rows]).permutation(len(y))
    n_test = min(MOST_TEST_ROWS, max(len(y) // 3, len(y) - n_rows)) if n_rows < 0.6 * len(y) else len(y) // 10
    test, train = rows[:n_test], rows[n_test:][:n_rows]
    classes = np.unique(y[train])
    test = test[np.isin(y[test], classes)]
    if len(classes) < 2 or not len(test):
        return {}
    X_train, X_test = part(X, train), part(X, test)
    if not hasattr(X, "iloc"):
        varies = np.ptp(X_train, axis=0) > 0.0
        X_train, X_test = X_train[:, varies], X_test[:, varies]
    codes = np.searchsorted(classes, y[test])
    results = {}
    for name, model in methods(X_train, len(classes), seed):
        if only and name not in only:
            continue
        began = time.process_time()
        p = model.fit(X_train, y[train]).predict_proba(X_test)
        seconds = time.process_time() - began
        if name == "forest":
            p = (TREES * p + 0.5) / (TREES + 0.5 * len(classes))
        results[name] = [float(-np.mean(np.log(np.maximum(p[np.arange(len(p)), codes], 1e-15)))), seconds]
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[30, 100, 300])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    present = sorted({path.stem for kind in ("npz", "parquet") for path in options.data.glob(f"*.{kind}")})
    names = options.names or [name for name in present if (name in UNSEEN) == options.unseen]
    saved = {}
    with threadpool_limits(1):
        for n_rows in [10**9] if options.unseen else options.rows:
            table = []
            for name in names:
                X, y, _ = load(options.data, name)
                runs = [
                    losses(X, y, min(n_rows, int(0.9 * len(y))), seed, options.only) for seed in range(options.splits)
                ]
                runs = [run for run in runs if run]
                saved[f"{name}, {n_rows}"] = runs
                means = {method: np.mean([run[method] for run in runs], axis=0) for method in (runs or [{}])[0]}
                table.append({method: mean[0] for method, mean in means.items()})
                cells = "  ".join(f"{method} {nll:.4f} ({seconds:.2f} s)" for method, (nll, seconds) in means.items())
                print(f"{name}: {cells}", flush=True)
            columns = list(dict.fromkeys(method for row in table for method in row))
            values = np.array([[row.get(method, np.nan) for method in columns] for row in table if row])
            ranks = np.mean([rankdata(row, nan_policy="omit") for row in values], axis=0)
            print(
                "" if options.unseen else f"{n_rows} rows, ", f"{len(values)} sets: NLL, difference to xgpc, mean rank"
            )
            for method, column, rank in zip(columns, values.T, ranks, strict=True):
                change = (column - values[:, 0])[np.isfinite(column)]
                error, lower = np.std(change) / np.sqrt(len(change)), np.sum(change > 0.0)
                print(
                    f"  {method:9s} {np.nanmean(column):.4f}  {np.mean(change):+.4f} +- {error:.4f}  {rank:.2f}"
                    f"  xgpc lower on {lower} of {len(change)}"
                )
    if options.save:
        options.save.write_text(json.dumps(saved))


if __name__ == "__main__":
    main()
