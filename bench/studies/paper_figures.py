"""The figures of the X-GPC paper: likelihood and error against time, and against the number of inducing points.

Wenzel, Galy-Fajou, Donner, Kloft and Opper, AAAI 2019, figures 2, 4 and 5, on those of their sets that are public;
covtype, higgs and susy are samples of theirs, shuttle is class 0 against the rest. X-GPC and SVGPC are `xgpc.systems`
of these names, with the paper's kernel, one length scale and noise, and 100 inducing points; mini-batches of 100 rows,
and all rows at once on sets of 1000 rows or fewer. "xgpc" is `GPClassifier()` as it is, which chooses its inducing
points and may take neighbours. Each point is a fit of its own that was given so many seconds (`max_time`); a method has
no more points once a fit has converged. A tenth of the rows is for testing, one split; seconds are of training. The
paper shows the median of the rows' NLL, which the records have, too; here it is the mean. The dotted line is logistic
regression. Figure 3: the same with 16 to 128 inducing points on shuttle, each fit with the most seconds; "xgpc" has
that number of points and no neighbours.
"""

import time
from functools import partial

import numpy as np
from markdown_tables import set_table, table, tally
from measure import scores, timed_fit
from methods import method
from problems import load, split
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression

from xgpc import systems

from . import THREADS, Option, Part

DEPENDS, TIMED = LIBRARY, True
# The paper does not say in words which of the others are in figure 4.
FIGURES = {
    "figure 2": ("electricity", "cod-rna", "higgs"),
    "figures 4 and 5": ("a9a", "bank-marketing", "covtype"),
    "figures 4 and 5, continued": ("diabetes-pima", "german", "susy"),
}
SHUTTLE = "statlog-shuttle"
SETS = (*(name for names in FIGURES.values() for name in names), SHUTTLE)
OPTIONS = {
    "budgets": Option((0.3, 1.0, 3.0, 10.0), "seconds of the fits, increasing"),
    "inducing": Option((16, 32, 64, 128), "inducing points on shuttle"),
    "threads": THREADS,
}
QUICK = {"sets": ["breast-cancer"], "budgets": [0.1, 0.3]}
METHODS = ("X-GPC", "SVGPC", "xgpc")
SMALL = 1000
# Okabe and Ito's blue, orange and green, told apart with any colour vision; and by their markers in print.
STYLES = dict(zip(METHODS, (("#0072B2", "o"), ("#D55E00", "^"), ("#009E73", "s")), strict=True))


def estimator(name, data, threads, **settings):
    """A method by its name in the figures."""
    if name == "xgpc":
        return method("xgpc").make(threads, **settings)
    kernel = ConstantKernel() * RBF(data.X.shape[1] ** 0.5) + WhiteKernel()
    batches = {"batch_size": None} if len(data.y) <= SMALL else {}
    return method("xgpc").make(threads, kernel=kernel, **{**systems[name], **batches, **settings})


def found_of(model, data, seconds):
    probabilities = model.predict_proba(data.X_test)
    true = np.maximum(probabilities[np.arange(len(data.y_test)), data.y_test], 1e-15)
    return {"seconds": seconds, **scores(probabilities, data.y_test), "median": float(-np.median(np.log(true)))}


def point(name, data, threads, budget, **settings):
    model = estimator(name, data, threads, max_time=budget, **settings)
    return {**found_of(model, data, timed_fit(model, data.X, data.y)), "budget": budget, "converged": model.converged_}


def path(name, data, options):
    """Points of a method, until one has converged."""
    points = []
    for budget in options.budgets:
        points.append(point(name, data, options.threads, budget))
        if points[-1]["converged"]:
            break
    return points


def against_time(data, options):
    start = time.perf_counter()
    linear = LogisticRegression(max_iter=1000).fit(data.X, data.y)
    line = found_of(linear, data, time.perf_counter() - start)
    return {"rows": len(data.y), "linear": line, "paths": {name: path(name, data, options) for name in METHODS}}


def against_points(data, options):
    """Error and NLL by the number of inducing points."""
    fits = {
        name: [
            {"inducing": m, **point(name, data, options.threads, max(options.budgets), n_inducing=m, n_neighbors=0)}
            for m in options.inducing
        ]
        for name in METHODS
    }
    return {"rows": len(data.y), "fits": fits}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        data = split(problem._replace(y=np.minimum(problem.y, 1)), seed=0)
        measure = against_points if name == SHUTTLE else against_time
        yield Part(name, partial(measure, data, options), name, problem.hash)


def said_of(one):
    return f"{one['nll']:.4f}, {one['error']:.4f}, {one['seconds']:.1f} s"


def report(records):
    last = {name: record for name, record in records.items() if "paths" in record["numbers"]}
    header = ["NLL, error and seconds of the last point", *METHODS, "logistic regression"]

    def cells(numbers):
        return [*(said_of(numbers["paths"][name][-1]) for name in METHODS), said_of(numbers["linear"])]

    def pair(numbers):
        ours, *theirs = (numbers["paths"][name][-1]["nll"] for name in reversed(METHODS))
        return ours, min(theirs)

    text = set_table(header, last, [name for name in SETS if name != SHUTTLE], cells)
    text += "\n\n" + tally(last, pair, "xgpc's NLL", "that of the better of the paper's systems")
    fits = {name: record["numbers"]["fits"] for name, record in records.items() if "fits" in record["numbers"]}
    for name, found in fits.items():
        rows = [[str(fit[0]["inducing"]), *map(said_of, fit)] for fit in zip(*found.values(), strict=True)]
        text += "\n\n" + table([f"{name}: inducing points", *found], rows)
    return text


def draw(records, folder):
    """Pictures of the figures that there are records for."""
    pictures = {f"paper_figures_{number}.png": names for number, names in enumerate(FIGURES.values(), 1)}
    drawn = {}
    for picture, names in pictures.items():
        found = {name: records[name]["numbers"] for name in names if name in records}
        if found:
            drawn[picture] = time_figure(found)
    if SHUTTLE in records:
        drawn["paper_figures_inducing.png"] = points_figure(records[SHUTTLE]["numbers"]["fits"])
    for picture, figure in drawn.items():
        figure.savefig(folder / picture, dpi=150)
    return list(drawn)


def time_figure(found):
    """NLL above, error below, against seconds; a column for each set."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(3.4 * len(found), 5.2), layout="constrained")
    axes = figure.subplots(2, len(found), sharex="col", squeeze=False)
    for (above, below), (name, numbers) in zip(axes.T, found.items(), strict=True):
        for ax, score in ((above, "nll"), (below, "error")):
            for label, points in numbers["paths"].items():
                colour, marker = STYLES[label]
                ax.plot(
                    [one["seconds"] for one in points], [one[score] for one in points],
                    color=colour, marker=marker, markersize=5, label=label,
                )  # fmt: skip
            ax.axhline(numbers["linear"][score], color="0.4", linestyle=":", label="logistic regression")
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.grid(alpha=0.3)
        above.set_title(f"{name} ({numbers['rows']} rows)", fontsize=10)
        below.set_xlabel("training seconds")
    axes[0, 0].set_ylabel("test NLL, nats a row")
    axes[1, 0].set_ylabel("test error")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def points_figure(fits):
    """NLL and error against the number of inducing points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, score, title in zip(axes, ("nll", "error"), ("test NLL, nats a row", "test error"), strict=True):
        for label, points in fits.items():
            colour, marker = STYLES[label]
            m = [one["inducing"] for one in points]
            ax.plot(m, [one[score] for one in points], color=colour, marker=marker, markersize=5, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(m, [str(one) for one in m])
        ax.grid(alpha=0.3)
        ax.set(xlabel="inducing points", ylabel=title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
