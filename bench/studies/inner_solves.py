"""Inner solves of several classes.

Passes over the rows that a fit of softmax takes, and seconds of this process's processors, with the steps of the
library and with unit steps that are halved where they fail. Both learn from the same rows, the first of split 0, with
the default kernel and 100 inducing points. A pass makes marginals and sites of all rows of a stage, and sums; the
median is of the steps that the inner solves of the optimizer's evaluations took.
"""

import time
from functools import partial

import numpy as np
from internals import count_passes, previous_steps
from markdown_tables import number, table
from measure import scores, timed_fit
from methods import method
from problems import load, split
from records import LIBRARY

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
SETS = ("waveform", "wine-quality-white", "page-blocks", "statlog-landsat", "pendigits", "statlog-shuttle", "letter")
OPTIONS = {
    "rows": Option(5000, "to learn from, at most"),
    "inducing": Option(100, "points"),
    "shares": Option(("kernel", "none"), "kernel, none: one kernel for all classes, or one for each"),
}
QUICK = {"sets": ["iris"], "inducing": 10, "shares": ["kernel"]}
WAYS = {"before": True, "library": False}


def fit(data, share, options, previous):
    """Passes, products of conjugate gradients, evaluations and seconds of a fit, and where it ends."""
    model = method("xgpc").make(threads=1, n_inducing=options.inducing, share=share, n_neighbors=0)
    with previous_steps(previous), count_passes() as calls:
        start = time.process_time()
        timed_fit(model, data.X, data.y)
        seconds = time.process_time() - start
    inner = model.history_["inner_iterations"]
    inner = inner[np.isfinite(inner)]
    # A class of a handful of rows can be missing among the training rows.
    probabilities = np.zeros((len(data.y_test), 1 + max(np.max(data.y), np.max(data.y_test))))
    probabilities[:, model.classes_] = model.predict_proba(data.X_test)
    return {"share": share, "n": len(data.X), "classes": len(model.classes_), "passes": calls["update"],
            "products": calls["curvature_product"], "evaluations": len(inner), "median": float(np.median(inner)),
            "processor_seconds": seconds, "elbo": model.elbo_, **scores(probabilities, data.y_test)}  # fmt: skip


def measure(data, options):
    data = data._replace(X=data.X[: options.rows], y=data.y[: options.rows])
    return {way: [fit(data, share, options, previous) for share in options.shares] for way, previous in WAYS.items()}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, split(problem, 0), options), name, problem.hash)


def report(records):
    rows = [
        [name, run["share"], str(run["n"]), str(run["classes"]), way, str(run["evaluations"]), str(run["passes"]),
         f"{run['median']:.0f}", str(run["products"]), f"{run['processor_seconds']:.1f} s", f"{run['elbo']:.1f}",
         number(run["nll"], 4)]
        for name, record in records.items()
        for runs in zip(*(record["numbers"][way] for way in WAYS), strict=True)
        for way, run in zip(WAYS, runs, strict=True)
    ]  # fmt: skip
    header = ["set", "share", "n", "classes", "steps", "evaluations", "passes", "median", "products", "seconds",
              "bound", "NLL"]  # fmt: skip
    return table(header, rows)
