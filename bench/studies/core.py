"""Speed and memory of the core.

Against its own BLAS calls, on synthetic data. Goals: mini-batch steps at most 2 x their BLAS and LAPACK calls; a
full-batch pass at most 1.6 x its ideal time, (2 n m d + 3 n m^2) flops at the rate of a single-threaded dgemm, with C
classes that share a kernel (2 n m d + n m^2 + 2 C n m^2), in mixed precision, too, at that rate; two threads at least
1.8 x one; memory beyond the inputs independent of n but for vectors of length n, C of them with C classes, unless the
whitened rows are cached. Ratios are medians of calls made in turn.
"""

import statistics
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
from internals import mini_batch_steps, one_pass, open_passes, prior_of, single_threaded_blas, site_of
from markdown_tables import table
from measure import gemm_call, median_ratio, side_by_side
from records import LIBRARY
from scipy.linalg import blas, lapack
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {"repeats": Option(9, "of each call in a round"), "rounds": Option(5, "apart in time")}
QUICK = {"repeats": 1, "rounds": 1}
D = 20
SIZES = (20_000, 40_000, 80_000)
CLASS_SITES = [("softmax", "exact"), ("softmax", "additive-noise"), ("multinomial-probit", "additive-noise"),
               ("logistic-softmax", "polya-gamma")]  # fmt: skip


def problem(n, m, d=D, dtype=np.float64, precision="double"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(dtype)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y, prior_of(ConstantKernel(4.0) * RBF(np.full(d, np.sqrt(d))), X[:m], precision)


def calls_of_steps(steps, s, m, d):
    """A function that makes the BLAS and LAPACK calls of so many mini-batch steps."""
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

    return calls


def mini_batches(repeats, steps=200, s=100, m=100):
    """Steps per second against the step's BLAS and LAPACK calls alone."""
    X, y, prior = problem(20_000, m)
    order = np.random.default_rng(1).permutation(len(X))[: steps * s].astype(np.intp)
    run = mini_batch_steps(X, y, prior, site_of("logit", "exact"), order, s)
    times = side_by_side({"steps": run, "calls": calls_of_steps(steps, s, m, D)}, repeats)
    return {
        "steps_per_second": steps / statistics.median(times["steps"]),
        "ratio_to_blas_calls": median_ratio(times["steps"], times["calls"]),
        "seconds": times,
    }


def full_pass(repeats, m, precision="double", n=20_480):
    """A pass without the cache, and with it filled, against the ideal time of a pass without it."""
    X, y, prior = problem(n, m, precision=precision)
    site = site_of("logit", "exact")
    gemm, gemm_flops = gemm_call()
    with open_passes(X, y, cached=False) as plain, open_passes(X, y) as cached:
        calls = {"pass": one_pass(plain, prior, site), "cached": one_pass(cached, prior, site), "gemm": gemm}
        times = side_by_side(calls, repeats)
    flops = 2.0 * n * m * D + 3.0 * n * m**2
    ideal = [flops / gemm_flops * t for t in times["gemm"]]
    return {
        "ratio_to_ideal": median_ratio(times["pass"], ideal),
        "cached_ratio_to_ideal": median_ratio(times["cached"], ideal),
        "gflops_of_gemm": gemm_flops / statistics.median(times["gemm"]) / 1e9,
        "seconds": times,
    }


def class_pass(repeats, likelihood, bound, classes, m, precision="double", n=20_480):
    """A pass of several classes that share a kernel, without the cache, against its ideal time."""
    X, _, prior = problem(n, m, precision=precision)
    y = np.random.default_rng(1).integers(classes, size=n).astype(float)
    gemm, gemm_flops = gemm_call()
    with open_passes(X, y, cached=False, classes=classes) as passes:
        one = one_pass(passes, prior, site_of(likelihood, bound, classes))
        times = side_by_side({"pass": one, "gemm": gemm}, repeats)
    ideal = (2.0 * n * m * D + (1.0 + 2.0 * classes) * n * m**2) / gemm_flops
    return {"ratio_to_ideal": median_ratio(times["pass"], [ideal * t for t in times["gemm"]]), "seconds": times}


def two_threads(repeats, m, n=41_472):
    """Speed-up of a pass by a second thread, and of two threads that share nothing, half of the rows each."""
    X, y, prior = problem(n, m)
    site = site_of("logit", "exact")
    with ExitStack() as stack:

        def call(rows, threads):
            return one_pass(stack.enter_context(open_passes(X[rows], y[rows], threads, False)), prior, site)

        one, two = (call(slice(None), threads) for threads in (1, 2))
        halves = [call(rows, 1) for rows in (slice(n // 2), slice(n // 2, n))]
        pool = stack.enter_context(ThreadPoolExecutor(2))
        apart = lambda: list(pool.map(lambda half: half(), halves))  # noqa: E731
        times = side_by_side({"one": one, "two": two, "apart": apart}, repeats)
    return {
        "speed_up": median_ratio(times["one"], times["two"]),
        "speed_up_of_threads_apart": median_ratio(times["one"], times["apart"]),
        "seconds": times,
    }


def memory(n, dtype, cached, classes=None, m=100):
    """Peak bytes allocated by a pass beyond X and y."""
    X, y, prior = problem(n, m, dtype=dtype)
    site = site_of("logit", "exact") if classes is None else site_of("softmax", "exact", classes)
    y = y if classes is None else np.arange(n) % float(classes)
    tracemalloc.start()
    with open_passes(X, y, 2, cached, classes) as passes:
        one_pass(passes, prior, site)()
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def memory_by_rows(*settings):
    peaks = [memory(n, *settings) for n in SIZES]
    return {"rows": SIZES, "peak_bytes": peaks, "bytes_per_row": (peaks[-1] - peaks[0]) / (SIZES[-1] - SIZES[0])}


def rounds_of(measure, options):
    """Several rounds of a measurement, apart in time; the numbers are medians over rounds, the times are all kept."""
    with single_threaded_blas():
        results = [measure(options.repeats) for _ in range(options.rounds)]
    numbers = {name: statistics.median(result[name] for result in results) for name in results[0] if name != "seconds"}
    return numbers | {"rounds": results}


def parts(options):
    timed = {"mini-batch steps of 100 rows, m = 100, d = 20": mini_batches}
    timed |= {f"pass, m = {m}": partial(full_pass, m=m) for m in (100, 512)}
    for likelihood, bound in CLASS_SITES:
        for classes, m in ((3, 100), (10, 100), (10, 256)):
            name = f"pass, {likelihood} {bound}, {classes} classes, m = {m}"
            timed[name] = partial(class_pass, likelihood=likelihood, bound=bound, classes=classes, m=m)
    mixed = {name: partial(measure, precision="mixed") for name, measure in timed.items() if name.startswith("pass")}
    timed |= {f"{name}, mixed precision": measure for name, measure in mixed.items()}
    timed |= {f"two threads, m = {m}": partial(two_threads, m=m) for m in (100, 512)}
    for name, measure in timed.items():
        yield Part(name, partial(rounds_of, measure, options))
    for dtype in (np.float64, np.float32):
        for cached in (False, True):
            name = f"memory, {np.dtype(dtype).name}, rows {'cached' if cached else 'not cached'}"
            yield Part(name, partial(memory_by_rows, dtype, cached))
    for classes in (3, 10):
        yield Part(f"memory, {classes} classes, rows not cached", partial(memory_by_rows, np.float64, False, classes))


def found(numbers):
    """What a record says, in words."""
    if "steps_per_second" in numbers:
        return "{steps_per_second:.0f} steps a second, {ratio_to_blas_calls:.2f} x their calls".format(**numbers)
    if "cached_ratio_to_ideal" in numbers:
        return "{ratio_to_ideal:.2f} x ideal, with cached rows {cached_ratio_to_ideal:.2f} x".format(**numbers)
    if "ratio_to_ideal" in numbers:
        return "{ratio_to_ideal:.2f} x ideal".format(**numbers)
    if "speed_up" in numbers:
        return "{speed_up:.2f} x one; if they share nothing, {speed_up_of_threads_apart:.2f} x".format(**numbers)
    at_first = f"{numbers['peak_bytes'][0] / 1e6:.1f} MB at {numbers['rows'][0]} rows"
    return f"{at_first}, {numbers['bytes_per_row']:.0f} bytes a row more"


def report(records):
    return table(["what", "measured"], [[name, found(record["numbers"])] for name, record in records.items()])
