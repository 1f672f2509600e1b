"""The safeguard of full-batch steps.

What it does for softmax with additive noise (GPCsm): the bound at each iteration. At a fixed kernel and 100 inducing
points, from the prior, three ways up: raw unit natural-gradient steps of the sites; the same, halved while they lower
the bound; and the library's, halved, too, but with the means of all classes moved by one Newton step and damped
precisions. Kernels: RBF with length scale sqrt(d) and variances of 2 and 20, k-means centres; and kernel and inducing
points of a fit of GPCsm in a few iterations.

A fall is a step that lowers the bound. In a 2-cycle the bound comes back every other step and not to the best. Near
is within a nat of the best bound of any way.
"""

import json
from functools import partial

import numpy as np
from internals import library_ascent, open_passes, prior_of, raw_ascent, site_of
from markdown_tables import table
from measure import timed_fit
from problems import load, split
from records import LIBRARY
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier

from . import THREADS, Part

DEPENDS, TIMED, SETS = LIBRARY, False, ("pendigits", "statlog-landsat")
OPTIONS = {"threads": THREADS}
QUICK = {"sets": ["iris"]}
N_INDUCING = 100
VARIANCES = (2, 20)
LEARNED = "learned"
# Of the optimizer, on so many rows; it is the kernel of a fit on its way.
LEARNING_ITERATIONS, LEARNING_ROWS = 10, 2000
ITERATIONS = 100
DRAWN = ("variance 20", LEARNED)
# Nats from the best bound that count as there.
NEAR = 1.0
# Last bounds that tell a cycle: neighbours differ by more than a nat, and ten times as much as every other one.
CYCLE_BOUNDS, CYCLE_NATS, CYCLE_RATIO = 10, 1.0, 10.0
WAYS = {"raw": raw_ascent, "halved": library_ascent, "library": library_ascent}


def priors(X, y, threads):
    """Kernels with inducing points, by name."""
    d = X.shape[1]
    Z = KMeans(min(N_INDUCING, len(X)), n_init=1, random_state=0).fit(X).cluster_centers_
    for variance in VARIANCES:
        yield f"variance {variance}", prior_of(ConstantKernel(variance) * RBF(np.sqrt(d)), Z)
    model = GPClassifier(
        likelihood="softmax", bound="additive-noise", n_inducing=N_INDUCING, max_iter=LEARNING_ITERATIONS,
        subset_sizes=[LEARNING_ROWS] if len(X) > LEARNING_ROWS else None, n_jobs=threads, random_state=0,
    )  # fmt: skip
    timed_fit(model, X, y)
    yield LEARNED, model.posterior_.prior


def climb(data, threads):
    """The curves of all ways at every kernel; so many numbers: thousandths of a nat are enough."""
    n_classes = int(data.y.max()) + 1
    y = data.y.astype(np.float64)
    settings = {}
    for setting, prior in priors(data.X, data.y, threads):
        ways = {}
        for way, ascent in WAYS.items():
            site = site_of("softmax", "additive-noise", n_classes, coupled=way != "halved")
            with open_passes(data.X, y, threads, classes=n_classes) as passes:
                ways[way] = ascent(passes, prior, site, ITERATIONS)
        settings[setting] = {"kernel": str(prior.spec.kernel), "ways": ways}
    return json.loads(json.dumps(settings), parse_float=lambda text: round(float(text), 3))


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(climb, split(problem, seed=0), options.threads), name, problem.hash)


def cycles(bounds):
    """Whether the last bounds go to and fro."""
    last = np.array(bounds[-CYCLE_BOUNDS:])
    to_and_fro = np.median(np.abs(np.diff(last)))
    every_other = np.median(np.abs(last[2:] - last[:-2]))
    return bool(to_and_fro > CYCLE_NATS and to_and_fro > CYCLE_RATIO * every_other)


def best_of(ways):
    return max(max(curve["bound"]) for curve in ways.values())


def summary(curve, best):
    """Number and largest of the falls, the last bound, what the end is, and the iterations that came near the best."""
    falls = np.maximum(-np.diff(curve["bound"]), 0.0)
    near = [i for i, bound in zip(curve["iteration"], curve["bound"], strict=True) if bound > best - NEAR]
    end = "2-cycle" if "converged" not in curve and cycles(curve["bound"]) else ""
    end = "converged" if curve.get("converged") else end
    largest = f"{falls.max():.1f}" if falls.any() else ""
    return [str(int(np.sum(falls > 0))), largest, f"{curve['bound'][-1]:.1f}", end, str(min(near, default="never"))]


def report(records):
    rows = [
        [name, setting, way, *summary(curve, best_of(found["ways"]))]
        for name, record in records.items()
        for setting, found in record["numbers"].items()
        for way, curve in found["ways"].items()
    ]
    return table(["set", "kernel", "way", "falls", "largest", "last bound", "end", "near after"], rows)


def draw(records, folder):
    """Nats below the best bound of any way, against iterations: a column for each set."""
    from matplotlib.figure import Figure

    labels = {"raw": "sites, unit steps", "halved": "sites, halved", "library": "library"}
    figure = Figure(figsize=(4.5 * len(records), 7), layout="constrained")
    axes = figure.subplots(len(DRAWN), len(records), sharex=True, squeeze=False)
    for column, (name, record) in zip(axes.T, records.items(), strict=True):
        for ax, setting in zip(column, DRAWN, strict=True):
            ways = record["numbers"][setting]["ways"]
            for way, label in labels.items():
                gap = np.maximum(best_of(ways) - np.array(ways[way]["bound"]), 0.1)
                ax.plot(ways[way]["iteration"], gap, ".-", linewidth=0.8, markersize=3, label=label)
            ax.set(title=f"{name}, {setting}", yscale="log", ylabel="nats below the best (.1 or less: there)")
        column[-1].set(xlabel="iterations")
    axes[0, 0].legend()
    figure.savefig(folder / "safeguard.png", dpi=100)
    return ["safeguard.png"]
