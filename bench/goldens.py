"""Golden fits: a dozen small fits whose outputs tell whether records of accuracy still hold.

    python bench/goldens.py             compare the outputs with results/goldens.json; exit status 1 if they moved
    python bench/goldens.py --record    keep today's outputs if they moved: records of accuracy then expire

``bench/run.py`` does the latter before it measures. The outputs of a fit are its mean log likelihood of test rows, its
bound divided by the rows, and a few probabilities. They have moved when one of them differs by more than ``TOLERANCE``:
another processor rounds otherwise, which moves most fits by less.
"""

import argparse
import json
import sys
import warnings

import numpy as np
import problems
import records
from measure import spread
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from xgpc import BayesianLinearClassifier, GPClassifier, systems

TOLERANCE = 1e-4
FILE = "goldens.json"
# Fits with neighbours, and one to so many rows that held-out rows choose the variance. Numbers of
# studies that expire with the outputs without neighbours, some of which time such fits, do not depend on them.
MANY_ROWS = {
    "defaults, neighbours", "defaults, rounds with neighbours", "neighbours, given kernel",
    "defaults, variance by held-out rows",
}  # fmt: skip
GIVEN = {"optimizer": None, "n_inducing": 40, "n_neighbors": 0}
SHOWN = 5


def kernel(d):
    return ConstantKernel(4.0) * RBF(d**0.5)


# Name -> (data set, estimator): each way of learning and each kind of posterior that the studies measure.
FITS = {
    "defaults": ("breast-cancer", GPClassifier()),
    "defaults, several classes": ("wine", GPClassifier()),
    "defaults, neighbours": ("moons", GPClassifier(n_inducing=32)),
    "defaults, rounds with neighbours": ("checkerboard", GPClassifier(n_inducing=32)),
    "defaults, variance by held-out rows": ("ringnorm", GPClassifier(n_inducing=16, n_neighbors=0)),
    "neighbours, given kernel": ("moons", GPClassifier(kernel(2), n_inducing=32, n_neighbors=16, optimizer=None)),
    "exact bound": ("breast-cancer", GPClassifier(Matern(5.0, nu=1.5), **GIVEN)),
    "full process": ("wine", GPClassifier(kernel(13), inducing_points="all", optimizer=None)),
    "softmax": ("wine", GPClassifier(kernel(13), **GIVEN, share="none")),
    "step": ("breast-cancer", GPClassifier(kernel(30), likelihood="step", bound="additive-noise", **GIVEN)),
    "multinomial probit": ("wine", GPClassifier(kernel(13), likelihood="multinomial-probit", **GIVEN)),
    "X-GPC": ("breast-cancer", GPClassifier(kernel(30), **{**systems["X-GPC"], "n_inducing": 20, "max_iter": 20})),
    "S-BSVM": ("breast-cancer", GPClassifier(kernel(30), **systems["S-BSVM"])),
    "linear": ("breast-cancer", BayesianLinearClassifier()),
}  # fmt: skip


def outputs_of(name):
    """The numbers of a golden fit."""
    set_name, model = FITS[name]
    data = problems.split(problems.load(None, set_name), 0, test_share=0.25)
    model.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X, data.y)
    p = spread(model.predict_proba(data.X_test), data)
    true = p[np.arange(len(data.y_test)), data.y_test]
    return [float(np.mean(np.log(true))), model.elbo_ / len(data.y), *true[:SHOWN].tolist()]


def kept(folder=None):
    """The kept outputs, and the number of the last ones that moved: of all fits, and of those without neighbours."""
    path = (folder or records.RESULTS) / FILE
    numbers = {records.OUTPUTS: 0, records.OUTPUTS_WITHOUT_NEIGHBORS: 0}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"numbers": numbers, "outputs": {}}


def moved(before, now):
    """A sentence about each fit whose outputs differ by more than the tolerance, by name."""
    found = {}
    for name, numbers in now.items():
        if len(before.get(name, ())) != len(numbers):
            found[name] = f"{name}: no outputs were kept"
        elif not (largest := np.max(np.abs(np.subtract(numbers, before[name])))) <= TOLERANCE:
            found[name] = f"{name}: moved by {largest:.1e}"
    return found


def update(folder=None):
    """The numbers of today's outputs; if some moved, these have the next number and are kept."""
    before, now = kept(folder), {name: outputs_of(name) for name in FITS}
    numbers, others = dict(before["numbers"]), moved(before["outputs"], now)
    if not others:
        return numbers
    numbers[records.OUTPUTS] += 1
    if others.keys() - MANY_ROWS:
        numbers[records.OUTPUTS_WITHOUT_NEIGHBORS] = numbers[records.OUTPUTS]
    rounded = {name: [round(value, 8) for value in outputs] for name, outputs in now.items()}
    records.write_json((folder or records.RESULTS) / FILE, {"numbers": numbers, "outputs": rounded})
    return numbers


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep today's outputs if they moved")
    if parser.parse_args(arguments).record:
        print(f"outputs number {update()[records.OUTPUTS]}")
        return
    sentences = moved(kept()["outputs"], {name: outputs_of(name) for name in FITS}).values()
    print("\n".join(sentences) or "The outputs are those of the records.")
    sys.exit(bool(sentences))


if __name__ == "__main__":
    main(sys.argv[1:])
