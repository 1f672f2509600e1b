"""Data sets by name: files of a folder, generated ones and scikit-learn's own; how their rows are split."""

import functools
import hashlib
import json
from typing import NamedTuple

import numpy as np
import r_tables
from sklearn import datasets
from sklearn.model_selection import GroupShuffleSplit, StratifiedKFold, TimeSeriesSplit

# Ends of the names of sets whose test rows come after the training rows, or are equal to none of them.
IN_TIME, KEPT_APART = "-in-time", "-kept-apart"
# Sets that are tables, with their columns of categories; files NAME.parquet say theirs themselves.
CATEGORICAL = {"adult": (1, 3, 5, 6, 7, 8, 9, 13), "splice": tuple(range(60))}


class Problem(NamedTuple):
    """Rows (n, d) in float64 and labels (n,), 0, ..., C - 1. Of a table also the columns of categories; X has their
    codes, and NaN for missing values."""

    name: str
    X: np.ndarray
    y: np.ndarray
    categories: tuple[int, ...] | None = None

    @property
    def hash(self):
        digest = hashlib.sha256(f"{self.X.shape}".encode())
        digest.update(np.ascontiguousarray(self.X, dtype="<f8"))
        digest.update(np.ascontiguousarray(self.y, dtype="<i8"))
        return digest.hexdigest()[:16]


class Split(NamedTuple):
    """Training and test rows, arrays or data frames, and labels 0, ..., C - 1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def ringnorm(n=7400, seed=0, is_ring=True):
    """Breiman, Bias, variance, and arcing classifiers, 1996: N(0, 4 I) and N(a, I) in 20-d, a = 2 / sqrt(20); of
    twonorm N(a, I) and N(-a, I).
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X, a = rng.normal(size=(n, 20)), 2 / np.sqrt(20)
    return np.where(y[:, None], X + a, 2 * X if is_ring else X - a), y


def checkerboard(n=3200):
    """Classes of the fields of a square of 8 by 8, one label in twenty flipped."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    return X, ((np.floor(8 * X).sum(axis=1) % 2) != (rng.random(n) < 0.05)).astype(int)


def table():
    """A small table: a number, and a category of four levels that matters."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 4, 400)])
    return X, (X[:, 0] + 2.0 * (X[:, 1] % 2) + rng.normal(size=400) > 1.0).astype(int)


MADE = {
    "ringnorm": ringnorm,
    "twonorm": functools.partial(ringnorm, is_ring=False),
    "checkerboard": checkerboard,
    "table": table,
    "moons": lambda: datasets.make_moons(2800, noise=0.25, random_state=0),
    "breast-cancer": functools.partial(datasets.load_breast_cancer, return_X_y=True),
    "wine": functools.partial(datasets.load_wine, return_X_y=True),
}
CATEGORICAL["table"] = (1,)


def classes_of(score, n_classes):
    """Labels 0, ..., C - 1 of rows by their scores (n,), with as many rows of each class."""
    return np.searchsorted(np.quantile(score, np.linspace(0.0, 1.0, n_classes + 1)[1:-1]), score)


def stem(name):
    """The set that a problem splits."""
    return name.removesuffix(IN_TIME).removesuffix(KEPT_APART)


def read_table(folder, name):
    """``coded`` rows of ``folder/name.parquet``, whose target ``folder/tables.json`` names."""
    import pandas as pd

    target = json.loads((folder / "tables.json").read_text(encoding="utf-8"))[name]["target"]
    return coded(pd.read_parquet(folder / f"{name}.parquet"), target)


def coded(found, target):
    """Rows, labels and columns of categories of a data frame, whose column ``target`` has the labels."""
    import pandas as pd

    X = found.drop(columns=target)
    texts = [column for column in X if not pd.api.types.is_numeric_dtype(X[column])]
    for column in texts:
        codes = X[column].astype("category").cat.codes
        X[column] = codes.where(codes >= 0).astype(float)
    categories = tuple(X.columns.get_loc(column) for column in texts)
    return X.to_numpy(np.float64), np.unique(found[target], return_inverse=True)[1], categories


@functools.lru_cache(2)
def load(folder, name):
    """The data set of that name: one that is made here, a table of an R package, or arrays or a table of ``folder``."""
    source = stem(name)
    categories = CATEGORICAL.get(source)
    if source in MADE:
        X, y = MADE[source]()
    elif source in r_tables.TABLES:
        X, y, categories = coded(*r_tables.read(source))
    elif folder is not None and (folder / f"{source}.npz").is_file():
        with np.load(folder / f"{source}.npz", allow_pickle=False) as file:
            X, y = file["X"], file["y"]
    elif folder is not None and (folder / f"{source}.parquet").is_file():
        X, y, categories = read_table(folder, source)
    else:
        raise SystemExit(f"No data set {source!r}: give with --data the folder of {source}.npz, not {folder}.")
    return Problem(name, X.astype(np.float64), y.astype(int), categories)


def standardised(X, y, train, test):
    """Rows in units of the training rows' deviations; a constant feature stays as it is."""
    # It may have a deviation of rounding errors.
    varies = np.ptp(X[train], axis=0) > 0
    mean = np.where(varies, X[train].mean(axis=0), 0.0)
    scale = np.where(varies, X[train].std(axis=0), 1.0)
    return Split((X[train] - mean) / scale, y[train], (X[test] - mean) / scale, y[test])


def split(problem, seed, test_share=0.1):
    """The first rows of a random permutation, a tenth, are for testing."""
    order = np.random.default_rng(seed).permutation(len(problem.X))
    test, train = np.split(order, [int(len(problem.X) * test_share)])
    return standardised(problem.X, problem.y, train, test)


def folds(problem, n_folds):
    """The first ``n_folds`` of ten stratified folds."""
    rows = StratifiedKFold(10, shuffle=True, random_state=0).split(problem.X, problem.y)
    return [standardised(problem.X, problem.y, *part) for part, _ in zip(rows, range(n_folds), strict=False)]


def frame(problem):
    """A table's rows as a data frame, codes of categories as levels."""
    import pandas as pd

    made = pd.DataFrame(problem.X, columns=[f"column {j}" for j in range(problem.X.shape[1])])
    for j in problem.categories:
        levels = [None if np.isnan(code) else f"level {code:g}" for code in problem.X[:, j]]
        made[f"column {j}"] = pd.Series(levels, dtype="category")
    return made


def draw(problem, seed):
    """A split, and what it asks of GPClassifier and of its ``fit``: (Split, parameters, keywords)."""
    X, y, n = problem.X, problem.y, len(problem.y)
    rng, settings, keywords = np.random.default_rng(seed), {}, {}
    if problem.name.endswith(IN_TIME):
        train, test = np.split(np.arange(n), [n - n // 10])
        settings = {"held_out_split": TimeSeriesSplit(5)}
    elif problem.name.endswith(KEPT_APART):
        groups = np.unique(X, axis=0, return_inverse=True)[1].ravel()
        train, test = next(GroupShuffleSplit(1, test_size=0.1, random_state=seed).split(X, groups=groups))
        train = rng.permutation(train)
        keywords = {"groups": groups[train]}
    else:
        test, train = np.split(rng.permutation(n), [n // 10])
    if problem.categories is None:
        return standardised(X, y, train, test), settings, keywords
    rows = [frame(problem).iloc[part].reset_index(drop=True) for part in (train, test)]
    return Split(rows[0], y[train], rows[1], y[test]), settings, keywords


def hold_out(X, y):
    """Rows that are in random order, as nine tenths to fit and one tenth to choose by."""
    size = len(y) // 10
    return Split(X[size:], y[size:], X[:size], y[:size])
