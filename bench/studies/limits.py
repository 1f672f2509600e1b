"""How near the machine's limits.

Whole fits and predictions of synthetic float32 rows by two threads, kernel and inducing points given. The ideal of a
pass is (2 n m d + 3 n m^2) flops, of a prediction (2 n m d + 2 n m^2), at twice the rate of a dgemm of 1024 x 1024 by
one thread; with ``precision="mixed"``, too, at that rate of double precision. "Its BLAS calls" are those of a pass
alone, made by one thread on tiles of a block's size, against the same flops at one thread's rate: no code around them
can be nearer to the ideal. A row's prediction is timed with 64 inducing points and 30 features. Ratios are medians of
calls made in turn.
"""

import statistics
from functools import partial

import numpy as np
from internals import single_threaded_blas
from markdown_tables import table
from measure import gemm_call, median_ratio, seconds, side_by_side, timed_fit
from records import LIBRARY
from scipy.linalg import blas
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.rows.executor import TILE_ROWS

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
OPTIONS = {
    "rows": Option(1_000_000, "of the fits with 100 inducing points or fewer; with m, 100 / m times as many"),
    "repeats": Option(5, "of each call"),
    "inducing": Option((100, 512), "numbers of inducing points"),
}
QUICK = {"rows": 3000, "repeats": 1, "inducing": (20,)}
D = 28


def flops(n, m, products):
    return 2.0 * n * m * D + products * n * m**2


def fits_and_predictions(n, m, repeats, precision):
    """Fits of one and of three iterations, and predictions, against an ideal pass and an ideal prediction."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.5 * rng.normal(size=n) > 0
    kernel = ConstantKernel(4.0) * RBF(np.full(D, 5.0))

    def model(iterations):
        return GPClassifier(
            kernel, optimizer=None, n_inducing=m, inducing_points=X[:m].astype(float), n_neighbors=0,
            max_iter=iterations, tol=0.0, precision=precision, n_jobs=2,
        )  # fmt: skip

    def gemm():
        with single_threaded_blas():
            call()

    (call, gemm_flops), fitted = gemm_call(), model(1)
    timed_fit(fitted, X, y)
    calls = {f"fit of {i}": lambda i=i: timed_fit(model(i), X, y) for i in (1, 3)}
    times = side_by_side(calls | {"predict": lambda: fitted.predict_proba(X), "gemm": gemm}, repeats)
    ideal = [flops(n, m, 3) / gemm_flops * t / 2 for t in times["gemm"]]
    more = [(three - one) / 2 for one, three in zip(times["fit of 1"], times["fit of 3"], strict=True)]
    of_prediction = [flops(n, m, 2) / flops(n, m, 3) * t for t in ideal]
    return {
        "fit_ratio": median_ratio(times["fit of 1"], ideal),
        "iteration_ratio": median_ratio(more, ideal),
        "prediction_ratio": median_ratio(times["predict"], of_prediction),
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
    with single_threaded_blas():
        times = side_by_side({"calls": calls, "gemm": gemm}, 4 * repeats)
    ideal = [flops(tiles * TILE_ROWS, m, 3) / gemm_flops * t for t in times["gemm"]]
    return {"calls_ratio": median_ratio(times["calls"], ideal), "seconds": times}


def one_row(repeats):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 30))
    model = GPClassifier(RBF(np.full(30, 5.0)), optimizer=None, n_inducing=64, n_neighbors=0).fit(X, X[:, 0] > 0)
    row = X[:1]
    times = seconds(lambda: model.predict_proba(row), 400 * repeats)
    return {"microseconds": 1e6 * statistics.median(times), "fastest_tenth": 1e6 * float(np.quantile(times, 0.1))}


def parts(options):
    for m in options.inducing:
        n = options.rows * 100 // max(100, m)
        for name, precision in ((f"m = {m}", "double"), (f"m = {m}, mixed precision", "mixed")):
            yield Part(name, partial(fits_and_predictions, n, m, options.repeats, precision))
        yield Part(f"m = {m}, its BLAS calls", lambda m=m: blas_calls(m, options.repeats))
    yield Part("one row", lambda: one_row(options.repeats))


def found(numbers):
    if "fit_ratio" in numbers:
        return (
            "one more iteration {iteration_ratio:.2f} x ideal, a fit with one iteration {fit_ratio:.2f} x, "
            "predictions {prediction_ratio:.2f} x"
        ).format(**numbers)
    if "calls_ratio" in numbers:
        return "{calls_ratio:.2f} x ideal".format(**numbers)
    return "{microseconds:.0f} us, the fastest tenth {fastest_tenth:.0f} us".format(**numbers)


def report(records):
    return table(["what", "measured"], [[name, found(record["numbers"])] for name, record in records.items()])
