"""Speed and memory of the core against its own BLAS calls, on synthetic data.

    python bench/core.py

Goals: mini-batch steps at most 2 x their BLAS/LAPACK calls; a full-batch pass at most 1.6 x its ideal time,
(2 n m d + 3 n m^2) flops at the rate of a single-threaded dgemm, with C classes that share a kernel
(2 n m d + n m^2 + 2 C n m^2); two threads at least 1.8 x one; memory beyond the inputs independent of n but for vectors
of length n, C of them with C classes, unless the whitened rows are cached.
"""

import argparse
import statistics
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
from common import gemm_call, median_ratio, side_by_side, write
from scipy.linalg import blas, lapack
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from xgpc.rows.blas import single_threaded_blas
from xgpc.passes import Passes
from xgpc.approximations.sparse import SparsePrior, SparsePosterior
from xgpc.inference.mini_batch import learning_rate_schedule

from xgpc import _engine
from xgpc._svi import NaturalGradient
from xgpc.kernels.spec import KernelSpec
from xgpc.likelihoods import LIKELIHOODS

EXACT = LIKELIHOODS["logit"].site("exact")


def problem(n, m, d, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(dtype)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    spec = KernelSpec(ConstantKernel(4.0) * RBF(np.full(d, np.sqrt(d))), d)
    return X, y, SparsePrior.build(spec, np.asarray(X[:m], dtype=np.float64))


def mini_batches(repeats, steps=200, s=100, m=100, d=20):
    """Steps per second against the step's BLAS and LAPACK calls alone."""
    X, y, prior = problem(20_000, m, d)
    start = SparsePosterior.at_prior(prior)
    loop = NaturalGradient(m, 1, np.concatenate([start.P.ravel(), start.h]), *learning_rate_schedule("adaptive"))
    work = _engine.Workspace(s, m, d)
    labels, weights = np.empty(s), np.empty(s)
    record = np.empty((3, steps))
    order = np.random.default_rng(1).permutation(len(X))[: steps * s].astype(np.intp)

    def run():
        loop.run(
            [prior.core],
            X,
            order,
            s,
            prior.Linv[None],
            EXACT,
            y,
            np.empty(0),
            float(len(X)),
            work,
            labels,
            weights,
            *record,
        )

    rng = np.random.default_rng(2)
    x, z = np.asfortranarray(rng.normal(size=(s, d))), np.asfortranarray(rng.normal(size=(d, m)))
    k, b = np.asfortranarray(rng.normal(size=(s, m))), np.asfortranarray(rng.normal(size=(s, m)))
    P = np.asfortranarray(np.eye(m) * 3.0)
    R = np.asfortranarray(np.eye(m))
    target = np.zeros((m, m), order="F")
    w = np.zeros(m)

    def calls():
        for _ in range(steps):
            lapack.dpotrf(P, lower=0, clean=0, overwrite_a=0)
            blas.dtrsv(R, w, trans=1, overwrite_x=1)
            blas.dtrsv(R, w, overwrite_x=1)
            blas.dgemm(1.0, x, z, 0.0, k, overwrite_c=1)
            blas.dtrmm(1.0, R, b, side=1, overwrite_b=1)
            blas.dtrsm(1.0, R, b, side=1, overwrite_b=1)
            blas.dsyrk(1.0, k, 0.0, target, trans=1, overwrite_c=1)

    times = side_by_side({"steps": run, "calls": calls}, repeats)
    return {
        "steps_per_second": steps / statistics.median(times["steps"]),
        "ratio_to_blas_calls": median_ratio(times["steps"], times["calls"]),
        "seconds": times,
    }


def full_pass(repeats, m, n=20_480, d=20):
    """A pass without the cache, and with it filled, against the ideal time of a pass without it."""
    X, y, prior = problem(n, m, d)
    gemm, gemm_flops = gemm_call()
    q = SparsePosterior.at_prior(prior)
    with Passes(X, y, None, m, 1, cache_bytes=0) as passes, Passes(X, y, None, m, 1) as cached:
        times = side_by_side(
            {"pass": lambda: passes.update(q, EXACT), "cached": lambda: cached.update(q, EXACT), "gemm": gemm}, repeats
        )
    flops = 2.0 * n * m * d + 3.0 * n * m**2
    ideal = [flops / gemm_flops * t for t in times["gemm"]]
    return {
        "m": m,
        "ratio_to_ideal": median_ratio(times["pass"], ideal),
        "cached_ratio_to_ideal": median_ratio(times["cached"], ideal),
        "gflops_of_gemm": gemm_flops / statistics.median(times["gemm"]) / 1e9,
        "seconds": times,
    }


CLASS_SITES = [("softmax", "exact"), ("softmax", "additive-noise"), ("multinomial-probit", "additive-noise"),
               ("logistic-softmax", "polya-gamma")]  # fmt: skip


def class_pass(repeats, likelihood, bound, classes, m, n=20_480, d=20):
    """A pass of several classes that share a kernel, without the cache, against its ideal time."""
    X, _, prior = problem(n, m, d)
    y = np.random.default_rng(1).integers(classes, size=n).astype(float)
    gemm, gemm_flops = gemm_call()
    site = LIKELIHOODS[likelihood].site(bound, classes)
    q = SparsePosterior.at_prior(prior, classes)
    with Passes(X, y, None, m, 1, cache_bytes=0, n_latents=classes) as passes:
        times = side_by_side({"pass": lambda: passes.update(q, site), "gemm": gemm}, repeats)
    ideal = (2.0 * n * m * d + (1.0 + 2.0 * classes) * n * m**2) / gemm_flops
    ratio = median_ratio(times["pass"], [ideal * t for t in times["gemm"]])
    return {"classes": classes, "m": m, "ratio_to_ideal": ratio, "seconds": times}


def two_threads(repeats, m, n=41_472, d=20):
    """Speed-up of a pass by a second thread, and of two threads that share nothing, half of the rows each."""
    X, y, prior = problem(n, m, d)
    q = SparsePosterior.at_prior(prior)
    with ExitStack() as stack:
        one, two = (stack.enter_context(Passes(X, y, None, m, n_jobs, cache_bytes=0)) for n_jobs in (1, 2))
        halves = [
            stack.enter_context(Passes(X[part], y[part], None, m, 1, cache_bytes=0))
            for part in (slice(n // 2), slice(n // 2, n))
        ]
        pool = stack.enter_context(ThreadPoolExecutor(2))
        times = side_by_side(
            {
                "one": lambda: one.update(q, EXACT),
                "two": lambda: two.update(q, EXACT),
                "apart": lambda: list(pool.map(lambda half: half.update(q, EXACT), halves)),
            },
            repeats,
        )
    return {
        "m": m,
        "speed_up": median_ratio(times["one"], times["two"]),
        "speed_up_of_threads_apart": median_ratio(times["one"], times["apart"]),
        "seconds": times,
    }


def memory(n, m, d, dtype, cache_bytes, classes=None):
    """Peak bytes allocated by a pass beyond X and y."""
    X, y, prior = problem(n, m, d, dtype)
    site = EXACT if classes is None else LIKELIHOODS["softmax"].site("exact", classes)
    q = SparsePosterior.at_prior(prior, classes)
    y = y if classes is None else np.arange(n) % float(classes)
    tracemalloc.start()
    with Passes(X, y, None, m, 2, cache_bytes=cache_bytes, n_latents=classes) as passes:
        passes.update(q, site)
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def rounds_of(measure, rounds):
    """Several rounds of a measurement, apart in time; the numbers are medians over rounds, the times are all kept."""
    results = [measure() for _ in range(rounds)]
    numbers = {name: statistics.median(result[name] for result in results) for name in results[0] if name != "seconds"}
    return numbers | {"rounds": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="of each call in a round (default: 9)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    arguments = parser.parse_args()
    repeats, rounds = arguments.repeats, arguments.rounds
    results = {}
    with single_threaded_blas():
        row = results["mini_batches"] = rounds_of(lambda: mini_batches(repeats), rounds)
        print(
            f"mini-batches: {row['steps_per_second']:.0f} steps/s, {row['ratio_to_blas_calls']:.2f} x their BLAS calls"
        )
        for m in (100, 512):
            row = results[f"full_pass_{m}"] = rounds_of(lambda m=m: full_pass(repeats, m), rounds)
            print(f"pass, m = {m}: {row['ratio_to_ideal']:.2f} x ideal, {row['cached_ratio_to_ideal']:.2f} x with "
                  f"cached rows (dgemm {row['gflops_of_gemm']:.0f} GFlop/s)")  # fmt: skip
        for likelihood, bound in CLASS_SITES:
            for classes, m in ((3, 100), (10, 100), (10, 256)):
                name = f"class_pass: {likelihood}, {bound}, {classes} classes, m = {m}"
                row = results[name] = rounds_of(
                    lambda of=(likelihood, bound, classes, m): class_pass(repeats, *of), rounds
                )
                print(f"{name}: {row['ratio_to_ideal']:.2f} x ideal", flush=True)
        for m in (100, 512):
            row = results[f"two_threads_{m}"] = rounds_of(lambda m=m: two_threads(repeats, m), rounds)
            print(f"two threads, m = {m}: {row['speed_up']:.2f} x one, "
                  f"{row['speed_up_of_threads_apart']:.2f} x if they share nothing")  # fmt: skip
    sizes = (20_000, 40_000, 80_000)
    for dtype in (np.float64, np.float32):
        for cache_bytes in (0, 2**29):
            peaks = [memory(n, 100, 20, dtype, cache_bytes) for n in sizes]
            slope = (peaks[-1] - peaks[0]) / (sizes[-1] - sizes[0])
            name = f"{np.dtype(dtype).name}, {'rows cached' if cache_bytes else 'not cached'}"
            results[f"memory: {name}"] = {"rows": sizes, "peak_bytes": peaks, "bytes_per_row": slope}
            print(
                f"memory beyond the inputs, {name}: {peaks[0] / 1e6:.1f} MB at {sizes[0]} rows, {slope:.0f} bytes a row"
            )
    for classes in (3, 10):
        peaks = [memory(n, 100, 20, np.float64, 0, classes) for n in sizes]
        slope = (peaks[-1] - peaks[0]) / (sizes[-1] - sizes[0])
        results[f"memory: {classes} classes"] = {"rows": sizes, "peak_bytes": peaks, "bytes_per_row": slope}
        print(f"memory, {classes} classes, rows not cached: {peaks[0] / 1e6:.1f} MB, {slope:.0f} bytes a row")
    write("core", results)


if __name__ == "__main__":
    main()
