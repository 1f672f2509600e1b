"""xgpc, boosted trees, a random forest and logistic regression

All methods have their default parameters and two threads. A random tenth of the rows is for testing; sets with at most
8000 training rows are split five times, and their numbers are means over the test rows of all splits. LightGBM,
CatBoost and XGBoost use another tenth of the training rows to choose the number of trees. Half a vote is added to each
class of the random forest, so that no probability is 0. Logistic regression has scaled features, and one column for
each level of a category. Adult and splice are tables with categories. In sets "-in-time", the last tenth of the time is
for testing, boosted trees choose by the latest tenth before it, and xgpc has `held_out_split=TimeSeriesSplit(5)`. In
sets "-kept-apart", no test row equals a training row, and xgpc has `groups` of equal rows. All data sets are public.
The defaults of xgpc were chosen on these sets.

NLL is the mean negative log likelihood of the test rows, here with its standard error. xgpc **wins** (W) if its NLL is
lower than that of the other method by more than two standard errors of the paired difference, **loses** (L) if its NLL
is higher by more than two standard errors, and ties (=) otherwise. Standard errors are those of a mean over independent
rows. **Bold** differences to the better of LightGBM and CatBoost exceed the margin: one standard error more than the
larger of 5 % and .01 nats.

The expected calibration errors are those of [calibration](#calibration-of-xgpc-trees-and-a-logistic-regression), with
the error that a calibrated model with the same probabilities would have, and its standard deviation; **bold** ones
exceed it by more than two standard deviations.
"""

import base64
import statistics
import time
import zlib

import numpy as np
import problems
from markdown_tables import number, table
from measure import median_of, scores, spread, timed_fit
from methods import METHODS, make, warm_up
from records import OUTPUTS
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from . import by_set, method_parts
from .calibration import binned, calibration, cell, is_calibrated

MINUTES, EXPIRES = 20, {OUTPUTS}
SETS = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "ringnorm", "twonorm", "adult", "bank-marketing", "splice", "susy", "svmguide1", "waveform", "waveform-noise",
    "page-blocks", "statlog-landsat", "pendigits", "wine-quality-white", "electricity-in-time", "cod-rna-kept-apart",
    "bank-marketing-in-time", "a9a-kept-apart", "splice-kept-apart", "wine-quality-white-kept-apart",
)  # fmt: skip
QUICK = ("breast-cancer", "wine", "table", "moons-in-time")
OTHERS = ("lightgbm", "catboost", "xgboost", "histogram", "forest", "logistic")
NAMES = ("xgpc", *OTHERS)
# The strongest of the others by their mean rank.
STRONGEST = ("lightgbm", "catboost")
# Splits of sets with at most so many training rows; a single one has too few test rows to tell methods apart.
SPLITS, FEW_ROWS = 5, 8000
MANY_ROWS = 10_000
# Of a difference, in standard errors, within which chance could turn it.
CHANCE = 2.0
# Of the NLL of the better of the strongest, a share and nats: a user would notice a greater difference.
SHARE, NATS = 0.05, 0.01
# Steps of the root of a row's negative log likelihood in its stored byte.
STEPS = 43.0


def packed(losses):
    """Negative log likelihoods of rows (n,) as a text of about half a byte a row; they are below 35."""
    codes = np.round(STEPS * np.sqrt(losses)).astype(np.uint8)
    return base64.b64encode(zlib.compress(codes.tobytes(), 9)).decode()


def unpacked(text):
    return (np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8) / STEPS) ** 2


def scored(p, y):
    """NLL, error and calibration of probabilities (n, C) at labels, and the losses of the rows."""
    losses = -np.log(np.maximum(p[np.arange(len(p)), y], 1e-15))
    return {**scores(p, y), "losses": packed(losses), "calibration": calibration([{"bins": binned(p, y)}])}


def fit(problem, name, seed):
    """Sizes, times, probabilities (n, C) of the test rows and their labels."""
    data, settings, options = problems.draw(problem, seed)
    if name != "xgpc" and problem.name.endswith(problems.IN_TIME):
        # Boosted trees choose by the first tenth of their rows: with the last rows first, by the latest tenth.
        data = data._replace(X=np.ascontiguousarray(data.X[::-1]), y=data.y[::-1])
    model = make(name, **(settings if name == "xgpc" else {}))
    with threadpool_limits(2):
        spent = timed_fit(model, data.X, data.y, **(options if name == "xgpc" else {}))
        start = time.perf_counter()
        p = model.predict_proba(data.X_test)
    found = {"rows": len(data.y), "features": data.X.shape[1], "classes": p.shape[1], "test_rows": len(p)}
    found |= {"seconds": spent, "prediction_seconds": time.perf_counter() - start}
    if name == "xgpc":
        found |= {"neighbours": model.n_neighbors_, "inducing": model.inducing_points_.shape[-2]}
    return found, spread(p, data), data.y_test


def measure(folder, set_name, name, splits):
    problem = problems.load(folder, set_name)
    has_one = set_name.endswith((problems.IN_TIME, problems.KEPT_APART)) or 0.9 * len(problem.y) > FEW_ROWS
    with threadpool_limits(2):
        warm_up(name)
    runs, p, y = zip(*(fit(problem, name, seed) for seed in range(1 if has_one else splits)), strict=True)
    times = {key: median_of(runs, key) for key in ("seconds", "prediction_seconds")}
    return {**runs[0], **times, "splits": len(runs), **scored(np.concatenate(p), np.concatenate(y))}


def parts(data, quick):
    sets, splits = (QUICK, 2) if quick else (SETS, SPLITS)
    return method_parts(measure, data, sets, NAMES, splits)


def found_of(records):
    """Numbers by set and method, of the sets that xgpc was measured on."""
    return {one: numbers for one, numbers in by_set(records, SETS).items() if "xgpc" in numbers}


def standard_error(losses):
    return float(np.std(losses, ddof=1) / np.sqrt(len(losses)))


def difference(numbers, name):
    """xgpc's NLL less another's, and the standard error of that paired difference."""
    gaps = unpacked(numbers["xgpc"]["losses"]) - unpacked(numbers[name]["losses"])
    return numbers["xgpc"]["nll"] - numbers[name]["nll"], standard_error(gaps)


def verdict(numbers, name):
    """ "W" if xgpc's NLL is lower by more than chance, "L" if it is higher, "=" for a tie."""
    gap, error = difference(numbers, name)
    return "=" if abs(gap) <= CHANCE * error else "W" if gap < 0 else "L"


def sets_with(found, name, letter):
    """Names of the sets on which that is the verdict."""
    return [key for key, numbers in found.items() if name in numbers and verdict(numbers, name) == letter]


def losses(found):
    """The sets on which xgpc loses, by method, as the end of a sentence that begins with "xgpc loses"."""
    lost = {METHODS[name].title: sets_with(found, name, "L") for name in OTHERS}
    return "; ".join(f"to {title} on {', '.join(sets)}" for title, sets in lost.items() if sets) or "on no set"


def likelihood(one):
    """The NLL with its standard error."""
    return f"{number(one['nll'], 4)} ± {number(standard_error(unpacked(one['losses'])), 4)}"


def compared(numbers, name):
    if name not in numbers:
        return ""
    letter = verdict(numbers, name)
    return f"{likelihood(numbers[name])} {'**L**' if letter == 'L' else letter}"


def lower(found, name):
    """On how many sets xgpc's NLL is lower, of how many."""
    gaps = [numbers["xgpc"]["nll"] - numbers[name]["nll"] for numbers in found.values() if name in numbers]
    return f"{sum(gap < 0 for gap in gaps)} of {len(gaps)}"


def counts(found, names):
    """A table of wins, losses and ties."""
    rows = [
        [METHODS[name].title, lower(found, name), *(str(len(sets_with(found, name, letter))) for letter in "WL=")]
        for name in names
    ]  # fmt: skip
    return table(["xgpc against", "lower NLL on", "wins", "losses", "ties"], rows)


def mean_ranks(found):
    """A table of the mean ranks by NLL, of sets on which all were measured."""
    whole = [numbers for numbers in found.values() if set(NAMES) <= set(numbers)]
    columns = {
        "two classes": [numbers for numbers in whole if numbers["xgpc"]["classes"] == 2],
        "several classes": [numbers for numbers in whole if numbers["xgpc"]["classes"] > 2],
        "all": whole,
    }
    ranks = [
        np.mean([rankdata([numbers[name]["nll"] for name in NAMES]) for numbers in chosen], axis=0)
        for chosen in columns.values() if chosen
    ]  # fmt: skip
    header = ["mean rank by NLL", *(f"{title} ({len(chosen)} sets)" for title, chosen in columns.items() if chosen)]
    return table(header, [[METHODS[name].title, *(f"{rank[j]:.2f}" for rank in ranks)] for j, name in enumerate(NAMES)]
                 if whole else [])  # fmt: skip


def above(found):
    """A table of the sets on which xgpc's NLL is above that of the better of the strongest."""
    rows = []
    for key, numbers in found.items():
        best = min((name for name in STRONGEST if name in numbers), key=lambda name: numbers[name]["nll"], default=None)
        if best is None or (gap := difference(numbers, best))[0] <= 0:
            continue
        theirs = numbers[best]["nll"]
        margin = max(SHARE * theirs, NATS) + gap[1]
        text = f"{gap[0]:.4f} ± {gap[1]:.4f}, {100 * gap[0] / theirs:.1f} %"
        rows.append([key, METHODS[best].title, f"**{text}**" if gap[0] > margin else text, f"{margin:.4f}"])
    titles = " and ".join(METHODS[name].title for name in STRONGEST)
    return table([f"xgpc above the better of {titles}", "the better", "NLL above it", "margin"], rows)


def calibrations(found):
    """A table of calibration errors, and on how many sets chance explains them."""
    names = ("xgpc", *STRONGEST)
    measured = {
        key: {name: one for name in names if (one := numbers.get(name, {}).get("calibration"))}
        for key, numbers in found.items()
    }  # fmt: skip
    rows = [[key, *(cell(*one[name]) if name in one else "" for name in names)] for key, one in measured.items() if one]
    explained = []
    for name in names:
        within = [is_calibrated(*one[name]) for one in measured.values() if name in one]
        explained.append(f"{sum(within)} of {len(within)}")
    counts = ["**within two standard deviations, sets**", *explained]
    return table(["calibration error: set", *(METHODS[name].title for name in names)], [*rows, counts] if rows else [])


def ratios(found):
    """How many times as long as LightGBM's xgpc's fits take."""
    times = [numbers["xgpc"]["seconds"] / numbers["lightgbm"]["seconds"] for numbers in found.values()
             if "lightgbm" in numbers and numbers["xgpc"]["rows"] >= MANY_ROWS]  # fmt: skip
    if not times:
        return ""
    return (
        f"A fit of xgpc to {MANY_ROWS} or more rows takes {number(min(times), 2)} to {number(max(times), 1)} times as "
        f"long as one of LightGBM, median {number(statistics.median(times), 1)}."
    )


def report(records):
    found = found_of(records)
    titles = [METHODS[name].title for name in NAMES]
    nlls, others = [], []
    for key, numbers in found.items():
        ours = numbers["xgpc"]
        sizes = f"{ours['rows']} x {ours['features']}, {ours['classes']}"
        cells = [compared(numbers, name) for name in OTHERS]
        nlls.append([key, sizes, str(ours["neighbours"]), likelihood(ours), *cells])
        pairs = [f"{100 * one['error']:.1f}, {one['seconds']:.1f} s" if (one := numbers.get(name)) else ""
                 for name in NAMES]  # fmt: skip
        others.append([key, *pairs])
    return "\n\n".join([
        counts(found, OTHERS), f"xgpc loses {losses(found)}.",
        mean_ranks(found), above(found),
        table(["NLL: set", "training rows x features, classes", "neighbours", *titles], nlls), calibrations(found),
        table(["error in %, seconds of the fit: set", *titles], others), ratios(found),
    ])  # fmt: skip
