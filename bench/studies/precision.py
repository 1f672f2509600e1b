"""What single precision costs, and saves.

Each set is fitted with ``precision="double"`` and "mixed", without neighbours, with a number of inducing points and one
kernel for all classes, all else at its defaults; one split, a tenth of the rows for testing, features in units of the
training rows' deviations. The NLLs of these fits also differ as each may stop at another iteration. What rounding costs
by itself is that of two posteriors with the kernel and inducing points that were learned in double precision, after ten
iterations: the largest difference of a probability of a test row, and that of the bounds. That cost grows with the
standard deviation of the latent function, and so the same is shown with the kernel's variance at 1e5, where learning
may take it at most.
"""

from functools import partial

import numpy as np
from markdown_tables import number, set_table
from measure import fit_and_score
from methods import method
from problems import BINARY, load, split
from records import LIBRARY
from sklearn.base import clone

from . import THREADS, Option, Part

DEPENDS, TIMED = LIBRARY, True
SETS = (*BINARY, "adult", "ijcnn1", "skin_nonskin", "waveform", "page-blocks", "statlog-landsat", "pendigits")
OPTIONS = {"split": Option(0, "which split"), "threads": THREADS, "inducing": Option(256, "inducing points at most")}
QUICK = {"sets": ["breast-cancer", "wine"], "inducing": 20}
PRECISIONS = ("double", "mixed")


def measure(problem, seed, threads, inducing):
    data = split(problem, seed)
    found, learned = {"rows": len(data.y)}, None
    for precision in PRECISIONS:
        model = method("xgpc").make(
            threads, n_inducing=inducing, n_neighbors=0, share="kernel", precision=precision
        )  # fmt: skip
        found[precision] = fit_and_score(model, data)
        learned = learned or model
    hard = clone(learned.kernel_).set_params(k1__constant_value=1e5)
    found |= {
        "m": len(learned.inducing_points_),
        "variance": learned.kernel_.k1.constant_value,
        "rounding": rounding(data, learned, learned.kernel_, threads),
        "rounding_at_1e5": rounding(data, learned, hard, threads),
    }
    return found


def rounding(data, learned, kernel, threads):
    """The largest difference of a probability, and that of the bounds, with that kernel and the learned points."""
    probabilities, bounds = [], []
    for precision in PRECISIONS:
        model = method("xgpc").make(
            threads, kernel=kernel, inducing_points=learned.inducing_points_, optimizer=None, n_neighbors=0,
            share="kernel", precision=precision, tol=0.0, max_iter=10,
        )  # fmt: skip
        fit_and_score(model, data)
        probabilities.append(model.predict_proba(data.X_test))
        bounds.append(model.elbo_)
    return float(np.max(np.abs(probabilities[0] - probabilities[1]))), abs(bounds[0] - bounds[1])


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(
            name, partial(measure, problem, options.split, options.threads, options.inducing), name, problem.hash
        )


def cells(numbers):
    double, mixed = (numbers[precision] for precision in PRECISIONS)
    errors = [f"{value:.0e}" for name in ("rounding", "rounding_at_1e5") for value in numbers[name]]
    return [
        str(numbers["rows"]), str(numbers["m"]), number(double["nll"], 4), number(mixed["nll"], 4),
        f"{double['seconds']:.1f} s", f"{mixed['seconds']:.1f} s", f"{numbers['variance']:.2g}", *errors,
    ]  # fmt: skip


def report(records):
    header = [
        "set", "rows", "m", "NLL", "mixed", "fit", "mixed", "variance", "largest difference", "nats",
        "at 1e5: largest difference", "nats",
    ]  # fmt: skip
    return set_table(header, records, SETS, cells)
