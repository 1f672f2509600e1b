"""Effective samples a second of the Gibbs sampler.

Next to plain NumPy loops with the polyagamma package. The latent values of a full Gaussian process at simulated rows
in five dimensions. "inverse" is the algorithm as it is written: omega ~ PG(1, f), f ~ N(S y / 2, S), S = (K^-1 +
Omega)^-1, with the inverse and a Cholesky factor of S in each sweep. "matheron" is a careful loop: Matheron's rule
with one linear solve. BLAS has all threads in these, ours runs as many chains at a time. Effective samples are the
median over the rows of those of their latent values; seconds are of everything but making the data, in turn, medians
of the rounds.
"""

import statistics
import time
from functools import partial

import numpy as np
from markdown_tables import number, table
from polyagamma import random_polyagamma
from records import SAMPLER
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_limits

from xgpc.gibbs import GibbsClassifier
from xgpc.gibbs.diagnostics import effective_sample_size

from . import THREADS, Option, Part

DEPENDS, TIMED = SAMPLER, True
OPTIONS = {"rows": Option(1000, "simulated"), "rounds": Option(3, "of each way, in turn"), "threads": THREADS}
QUICK = {"rows": 60, "rounds": 1}
KERNEL = ConstantKernel(4.0) * RBF(np.sqrt(5.0))
JITTER = 1e-6
CHAINS = 4
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


def plain(loop, X, y, seed, threads):
    """Seconds and draws (chains, states, rows) of a loop."""
    start = time.perf_counter()
    K = KERNEL(X) + JITTER * 4.0 * np.eye(len(X))
    chains = []
    for rng in map(np.random.default_rng, np.random.SeedSequence(seed).spawn(CHAINS)):
        states = loop(K, 2.0 * y - 1.0, rng)
        chains.append([f for f, _ in zip(states, range(WARMUP + SWEEPS), strict=False)][WARMUP:])
    return time.perf_counter() - start, np.array(chains)


def library(proposals, X, y, seed, threads):
    start = time.perf_counter()
    # As many sweeps, whatever comes between them.
    model = GibbsClassifier(
        KERNEL, n_samples=SWEEPS * (proposals + 1), thin=1, n_warmup=WARMUP, n_chains=CHAINS, n_proposals=proposals,
        n_jobs=threads, random_state=seed,
    ).fit(X, y)  # fmt: skip
    return time.perf_counter() - start, model.sample_latent(X)


WAYS = {"inverse": partial(plain, inverse), "matheron": partial(plain, matheron), "sweeps": partial(library, 0),
        "sweeps and proposals": partial(library, 50)}  # fmt: skip


def measure(options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((options.rows, 5))
    values, vectors = np.linalg.eigh(KERNEL(X))
    f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(X)))
    y = (rng.uniform(size=len(X)) < expit(f)).astype(int)
    runs = {name: [] for name in WAYS}
    for seed in range(options.rounds):
        for name, way in WAYS.items():
            with threadpool_limits(options.threads):
                seconds, draws = way(X, y, seed, options.threads)
            size = float(np.median(effective_sample_size(draws)))
            runs[name].append({"seconds": seconds, "effective": size, "states": draws.shape[0] * draws.shape[1]})
    return {"rows": options.rows, "runs": runs}


def parts(options):
    yield Part(f"{options.rows} rows", partial(measure, options))


def report(records):
    rows = []
    for name, record in records.items():
        runs = record["numbers"]["runs"]
        rates = {way: statistics.median(run["effective"] / run["seconds"] for run in runs[way]) for way in WAYS}
        for way, rate in rates.items():
            last = runs[way][-1]
            shares = (number(rate / rates[other], 1) for other in ("inverse", "matheron"))
            effective, seconds = f"{last['effective']:.0f}", f"{last['seconds']:.1f} s"
            rows.append([name, way, str(last["states"]), effective, seconds, number(rate, 1), *shares])
    header = ["data", "way", "states", "effective", "seconds", "effective a second", "x inverse", "x matheron"]
    return table(header, rows)
