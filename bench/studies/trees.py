"""xgpc, boosted trees and a random forest

All methods have their default parameters and two threads. A random tenth of the rows is for testing. LightGBM, CatBoost
and XGBoost use another tenth of the training rows to choose the number of trees. Half a vote is added to each class of
the random forest, so that no probability is 0. Adult and splice are tables with categories. In sets "-in-time", the
last tenth of the time is for testing, and xgpc has `query_split=TimeSeriesSplit(5)`. In sets "-kept-apart", no test row
equals a training row, and xgpc has `groups` of equal rows. All data sets are public. The defaults of xgpc were chosen
on these sets.

NLL is the mean negative log likelihood of the test rows. xgpc **wins** (W) if its NLL is lower than that of the other
method by more than two standard errors of the paired difference, **loses** (L) if its NLL is higher by more than two
standard errors, and ties (=) otherwise.
"""

import base64
import time
import zlib

import numpy as np
import problems
from markdown_tables import number, table
from measure import scores, spread, timed_fit
from methods import METHODS, make, warm_up
from records import OUTPUTS
from threadpoolctl import threadpool_limits

from . import by_set, method_parts

MINUTES, EXPIRES = 14, {OUTPUTS}
SETS = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "ringnorm", "twonorm", "adult", "bank-marketing", "splice", "susy", "svmguide1", "waveform", "waveform-noise",
    "page-blocks", "statlog-landsat", "pendigits", "wine-quality-white", "electricity-in-time", "cod-rna-kept-apart",
    "bank-marketing-in-time", "a9a-kept-apart", "splice-kept-apart", "wine-quality-white-kept-apart",
)  # fmt: skip
QUICK = ("breast-cancer", "wine", "table", "moons-in-time")
TREES = ("lightgbm", "catboost", "xgboost", "histogram", "forest")
NAMES = ("xgpc", *TREES)
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


def measure(folder, set_name, name):
    data, settings, options = problems.draw(problems.load(folder, set_name), 0)
    model = make(name, **(settings if name == "xgpc" else {}))
    with threadpool_limits(2):
        warm_up(name)
        spent = timed_fit(model, data.X, data.y, **(options if name == "xgpc" else {}))
        start = time.perf_counter()
        p = model.predict_proba(data.X_test)
    found = {"rows": len(data.y), "features": data.X.shape[1], "classes": p.shape[1], "test_rows": len(p)}
    found |= {"seconds": spent, "prediction_seconds": time.perf_counter() - start}
    p = spread(p, data)
    losses = -np.log(np.maximum(p[np.arange(len(p)), data.y_test], 1e-15))
    found |= {**scores(p, data.y_test), "losses": packed(losses)}
    if name == "xgpc":
        found |= {"neighbours": model.n_neighbors_, "inducing": model.inducing_points_.shape[-2]}
    return found


def parts(data, quick):
    return method_parts(measure, data, QUICK if quick else SETS, NAMES)


def found_of(records):
    """Numbers by set and method, of the sets that xgpc was measured on."""
    return {one: numbers for one, numbers in by_set(records, SETS).items() if "xgpc" in numbers}


def difference(numbers, name):
    """xgpc's NLL less another's, and the standard error of that paired difference."""
    gaps = unpacked(numbers["xgpc"]["losses"]) - unpacked(numbers[name]["losses"])
    return numbers["xgpc"]["nll"] - numbers[name]["nll"], float(np.std(gaps, ddof=1) / np.sqrt(len(gaps)))


def verdict(numbers, name):
    """ "W" if xgpc's NLL is lower by more than chance, "L" if it is higher, "=" for a tie."""
    gap, error = difference(numbers, name)
    return "=" if abs(gap) <= CHANCE * error else "W" if gap < 0 else "L"


def sets_with(found, name, letter):
    """Names of the sets on which that is the verdict."""
    return [key for key, numbers in found.items() if name in numbers and verdict(numbers, name) == letter]


def losses(found):
    """The sets on which xgpc loses, by method, as the end of a sentence that begins with "xgpc loses"."""
    lost = {METHODS[name].title: sets_with(found, name, "L") for name in TREES}
    return "; ".join(f"to {title} on {', '.join(sets)}" for title, sets in lost.items() if sets) or "on no set"


def compared(numbers, name):
    if name not in numbers:
        return ""
    letter = verdict(numbers, name)
    return f"{number(numbers[name]['nll'], 4)} {'**L**' if letter == 'L' else letter}"


def report(records):
    found = found_of(records)
    titles = [METHODS[name].title for name in NAMES]
    counts = [
        [METHODS[name].title, *(str(len(sets_with(found, name, letter))) for letter in "WL=")] for name in TREES
    ]  # fmt: skip
    nlls, others = [], []
    for key, numbers in found.items():
        ours = numbers["xgpc"]
        sizes = f"{ours['rows']} x {ours['features']}, {ours['classes']}"
        cells = [compared(numbers, name) for name in TREES]
        nlls.append([key, sizes, str(ours["neighbours"]), number(ours["nll"], 4), *cells])
        pairs = [f"{100 * one['error']:.1f}, {one['seconds']:.1f} s" if (one := numbers.get(name)) else ""
                 for name in NAMES]  # fmt: skip
        others.append([key, *pairs])
    return "\n\n".join([
        table(["xgpc against", "wins", "losses", "ties"], counts), f"xgpc loses {losses(found)}.",
        table(["NLL: set", "training rows x features, classes", "neighbours", *titles], nlls),
        table(["error in %, seconds of the fit: set", *titles], others),
    ])  # fmt: skip
