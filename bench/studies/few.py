"""Few rows: probabilities, class weights, and small problems

The sets have two or three classes. Of each set, 30 to 300 random rows are for training, and up to 2000 others for
testing; rows are drawn again until each class is among the training rows. Features are divided by the standard
deviations of the training rows. All methods have their defaults and one thread, with these exceptions: scikit-learn's
`GaussianProcessClassifier`, whose default kernel is fixed, has `1.0 * RBF(1.0)` and learns both numbers, and the
support vector machine has Platt's scaling. NLL is the mean negative log likelihood of the test rows, averaged over five
draws, and then over the sets. In brackets is the mean difference to xgpc, with its standard error over the sets.
"Calibrated" is the share of the fits whose expected calibration error exceeds that of a calibrated model by at most two
standard deviations.

"Class weights" are fits with `class_weight="balanced"` and without, to 1000 rows of which 6 % have class 1
(`make_classification`): the area under the ROC curve and the recall of class 1 on 5000 test rows, and processor
seconds; means over five draws. "Small problems" are random problems of 4 to 60 rows. Each is fitted with settings drawn
at random; counted are those whose fit or prediction raises an error or warns.
"""

import re
import time
import warnings
from collections import Counter
from functools import partial

import numpy as np
import problems
from markdown_tables import number, table
from measure import calibration, is_calibrated, scores, timed_fit
from methods import METHODS, make
from records import OUTPUTS
from scipy.stats import rankdata
from sklearn.datasets import make_classification
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score, roc_auc_score
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier
from xgpc.kernels import AxisMatern

from . import Part, by_set, method_parts

MINUTES, EXPIRES = 12, {OUTPUTS}
SETS = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "bank-marketing", "susy", "svmguide1", "waveform", "waveform-noise", "skin_nonskin", "ringnorm", "twonorm",
    "breast-cancer", "wine",
)  # fmt: skip
SETTINGS = {"laplace": {"kernel": 1.0 * RBF(1.0)}, "catboost": {"is_stopped": False}}
NAMES = ("xgpc", "laplace", "svm", "forest", "logistic", "catboost")
SIZES, N_TEST = (30, 100, 300), 2000
WEIGHTED = {
    "xgpc": partial(GPClassifier, random_state=0, n_jobs=1),
    "xgpc, balanced": partial(GPClassifier, class_weight="balanced", random_state=0, n_jobs=1),
    "logistic regression": LogisticRegression,
    "logistic regression, balanced": partial(LogisticRegression, class_weight="balanced"),
}


def drawn(problem, n, seed):
    """A split with n training rows that have each class; None if the set has too few rows."""
    rng, n_rows = np.random.default_rng([n, seed]), len(problem.y)
    if n_rows < 1.5 * n:
        return None
    while True:
        rows = rng.permutation(n_rows)[: n + N_TEST]
        if len(np.unique(problem.y[rows[:n]])) == len(np.unique(problem.y)):
            return problems.standardised(problem.X, problem.y, rows[:n], rows[n:])


def measure(data, set_name, name, sizes, draws):
    """NLL and calibration by number of rows, draw by draw."""
    problem, found = problems.load(data, set_name), {}
    for n in sizes:
        found[str(n)] = runs = []
        for split in (drawn(problem, n, seed) for seed in range(draws)):
            if split is not None:
                model = make(name, 1, **SETTINGS.get(name, {}))
                with threadpool_limits(1), warnings.catch_warnings():
                    # Platt's scaling has a new name in scikit-learn.
                    warnings.simplefilter("ignore", FutureWarning)
                    timed_fit(model, split.X, split.y)
                p = model.predict_proba(split.X_test)
                runs.append({"nll": scores(p, split.y_test)["nll"], "calibration": calibration(p, split.y_test)})
    return {"few": found}


def class_weights(draws, n=1000, n_test=5000):
    """Areas, recalls and processor seconds, draw by draw."""
    found = {name: [] for name in WEIGHTED}
    for seed in range(draws):
        X, y = make_classification(n + n_test, 10, n_informative=4, weights=[0.94], class_sep=0.6, random_state=seed)
        for name, make_model in WEIGHTED.items():
            model, start = make_model(), time.process_time()
            timed_fit(model, X[:n], y[:n])
            spent, p = time.process_time() - start, model.predict_proba(X[n:])[:, 1]
            found[name].append([roc_auc_score(y[n:], p), recall_score(y[n:], p > 0.5), spent])
    return {"class weights": found}


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
    """A message up to its first colon, without the numbers of the problem."""
    words = re.sub(r"[-+]?\d\S*", "...", str(message).partition(":")[0])
    return f"{type(message).__name__}: {words[:100]}"


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
    sets, sizes, draws, n_problems = (("wine",), (30,), 1, 20) if quick else (SETS, SIZES, 5, 2000)
    weights = partial(class_weights, 1, 200, 200) if quick else partial(class_weights, 5)
    return [
        *method_parts(measure, data, sets, NAMES, sizes, draws),
        Part("class weights", weights, None, ("xgpc", "sklearn")),
        Part("small problems", partial(small_problems, n_problems)),
    ]


def next_to_others(found):
    """A table of NLL, mean ranks and shares of calibrated fits by number of rows; of sets that all methods fitted."""
    whole, rows = [numbers for numbers in found.values() if set(NAMES) <= set(numbers)], []
    for n in sorted({int(n) for numbers in whole for n in numbers["xgpc"]["few"]}):
        runs = [[numbers[name]["few"][str(n)] for name in NAMES] for numbers in whole]
        runs = [of_set for of_set in runs if of_set[0]]
        nlls = np.array([[np.mean([run["nll"] for run in each]) for each in of_set] for of_set in runs])
        gaps = nlls - nlls[:, :1]
        errors = np.std(gaps, axis=0, ddof=min(1, len(gaps) - 1)) / np.sqrt(len(gaps))
        cells = [f"{a:.4f} ({b:+.4f} ± {e:.4f})" for a, b, e in
                 zip(np.mean(nlls, axis=0)[1:], np.mean(gaps, axis=0)[1:], errors[1:], strict=True)]  # fmt: skip
        ranks = np.mean(rankdata(nlls, axis=1), axis=0)
        shares = [np.mean([is_calibrated(*run["calibration"]) for each in column for run in each])
                  for column in zip(*runs, strict=True)]  # fmt: skip
        rows += [
            [f"{n} rows, {len(runs)} sets: NLL", f"{np.mean(nlls[:, 0]):.4f}", *cells],
            [f"{n} rows: mean rank", *(number(rank, 2) for rank in ranks)],
            [f"{n} rows: calibrated", *(f"{100 * share:.0f} %" for share in shares)],
        ]
    return table(["few rows", *(METHODS[name].title for name in NAMES)], rows)


def report(records):
    records = dict(records)
    counts, weights = (records.pop(name, None) for name in ("small problems", "class weights"))
    tables = [next_to_others(by_set(records, SETS))]
    if weights is not None:
        means = {name: np.mean(runs, axis=0) for name, runs in weights["numbers"]["class weights"].items()}
        rows = [[name, number(area), number(recall), number(spent, 2)] for name, (area, recall, spent) in means.items()]
        tables.append(table(["class weights", "area under the curve", "recall of class 1", "processor seconds"], rows))
    if counts is not None:
        numbers = counts["numbers"]
        counted = [
            f"{kind} {n} times: {message}" for kind in ("raised", "warned") for message, n in numbers[kind].items()
        ]
        tables.append(
            f"Of {numbers['problems']} small problems, {'; '.join(counted) or 'none raised an error or warned'}."
        )
    return "\n\n".join(tables)
