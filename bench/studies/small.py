"""Two hundred rows, next to scikit-learn.

Its GaussianProcessClassifier. 200 rows in five dimensions from N(0, I), labels from the logistic link of a draw of a
Gaussian process, 2000 rows for testing. Both start at its kernel and learn the hyperparameters, one after the other
on each draw.
"""

import statistics

import numpy as np
from markdown_tables import number, table
from measure import fit_and_score
from methods import method
from problems import Split
from records import LIBRARY
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {"seeds": Option(20, "draws")}
QUICK = {"seeds": 2}
N, N_TEST, D = 200, 2000, 5
KERNEL = ConstantKernel(2.0) * RBF(np.full(D, 2.2))


def draw_of(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N + N_TEST, D))
    # The jitter is for the Cholesky factor of a nearly singular matrix.
    L = np.linalg.cholesky(KERNEL(X) + 1e-8 * np.eye(len(X)))
    y = (rng.uniform(size=len(X)) < expit(L @ rng.normal(size=len(X)))).astype(int)
    return Split(X[:N], y[:N], X[N:], y[N:])


def run_of(seed):
    data, run = draw_of(seed), {"seed": seed}
    for name, model in (
        ("xgpc", method("xgpc").make(threads=None, kernel=KERNEL)),
        ("scikit-learn", method("sklearn").make(kernel=KERNEL)),
    ):
        run[name] = fit_and_score(model, data)
    return run


def measure(seeds):
    return {"runs": [run_of(seed) for seed in range(seeds)]}


def parts(options):
    # The first fits of a process pay for imports and threads.
    run_of(options.seeds)
    yield Part("200 rows", lambda: measure(options.seeds))


def report(records):
    rows = []
    for name, record in records.items():
        runs = record["numbers"]["runs"]
        medians = [statistics.median(run[m][key] for run in runs) for key in ("seconds", "nll")
                   for m in ("xgpc", "scikit-learn")]  # fmt: skip
        ratio = statistics.median(run["scikit-learn"]["seconds"] / run["xgpc"]["seconds"] for run in runs)
        difference = statistics.median(run["xgpc"]["nll"] - run["scikit-learn"]["nll"] for run in runs)
        higher = sum(run["xgpc"]["nll"] > run["scikit-learn"]["nll"] for run in runs)
        rows.append([name, *(number(value) for value in medians), number(ratio, 1), f"{difference:+.4f}",
                     f"{higher} of {len(runs)}"])  # fmt: skip
    header = ["data", "xgpc, s", "scikit-learn, s", "xgpc's NLL", "scikit-learn's", "times as fast",
              "difference of the NLLs", "draws on which xgpc's is higher"]  # fmt: skip
    return table(header, rows) + "\n\nAll are medians over the draws, of ratios and differences, too."
