"""Speed of the core and the machine's limits

Fits and predictions of synthetic rows with a given kernel and given inducing points. For n rows, m inducing points, d
features, and C latent functions that share a kernel, a pass takes 2 n m d + n m^2 + 2 C n m^2 floating-point
operations, and a prediction 2 n m d + n m^2 + C n m^2. The *ideal* time is this number divided by the rate of a product
of two 1024 x 1024 matrices in double precision, also for mixed precision, and by the number of threads. The time of an
iteration is half the difference between a fit of three iterations and a fit of one. "Its BLAS calls" is the time that
BLAS takes for the matrix products of a pass; all but the first are loops of the core. Ratios are medians over calls
that alternate. The goals are an iteration in 1.6 times the ideal time, and a fit with two threads 1.8 times as fast as
with one. [The guide](guide/papers.md#steps-a-second) has the speed of mini-batches.

With k neighbours, a sweep over the rows is compared with k^2 (m + d) + k^3 / 3 + m^2 operations a row at that rate, by
one thread: each pair's sums once, a Cholesky factor, and a product with the covariance of the inducing values. The
gradient of the score of held-out rows is compared with as many for each support row and each held-out row. The goals
are 2.5 and 4 times.

"24 neighbours" are those of 10 000 training rows with 8 features; columns of levels are those of a data frame, of which
10 000 rows are predicted. Both have two threads.

Shapley values of the latent mean, with their standard deviations, are those of `xgpc.explain.shapley_values` against
the mean row, by one thread. The goal is 1000 rows a second.
"""

import statistics
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from markdown_tables import table
from measure import gemm_call, median_ratio, side_by_side, timed_fit
from methods import make
from problems import classes_of
from records import OUTPUTS_WITHOUT_NEIGHBORS, VERSION
from scipy.linalg import blas
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from threadpoolctl import threadpool_limits

from xgpc.approximations.local_rows import in_order, metric
from xgpc.approximations.sparse import SparsePrior
from xgpc.explain import shapley_values
from xgpc.inference.local_sites import Local, Sweep
from xgpc.inference.sweeps import start_sites
from xgpc.kernels.spec import KernelSpec
from xgpc.learning.held_out_score import HeldOutScore
from xgpc.likelihoods import record_of
from xgpc.rows.executor import Executor
from xgpc.rows.neighbours import Neighbours
from xgpc.rows.source import ArraySource

from . import Part

MINUTES, EXPIRES = 4, {OUTPUTS_WITHOUT_NEIGHBORS, VERSION}
D, TILE_ROWS, NEIGHBOURS = 28, 384, 24
LEVEL_COLUMNS, LEVELS = 8, 8
CALLS = ", its BLAS calls"
# Name -> likelihood, bound, classes.
SITES = {
    "softmax, 10 classes": ("softmax", "exact", 10),
    "softmax with additive noise, 10 classes": ("softmax", "additive-noise", 10),
    "multinomial probit, 10 classes": ("multinomial-probit", "additive-noise", 10),
}


def problem(n, classes=2, d=D):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    score = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.5 * rng.normal(size=n)
    return X, classes_of(score, classes)


def given(X, m, iterations, threads, **settings):
    """An estimator whose kernel and inducing points are given, and the number of its iterations, too."""
    kernel = ConstantKernel(4.0) * RBF(np.full(X.shape[1], 5.0))
    return make("xgpc", threads, **{
        "kernel": kernel, "optimizer": None, "inducing_points": X[:m].astype(float), "n_neighbors": 0,
        "max_iter": iterations, "tol": 0.0, "feature_transform": None, **settings,
    })  # fmt: skip


def flops(n, m, products):
    return 2.0 * n * m * D + products * n * m**2


def fits(n, m, repeats, threads=2, classes=2, **settings):
    """An iteration, a fit with one, and predictions, against their ideal times."""
    X, y = problem(n, classes)
    fitted, (gemm, gemm_flops) = given(X, m, 1, threads, **settings), gemm_call()
    timed_fit(fitted, X, y)
    calls = {f"fit of {i}": partial(timed_fit, given(X, m, i, threads, **settings), X, y) for i in (1, 3)}
    times = side_by_side(calls | {"predict": lambda: fitted.predict_proba(X), "gemm": gemm}, repeats)
    latents = 1 if classes == 2 else classes
    ideal = [flops(n, m, 1 + 2 * latents) / gemm_flops * t / threads for t in times["gemm"]]
    more = [(three - one) / 2 for one, three in zip(times["fit of 1"], times["fit of 3"], strict=True)]
    share = flops(n, m, 1 + latents) / flops(n, m, 1 + 2 * latents)
    return {
        "fit_ratio": median_ratio(times["fit of 1"], ideal),
        "iteration_ratio": median_ratio(more, ideal),
        "prediction_ratio": median_ratio(times["predict"], [share * t for t in ideal]),
        "seconds": times,
    }


def blas_calls(m, repeats):
    """The BLAS calls of a pass's tiles, against an ideal pass by one thread."""
    tiles, rng = 40, np.random.default_rng(0)
    x, z, a = (np.asfortranarray(rng.normal(size=shape)) for shape in ((TILE_ROWS, D), (m, D), (TILE_ROWS, m)))
    lower, P = np.asfortranarray(np.eye(m)), np.zeros((m, m), order="F")

    def calls():
        for _ in range(tiles):
            blas.dgemm(1.0, x, z, 0.0, a, trans_b=1, overwrite_c=1)
            for _ in range(2):
                blas.dtrmm(1.0, lower, a, side=1, lower=1, trans_a=1, overwrite_b=1)
            blas.dsyrk(1.0, a, 0.0, P, trans=1, overwrite_c=1)

    gemm, gemm_flops = gemm_call()
    with threadpool_limits(1):
        times = side_by_side({"calls": calls, "gemm": gemm}, 4 * repeats)
    ideal = [flops(tiles * TILE_ROWS, m, 3) / gemm_flops * t for t in times["gemm"]]
    return {"calls_ratio": median_ratio(times["calls"], ideal), "seconds": times}


def two_threads(n, m, repeats):
    """How many times as fast a fit of three iterations is with a second thread."""
    X, y = problem(n)
    times = side_by_side({str(k): partial(timed_fit, given(X, m, 3, k), X, y) for k in (1, 2)}, repeats)
    return {"speed_up": median_ratio(times["1"], times["2"]), "seconds": times}


def neighbours(n, m, repeats):
    """Microseconds a row of fits and predictions with neighbours, in eight dimensions."""
    X, y = problem(n, d=8)
    model = given(X, m, 20, 2, n_neighbors=NEIGHBOURS)
    times = side_by_side({"fit": partial(timed_fit, model, X, y), "predict": lambda: model.predict_proba(X)}, repeats)
    return {"seconds": times, **{f"{key}_microseconds": 1e6 * statistics.median(times[key]) / n for key in times}}


def levels(n, repeats):
    """Microseconds a row of predictions of a data frame with as many columns of levels as of numbers."""
    X, y = problem(n, d=2 * LEVEL_COLUMNS)
    frame = pd.DataFrame(X).add_prefix("column ")
    for name in frame.columns[:LEVEL_COLUMNS]:
        frame[name] = pd.cut(frame[name], LEVELS).astype(str)
    model = make("xgpc", 2, optimizer=None, n_neighbors=0)
    timed_fit(model, frame[: n // 10], y[: n // 10])
    times = side_by_side({"predict": lambda: model.predict_proba(frame)}, repeats)
    return {"seconds": times, "table_microseconds": 1e6 * statistics.median(times["predict"]) / n}


def explanations(n, m, d, repeats):
    """Rows a second whose Shapley values and deviations are computed by one thread."""
    X, y = problem(max(n, m), d=d)
    model = given(X, m, 3, 1)
    timed_fit(model, X, y)
    times = side_by_side({"explain": partial(shapley_values, model, X[:n])}, repeats)
    return {"rows_a_second": n / statistics.median(times["explain"]), "seconds": times}


def sweeps(n, k, m, d, profile, repeats):
    """A sweep and the gradient of a score, against their floating-point operations at the rate of dgemm."""
    X, labels = problem(2 * n, d=d)
    X, y, scales = X.astype(float), 2.0 * labels - 1.0, np.full(d, 3.0)
    kernel = 4.0 * (RBF(scales) if profile == "RBF" else Matern(scales, nu=1.5))
    executor, site = Executor(1), record_of("logit", "exact").site()
    prior = SparsePrior.build(KernelSpec(kernel, d), X[:m].copy())
    support, held_out = ArraySource(X[:n], y[:n]), ArraySource(X[n:], y[n:])
    near = Neighbours(X[:n], metric(prior.core))
    among, sites = in_order(near.of_rows(k)), start_sites(support, site)
    # Each sweep computes the covariances anew.
    local = replace(Local.of(executor, support, prior, among, site), blocks=None)
    index = near.of(X[n:], k)
    score = HeldOutScore(local, support, held_out, index, sites)
    evaluated, (gemm, gemm_flops) = score.at(np.append(prior.spec.theta, 0.0)), gemm_call()
    calls = {"sweep": lambda: Sweep(local, sites).sites(), "gradient": evaluated.gradient, "gemm": gemm}
    times = side_by_side(calls, repeats)
    ideal = [n * (k * k * (m + d) + k**3 / 3 + m * m) / gemm_flops * t for t in times["gemm"]]
    return {
        "sweep_ratio": median_ratio(times["sweep"], ideal),
        "gradient_ratio": median_ratio(times["gradient"], ideal) / 2,
        "seconds": times,
    }


def parts(data, quick):
    n, repeats, sizes = (1000, 1, (20,)) if quick else (1_000_000, 3, (100, 512))
    found = []
    for m in sizes:
        rows = n * 100 // max(100, m)
        for name, precision in ((f"m = {m}", "double"), (f"m = {m}, mixed precision", "mixed")):
            found.append(Part(name, partial(fits, rows, m, repeats, precision=precision)))
        found.append(Part(f"m = {m}{CALLS}", partial(blas_calls, m, repeats)))
        found.append(Part(f"m = {m}, two threads", partial(two_threads, rows // 4, m, repeats)))
    for name, (likelihood, bound, classes) in SITES.items():
        site = {"likelihood": likelihood, "bound": bound, "share": "kernel"}
        found.append(Part(name, partial(fits, n // 20, sizes[0], repeats, classes=classes, **site)))
    few = 400 if quick else 10_000
    found.append(Part(f"{NEIGHBOURS} neighbours", partial(neighbours, few, 32, repeats)))
    found.append(
        Part(
            f"{LEVEL_COLUMNS} columns of {LEVELS} levels, {LEVEL_COLUMNS} of numbers", partial(levels, few, 3 * repeats)
        )
    )
    sizes = (50, 20, 30) if quick else (2000, 256, 30)
    found.append(Part("Shapley values, m = {1}, d = {2}".format(*sizes), partial(explanations, *sizes, 3 * repeats)))
    for k, m, d, profile in (
        (32, 64, 10, "RBF"),
        (32, 64, 10, "Matern"),
        (16, 32, 10, "Matern"),
        (16, 32, 28, "Matern"),
    ):
        call = partial(sweeps, 200 if quick else 8000, k, m, d, profile, 3 * repeats)
        found.append(Part(f"sweep, k = {k}, m = {m}, d = {d}, {profile}", call))
    return found


SENTENCES = {
    "fit_ratio": "an iteration {iteration_ratio:.2f} x ideal, a fit with one {fit_ratio:.2f} x, predictions "
    "{prediction_ratio:.2f} x",
    "calls_ratio": "its BLAS calls {calls_ratio:.2f} x ideal",
    "speed_up": "{speed_up:.2f} x as fast as one",
    "sweep_ratio": "a sweep {sweep_ratio:.1f} x its operations, a gradient {gradient_ratio:.1f} x",
    "rows_a_second": "{rows_a_second:.0f} rows a second",
    "fit_microseconds": "a fit {fit_microseconds:.0f} µs a row, predictions {predict_microseconds:.1f} µs a row",
    "table_microseconds": "predictions {table_microseconds:.1f} µs a row",
}


def report(records):
    rows = {}
    for name, record in records.items():
        case = name.removesuffix(CALLS)
        sentence = next(text for key, text in SENTENCES.items() if key in record["numbers"])
        rows.setdefault(case, []).append(sentence.format(**record["numbers"]))
    return table(["case", "measured"], [[case, "; ".join(sentences)] for case, sentences in rows.items()])
