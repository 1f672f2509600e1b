"""Default fits to few rows: mean negative log likelihood of test rows, and processor seconds, over many small problems.

    python tools/small_fits.py [--data FOLDER] [--draws N] [--first N] [--output FILE.json] [--against FILE.json]
                               [KEYWORD=VALUE ...]

Problems are made or come with scikit-learn; ``--data`` adds samples of the benchmark's data sets. Keywords go to
``GPClassifier``. ``--output`` writes the numbers, ``--against`` compares with those of another version or other
keywords, problem by problem: the means of both, and the median ratio of seconds.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import log_loss

from xgpc import GPClassifier

TEST_ROWS = 2000

Rows = tuple[np.ndarray, np.ndarray]


def _made(rng: np.random.Generator, n: int, d: int, latent: Callable[[np.ndarray], np.ndarray], noise: float) -> Rows:
    """Standard normal rows with labels by the sign of a latent function with logistic noise."""
    X = rng.normal(size=(n, d))
    return X, (latent(X) + rng.logistic(size=n) * noise > 0.0).astype(int)


def _boxed(rng: np.random.Generator, n: int, d: int, latent: Callable[[np.ndarray], np.ndarray]) -> Rows:
    """Uniform rows in [-1, 1]^d with labels by the sign of a latent function."""
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    return X, (latent(X) > 0.0).astype(int)


# Latent functions by name: how rows are made, and how many there are to learn from.
MADE: dict[str, tuple[Callable[[np.random.Generator, int], Rows], tuple[int, ...]]] = {
    "interaction": (
        lambda rng, n: _made(rng, n, 10, lambda X: 2 * X[:, 0] + 1.5 * np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3], 0.5),
        (200, 700),
    ),
    "disk": (lambda rng, n: _boxed(rng, n, 2, lambda X: 0.5 - np.sum(X**2, axis=1)), (20, 60)),
    "ball": (lambda rng, n: _boxed(rng, n, 3, lambda X: 0.6 - np.sum(X**2, axis=1)), (30, 100)),
    "sine": (lambda rng, n: _boxed(rng, n, 2, lambda X: np.sin(4 * X[:, 0]) - 1.5 * X[:, 1]), (20, 100)),
    "checkers": (
        lambda rng, n: _boxed(rng, n, 2, lambda X: np.sin(2 * np.pi * X[:, 0]) * np.sin(2 * np.pi * X[:, 1])),
        (200, 1000),
    ),
    "linear": (lambda rng, n: _made(rng, n, 5, lambda X: X[:, 0] + X[:, 1], 0.3), (20, 200)),
    "linear in many": (lambda rng, n: _made(rng, n, 30, lambda X: X[:, :5] @ np.ones(5), 1.0), (60, 500)),
    "exclusive or": (lambda rng, n: _made(rng, n, 6, lambda X: 3 * X[:, 0] * X[:, 1], 0.3), (100, 400)),
    "rare": (lambda rng, n: _made(rng, n, 4, lambda X: 2 * X[:, 0] - 3.5, 0.5), (60, 600)),
    "nothing": (lambda rng, n: _made(rng, n, 5, lambda X: 0.0 * X[:, 0] + 0.5, 1.0), (40, 400)),
}


def _brought() -> dict[str, tuple[Rows, tuple[int, ...]]]:
    """Sets that scikit-learn brings with it, and how many of their rows are learned from."""
    digits = load_digits(return_X_y=True)
    pair = np.isin(digits[1], (3, 5))
    return {
        "breast cancer": (load_breast_cancer(return_X_y=True), (50, 300)),
        "digits 3 and 5": ((digits[0][pair], digits[1][pair]), (40, 200)),
        "digits": (digits, (200, 800)),
        "wine": (load_wine(return_X_y=True), (40, 100)),
        "iris": (load_iris(return_X_y=True), (30, 90)),
    }


SETS = {
    "heart": (60, 200),
    "diabetes-pima": (60, 500),
    "german-numer": (100, 800),
    "splice": (300, 1000),
    "banana": (60, 400),
    "svmguide1": (60, 600),
    "susy": (100, 600),
    "magic": (300, 1000),
    "electricity": (200, 1000),
    "covtype": (300,),
    "statlog-landsat": (100, 600),
    "page-blocks": (200,),
}


def problems(data: Path | None, draw: int) -> Iterator[tuple[str, Rows, Rows]]:
    """Names, training rows and test rows."""
    for number, (name, (make, sizes)) in enumerate(MADE.items()):
        for n in sizes:
            X, y = make(np.random.default_rng([number, n, draw]), n + TEST_ROWS)
            yield f"{name}, {n}", (X[:n], y[:n]), (X[n:], y[n:])
    given = {name: (rows, sizes, number) for number, (name, (rows, sizes)) in enumerate(_brought().items())}
    for number, (name, sizes) in enumerate(SETS.items() if data is not None else ()):
        with np.load(data / f"{name}.npz", allow_pickle=False) as arrays:
            given[name] = ((arrays["X"], arrays["y"]), sizes, 100 + number)
    for name, ((X, y), sizes, number) in given.items():
        for n in sizes:
            rows = np.random.default_rng([number, n, draw]).permutation(len(y))[: n + TEST_ROWS]
            train, test = rows[:n], rows[n:]
            known = np.isin(y[test], y[train])
            yield f"{name}, {n}", (X[train], y[train]), (X[test][known], y[test][known])


def measure(data: Path | None, draws: range, parameters: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Of each problem, for each draw: NLL, bound a row, seconds."""
    found: dict[str, list[list[float]]] = {}
    for draw in draws:
        for name, (X, y), (X_test, y_test) in problems(data, draw):
            if len(np.unique(y)) < 2:
                continue
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = GPClassifier(random_state=draw, **parameters).fit(X, y)
            seconds = time.process_time() - began
            loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
            found.setdefault(name, []).append([loss, model.elbo_ / len(y), seconds])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("parameters", nargs="*", metavar="KEYWORD=VALUE")
    arguments = parser.parse_args()
    parameters = {name: ast.literal_eval(value) for name, value in (one.split("=", 1) for one in arguments.parameters)}
    draws = range(arguments.first, arguments.first + arguments.draws)
    found = measure(arguments.data, draws, parameters)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(found))
    others = {} if arguments.against is None else json.loads(arguments.against.read_text())
    losses, ratios = [], []
    for name, values in found.items():
        loss, bound, seconds = np.mean(values, axis=0)
        line = f"{name:24} NLL {loss:.4f}  bound {bound:.4f}  {seconds:.3f} s"
        if name in others:
            there = np.array(others[name])
            change = np.array(values)[:, 0] - there[:, 0]
            error = np.std(change, ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
            losses.append([loss, np.mean(there[:, 0])])
            ratios.append(seconds / np.mean(there[:, 2]))
            line += (
                f"   against {np.mean(there[:, 0]):.4f} ({np.mean(change):+.4f} +- {error:.4f})  x {ratios[-1]:.2f} s"
            )
        print(line)
    print(f"mean NLL {np.mean([np.mean(np.array(values)[:, 0]) for values in found.values()]):.4f}")
    if losses:
        there = np.mean(losses, axis=0)[1]
        print(f"against {there:.4f}; seconds: median ratio {np.median(ratios):.2f}, largest {np.max(ratios):.2f}")


if __name__ == "__main__":
    main()
