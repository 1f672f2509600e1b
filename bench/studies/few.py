"""Few rows: probabilities after 10 to 200 rows, and thousands of small problems

The sets have two or three classes. Of each set, 10 to 200 random rows are for training, and up to 2000 others for
testing; rows are drawn again until each class is among the training rows. Features are divided by the standard
deviations of the training rows. All methods have their defaults, with one exception: scikit-learn's
`GaussianProcessClassifier`, whose default kernel is fixed, has `1.0 * RBF(1.0)` and learns both numbers. NLL is the
mean negative log likelihood of the test rows, averaged over ten draws, and then over the sets. In brackets is the mean
difference to xgpc, with its standard error over the sets. "Small problems" are random problems of 4 to 60 rows. Each is
fitted with settings drawn at random, and the table counts the problems whose fit or prediction raises an error or
warns.
"""

import warnings
from collections import Counter
from functools import partial

import numpy as np
import problems
from markdown_tables import table
from measure import fit_and_score
from methods import METHODS, make
from records import VERSION
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from xgpc import GPClassifier
from xgpc.kernels import AxisMatern

from . import Part

MINUTES, EXPIRES = 12, {VERSION}
SETS = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "bank-marketing", "susy", "svmguide1", "waveform", "waveform-noise", "skin_nonskin", "ringnorm", "twonorm",
    "breast-cancer", "wine",
)  # fmt: skip
SETTINGS = {"laplace": {"kernel": 1.0 * RBF(1.0)}}
OTHERS = ("laplace", "forest", "logistic")
SIZES, N_TEST = (10, 20, 50, 100, 200), 2000


def drawn(problem, n, seed):
    """A split with n training rows that have each class; None if the set has too few rows."""
    rng, n_rows = np.random.default_rng([n, seed]), len(problem.y)
    if n_rows < 1.5 * n:
        return None
    while True:
        rows = rng.permutation(n_rows)[: n + N_TEST]
        if len(np.unique(problem.y[rows[:n]])) == len(np.unique(problem.y)):
            return problems.standardised(problem.X, problem.y, rows[:n], rows[n:])


def measure(data, name, sizes, draws):
    """NLL by number of rows and method, draw by draw."""
    problem, found = problems.load(data, name), {}
    # Rows that lines separate have no largest likelihood: logistic regression and the Laplace approximation warn.
    warnings.simplefilter("ignore", ConvergenceWarning)
    for n in sizes:
        splits = [one for seed in range(draws) if (one := drawn(problem, n, seed)) is not None]
        found[n] = {
            method: [fit_and_score(make(method, 1, **SETTINGS.get(method, {})), one)["nll"] for one in splits]
            for method in ("xgpc", *OTHERS) if splits
        }  # fmt: skip
    return found


def small_problem(seed):
    """Rows, labels and settings of a random problem."""
    rng = np.random.default_rng(seed)
    n, d, n_classes = rng.integers(4, 61), rng.integers(1, 8), rng.choice([2, 2, 2, 3, 4])
    X = rng.normal(size=(n, d))
    kind = rng.integers(6)
    if kind == 0:  # rows that repeat, with other labels
        X = X[rng.integers(0, n, n)]
    elif kind == 1:  # codes, and a constant
        X = np.round(X)
        X[:, 0] = 3.0
    elif kind == 2:  # scales far apart, and far values
        X = X * 10.0 ** rng.uniform(-6.0, 6.0, d)
        X[0] *= 1e3
    score = X[:, -1] + (0.0 if kind == 3 else np.std(X[:, -1])) * rng.normal(size=n)  # kind 3: a line separates them
    y = np.argsort(np.argsort(score)) * n_classes // n
    if kind == 4:  # a single row of the last class
        y = np.where(np.arange(n) == 0, n_classes - 1, np.minimum(y, n_classes - 2))
    settings = {
        "kernel": rng.choice(np.array([None, None, 1.0 * RBF(1.0), AxisMatern(1.0)], dtype=object)),
        "likelihood": rng.choice(["logit", "probit"] if len(np.unique(y)) == 2 else ["softmax", "logistic-softmax"]),
        "inducing_points": rng.choice(["kmeans", "kmeans", "all", "random"]),
        "n_neighbors": ["auto", "auto", 3][rng.integers(3)],
    }
    if settings["likelihood"] == "logistic-softmax" or settings["inducing_points"] == "all":
        settings["n_neighbors"] = "auto"
    return X, y, settings


def beginning(message):
    """A message up to its first colon, before the numbers of the problem."""
    return f"{type(message).__name__}: {str(message).partition(':')[0]}"


def small_problems(n_problems):
    """How many problems raise and warn, by the beginnings of the messages."""
    raised, warned = Counter(), Counter()
    for seed in range(n_problems):
        X, y, settings = small_problem(seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                p = GPClassifier(random_state=0, **settings).fit(X, y).predict_proba(X)
                if not np.allclose(np.sum(p, axis=1), 1.0):
                    raise ArithmeticError(f"probabilities {p}")
            except Exception as error:
                raised[beginning(error)] += 1
        warned.update({beginning(one.message) for one in caught})
    return {"problems": n_problems, "raised": dict(raised), "warned": dict(warned)}


def parts(data, quick):
    sets, sizes, draws, n_problems = (("wine",), (20,), 1, 20) if quick else (SETS, SIZES, 10, 10_000)
    found = [Part(name, partial(measure, data, name, sizes, draws), name, ("xgpc", "sklearn")) for name in sets]
    return [*found, Part("small problems", partial(small_problems, n_problems))]


def report(records):
    found = {name: record["numbers"] for name, record in records.items()}
    counts = found.pop("small problems", None)
    sizes = sorted({int(n) for numbers in found.values() for n in numbers})
    rows = []
    for n in sizes:
        of_sets = [numbers.get(n, numbers.get(str(n))) for numbers in found.values()]
        means = np.array([[np.mean(one[m]) for m in ("xgpc", *OTHERS)] for one in of_sets if one])
        gaps = means[:, 1:] - means[:, :1]
        errors = np.std(gaps, axis=0, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.full(len(OTHERS), np.nan)
        cells = [f"{a:.4f} ({b:+.4f} ± {e:.4f})" for a, b, e in
                 zip(np.mean(means[:, 1:], axis=0), np.mean(gaps, axis=0), errors, strict=True)]  # fmt: skip
        rows.append([str(n), str(len(means)), f"{np.mean(means[:, 0]):.4f}", *cells])
    tables = [table(["rows", "sets", "xgpc", *(METHODS[name].title for name in OTHERS)], rows)] if rows else []
    if counts is not None:
        lines = [[kind, message, str(n)] for kind in ("raised", "warned") for message, n in counts[kind].items()]
        none = [["raised or warned", "nothing", "0"]]
        tables.append(table([f"{counts['problems']} small problems", "message", "problems"], lines or none))
    return "\n\n".join(tables)
