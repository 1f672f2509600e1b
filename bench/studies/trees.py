"""xgpc, boosted trees, a random forest and logistic regression

All methods have their default parameters and two threads. A random tenth of the rows is for testing; sets with at most
8000 training rows are split five times, and their numbers are means over the test rows of all splits. LightGBM,
CatBoost and XGBoost use another tenth of the training rows to choose the number of trees. Half a vote is added to each
class of the random forest, so that no probability is 0. Tables with categories and missing values (titanic,
car-evaluation, telco-churn, student-dropout; adult and splice) are given to each library as its documentation
recommends; logistic regression has scaled features, means for missing numbers, and one column for each level. In sets
"-in-time", the last tenth of the time is for testing, boosted trees choose by the latest tenth before it, and xgpc has
`held_out_split=TimeSeriesSplit(5)`. In sets "-kept-apart", no test row equals a training row, and xgpc has `groups` of
equal rows. All data sets are public.

NLL is the mean negative log likelihood of the test rows. xgpc **wins** (W) if its NLL is lower than that of the other
method by more than two standard errors of the paired difference, **loses** (L) if it is higher by more than two, and
ties (=) otherwise; the errors are those of a mean over independent rows. "Calibrated" counts the sets on which the
expected calibration error exceeds that of a calibrated model with the same probabilities by at most two standard
deviations: the mean difference between the probability of the predicted class and the frequency with which this
prediction is right, in 15 bins.

Newer methods are measured on the sets on which no choice was made, with one thread and without times: the networks TabM
and RealMLP (pytabkit), xRFM, GPBoost's Gaussian process, which like xgpc has inducing points and neighbours
(`full_scale_vecchia`, iterative solvers, a Matérn kernel with a length scale for each feature; training rows are moved
by a thousandth of a deviation, as it takes no equal ones), and explainable boosting (InterpretML). They have the
defaults of their packages. The NLL of the tenth of the training rows that also stops trees stops the networks and
chooses the steps of xRFM, and RealMLP has no smoothed labels, as its documentation recommends for this measure. A set
is left out if its fits take more than two minutes of a processor each. Mean ranks are those on the sets that all
methods of a table have, of newer methods among those that have all sets.
"""

import base64
import statistics
import time
import zlib

import numpy as np
import problems
from markdown_tables import number, table
from measure import alone, calibration, is_calibrated, median_of, scores, spread, timed_fit
from methods import METHODS, THREADS, CannotFit, make, module, warm_up
from records import OUTPUTS, TIMES
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from . import by_set, method_parts

# Without the newer methods, whose packages have an environment of their own.
MINUTES, EXPIRES = 20, {OUTPUTS}
# Sets on which defaults were chosen, and sets on which no choice was made.
CHOSEN = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "ringnorm", "twonorm", "adult", "bank-marketing", "splice", "susy", "svmguide1", "waveform", "waveform-noise",
    "page-blocks", "statlog-landsat", "pendigits", "wine-quality-white", "electricity-in-time", "cod-rna-kept-apart",
    "bank-marketing-in-time", "a9a-kept-apart", "splice-kept-apart", "wine-quality-white-kept-apart",
)  # fmt: skip
UNSEEN = (
    "glass", "qsar-biodeg", "titanic", "car-evaluation", "telco-churn", "ozone-eighthr-in-time", "jm1",
    "student-dropout",
)  # fmt: skip
SETS = (*UNSEEN, *CHOSEN)
QUICK = ("breast-cancer", "wine", "table", "moons-in-time")
OTHERS = ("lightgbm", "catboost", "xgboost", "histogram", "forest", "logistic")
NAMES = ("xgpc", *OTHERS)
# Newer methods, measured on the sets on which no choice was made; processor seconds of a fit at most, as a mean.
NEWER = ("tabm", "realmlp", "xrfm", "gpboost", "explainable")
LONGEST_FIT = 120
# The strongest of the others by their mean rank.
STRONGEST = ("lightgbm", "catboost")
# Splits of sets with at most so many training rows; a single one has too few test rows to tell methods apart.
SPLITS, FEW_ROWS = 5, 8000
MANY_ROWS = 10_000
# Of a difference, in standard errors, within which chance could turn it.
CHANCE = 2.0
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
    return {**scores(p, y), "losses": packed(losses), "calibration": calibration(p, y)}


def fit(problem, name, seed, threads):
    """Sizes, times, probabilities (n, C) of the test rows and their labels."""
    data, settings, options = problems.draw(problem, seed)
    if name != "xgpc" and problem.name.endswith(problems.IN_TIME):
        # Boosted trees choose by the first tenth of their rows: with the last rows first, by the latest tenth.
        X = data.X[::-1]
        data = data._replace(X=X if hasattr(X, "iloc") else np.ascontiguousarray(X), y=data.y[::-1].copy())
    model = make(name, threads, **(settings if name == "xgpc" else {}))
    with threadpool_limits(threads):
        spent = timed_fit(model, data.X, data.y, **(options if name == "xgpc" else {}))
        start = time.perf_counter()
        p = model.predict_proba(data.X_test)
    found = {"rows": len(data.y), "features": data.X.shape[1], "classes": p.shape[1], "test_rows": len(p)}
    found |= {"seconds": spent, "prediction_seconds": time.perf_counter() - start}
    if name == "xgpc":
        found |= {"neighbours": model.n_neighbors_, "inducing": model.inducing_points_.shape[-2]}
    return found, spread(p, data), data.y_test


def seeds(problem, splits):
    """One for each split of a set."""
    has_one = problem.name.endswith((problems.IN_TIME, problems.KEPT_APART)) or 0.9 * len(problem.y) > FEW_ROWS
    return range(1 if has_one else splits)


def fits(problem, name, splits, threads):
    """Numbers of the fits to all splits, and their scores."""
    runs, p, y = zip(*(fit(problem, name, seed, threads) for seed in seeds(problem, splits)), strict=True)
    times = {key: median_of(runs, key) for key in TIMES}
    return {**runs[0], **times, "splits": len(runs), **scored(np.concatenate(p), np.concatenate(y))}


def measure(folder, set_name, name, splits):
    with threadpool_limits(THREADS):
        warm_up(name)
    return fits(problems.load(folder, set_name), name, splits, THREADS)


def untimed_fits(folder, set_name, name, splits):
    """As ``fits`` with one thread and without times; where the method cannot, why."""
    try:
        numbers = fits(problems.load(folder, set_name), name, splits, threads=1)
    except CannotFit as error:
        return {"not_run": str(error)}
    return {key: value for key, value in numbers.items() if key not in TIMES}


def measure_newer(folder, set_name, name, splits):
    """Scores of a newer method, or why there are none."""
    # The record has the versions of what is imported here.
    module(name)
    limit = LONGEST_FIT * len(seeds(problems.load(folder, set_name), splits))
    too_long = {"not_run": f"its fits take more than {LONGEST_FIT} seconds of a processor each"}
    return alone(untimed_fits, folder, set_name, name, splits, limit=limit) or too_long


def parts(data, quick):
    sets, unseen, splits = (QUICK, QUICK[:1], 2) if quick else (SETS, UNSEEN, SPLITS)
    newer = method_parts(measure_newer, data, unseen, NEWER, splits)
    return [*method_parts(measure, data, sets, NAMES, splits), *(part._replace(is_timed=False) for part in newer)]


def found_of(records):
    """Numbers by set and method, of the sets that xgpc was measured on and the methods that ran."""
    ran = {key: record for key, record in records.items() if "not_run" not in record["numbers"]}
    return {one: numbers for one, numbers in by_set(ran, SETS).items() if "xgpc" in numbers}


def left_out(records):
    """Sentences on the newer methods that did not run: on which sets, and why."""
    reasons = {}
    for one, numbers in by_set(records, SETS).items():
        for name in NEWER:
            if reason := numbers.get(name, {}).get("not_run"):
                reasons.setdefault((name, reason), []).append(one)
    return " ".join(
        f"{METHODS[name].title} did not run on {', '.join(sets)}: {reason}."
        for (name, reason), sets in sorted(reasons.items())
    )


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


def against(found, name):
    """Wins and losses against a method, as a part of a sentence."""
    wins, lost = (len(sets_with(found, name, letter)) for letter in "WL")
    return f"{wins} and {lost} against {METHODS[name].title}"


def losses(found):
    """The sets on which xgpc loses, and to which methods, as the end of a sentence that begins with "xgpc loses"."""
    lost = {data: [METHODS[name].title for name in OTHERS if data in sets_with(found, name, "L")] for data in found}
    return "; ".join(f"on {data} to {' and '.join(titles)}" for data, titles in lost.items() if titles) or "on no set"


def likelihood(one):
    """The NLL with its standard error."""
    return f"{number(one['nll'], 4)} ± {number(standard_error(unpacked(one['losses'])), 4)}"


def compared(numbers, name):
    """Another's NLL with xgpc's verdict."""
    if name not in numbers:
        return ""
    letter = verdict(numbers, name)
    return f"{number(numbers[name]['nll'], 4)} {'**L**' if letter == 'L' else letter}"


def lower(found, name):
    """On how many sets xgpc's NLL is lower, of how many."""
    gaps = [numbers["xgpc"]["nll"] - numbers[name]["nll"] for numbers in found.values() if name in numbers]
    return f"{sum(gap < 0 for gap in gaps)} of {len(gaps)}"


def mean_ranks(found, names):
    """Mean rank by NLL of each method, over the sets on which all were measured; nothing if these are few."""
    whole = [[numbers[name]["nll"] for name in names] for numbers in found.values() if set(names) <= set(numbers)]
    if not whole or 2 * len(whole) < len(found):
        return {}
    return dict(zip(names, np.mean([rankdata(nlls) for nlls in whole], axis=0), strict=True))


def calibrated(found, name):
    """On how many sets chance explains the calibration error, of how many."""
    errors = [one for numbers in found.values() if (one := numbers.get(name, {}).get("calibration"))]
    return f"{sum(is_calibrated(*one) for one in errors)} of {len(errors)}" if errors else ""


def standings(found, names, title, ranked=None):
    """A table of wins, losses, ties, mean ranks (among some of the methods, if these are given) and calibration."""
    ranks, rows = mean_ranks(found, ranked or names), []
    for name in names:
        counts = [lower(found, name), *(str(len(sets_with(found, name, letter))) for letter in "WL=")]
        rank = f"{ranks[name]:.2f}" if name in ranks else ""
        rows.append([METHODS[name].title, *(counts if name != "xgpc" else [""] * 4), rank, calibrated(found, name)])
    header = [title, "xgpc's NLL is lower on", "wins", "losses", "ties", "mean rank", "calibrated"]
    return table(header, rows if found else [])


def seconds(numbers, name):
    """Seconds of a fit, if they were measured on a quiet machine."""
    return number(numbers.get(name, {}).get("seconds"), 1)


def ratios(found):
    """How many times as long as LightGBM's xgpc's fits take."""
    times = [numbers["xgpc"]["seconds"] / numbers["lightgbm"]["seconds"] for numbers in found.values()
             if "seconds" in numbers["xgpc"] and "seconds" in numbers.get("lightgbm", {})
             and numbers["xgpc"]["rows"] >= MANY_ROWS]  # fmt: skip
    return times and (
        f"A fit of xgpc to {MANY_ROWS} or more rows takes {number(min(times), 2)} to {number(max(times), 1)} times as "
        f"long as one of LightGBM, median {number(statistics.median(times), 1)} ({len(times)} sets)."
    )


def halves(found):
    """The sets on which no choice was made, and those on which defaults were chosen: titles and numbers."""
    return {
        title: {key: numbers for key, numbers in found.items() if (key in UNSEEN) == is_unseen}
        for title, is_unseen in (("sets on which no choice was made", True), ("sets that chose the defaults", False))
    }


def wins_and_losses(found, names, title):
    """The table of standings, and a sentence on the losses."""
    return [standings(found, names, title), f"On these sets xgpc loses {losses(found)}."]


def verdicts(found):
    """Tables and sentences of both kinds of sets, without those of each set."""
    pieces = []
    for title, half in halves(found).items():
        if half:
            pieces += wins_and_losses(half, NAMES, f"{len(half)} {title}")
    if pieces and (times := ratios(found)):
        pieces[-1] += f" {times}"
    return pieces


def newer_with_scores(found):
    """How many sets a newer method was measured on, by method."""
    counts = {name: sum(name in numbers for numbers in found.values()) for name in NEWER}
    return {name: count for name, count in counts.items() if count}


def next_to_newer(found):
    """Wins and losses against newer methods, as a sentence; empty without records."""
    counts = [
        against(found, name) + (f" (measured on {count} of the {len(found)} sets)" if count < len(found) else "")
        for name, count in newer_with_scores(found).items()
    ]
    return counts and f"The wins and losses of xgpc on these sets next to newer methods are {', '.join(counts)}."


def newer(records):
    """Tables of the newer methods on the sets on which no choice was made, and where they did not run."""
    found, _ = halves(found_of(records)).values()
    if not (names := tuple(newer_with_scores(found))):
        return []
    rows = [
        [one, likelihood(numbers["xgpc"]), *(compared(numbers, name) for name in names)]
        for one, numbers in found.items()
    ]  # fmt: skip
    header = ["NLL: set", *(METHODS[name].title for name in ("xgpc", *names))]
    title, counts = f"{len(found)} sets, newer methods", newer_with_scores(found)
    ranked = ("xgpc", *(name for name in names if counts[name] == len(found)))
    return [standings(found, ("xgpc", *names), title, ranked), table(header, rows), left_out(records)]


def set_by_set(found, others):
    """A table of the NLL of xgpc and other methods, and of times of fits, by set."""
    rows = []
    for key, numbers in found.items():
        ours = numbers["xgpc"]
        sizes = f"{ours['rows']} x {ours['features']}, {ours['classes']}"
        times = [seconds(numbers, name) for name in ("xgpc", *STRONGEST)]
        rows.append([key, sizes, likelihood(ours), *(compared(numbers, name) for name in others), *times])
    titles, timed = ([METHODS[name].title for name in names] for names in (others, STRONGEST))
    header = ["NLL: set", "training rows x features, classes", "xgpc", *titles, "seconds: xgpc", *timed]
    return table(header, rows)


def report(records):
    found = found_of(records)
    return "\n\n".join([*verdicts(found), set_by_set(found, OTHERS), *newer(records)])
