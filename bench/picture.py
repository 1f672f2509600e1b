"""xgpc next to boosted trees, for the README: a picture of all sets, and what to count.

``python bench/report.py`` makes both from the records of the studies boosted and learning. The picture keeps the hash
of the numbers that it shows, so that a test finds one that is older than the records.
"""

import hashlib
import json
import textwrap

import numpy as np
import records
from studies import boosted, learning

PICTURE = records.ROOT / "docs" / "_static" / "next_to_trees.png"
STUDIES = ("boosted", "learning")
# Blue and orange of Okabe and Ito, as in xgpc.plotting: wins and losses; and ties.
COLOURS = {-1: "#0072B2", 1: "#D55E00", 0: "0.6"}
MARKERS = {"lightgbm": "o", "catboost": "D"}
# Rows of a call from which on its fixed costs, a millisecond, are a small part; and of a fit of more than a moment.
MANY, MANY_TO_FIT = 1000, 10_000
# Of a logarithmic axis, in each decade, the finest first; and the share of the axis that a label takes at most.
TICKS, LABEL_WIDTH = ((1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8), (1, 1.4, 2, 3, 5, 7), (1, 2, 5), (1,)), 0.1
KEY = "Records"


def comparison():
    """The records of the study by name, those with the best ratio to LightGBM's NLL first."""
    found = records.read("boosted")
    return dict(sorted(found.items(), key=lambda item: ratio(item[1]["numbers"], "lightgbm")))


def ratio(numbers, name):
    """xgpc's NLL divided by another's."""
    return numbers["xgpc"]["nll"] / numbers[name]["nll"]


def span(values, unit):
    """The median, with the least and the largest; nothing where there are none."""
    return f"{np.median(values):.2g} {unit} ({min(values):.2g} to {max(values):.2g})" if values else ""


def table(found):
    """Wins, losses, ties, and times, of each method."""
    lines = [
        "| | xgpc wins | loses | ties | a fit, median (range) | a predicted row |",
        "|---|---|---|---|---|---|",
    ]
    sets = [record["numbers"] for record in found.values()]
    for name in boosted.METHODS:
        counts = [""] * 3 if name == "xgpc" else [str(len(part)) for part in boosted.counts(found, name)]
        fits = [numbers[name]["seconds"] for numbers in sets if numbers["rows"] >= MANY_TO_FIT]
        asked = [1e6 * numbers[name]["prediction_seconds"] / numbers["test_rows"]
                 for numbers in sets if numbers["test_rows"] >= MANY]  # fmt: skip
        lines.append(f"| {' | '.join([boosted.TITLES[name], *counts, span(fits, 's'), span(asked, 'µs')])} |")
    return "\n".join(lines)


def next_to_gaussian_processes():
    """A sentence on the SVGP of other libraries, empty if there are no records."""
    pairs = [learning.compared(record["numbers"]) for record in records.read("learning").values()]
    seconds_of = [(pair["seconds"]["others"], pair["seconds"]["xgpc"]) for pair in pairs if pair]
    ratios = [theirs / ours for theirs, ours in seconds_of if ours is not None]
    if not ratios:
        return ""
    return (
        f"Next to the SVGP of GPyTorch and GPflow, all with 100 inducing points, it comes within "
        f"{learning.MARGINS[0]} nats of the best test likelihood of the better one on {len(ratios)} of "
        f"{len(seconds_of)} sets, {min(ratios):.1f} to {max(ratios):.0f} times as fast "
        f"(median {np.median(ratios):.0f}); on the others it ends higher. "
    )


def measured():
    """When, and at which commits, the numbers were measured; and whether other processes were in the way."""
    found = [record for study in STUDIES for record in records.read(study).values()]
    dates = sorted({record["date"][:10] for record in found})
    commits = sorted({record["commit"][:7] for record in found if record["commit"]})
    busy = any(not (record["others"] or 0.0) <= records.BUSY_CORES for record in found)
    when = dates[0] if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
    text = f"Measured {when}, at commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"
    return text + (", while other processes took a part of the machine." if busy else ".")


def summary(found):
    """The README's table and sentences."""
    if not found:
        return "Not measured."
    lost = {name: boosted.counts(found, name)[1] for name in boosted.TREES}
    losses = "; ".join(f"to {boosted.TITLES[name]} on {', '.join(sets)}" for name, sets in lost.items() if sets)
    missing = [name for name in boosted.SETS if name not in found]
    text = (
        f"{len(found)} data sets at all defaults, trees stopped early on a tenth of the training rows, two threads "
        "each (`n_jobs=2`) on two cores, one split. xgpc wins where its negative log likelihood of the test rows is "
        "lower by more than two standard errors of the paired difference, loses where it is higher by as much, and "
        f"ties otherwise. Losses: {losses or 'none'}. Seconds are those of sets of {MANY_TO_FIT} rows or more. "
        + (f"Not measured: {', '.join(missing)}. " if missing else "") + next_to_gaussian_processes() + measured()
    )  # fmt: skip
    return f"{table(found)}\n\n{textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)}"


def ticks(low, high):
    """Numbers on a logarithmic axis, as many as their labels have room for."""
    for steps in TICKS:
        every = np.array([step * 10.0**power for power in range(-4, 4) for step in steps])
        inside = every[(every >= low) & (every <= high)]
        if np.min(np.diff(np.log10(every))) >= LABEL_WIDTH * np.log10(high / low):
            break
    return inside


def digest(found):
    numbers = {name: record["numbers"] for name, record in found.items()}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


def draw(found, path):
    """Ratios of the NLLs, a line for each set and a mark for each method, with two standard errors; the figure."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(7.6, 1.6 + 0.17 * len(found)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1.0, color="0.35", linewidth=1.0)
    for place, record in enumerate(found.values()):
        for shift, name in zip((-0.18, 0.18), boosted.TREES, strict=True):
            numbers = record["numbers"]
            spread = boosted.CHANCE * numbers[name]["error_of_gap"] / numbers[name]["nll"]
            axes.errorbar(
                ratio(numbers, name), place + shift, xerr=min(spread, 0.9 * ratio(numbers, name)), fmt=MARKERS[name],
                color=COLOURS[boosted.verdict(numbers, name)], markersize=4.0, linewidth=1.0,
            )  # fmt: skip
    axes.set(
        xscale="log", ylim=(len(found) - 0.4, -0.6), yticks=range(len(found)),
        xlabel="xgpc's negative log likelihood on test rows, divided by the trees', with two standard errors",
        title="Lower is better: wins blue, losses orange, ties grey",
    )  # fmt: skip
    axes.set_yticklabels(list(found), fontsize=7.5)
    axes.xaxis.set_major_locator(FixedLocator(ticks(*axes.get_xlim())))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x", color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], marker=MARKERS[name], color="0.3", linestyle="") for name in boosted.TREES]
    axes.legend(handles, [f"next to {boosted.TITLES[name]}" for name in boosted.TREES], loc="upper right", fontsize=8)
    figure.savefig(path, dpi=110, metadata={KEY: digest(found), "Software": None})
    return figure
