"""Times, scores and the load of other processes: what the studies measure with."""

import os
import resource
import statistics
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import numpy as np
from scipy.linalg import blas
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from xgpc.metrics import Gaps


def seconds(function, repeats):
    """Wall times of ``repeats`` calls after one that is not counted."""
    return side_by_side({"": function}, repeats)[""]


def side_by_side(functions, repeats):
    """Wall times of several functions, called in turn so that a slow moment of the machine meets them all."""
    for function in functions.values():
        function()
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return times


def median_ratio(numerators, denominators):
    """Median of the ratios of calls made in the same turn."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def median_of(runs, key):
    return statistics.median(run[key] for run in runs)


def gemm_call(size=1024):
    """A dgemm by one thread, and its number of flops."""
    rng = np.random.default_rng(0)
    a, b = (np.asfortranarray(rng.normal(size=(size, size))) for _ in range(2))
    c = np.zeros((size, size), order="F")

    def gemm():
        with threadpool_limits(1):
            blas.dgemm(1.0, a, b, 0.0, c, overwrite_c=1)

    return gemm, 2 * size**3


def scores(probabilities, y):
    """Mean negative log likelihood (nats) and error rate of probabilities (n, C) at labels 0, ..., C - 1."""
    # Certainty that is wrong would cost infinitely much.
    true = np.maximum(probabilities[np.arange(len(y)), y], 1e-15)
    return {"nll": float(-np.mean(np.log(true))), "error": float(np.mean(probabilities.argmax(axis=1) != y))}


BINS = 15


def binned(p, y):
    """Sums over rows in each bin of the predicted class's probability: of rows, of p, of hits, of p (1 - p)."""
    top = np.max(p, axis=1)
    bins = np.minimum((BINS * top).astype(int), BINS - 1)
    sums = (np.ones(len(y)), top, np.argmax(p, axis=1) == y, top * (1.0 - top))
    return np.array([np.bincount(bins, values, minlength=BINS) for values in sums])


def calibration(p, y):
    """The expected calibration error, and mean and deviation of that of a calibrated model: three numbers."""
    rows, probability, hits, variance = binned(p, y)
    gaps = Gaps(hits - probability, variance)
    return (np.array([np.sum(np.abs(gaps.hits)), *gaps.by_chance()]) / np.sum(rows)).tolist()


def is_calibrated(error, expected, deviation):
    """Whether chance can explain the error."""
    return error <= expected + 2 * deviation


def timed_fit(model, X, y, **options):
    """Seconds that ``model.fit`` takes, its warnings about iterations silenced."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, **options)
    return time.perf_counter() - start


def spread(probabilities, data):
    """Probabilities (n, C) in columns of all classes of a split: rare classes can be missing in the training rows."""
    columns = np.zeros((len(probabilities), 1 + max(np.max(data.y), np.max(data.y_test))))
    columns[:, np.unique(data.y)] = probabilities
    return columns


def fit_and_score(model, data, **options):
    """Seconds of a fit to the training rows of a split, and its scores at the test rows."""
    spent = timed_fit(model, data.X, data.y, **options)
    return {"seconds": spent, **scores(spread(model.predict_proba(data.X_test), data), data.y_test)}


def peak_memory():
    """Gigabytes that this process has had at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def processor_seconds_of_others():
    """Processor seconds that processes other than this one and its children have taken; NaN where no system tells."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, file.readline().split()[1:9])
    except OSError:
        return float("nan")
    busy = user + nice + system + interrupts + soft_interrupts + stolen
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + children.ru_utime + children.ru_stime
    return busy / os.sysconf("SC_CLK_TCK") - own


# Seconds by which the counters can be off that are subtracted: a few ticks of the system's clock.
TICKS = 0.05


class Others:
    """Cores that other processes keep busy in a ``with`` block: ``cores`` after it."""

    def __enter__(self):
        self._start = time.perf_counter(), processor_seconds_of_others()
        return self

    def __exit__(self, *exception):
        start, before = self._start
        taken = processor_seconds_of_others() - before
        self.cores = max(taken - TICKS, 0.0) / (time.perf_counter() - start)


def alone(function, *arguments, limit=resource.RLIM_INFINITY):
    """What a function returns in a new process, whose memory has nothing else; None if that needs more processor
    seconds than the limit, at which the system ends it."""
    limits = resource.RLIMIT_CPU, (limit, limit)
    try:
        with ProcessPoolExecutor(1, get_context("spawn"), resource.setrlimit, limits) as process:
            return process.submit(function, *arguments).result()
    except BrokenProcessPool:
        if limit == resource.RLIM_INFINITY:
            raise
        return None
