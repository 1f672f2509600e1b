"""Default fits on public data sets: seconds and test NLL; and how many calls of the package's own functions they make.

    python tools/default_fits.py --data FOLDER [SET ...]
    python tools/default_fits.py --frames

FOLDER has a file NAME.npz with arrays X and y for each set. Run it with two versions of the package in turn, three
times each, and compare medians. Calls are those of Python functions; the calls of the compiled core do not count.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons

import xgpc
from xgpc import GPClassifier

PACKAGE = str(Path(xgpc.__file__).parent)
ROWS = {"magic": 3000, "banana": 2000, "electricity": 3000, "higgs": 3000, "svmguide1": 3000, "waveform": 2500,
        "pendigits": 2200, "german": 800, "splice": 2200, "bank-marketing": 3000}  # fmt: skip


def calls(function):
    """How often functions of the package are called by a function, and what it returns."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(profile)
    try:
        result = function()
    finally:
        sys.setprofile(None)
    return count, result


def print_calls():
    for n, options in ((100, {}), (400, {}), (400, {"n_neighbors": 8})):
        X, y = make_moons(n, noise=0.25, random_state=0)
        n_fit, model = calls(lambda X=X, y=y, options=options: GPClassifier(random_state=0, **options).fit(X, y))
        # The first prediction makes what later ones reuse.
        model.predict_proba(X[:1])
        n_row, _ = calls(lambda X=X, model=model: model.predict_proba(X[:1]))
        print(f"{n} rows, {model.n_neighbors_} neighbours: {n_fit} calls a fit, {n_row} to predict a row")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(ROWS), metavar="SET", help=", ".join(ROWS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--frames", action="store_true", help="count calls")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.frames:
        print_calls()
    for name in options.sets if options.data else ():
        file = np.load(options.data / f"{name}.npz")
        X, y, order = file["X"].astype(float), file["y"], np.random.default_rng(0).permutation(len(file["y"]))
        rows, others = order[: ROWS[name]], order[ROWS[name] : ROWS[name] + 1000]
        start = time.perf_counter()
        model = GPClassifier(random_state=0).fit(X[rows], y[rows])
        seconds = time.perf_counter() - start
        log_p = model.predict_log_proba(X[others])[np.arange(len(others)), np.searchsorted(model.classes_, y[others])]
        print(f"{name}: {seconds:.2f} s, NLL {-np.mean(log_p):.4f}", flush=True)


if __name__ == "__main__":
    main()
