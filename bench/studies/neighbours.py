"""Neighbours, next to boosted trees.

All defaults of xgpc; the same without neighbours (with 32 inducing points on more than 20 000 rows, where more take
minutes); LightGBM, which stops at the number of trees that is best on a tenth of the training rows;
scikit-learn's HistGradientBoosting at its defaults. A tenth of the rows is for testing. "Kept apart" means: of
electricity the last tenth of time, with query rows after those that they are predicted from
(`query_split=TimeSeriesSplit(5)`), once; of the other sets no row is equal to one of the training rows
(`groups`). Means over the splits, differences with their standard errors, and the expected calibration error of
all test rows in 15 bins, with what a calibrated model would score.
"""

import time
from functools import partial

import numpy as np
from markdown_tables import set_table, tally
from measure import mean_of, median_of, peak_memory, scores, timed_fit
from methods import method
from problems import BINARY, Problem, Split, load, split, standardised
from records import LIBRARY
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupShuffleSplit, TimeSeriesSplit

from . import THREADS, Option, Part

# Names of sets whose splits keep near copies apart.
IN_TIME, KEPT_APART = "-in-time", "-kept-apart"
APART = (f"electricity{IN_TIME}", f"cod-rna{KEPT_APART}", "skin_nonskin", f"skin_nonskin{KEPT_APART}")
# The checkerboard, the time that more rows of it take, and what fewer iterations come to in less time.
BOARD, GROWTH, PATH = "checkerboard", "rows", "iterations"
# Two classes, and not among those that other studies have.
OTHERS = (
    "twonorm", "a8a", "adult", "bank-marketing", "german", "ijcnn1", "splice", "susy", "svmguide1", "waveform-raetsch"
)  # fmt: skip
TABLED = (*BINARY, *OTHERS, *APART)
DEPENDS, TIMED, SETS = LIBRARY, True, (*TABLED, BOARD, GROWTH, PATH)
OPTIONS = {
    "splits": Option(5, "splits of each set"), "threads": THREADS,
    "most_rows": Option(1_000_000, "of the checkerboard"),
}  # fmt: skip
QUICK = {"sets": ["breast-cancer", "rows"], "splits": 2, "most_rows": 10_000}
BINS = 15
MANY_ROWS = 20_000
# Pixels of the checkerboard's edge in its picture.
GRID = 96
ITERATIONS, PATH_SET = (2, 4, 8, 15), "electricity"
ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
PICTURED = (("without", "32 inducing points"), ("with", "and 24 neighbours"))
METHODS = ("xgpc", "without", "lightgbm", "histogram")


def prepared(problem, seed):
    """A split, and the parameters of a fit and of ``fit`` that say how it was made."""
    if problem.name.endswith(IN_TIME):
        order, size = np.arange(len(problem.X)), len(problem.X) // 10
        return standardised(problem.X, problem.y, order[:-size], order[-size:]), {"query_split": TimeSeriesSplit(5)}, {}
    if problem.name.endswith(KEPT_APART):
        _, groups = np.unique(problem.X, axis=0, return_inverse=True)
        groups = groups.ravel()
        train, test = next(GroupShuffleSplit(1, test_size=0.1, random_state=seed).split(problem.X, groups=groups))
        train = np.random.default_rng(seed).permutation(train)
        return standardised(problem.X, problem.y, train, test), {}, {"groups": groups[train]}
    return split(problem, seed), {}, {}


class Grouped:
    """A model whose ``fit`` is told of groups."""

    def __init__(self, model, options):
        self.model, self.options = model, options

    def fit(self, X, y):
        self.model.fit(X, y, **self.options)


def binned(probability, y):
    """Sums over test rows in each bin of p: of rows, of p, of y, of p (1 - p)."""
    bins = np.minimum((BINS * probability).astype(int), BINS - 1)
    sums = (np.ones(len(y)), probability, y, probability * (1 - probability))
    return [np.bincount(bins, values, minlength=BINS).tolist() for values in sums]


def result(model, fit, data):
    spent = timed_fit(fit, data.X, data.y)
    start = time.perf_counter()
    probabilities = model.predict_proba(data.X_test)
    asked = time.perf_counter() - start
    found = scores(probabilities, data.y_test)
    return {"seconds": spent, "prediction_seconds": asked, **found, "bins": binned(probabilities[:, 1], data.y_test)}


def one_split(problem, seed, threads):
    data, settings, options = prepared(problem, seed)
    found = {"split": seed}
    model = method("xgpc").make(threads, **settings)
    found["xgpc"] = result(model, Grouped(model, options), data)
    found["xgpc"].update(neighbours=model.n_neighbors_, m=len(model.inducing_points_), kernel=str(model.kernel_)[:200])
    m = {"n_inducing": 32} if len(data.y) > MANY_ROWS else {}
    model = method("xgpc").make(threads, n_neighbors=0, **m)
    found["without"] = result(model, model, data)
    model = method("lightgbm").make(threads)
    found["lightgbm"] = result(model, model, data)
    model = HistGradientBoostingClassifier(random_state=0)
    found["histogram"] = result(model, model, data)
    return found


def measure(problem, splits, threads):
    if problem.name.endswith(IN_TIME):
        splits = 1
    return {"rows": len(problem.y), "runs": [one_split(problem, seed, threads) for seed in range(splits)]}


def checkerboard(rows, seed):
    """Labels of the fields of a checkerboard of 8 x 8, one in twenty of them wrong."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 8, (rows, 2))
    y = np.sum(np.floor(X), axis=1) % 2 != (rng.uniform(size=rows) < 0.05)
    return X, y.astype(int)


def board(options):
    """Probabilities on a grid, and scores, of 32 inducing points without neighbours and with them."""
    data = Split(*checkerboard(4000, 0), *checkerboard(20_000, 1))
    axis = (np.arange(GRID) + 0.5) * 8 / GRID
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    found = {}
    for name, settings in (("without", {"n_neighbors": 0, "n_inducing": 32}), ("with", {})):
        model = method("xgpc").make(options.threads, **settings)
        found[name] = result(model, model, data)
        found[name]["grid"] = np.round(model.predict_proba(grid)[:, 1], 4).tolist()
    return found


def growing(options):
    """Seconds and gigabytes of fits with neighbours to more and more rows of the checkerboard."""
    points = []
    for rows in (rows for rows in ROWS if rows <= options.most_rows):
        model = method("xgpc").make(options.threads, n_neighbors=24, n_inducing=32)
        points.append({"rows": rows, "seconds": timed_fit(model, *checkerboard(rows, 0)), "gigabytes": peak_memory()})
    return {"points": points}


def fewer_iterations(options):
    """Seconds and NLL of fits with neighbours that may take so many iterations a round, on split 0."""
    data, points = split(load(options.data, PATH_SET), 0), []
    for most in ITERATIONS:
        model = method("xgpc").make(options.threads, max_iter=most)
        found = result(model, model, data)
        points.append({"max_iter": most, **{name: found[name] for name in ("seconds", "prediction_seconds", "nll")}})
    return {"points": points}


MADE_HERE = {BOARD: board, GROWTH: growing, PATH: fewer_iterations}


def parts(options):
    # The first fits of a process pay for imports and threads.
    measure(load(None, "breast-cancer"), 1, options.threads)
    for name in options.sets:
        if name in MADE_HERE:
            yield Part(name, partial(MADE_HERE[name], options))
            continue
        problem = load(options.data, name.removesuffix(IN_TIME).removesuffix(KEPT_APART))
        problem = Problem(name, problem.X, problem.y)
        yield Part(name, partial(measure, problem, options.splits, options.threads), name, problem.hash)


def calibration(runs, name):
    """Expected calibration error of all test rows, and mean and deviation of what a calibrated model scores."""
    rows, probability, frequency, variance = np.sum([run[name]["bins"] for run in runs], axis=0)
    gap, deviation = probability - frequency, np.sqrt(variance)
    expected, spread = np.sqrt(2 / np.pi) * np.sum(deviation), np.sqrt((1 - 2 / np.pi) * np.sum(variance))
    return np.sum(np.abs(gap)) / np.sum(rows), expected / np.sum(rows), spread / np.sum(rows)


def difference(runs, name):
    """xgpc's NLL less that of another, with its standard error over the splits."""
    gaps = np.array([run["xgpc"]["nll"] - run[name]["nll"] for run in runs])
    error = f" ± {np.std(gaps, ddof=1) / np.sqrt(len(gaps)):.4f}" if len(gaps) > 1 else ""
    return f"{np.mean(gaps):+.4f}{error}"


def cells(numbers):
    runs = numbers["runs"]
    ours = [run["xgpc"] for run in runs]
    taken = sum(run["neighbours"] > 0 for run in ours)
    error, expected, spread = calibration(runs, "xgpc")
    return [
        str(numbers["rows"]), f"{taken} of {len(runs)}",
        *(f"{mean_of([run[name] for run in runs], 'nll'):.4f}" for name in METHODS),
        difference(runs, "without"), difference(runs, "lightgbm"),
        f"{mean_of(ours, 'error'):.4f}", f"{mean_of([run['lightgbm'] for run in runs], 'error'):.4f}",
        f"{error:.4f} ({expected:.4f} ± {spread:.4f})",
        *(f"{median_of([run[name] for run in runs], 'seconds'):.1f} s" for name in ("xgpc", "without", "lightgbm")),
    ]  # fmt: skip


def report(records):
    header = [
        "set", "rows", "neighbours taken", "NLL", "without", "LightGBM's", "HistGradientBoosting's",
        "less without's", "less LightGBM's", "error", "LightGBM's", "calibration error", "fit", "without",
        "LightGBM's",
    ]  # fmt: skip

    sets = {name: record for name, record in records.items() if name not in MADE_HERE}

    def means(name, numbers):
        return tuple(mean_of([run[one] for run in numbers["runs"]], "nll") for one in ("xgpc", name))

    tallies = (
        tally(sets, partial(means, name), "xgpc's NLL", text)
        for name, text in (("without", "that without neighbours"), ("lightgbm", "LightGBM's"))
    )
    text = set_table(header, sets, TABLED, cells) + "\n\n" + " ".join(tallies)
    if BOARD in records:
        found = records[BOARD]["numbers"]
        text += (
            f"\n\nA checkerboard of 8 x 8 fields, 4000 rows, one label in twenty wrong: NLL "
            f"{found['without']['nll']:.3f} with 32 inducing points alone, {found['with']['nll']:.3f} with neighbours, "
            f"{-0.05 * np.log(0.05) - 0.95 * np.log(0.95):.3f} by who knows the fields."
        )
    if GROWTH in records:
        found = (
            f"{point['seconds']:.1f} s and {point['gigabytes']:.1f} GB for {point['rows']} rows"
            for point in records[GROWTH]["numbers"]["points"]
        )
        text += f"\n\nFits of such boards with neighbours, and the most memory until then: {', '.join(found)}."
    if PATH in records:
        found = (
            f"{point['nll']:.3f} after {point['seconds']:.1f} s ({point['max_iter']})"
            for point in records[PATH]["numbers"]["points"]
        )
        text += f"\n\nNLL on {PATH_SET}, split 0, of fits with fewer iterations (`max_iter`): {', '.join(found)}."
    return text


def draw(records, folder):
    """The checkerboard without and with neighbours, and calibration on electricity."""
    from matplotlib.figure import Figure

    if BOARD not in records:
        return []
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    *boards, axes = figure.subplots(1, 3)
    for board_axes, (name, title) in zip(boards, PICTURED, strict=True):
        numbers = records[BOARD]["numbers"][name]
        grid = np.reshape(numbers["grid"], (GRID, GRID))
        board_axes.imshow(grid, origin="lower", extent=(0, 8, 0, 8), vmin=0, vmax=1, cmap="RdBu")
        board_axes.set_title(f"{title}: NLL {numbers['nll']:.3f}", fontsize=9)
    axes.plot([0, 1], [0, 1], color="0.7", lw=1)
    runs = records["electricity"]["numbers"]["runs"] if "electricity" in records else []
    for name, label in (*(("xgpc" if n == "with" else n, t) for n, t in PICTURED), ("lightgbm", "LightGBM")):
        if runs:
            rows, probability, frequency, _ = np.sum([run[name]["bins"] for run in runs], axis=0)
            used = rows > 0
            axes.plot(probability[used] / rows[used], frequency[used] / rows[used], marker=".", lw=1, label=label)
    axes.set_title("calibration, electricity", fontsize=9)
    axes.set(xlabel="probability", ylabel="frequency")
    axes.legend(fontsize=8)
    figure.savefig(folder / "neighbours.png", dpi=110)
    if GROWTH not in records:
        return ["neighbours.png"]
    points = records[GROWTH]["numbers"]["points"]
    rows, seconds = np.array([(point["rows"], point["seconds"]) for point in points]).T
    axes = Figure(figsize=(5, 3.4), layout="constrained").subplots()
    axes.loglog(rows, seconds, ".-", label="fit with 24 neighbours")
    axes.loglog(rows, seconds[-1] * rows / rows[-1], ":", color="0.5", label="linear")
    axes.set(xlabel="rows", ylabel="seconds")
    axes.legend(fontsize=8)
    axes.figure.savefig(folder / "neighbours_rows.png", dpi=100)
    return ["neighbours.png", "neighbours_rows.png"]
