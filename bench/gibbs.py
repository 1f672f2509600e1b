"""Effective samples a second of the Gibbs sampler, next to plain NumPy loops with the polyagamma package.

    python bench/gibbs.py [--rows 1000] [--threads 2]

The latent values of a full Gaussian process at 1000 simulated rows in five dimensions. "inverse" is the algorithm as
it is written: omega ~ PG(1, f), f ~ N(S y / 2, S), S = (K^-1 + Omega)^-1, with the inverse and a Cholesky factor of S
in each sweep. "matheron" is a careful loop: Matheron's rule with one linear solve. BLAS has all threads in these, ours
runs as many chains at a time. Effective samples are the median over the rows of those of their latent values; seconds
are of everything but making the data, in turn, medians of the rounds.
"""

import argparse
import statistics
import time

import numpy as np
from common import write
from polyagamma import random_polyagamma
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_limits

from xgpc.gibbs import GibbsClassifier
from xgpc.gibbs.diagnostics import effective_sample_size

KERNEL = ConstantKernel(4.0) * RBF(np.sqrt(5.0))
JITTER = 1e-6
ROUNDS, CHAINS = 3, 4
# Sweeps of each chain that count, and those before.
SWEEPS, WARMUP = 60, 20


def inverse(K, y, rng):
    """Latent values after each sweep, for ever."""
    K_inverse = np.linalg.inv(K)
    f = np.zeros(len(y))
    while True:
        S = np.linalg.inv(K_inverse + np.diag(random_polyagamma(1.0, f, random_state=rng)))
        f = S @ (0.5 * y) + np.linalg.cholesky(S) @ rng.standard_normal(len(y))
        yield f


def matheron(K, y, rng):
    L = np.linalg.cholesky(K)
    f = np.zeros(len(y))
    while True:
        omega = random_polyagamma(1.0, f, random_state=rng)
        start = L @ rng.standard_normal(len(y))
        difference = 0.5 * y / omega - start - rng.standard_normal(len(y)) / np.sqrt(omega)
        f = start + K @ np.linalg.solve(K + np.diag(1.0 / omega), difference)
        yield f


def plain(loop, X, y, seed):
    K = KERNEL(X) + JITTER * 4.0 * np.eye(len(X))
    chains = []
    for rng in map(np.random.default_rng, np.random.SeedSequence(seed).spawn(CHAINS)):
        states = loop(K, 2.0 * y - 1.0, rng)
        chains.append([f for f, _ in zip(states, range(WARMUP + SWEEPS), strict=False)][WARMUP:])
    return np.array(chains)


def library(proposals, thin, X, y, seed, threads):
    # As many sweeps, whatever comes between them.
    n_samples = SWEEPS * (proposals + 1) // thin
    return GibbsClassifier(
        KERNEL, n_samples=n_samples, thin=thin, n_warmup=WARMUP, n_chains=CHAINS, n_proposals=proposals,
        n_jobs=threads, random_state=seed,
    ).fit(X, y)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((arguments.rows, 5))
    values, vectors = np.linalg.eigh(KERNEL(X))
    f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(X)))
    y = (rng.uniform(size=len(X)) < expit(f)).astype(int)

    found = {name: [] for name in ("inverse", "matheron", "sweeps", "sweeps and proposals")}
    for seed in range(ROUNDS):
        for name, rounds in found.items():
            with threadpool_limits(arguments.threads):
                start = time.perf_counter()
                if name == "inverse":
                    draws = plain(inverse, X, y, seed)
                elif name == "matheron":
                    draws = plain(matheron, X, y, seed)
                else:
                    proposals, thin = (0, 1) if name == "sweeps" else (50, 1)
                    model = library(proposals, thin, X, y, seed, arguments.threads)
                seconds = time.perf_counter() - start
            if name.startswith("sweeps"):
                draws = model.sample_latent(X)
            size = float(np.median(effective_sample_size(draws)))
            rounds.append({"seconds": seconds, "effective": size, "states": draws.shape[0] * draws.shape[1]})
    rates = {name: statistics.median(r["effective"] / r["seconds"] for r in rounds) for name, rounds in found.items()}
    for name, rounds in found.items():
        last = rounds[-1]
        print(f"{name:21s} {last['states']:6d} states, {last['effective']:8.0f} effective, {last['seconds']:6.1f} s: "
              f"{rates[name]:8.1f} effective a second, {rates[name] / rates['inverse']:6.1f} x inverse, "
              f"{rates[name] / rates['matheron']:6.1f} x matheron")  # fmt: skip
    write("gibbs", {"rows": arguments.rows, "rates": rates, "runs": found})


if __name__ == "__main__":
    main()
