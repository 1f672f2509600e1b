"""Speed of the core of the local posterior.

A sweep of the sites' cavities and the vjp of a gradient, at the nearest rows of synthetic normal data. Goal: a
sweep at most 2 x its ideal time, k^2 (m + d) + k^3 / 3 + m^2 flops a row at the rate of a single-threaded dgemm, half
of that for two threads; the vjp is held against the same flops, and makes the sweep's predictions anew. Ratios
are medians of calls made in turn.
"""

import statistics
from functools import partial

import numpy as np
from internals import local_calls, prior_of, single_threaded_blas
from markdown_tables import table
from measure import gemm_call, median_ratio, side_by_side
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {"repeats": Option(9, "of each call in a round"), "rounds": Option(5, "apart in time"),
           "rows": Option(20_480, "training rows")}  # fmt: skip
QUICK = {"repeats": 1, "rounds": 1, "rows": 512}
# Neighbours, inducing points, features.
SIZES = ((24, 32, 8), (32, 64, 8), (32, 64, 54))
THREADS = (1, 2)


def measured(n, repeats, k, m, d):
    """Microseconds a row, and ratios to the ideal time, by the number of threads."""
    X = np.random.default_rng(0).normal(size=(n, d))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    prior = prior_of(ConstantKernel(4.0) * RBF(np.full(d, np.sqrt(d))), X[:m])
    gemm, gemm_flops = gemm_call()
    with local_calls(X, y, prior, k, THREADS) as calls, single_threaded_blas():
        times = side_by_side({**calls, "gemm": gemm}, repeats)
    flops = n * (k**2 * (m + d) + k**3 / 3 + m**2)
    numbers = {"gflops_of_gemm": gemm_flops / statistics.median(times["gemm"]) / 1e9}
    for name in calls:
        threads = int(name.split()[-1])
        ideal = [flops / gemm_flops * t / threads for t in times["gemm"]]
        numbers[f"{name}: microseconds a row"] = statistics.median(times[name]) / n * 1e6
        numbers[f"{name}: ratio to ideal"] = median_ratio(times[name], ideal)
    return numbers | {"seconds": times}


def rounds_of(measure, rounds):
    """Medians of several rounds, apart in time; the times are all kept."""
    results = [measure() for _ in range(rounds)]
    numbers = {name: statistics.median(result[name] for result in results) for name in results[0] if name != "seconds"}
    return numbers | {"rounds": results}


def parts(options):
    for k, m, d in SIZES:
        measure = partial(measured, options.rows, options.repeats, k, m, d)
        yield Part(f"k = {k}, m = {m}, d = {d}", partial(rounds_of, measure, options.rounds))


def report(records):
    rows = []
    for size, record in records.items():
        for name in ("sweep", "vjp"):
            found = [(f"{name}, threads: {threads}", record["numbers"]) for threads in THREADS]
            rows.append([size, name, *("{:.2f} us, {:.2f} x ideal".format(numbers[f"{key}: microseconds a row"],
                         numbers[f"{key}: ratio to ideal"]) for key, numbers in found)])  # fmt: skip
    return table(["size", "what", "one thread", "two threads"], rows) if rows else ""
