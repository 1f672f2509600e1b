"""Coverage of intervals.

The share of true latent values inside 95 % intervals, on data drawn from the prior itself. Rows are uniform in the
square [0, 10]^2, latent values a draw of a Gaussian process (a variance times an RBF of length scale 2), labels
follow the logistic likelihood. The full Gaussian process is fitted with the true kernel by the Polya-Gamma bound,
with and without the correction, and by the exact bound: intervals are 1.96 standard deviations about the mean. Those
of the Gibbs sampler are between the quantiles of its draws, and hold 95 % but for Monte Carlo error, as prior and
likelihood are those of the data. Means over the repetitions and their standard errors.
"""

import warnings
from functools import partial

import numpy as np
from markdown_tables import number, table
from records import SAMPLER
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier

from . import THREADS, Option, Part

DEPENDS, TIMED = SAMPLER, False
SIZES, VARIANCES = (50, 100, 200, 500), (4.0, 25.0, 100.0)
OPTIONS = {"repetitions": Option(100, "data sets of each kind"), "sizes": Option(SIZES, "numbers of rows"),
           "variances": Option(VARIANCES, "of the kernel"), "threads": THREADS}  # fmt: skip
QUICK = {"repetitions": 2, "sizes": [50], "variances": [4.0]}
LENGTH_SCALE = 2.0
# Draws kept of each of 4 chains.
DRAWS = 500
# Normal quantile of 95 % intervals.
WIDTH = 1.959964
METHODS = {"polya-gamma": "Polya-Gamma", "corrected": "corrected", "exact": "exact", "gibbs": "Gibbs"}


def simulate(n, kernel, rng):
    """Rows (n, 2), latent values and labels of a problem with two classes."""
    while True:
        X = rng.uniform(0.0, 10.0, size=(n, 2))
        values, vectors = np.linalg.eigh(kernel(X))
        f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(n))
        y = (rng.uniform(size=n) < expit(f)).astype(int)
        if 0 < y.sum() < n:
            return X, f, y


def covered(f, kernel, X, y, seed, threads):
    """Share of the latent values in each method's intervals, and the chains' R-hat."""
    shares = {}
    for bound in ("polya-gamma", "exact"):
        model = GPClassifier(kernel, bound=bound, inducing_points="all", optimizer=None, tol=1e-6, max_iter=1000)
        model.fit(X, y)
        moments = {bound: model.predict_latent(X)}
        if bound == "polya-gamma":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                moments["corrected"] = model.predict_latent(X, corrected=True)
        for name, (mean, variance) in moments.items():
            shares[name] = float(np.mean(np.abs(f - mean) < WIDTH * np.sqrt(variance)))
    sampler = GibbsClassifier(kernel, n_samples=DRAWS, n_jobs=threads, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sampler.fit(X, y)
    draws = sampler.sample_latent(X).reshape(-1, len(X))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    shares["gibbs"] = float(np.mean((low < f) & (f < high)))
    return {"shares": shares, "r_hat": sampler.r_hat_}


def measure(variance, n, options):
    kernel, runs = ConstantKernel(variance) * RBF(LENGTH_SCALE), []
    for repetition in range(options.repetitions):
        X, f, y = simulate(n, kernel, np.random.default_rng([n, int(variance), repetition]))
        runs.append(covered(f, kernel, X, y, repetition, options.threads))
    r_hats = [run["r_hat"] for run in runs]
    numbers = {"variance": variance, "n": n, "r_hat": {"median": float(np.median(r_hats)), "max": max(r_hats)}}
    for name in METHODS:
        column = np.array([run["shares"][name] for run in runs])
        error = float(column.std(ddof=1) / np.sqrt(len(column)))
        numbers[name] = {"mean": float(column.mean()), "standard_error": error}
    return {**numbers, "runs": runs}


def parts(options):
    for variance in options.variances:
        for n in options.sizes:
            yield Part(f"variance {variance:g}, n = {n}", partial(measure, variance, n, options))


def report(records):
    rows = []
    for record in records.values():
        numbers = record["numbers"]
        shares = (f"{number(numbers[name]['mean'])} ± {number(numbers[name]['standard_error'])}" for name in METHODS)
        rows.append([f"{numbers['variance']:g}", str(numbers["n"]), *shares, number(numbers["r_hat"]["max"])])
    return table(["variance", "n", *METHODS.values(), "largest R-hat"], rows)
