"""Whether copies of rows harm a default fit: NLL of new rows, next to the same rows with weights.

    python tools/repeated_rows.py [--seeds N] [--rows N] [--data FOLDER]

The rows have three features, and labels drawn from smooth probabilities of two or three classes. Copies come from
giving each row twice, from a bootstrap, and from repeating rows of the rarer classes until all are as frequent. With
``--data`` the real rows of ``wine-quality-white.npz`` and ``cod-rna.npz``, of which some repeat others, are fitted,
too: NLL of test rows that repeat a training row, and of the others.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import log_loss

from xgpc import GPClassifier


def smooth(n, n_classes, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = [1.2 * (np.sin(1.5 * X[:, 0] + c) + (c - 1) * X[:, 1]) for c in range(n_classes)]
    return X, np.argmax(f + rng.gumbel(size=(n_classes, n)), axis=0)


def given_again(y, how, seed):
    """Numbers of the rows that a table repeats."""
    rng, n = np.random.default_rng(seed), len(y)
    if how == "doubled":
        return np.repeat(np.arange(n), 2)
    if how == "bootstrap":
        return rng.integers(0, n, n)
    classes, counts = np.unique(y, return_counts=True)
    more = [rng.choice(np.flatnonzero(y == c), counts.max() - count) for c, count in zip(classes, counts, strict=True)]
    return np.concatenate([np.arange(n), *more])


def losses(n_rows, n_classes, how, seed):
    """NLL of 1000 new rows: of the fit to copies, and of that to weights."""
    X, y = smooth(n_rows + 1000, n_classes, seed)
    rows = given_again(y[:n_rows], how, seed)
    once, weight = np.unique(rows, return_counts=True)
    copies = GPClassifier(random_state=0).fit(X[rows], y[rows])
    weighted = GPClassifier(random_state=0).fit(X[once], y[once], sample_weight=weight)
    return [log_loss(y[n_rows:], one.predict_proba(X[n_rows:])) for one in (copies, weighted)]


def real(path, seed, most=100_000):
    """NLL of a random tenth of the rows, of those that repeat a training row, and of the others."""
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), file["y"]
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    train = train[:most]
    mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - mean) / np.where(scale > 0.0, scale, 1.0)
    model = GPClassifier(random_state=0).fit(X[train], y[train])
    p = model.predict_proba(X[test])[np.arange(len(test)), np.searchsorted(model.classes_, y[test])]
    seen = {row.tobytes() for row in X[train]}
    repeats = np.array([row.tobytes() in seen for row in X[test]])
    return -np.log(p).mean(), -np.log(p[repeats]).mean(), -np.log(p[~repeats]).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for n_classes in (2, 3):
        for how in ("doubled", "bootstrap", "oversampled"):
            found = np.array([losses(given.rows, n_classes, how, seed) for seed in range(given.seeds)])
            print(
                f"{n_classes} classes, {how}: NLL {found[:, 0].mean():.4f}, with weights {found[:, 1].mean():.4f}, "
                f"largest difference {np.abs(np.diff(found, axis=1)).max():.4f}",
                flush=True,
            )
    for name in ("wine-quality-white", "cod-rna") if given.data else ():
        for seed in range(2):
            every, repeats, others = real(given.data / f"{name}.npz", seed)
            print(f"{name}, split {seed}: NLL {every:.4f}; {repeats:.4f} of repeated rows, {others:.4f} of the others")


if __name__ == "__main__":
    main()
