"""An ensemble of AutoGluon with xgpc

AutoGluon fits xgpc, LightGBM, CatBoost, a random forest and a linear model to at most 3000 training rows of each set,
eight folds of each model one after the other, with one thread. It then chooses the weights of the models in its
ensemble by the log loss of the held-out rows of the folds. The time limit is for all models together. The goal is
that AutoGluon ends within it, and that xgpc has a weight above 0 on at least three of the five sets. NLL is the mean
negative log likelihood of the test rows, of the ensemble, of an ensemble of the same fits without those of xgpc, and of
xgpc alone.
"""

import tempfile
import time
from functools import partial

import numpy as np
import problems
from markdown_tables import number, table
from measure import scores
from records import OUTPUTS, VERSION

from . import Part

MINUTES, EXPIRES = 13, {OUTPUTS, VERSION}
SETS = ("adult", "electricity", "magic", "statlog-landsat", "waveform")
# Training rows, seconds for all models, and folds.
ROWS, LIMIT, FOLDS = 3000, 180, 8
# Where other processes work, LightGBM with two threads took 20 times as long as with one, and left no time for others.
THREADS = 1
MOST_TEST_ROWS = 5000
OTHERS = {"GBM": {}, "CAT": {}, "RF": {}, "LR": {}}
TITLES = {"XGPC": "xgpc", "LightGBM": "LightGBM", "CatBoost": "CatBoost", "RandomForest": "random forest",
          "LinearModel": "linear"}  # fmt: skip
LABEL = "class"


def as_frame(X, y):
    import pandas as pd

    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])
    return frame.assign(**{LABEL: y})


def nll(predictor, test, name):
    """The score of a model; classes are 0, ..., C - 1."""
    p = predictor.predict_proba(test, model=name)
    return scores(p[sorted(p.columns)].to_numpy(), test[LABEL].to_numpy())["nll"]


def weights(predictor, name):
    """Weights of the models in an ensemble, by the beginnings of their names."""
    folds = predictor.info()["model_info"][name]["children_info"]
    found = dict.fromkeys(TITLES, 0.0)
    for fold in folds.values():
        for model, weight in fold["model_weights"].items():
            found[model.removesuffix("_BAG_L1")] += weight / len(folds)
    return found


def measure(folder, set_name, rows, limit, folds):
    from autogluon.tabular import TabularPredictor

    from xgpc.autogluon import XGPCModel

    # Where AutoGluon puts the model once it is registered; it fits other classes last.
    order = {"ag_args": {"priority": XGPCModel.ag_priority}}

    data = problems.draw(problems.load(folder, set_name), 0)[0]
    train = as_frame(data.X, data.y).iloc[:rows]
    test = as_frame(data.X_test, data.y_test).iloc[:MOST_TEST_ROWS]
    with tempfile.TemporaryDirectory() as path:
        predictor = TabularPredictor(LABEL, eval_metric="log_loss", path=path, verbosity=0)
        start = time.perf_counter()
        predictor.fit(
            train, hyperparameters={XGPCModel: order, **OTHERS}, time_limit=limit, num_bag_folds=folds, num_bag_sets=1,
            num_stack_levels=0, dynamic_stacking=False, num_cpus=THREADS, num_gpus=0,
            ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},
        )  # fmt: skip
        spent = time.perf_counter() - start
        names = predictor.model_names()
        single = {name: name.removesuffix("_BAG_L1") for name in names if name.endswith("_BAG_L1")}
        fits = predictor.leaderboard().set_index("model")["fit_time"]
        (without,) = predictor.fit_weighted_ensemble(
            base_models=[name for name, title in single.items() if title != "XGPC"], name_suffix="WithoutXGPC"
        )  # fmt: skip
        return {
            "rows": len(train), "features": data.X.shape[1], "classes": len(np.unique(train[LABEL])), "limit": limit,
            "seconds": spent, "weights": weights(predictor, "WeightedEnsemble_L2"),
            "fit_seconds": {title: float(fits[name]) for name, title in single.items()},
            "nll": {
                "ensemble": nll(predictor, test, "WeightedEnsemble_L2"), "without": nll(predictor, test, without),
                **{title: nll(predictor, test, name) for name, title in single.items()},
            },
        }  # fmt: skip


def parts(data, quick):
    sets, sizes = (("breast-cancer",), (200, 60, 2)) if quick else (SETS, (ROWS, LIMIT, FOLDS))
    of = ("xgpc", "autogluon", "lightgbm", "catboost")
    return [Part(one, partial(measure, data, one, *sizes), one, of) for one in sets]


def report(records):
    rows = []
    for one, record in records.items():
        found = record["numbers"]
        scored = [number(found["nll"][name], 4) if name in found["nll"] else ""
                  for name in ("ensemble", "without", "XGPC")]  # fmt: skip
        rows.append([
            one, f"{found['rows']} x {found['features']}, {found['classes']}",
            f"{found['seconds']:.0f} s of {found['limit']} s", f"{found['fit_seconds'].get('XGPC', 0.0):.0f} s",
            *(f"{weight:.2f}" for weight in found["weights"].values()), *scored,
        ])  # fmt: skip
    weights_of = [f"weight of {title}" for title in TITLES.values()]
    header = ["set", "training rows x features, classes", "time", "of it xgpc", *weights_of]
    return table([*header, "NLL", "NLL without xgpc", "NLL of xgpc"], rows)
