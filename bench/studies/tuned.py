"""xgpc and tuned boosted trees

LightGBM and CatBoost have the best of ten random configurations: the one with the lowest NLL of the tenth of the
training rows that also stops each of them. xgpc has its defaults, which were chosen on these sets. All have the same
rows: the first split of the study above, and at most 10 000 of its training rows. The ranges are those of TabArena
(Erickson et al., TabArena: A Living Benchmark for Machine Learning on Tabular Data, 2025), as `bench/studies/tuned.py`
lists them. A fit ends after 50 trees without gain; LightGBM has at most 10 000 trees, CatBoost, which takes longer, at
most 1000. Seconds are those of the whole search. Left out are cod-rna, for its size, and the sets "-in-time" and
"-kept-apart", whose rows are not in random order.
"""

import statistics
import time

import numpy as np
import problems
from measure import scores, spread
from methods import METHODS, make, warm_up
from records import OUTPUTS
from threadpoolctl import threadpool_limits

from . import method_parts
from .trees import STRONGEST, found_of, losses, scored, standings

MINUTES, EXPIRES = 30, {OUTPUTS}
SETS = (
    "diabetes-pima", "german-numer", "heart", "banana", "svmguide1", "susy", "twonorm", "waveform", "waveform-noise",
    "ringnorm", "electricity", "magic", "higgs", "covtype", "page-blocks", "bank-marketing", "a9a", "splice",
    "statlog-landsat", "wine-quality-white", "pendigits", "adult",
)  # fmt: skip
QUICK = ("breast-cancer", "table")
NAMES = ("xgpc", *STRONGEST)
CONFIGURATIONS, MOST_ROWS = 10, 10_000
# Ranges (low, high, whether even in the logarithm), of integers if the bounds are; lists of choices.
SPACES = {
    "lightgbm": {
        "learning_rate": (5e-3, 0.1, True), "colsample_bytree": (0.4, 1.0, False), "subsample": (0.7, 1.0, False),
        "subsample_freq": [1], "num_leaves": (2, 200, True), "min_child_samples": (1, 64, True),
        "extra_trees": [False, True], "min_data_per_group": (2, 100, True), "cat_l2": (5e-3, 2.0, True),
        "cat_smooth": (1e-3, 100.0, True), "max_cat_to_onehot": (8, 100, True), "reg_alpha": (1e-5, 1.0, True),
        "reg_lambda": (1e-5, 2.0, True),
    },
    "catboost": {
        "learning_rate": (5e-3, 0.1, True), "bootstrap_type": ["Bernoulli"], "subsample": (0.7, 1.0, False),
        "grow_policy": ["SymmetricTree", "Depthwise"], "depth": (4, 8, False), "colsample_bylevel": (0.85, 1.0, False),
        "l2_leaf_reg": (1e-4, 5.0, True), "leaf_estimation_iterations": (1, 20, True),
        "one_hot_max_size": (8, 100, True), "model_size_reg": (0.1, 1.5, True), "max_ctr_complexity": (2, 5, False),
        "boosting_type": ["Plain"], "max_bin": [254],
    },
}  # fmt: skip


def drawn(rng, bounds):
    """A value of a range or a list."""
    if isinstance(bounds, list):
        return bounds[rng.integers(len(bounds))]
    low, high, is_log = bounds
    half = 0.5 if isinstance(low, int) else 0.0
    ends = low - half, high + half
    value = float(np.exp(rng.uniform(*np.log(ends))) if is_log else rng.uniform(*ends))
    return round(value) if half else value


def candidates(name, data, configurations):
    """Fits with random settings: the NLL of the rows that stopped it, settings and model of each."""
    rng, part = np.random.default_rng(0), problems.hold_out(data.X, data.y)
    for _ in range(configurations):
        settings = {key: drawn(rng, bounds) for key, bounds in SPACES[name].items()}
        model = make(name, **settings).fit(data.X, data.y)
        yield scores(spread(model.predict_proba(part.X_test), data), part.y_test)["nll"], settings, model


def measure(folder, set_name, name, configurations):
    data = problems.draw(problems.load(folder, set_name), 0)[0]
    # They are in random order.
    data = data._replace(X=data.X[:MOST_ROWS], y=data.y[:MOST_ROWS])
    with threadpool_limits(2):
        warm_up(name)
        start = time.perf_counter()
        if name in SPACES:
            _, settings, model = min(candidates(name, data, configurations), key=lambda found: found[0])
        else:
            settings, model = {}, make(name).fit(data.X, data.y)
        spent = time.perf_counter() - start
        p = spread(model.predict_proba(data.X_test), data)
    return {"rows": len(data.y), "seconds": spent, "settings": settings, **scored(p, data.y_test)}


def parts(data, quick):
    sets, configurations = (QUICK, 2) if quick else (SETS, CONFIGURATIONS)
    return method_parts(measure, data, sets, NAMES, configurations)


def report(records):
    found = found_of(records)
    lost, times = (f"xgpc loses {losses(found)}.", []) if found else ("", [])
    for name in NAMES:
        spent = [numbers[name]["seconds"] for numbers in found.values() if "seconds" in numbers.get(name, {})]
        if spent:
            times.append(f"{METHODS[name].title} {statistics.median(spent):.0f} s ({len(spent)} sets)")
    times = f"Median times: {', '.join(times)}." if times else ""
    return "\n\n".join([standings(found, NAMES, f"{len(found)} sets"), f"{lost} {times}".strip()])
