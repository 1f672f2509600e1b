"""Data sets by name: files of a folder, generated ones and scikit-learn's own; their splits and their hashes."""

import hashlib
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn import datasets

# Two classes. The main tables list all of them, whether they have been measured or not.
BINARY = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "ringnorm",
)  # fmt: skip


class Problem(NamedTuple):
    """Rows (n, d) in float64 and labels (n,), 0, ..., C - 1."""

    name: str
    X: np.ndarray
    y: np.ndarray

    @property
    def hash(self):
        digest = hashlib.sha256(f"{self.X.shape}".encode())
        digest.update(np.ascontiguousarray(self.X, dtype="<f8"))
        digest.update(np.ascontiguousarray(self.y, dtype="<i8"))
        return digest.hexdigest()[:16]


class Split(NamedTuple):
    """Training and test rows in float64, and labels 0, ..., C - 1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def ringnorm(n=7400, seed=0):
    """Breiman, Bias, variance, and arcing classifiers, 1996: N(0, 4 I) and N(a, I) in 20-d, a = 2 / sqrt(20)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 20))
    return np.where(y[:, None], X + 2 / np.sqrt(20), 2 * X), y


def twonorm(n=7400, seed=0):
    """Breiman 1996: N(a, I) and N(-a, I) in 20-d, a = 2 / sqrt(20)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 20)) + np.where(y[:, None], 2, -2) / np.sqrt(20), y


MADE = {
    "ringnorm": ringnorm,
    "twonorm": twonorm,
    "breast-cancer": partial(datasets.load_breast_cancer, return_X_y=True),
    "digits": partial(datasets.load_digits, return_X_y=True),
    "iris": partial(datasets.load_iris, return_X_y=True),
    "wine": partial(datasets.load_wine, return_X_y=True),
}


def load(folder, name):
    """The data set of that name: one that is made here, or arrays X and y of ``folder/name.npz``."""
    if name in MADE:
        X, y = MADE[name]()
    else:
        path = None if folder is None else folder / f"{name}.npz"
        if path is None or not path.is_file():
            where = "give its folder with --data" if folder is None else f"{folder} has no {name}.npz"
            raise SystemExit(f"No data set {name!r}: {where}. Without a file there are {', '.join(MADE)}.")
        with np.load(path, allow_pickle=False) as file:
            X, y = file["X"], file["y"]
    return Problem(name, X.astype(np.float64), y.astype(int))


def standardised(X, y, train, test):
    """Rows in units of the training rows' deviations; a constant feature stays as it is."""
    # It may have a deviation of rounding errors.
    varies = np.ptp(X[train], axis=0) > 0
    mean = np.where(varies, X[train].mean(axis=0), 0.0)
    scale = np.where(varies, X[train].std(axis=0), 1.0)
    return Split((X[train] - mean) / scale, y[train], (X[test] - mean) / scale, y[test])


def split(problem, seed):
    """The first tenth of a random permutation is for testing; features in units of the training rows' deviations."""
    order = np.random.default_rng(seed).permutation(len(problem.X))
    test, train = np.split(order, [len(problem.X) // 10])
    return standardised(problem.X, problem.y, train, test)


def hold_out(X, y):
    """Rows that are in random order, as nine tenths to fit and one tenth to choose by."""
    size = len(y) // 10
    return Split(X[size:], y[size:], X[:size], y[:size])
