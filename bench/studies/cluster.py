"""Workers of a cluster on one machine.

The posterior at a given kernel, with 100 inducing points, of synthetic float32 rows, which stand in the memory of
dask's workers: processes of one thread each. Fits by one and by more workers are made in turn, and ratios are medians.
The process that asks for the fit first iterates on a sample of 131 072 rows by itself, which no worker makes faster: of
many rows that is little. Processes that only multiply matrices, begun at the same time, show what the machine itself
gives for so many: their rate against that of one. Goal: 1.7 with two workers.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context

import numpy as np
from internals import single_threaded_blas
from markdown_tables import table
from measure import gemm_call, median_ratio, side_by_side, timed_fit
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {
    "rows": Option((1_000_000, 4_000_000), "of the fits"),
    "workers": Option((2,), "numbers of workers next to one"),
    "repeats": Option(3, "of each fit"),
}
QUICK = {"rows": [4000], "repeats": 1}
D, M, PARTITIONS, ITERATIONS = 28, 100, 20, 5
# Calls of a product of matrices of each process, a second or two.
PRODUCTS = 40


def rows_and_labels(n):
    """Dask arrays."""
    from dask import array

    X = array.random.default_rng(0).normal(size=(n, D), chunks=(n // PARTITIONS, D)).astype(np.float32)
    return X, X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.5 * X[:, 3] > 0


def fits(n, workers, repeats):
    """Seconds of fits by one worker and by several, in turn."""
    from distributed import Client, LocalCluster

    from xgpc.dask import DaskGPClassifier

    points = np.random.default_rng(1).normal(size=(M, D))
    calls = {}
    with ExitStack() as stack:
        for k in (1, workers):
            cluster = LocalCluster(n_workers=k, threads_per_worker=1, dashboard_address=":0")
            client = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
            X, y = client.persist(rows_and_labels(n))
            model = DaskGPClassifier(
                ConstantKernel(4.0) * RBF(np.full(D, 5.0)), client=client, optimizer=None, inducing_points=points,
                n_neighbors=0, max_iter=ITERATIONS, tol=0.0,
            )  # fmt: skip
            calls[k] = partial(timed_fit, model, X, y)
        times = side_by_side(calls, repeats)
    return {"workers": workers, "speed_up": median_ratio(times[1], times[workers]), "seconds": times}


def multiply(start):
    """Seconds of products of matrices by one thread that begin at a time."""
    call, _ = gemm_call()
    with single_threaded_blas():
        call()
        time.sleep(max(0.0, start - time.time()))
        begun = time.perf_counter()
        for _ in range(PRODUCTS):
            call()
        return time.perf_counter() - begun


def machine(workers, repeats):
    """The rate of so many processes against that of one."""
    found = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for _ in range(repeats + 1):
            one, many = (
                list(pool.map(multiply, [time.time() + 2.0] * number)) for number in (1, workers)
            )  # fmt: skip
            found.append(workers * one[0] / max(many))
    # The first ones also start the processes.
    return {"workers": workers, "speed_up": float(np.median(found[1:])), "ratios": found[1:]}


def parts(options):
    for workers in options.workers:
        yield Part(f"{workers} processes alone", partial(machine, workers, options.repeats))
        for n in options.rows:
            yield Part(f"{n} rows, {workers} workers", partial(fits, n, workers, options.repeats))


def report(records):
    return table(
        ["what", "times as fast as one"],
        [[name, f"{record['numbers']['speed_up']:.2f}"] for name, record in records.items()],
    )
