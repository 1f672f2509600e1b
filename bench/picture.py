"""Draw xgpc next to LightGBM on every data set that both were measured on, and count.

``python bench/report.py`` does so from the records of bench/results/. The picture keeps the hash of the numbers that it
shows, so that a test finds one that is older than the records.
"""

import hashlib
import json
import textwrap

import numpy as np
import records
from studies import learning

PICTURE = records.ROOT / "docs" / "_static" / "next_to_lightgbm.png"
# All defaults of xgpc, two classes and several.
STUDIES = ("neighbours", "several_classes")
# Blue and orange of Okabe and Ito, as in xgpc.plotting; and for sets on which chance could turn the order.
LOWER, HIGHER, UNSURE = "#0072B2", "#D55E00", "0.6"
# Of a difference, in standard errors, within which chance could turn it.
CHANCE = 2.0
# Rows of a call from which on its fixed costs, a millisecond, are a small part.
MANY = 1000
# Rows of a set whose fits are of more than a moment.
MANY_TO_FIT = 10_000
KEY = "Records"


def comparison():
    """A list of (set, xgpc's mean NLL, LightGBM's, standard error of the difference or None), best ratio first."""
    found = []
    for study in STUDIES:
        for name, record in records.read(study).items():
            runs = record["numbers"].get("runs")
            if record["set"] is None or not runs:
                continue
            ours, theirs = (np.array([run[method]["nll"] for run in runs]) for method in ("xgpc", "lightgbm"))
            error = float(np.std(ours - theirs, ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else None
            found.append((name, float(np.mean(ours)), float(np.mean(theirs)), error))
    return sorted(found, key=lambda one: one[1] / one[2])


def is_unsure(ours, theirs, error):
    """Whether chance could turn the order; of a single split nobody knows."""
    return error is None or abs(ours - theirs) < CHANCE * error


def two_class_sets():
    """The records of sets of two classes."""
    return [record["numbers"] for record in records.read("neighbours").values() if record["set"]]


def seconds(method):
    """The least, median and largest time of a fit, of sets of so many rows or more; medians over their splits."""
    large = [numbers["runs"] for numbers in two_class_sets() if numbers["rows"] >= MANY_TO_FIT]
    times = [np.median([run[method]["seconds"] for run in runs]) for runs in large]
    return f"{min(times):.1f} to {max(times):.0f} s (median {np.median(times):.1f} s)"


def microseconds(method, with_neighbours=None):
    """The least and the largest time of a prediction, microseconds a row, in calls of so many rows or more."""
    runs = [run for numbers in two_class_sets() for run in numbers["runs"] if sum(run["xgpc"]["bins"][0]) >= MANY]
    chosen = [run for run in runs if with_neighbours in (None, run["xgpc"]["neighbours"] > 0)]
    times = [1e6 * run[method]["prediction_seconds"] / sum(run["xgpc"]["bins"][0]) for run in chosen]
    return f"{min(times):.1f} to {max(times):.0f} µs"


def next_to_gaussian_processes():
    """A sentence on the SVGP of other libraries, empty if there are no records."""
    pairs = [learning.compared(record["numbers"]) for record in records.read("learning").values()]
    seconds_of = [(pair["seconds"]["others"], pair["seconds"]["xgpc"]) for pair in pairs if pair]
    ratios = [theirs / ours for theirs, ours in seconds_of if ours is not None]
    if not ratios:
        return ""
    return (
        f" Next to the SVGP of GPyTorch and GPflow, all with 100 inducing points, it comes within "
        f"{learning.MARGINS[0]} nats of the best test likelihood of the better one on {len(ratios)} of "
        f"{len(seconds_of)} sets, {min(ratios):.1f} to {max(ratios):.0f} times as fast "
        f"(median {np.median(ratios):.0f}), and not on the others."
    )


def summary(found):
    """The README's sentences."""
    if not found:
        return "Not measured."
    higher = [name for name, ours, theirs, _ in found if ours > theirs]
    unsure = [name for name, *numbers in found if is_unsure(*numbers)]
    text = (
        f"With all defaults, the mean negative log likelihood of xgpc's probabilities of test rows is lower than that "
        f"of LightGBM, which stops early, in **{len(found) - len(higher)} of {len(found)}** comparisons, and higher on "
        f"{', '.join(reversed(higher))}. {len(unsure)} of the dots are grey: measured on a single split, or a "
        f"difference of less than two standard errors. Fits of two classes and {MANY_TO_FIT} rows or more take "
        f"{seconds('xgpc')} on two cores, and LightGBM {seconds('lightgbm')}. A prediction takes "
        f"{microseconds('xgpc', False)} a row without neighbours, {microseconds('xgpc', True)} with them, and "
        f"{microseconds('lightgbm')} by LightGBM, in calls of {MANY} rows or more."
    )
    return textwrap.fill(text + next_to_gaussian_processes(), 120, break_long_words=False, break_on_hyphens=False)


def digest(found):
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def draw(found, path):
    """Ratios of the NLLs, a line for each set."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1.0, color="0.35", linewidth=1.0)
    for place, (_, ours, theirs, error) in enumerate(found):
        colour = UNSURE if is_unsure(ours, theirs, error) else LOWER if ours < theirs else HIGHER
        axes.plot([1.0, ours / theirs], [place, place], color=colour, linewidth=1.0, alpha=0.5)
        spread = None if error is None else error / theirs
        axes.errorbar(
            ours / theirs, place, xerr=spread, fmt="o", color=colour, markersize=4.5, capsize=2.0, linewidth=1.2
        )
    lower = sum(ours <= theirs for _, ours, theirs, _ in found)
    axes.set(
        xscale="log", ylim=(len(found) - 0.4, -0.6), yticks=range(len(found)),
        xlabel="xgpc's negative log likelihood on test rows, divided by LightGBM's",
        title=f"Better probabilities than LightGBM in {lower} of {len(found)} comparisons, all defaults",
    )  # fmt: skip
    axes.set_yticklabels([name for name, *_ in found], fontsize=7.5)
    ticks = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x", color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.text(0.02, 0.02, "xgpc is better", color=LOWER, transform=axes.transAxes)
    axes.text(0.98, 0.98, "LightGBM is better", color=HIGHER, transform=axes.transAxes, ha="right", va="top")
    figure.savefig(path, dpi=110, metadata={KEY: digest(found), "Software": None})
