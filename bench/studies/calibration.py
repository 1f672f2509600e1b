"""Calibration of xgpc, trees and a logistic regression

The expected calibration error is the mean difference between the probability of the predicted class and the frequency
with which this prediction is right, in 15 bins of the test rows of three splits. In parentheses is the error that a
calibrated model with the same probabilities would have by chance, with its standard deviation. **Bold** errors exceed
this value by more than two standard deviations: these probabilities are not calibrated. All methods have their default
parameters; LightGBM and CatBoost use a tenth of the training rows to choose the number of trees. In
electricity-in-time, the last tenth of the time is for testing.
"""

import numpy as np
import problems
from markdown_tables import table
from measure import scores, spread, timed_fit
from methods import METHODS, make
from records import OUTPUTS
from threadpoolctl import threadpool_limits

from . import by_set, method_parts

MINUTES, EXPIRES = 6, {OUTPUTS}
SETS = ("banana", "diabetes-pima", "heart", "svmguide1", "electricity", "higgs", "page-blocks", "electricity-in-time")
NAMES = ("xgpc", "lightgbm", "catboost", "forest", "logistic")
BINS, SPLITS = 15, 3


def binned(p, y):
    """Sums over rows in each bin of the predicted class's probability: of rows, of p, of hits, of p (1 - p)."""
    top = np.max(p, axis=1)
    bins = np.minimum((BINS * top).astype(int), BINS - 1)
    sums = (np.ones(len(y)), top, np.argmax(p, axis=1) == y, top * (1.0 - top))
    return [np.bincount(bins, values, minlength=BINS).tolist() for values in sums]


def measure(folder, set_name, name, n_splits):
    problem, runs = problems.load(folder, set_name), []
    for seed in range(1 if set_name.endswith(problems.IN_TIME) else n_splits):
        data, settings, _ = problems.draw(problem, seed)
        model = make(name, **(settings if name == "xgpc" else {}))
        with threadpool_limits(2):
            spent = timed_fit(model, data.X, data.y)
        p = spread(model.predict_proba(data.X_test), data)
        runs.append({"seconds": spent, **scores(p, data.y_test), "bins": binned(p, data.y_test)})
    return {"rows": len(data.y), "runs": runs}


def parts(data, quick):
    sets, splits = (("breast-cancer", "wine"), 1) if quick else (SETS, SPLITS)
    return method_parts(measure, data, sets, NAMES, splits)


def calibration(runs):
    """The expected calibration error, and mean and deviation of that of a calibrated model: three numbers."""
    rows, probability, hits, variance = np.sum([run["bins"] for run in runs], axis=0)
    expected, deviation = np.sqrt(2 / np.pi * variance), np.sqrt((1 - 2 / np.pi) * np.sum(variance))
    return (np.array([np.sum(np.abs(probability - hits)), np.sum(expected), deviation]) / np.sum(rows)).tolist()


def is_calibrated(error, expected, deviation):
    """Whether chance can explain the error."""
    return error <= expected + 2 * deviation


def cell(error, expected, deviation):
    text = f"{error:.3f}" if is_calibrated(error, expected, deviation) else f"**{error:.3f}**"
    return f"{text} ({expected:.3f} ± {deviation:.3f})"


def report(records):
    rows = [
        [one, *(cell(*calibration(found[name]["runs"])) if name in found else "" for name in NAMES)]
        for one, found in by_set(records, SETS).items()
    ]
    return table(["set", *(METHODS[name].title for name in NAMES)], rows)
