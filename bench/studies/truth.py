"""Accuracy of the approximations, and coverage of intervals

"Difference of the posterior" compares full Gaussian processes, under the kernel that the exact bound learns, with the
exact posterior, from which the Gibbs sampler draws. The numbers are mean absolute differences of the latent means and
variances at the test rows, and the NLL. "Again" is a second run of the sampler with another seed; its difference is the
Monte Carlo error. "Coverage" is the proportion of true latent values inside 95 % intervals, with standard errors over
the repetitions. The data are drawn from the prior (a variance times an RBF kernel of length scale 2 on [0, 10]^2). A
coverage below .95 means that intervals are too narrow. "Learned" are default fits, which learn the kernel, to rows from
N(0, I) in d dimensions and a draw of the prior with an RBF kernel of length scale sqrt(d): the coverage of the latent
values of 500 new rows, and the slope of a logistic regression of their labels by the predicted log odds, which is below
1 where probabilities are too sure. "Effective draws" counts independent draws of the latent values
of simulated rows per second, as medians of three runs. The NumPy loop uses the polyagamma package and solves one linear
system per sweep.
"""

import time
import warnings
from functools import partial

import numpy as np
import problems
from markdown_tables import number, table
from measure import median_of, scores, timed_fit
from methods import make
from records import OUTPUTS, VERSION
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from xgpc.gibbs import GibbsClassifier
from xgpc.gibbs.diagnostics import effective_sample_size

from . import Part

MINUTES, EXPIRES = 4, {OUTPUTS, VERSION}
FULL = {"inducing_points": "all", "optimizer": None, "tol": 1e-8, "max_iter": 1000}
# Normal quantile of 95 % intervals.
WIDTH = 1.959964
# Of the priors of data whose kernel is learned.
VARIANCES = (4.0, 16.0)
CHAINS, SWEEPS, WARMUP, JITTER = 4, 60, 20, 1e-6
WAYS = ("polya-gamma", "corrected", "exact", "again", "sampler")


def sampled(kernel, X, y, seed, draws, **settings):
    """A fitted sampler with so many draws kept of each chain."""
    model = GibbsClassifier(kernel, n_samples=draws, n_chains=CHAINS, n_jobs=2, random_state=seed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def variational(kernel, X, y, X_test):
    """Latent means and variances, and probabilities, by each bound and with the correction."""
    found = {}
    for bound in ("polya-gamma", "exact"):
        model = make("xgpc", kernel=kernel, bound=bound, **FULL)
        timed_fit(model, X, y)
        found[bound] = *model.predict_latent(X_test), model.predict_proba(X_test)
        if bound == "polya-gamma":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                moments, p = (f(X_test, corrected=True) for f in (model.predict_latent, model.predict_proba))
            found["corrected"] = *moments, p
    return found


def posterior(folder, name, draws):
    data = problems.split(problems.load(folder, name), 0)
    start = make("xgpc", kernel=ConstantKernel(4.0) * RBF(np.sqrt(data.X.shape[1])), inducing_points="all")
    timed_fit(start, data.X, data.y)
    found, r_hats = variational(start.kernel_, data.X, data.y, data.X_test), []
    for way, seed in (("again", 1), ("sampler", 0)):
        model = sampled(start.kernel_, data.X, data.y, seed, draws, thin=50, n_proposals=200)
        found[way] = *model.predict_latent(data.X_test), model.predict_proba(data.X_test)
        r_hats.append(model.r_hat_)
    mean, variance, _ = found["sampler"]
    return {"r_hat": max(r_hats), "posterior": {
        way: {"mean": float(np.mean(np.abs(f - mean))), "variance": float(np.mean(np.abs(v - variance))),
              **scores(p, data.y_test)} for way, (f, v, p) in found.items()
    }}  # fmt: skip


def simulate(n, kernel, rng, d=None):
    """Rows, latent values and labels of a problem with two classes, with rows in a square or normal in d dimensions."""
    while True:
        X = rng.uniform(0.0, 10.0, size=(n, 2)) if d is None else rng.standard_normal((n, d))
        values, vectors = np.linalg.eigh(kernel(X))
        f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(n))
        y = (rng.uniform(size=n) < expit(f)).astype(int)
        if 0 < y.sum() < n:
            return X, f, y


def coverage(variance, n, repetitions, draws=500):
    kernel, shares, r_hat = ConstantKernel(variance) * RBF(2.0), {}, 0.0
    for repetition in range(repetitions):
        X, f, y = simulate(n, kernel, np.random.default_rng([n, int(variance), repetition]))
        for way, (mean, v, _) in variational(kernel, X, y, X).items():
            shares.setdefault(way, []).append(float(np.mean(np.abs(f - mean) < WIDTH * np.sqrt(v))))
        sampler = sampled(kernel, X, y, repetition, draws)
        low, high = np.quantile(sampler.sample_latent(X).reshape(-1, n), [0.025, 0.975], axis=0)
        shares.setdefault("sampler", []).append(float(np.mean((low < f) & (f < high))))
        r_hat = max(r_hat, sampler.r_hat_)
    return {"coverage": shares, "r_hat": r_hat}


def learned(n, d, repetitions, n_new=500):
    """Coverage of latent values of new rows by default fits, draw by draw, and their log odds' slope, by variance."""
    found = {}
    for variance in VARIANCES:
        kernel, shares, odds, labels = ConstantKernel(variance) * RBF(np.sqrt(d)), [], [], []
        for repetition in range(repetitions):
            rng = np.random.default_rng([n, d, int(variance), repetition])
            X, f, y = simulate(n + n_new, kernel, rng, d)
            if len(np.unique(y[:n])) < 2:
                continue
            model = make("xgpc")
            timed_fit(model, X[:n], y[:n])
            mean, v = model.predict_latent(X[n:])
            shares.append(float(np.mean(np.abs(f[n:] - mean) < WIDTH * np.sqrt(v))))
            odds.append(logit(np.clip(model.predict_proba(X[n:])[:, 1], 1e-9, 1.0 - 1e-9)))
            labels.append(y[n:])
        regression = LogisticRegression(C=np.inf).fit(np.concatenate(odds)[:, None], np.concatenate(labels))
        found[f"{variance:g}"] = {"coverage": shares, "slope": float(regression.coef_[0, 0])}
    return {"learned": found}


def numpy_loop(kernel, X, y, seed):
    """Draws (chains, sweeps, rows) by Matheron's rule, with one linear solve a sweep."""
    from polyagamma import random_polyagamma

    n = len(X)
    K = kernel(X) + JITTER * kernel(X[:1])[0, 0] * np.eye(n)
    L, draws = np.linalg.cholesky(K), np.empty((CHAINS, WARMUP + SWEEPS, n))
    for chain, rng in zip(draws, np.random.default_rng(seed).spawn(CHAINS), strict=True):
        f = np.zeros(n)
        for state in chain:
            omega = random_polyagamma(1.0, f, random_state=rng)
            start = L @ rng.standard_normal(n)
            difference = (y - 0.5) / omega - start - rng.standard_normal(n) / np.sqrt(omega)
            state[:] = f = start + K @ np.linalg.solve(K + np.diag(1.0 / omega), difference)
    return draws[:, WARMUP:]


def library(kernel, X, y, seed):
    settings = {"thin": 1, "n_warmup": WARMUP, "n_proposals": 50}
    return sampled(kernel, X, y, seed, SWEEPS * 51, **settings).sample_latent(X)


def sampler(n, rounds):
    kernel = ConstantKernel(4.0) * RBF(np.sqrt(5.0))
    X, _, y = simulate(n, kernel, np.random.default_rng(0), d=5)
    runs = {"NumPy loop": [], "xgpc": []}
    for seed in range(rounds):
        for name, way in zip(runs, (numpy_loop, library), strict=True):
            with threadpool_limits(2):
                start = time.perf_counter()
                draws = way(kernel, X, y, seed)
                spent = time.perf_counter() - start
            runs[name].append({"seconds": spent, "rate": float(np.median(effective_sample_size(draws))) / spent})
    return {"sampler": runs}


def parts(data, quick):
    sets, draws = (("breast-cancer",), 20) if quick else (("diabetes-pima", "german"), 500)
    found = [Part(f"posterior: {name}", partial(posterior, data, name, draws), name) for name in sets]
    few = {"repetitions": 2, "draws": 20} if quick else {"repetitions": 20}
    sizes, variances = ((50,), (4.0,)) if quick else ((50, 200), (4.0, 100.0))
    found += [Part(f"coverage: variance {variance:g}, {n} rows", partial(coverage, variance, n, **few))
              for variance in variances for n in sizes]  # fmt: skip
    found += [Part(f"learned: {n} rows, {d} features", partial(learned, n, d, repetitions))
              for n, repetitions in (((50, 2),) if quick else ((50, 20), (200, 15), (1000, 6)))
              for d in ((2,) if quick else (2, 5, 20))]  # fmt: skip
    n, rounds = (60, 1) if quick else (500, 3)
    return [*found, Part(f"sampler: {n} rows", partial(sampler, n, rounds))]


def mean_and_error(values):
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def report(records):
    kinds = {kind: {name.partition(": ")[2]: record["numbers"] for name, record in records.items()
                    if kind in record["numbers"]}
             for kind in ("posterior", "coverage", "learned", "sampler")}  # fmt: skip
    near = [[f"{name}: {score}", *(number(found["posterior"][way][score], 4) for way in WAYS)]
            for name, found in kinds["posterior"].items() for score in ("mean", "variance", "nll")]  # fmt: skip
    covered = []
    for name, found in kinds["coverage"].items():
        shares = [found["coverage"][way] for way in WAYS if way != "again"]
        covered.append([name, *map(mean_and_error, shares)])
    variances = [f"{variance:g}" for variance in VARIANCES]
    of_fits = [[name, *(mean_and_error(found["learned"][v]["coverage"]) for v in variances),
                *(number(found["learned"][v]["slope"], 2) for v in variances)]
               for name, found in kinds["learned"].items()]  # fmt: skip
    rates = [f"{way} {median_of(runs, 'rate'):.0f} ({name})"
             for name, found in kinds["sampler"].items() for way, runs in found["sampler"].items()]  # fmt: skip
    r_hats = [found["r_hat"] for kind in ("posterior", "coverage") for found in kinds[kind].values()]
    return "\n\n".join([
        table(["difference of the posterior", *WAYS], near),
        table(["coverage", *(way for way in WAYS if way != "again")], covered),
        table(["learned", *(f"{score}, variance {v}" for score in ("coverage", "slope") for v in variances)], of_fits),
        f"Effective (independent) draws a second: {', '.join(rates)}. "
        f"R-hat of the sampler is at most {max(r_hats, default=float('nan')):.3f}.",
    ])  # fmt: skip
