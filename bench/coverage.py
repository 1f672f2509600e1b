"""Coverage: the share of true latent values inside 95 % intervals, on data drawn from the prior itself.

    python bench/coverage.py [--repetitions 100] [--threads 2]

Rows are uniform in the square [0, 10]^2, latent values a draw of a Gaussian process (a variance times an RBF of length
scale 2), labels follow the logistic likelihood. The full Gaussian process is fitted with the true kernel by the
Polya-Gamma bound, with and without the correction, and by the exact bound: intervals are 1.96 standard deviations
about the mean. Those of the Gibbs sampler are between the quantiles of its draws, and hold 95 % but for Monte Carlo
error, as prior and likelihood are those of the data.
"""

import argparse
import warnings

import numpy as np
from common import write
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier

SIZES = (50, 100, 200, 500)
VARIANCES = (4.0, 25.0, 100.0)
LENGTH_SCALE = 2.0
# Draws kept of each of 4 chains.
DRAWS = 500
# Normal quantile of 95 % intervals.
WIDTH = 1.959964
METHODS = ("polya-gamma", "corrected", "exact", "gibbs")


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
    return shares, sampler.r_hat_


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for variance in VARIANCES:
        kernel = ConstantKernel(variance) * RBF(LENGTH_SCALE)
        for n in SIZES:
            shares, r_hats = [], []
            for repetition in range(arguments.repetitions):
                X, f, y = simulate(n, kernel, np.random.default_rng([n, int(variance), repetition]))
                share, r_hat = covered(f, kernel, X, y, repetition, arguments.threads)
                shares.append(share)
                r_hats.append(r_hat)
            columns = {name: np.array([share[name] for share in shares]) for name in METHODS}
            row = {"variance": variance, "n": n, "r_hat": {"median": float(np.median(r_hats)), "max": max(r_hats)}}
            for name, column in columns.items():
                error = float(column.std(ddof=1) / np.sqrt(len(column)))
                row[name] = {"mean": float(column.mean()), "standard_error": error}
            rows.append(row)
            shares = ", ".join(
                f"{name} {row[name]['mean']:.3f} +- {row[name]['standard_error']:.3f}" for name in METHODS
            )
            print(f"variance {variance:5.0f}, n = {n:3d}: {shares}; R-hat {np.median(r_hats):.3f}, {max(r_hats):.3f}")
            write("coverage", {"rows": rows})


if __name__ == "__main__":
    main()
