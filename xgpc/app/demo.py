"""``xgpc demo``: a fit to real data beside a linear model and boosted trees, reported and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ..classifier import GPClassifier
from ..metrics import scores
from ..summary import aligned
from .output import check_output, output, score_rows

# Chosen by three other splits (random_state 100 to 102): mean NLL and error of 400 training rows are .148 and .046
# (.193 and .053 without neighbours), of boosted trees .293 and .074, of logistic regression .204 and .061; of 200 rows
# .261 and .076, .494 and .120, .333 and .083.
TRAINING_ROWS, N_NEIGHBORS = 400, 24
# In a single split chance decides which of the better two comes first.
SPLITS = 5
OURS = "GPClassifier"
PICTURE_FORMATS = ("png", "pdf", "svg")


def demo(arguments: argparse.Namespace) -> None:
    """Fit three models to several splits of the digits; print their mean scores, and draw those of the first split."""
    if Path(arguments.output).suffix.lower()[1:] not in PICTURE_FORMATS:
        raise ValueError(f"the picture {arguments.output!r} must end in a dot and one of {', '.join(PICTURE_FORMATS)}.")
    check_output(arguments.output)
    pixels, digits = load_digits(return_X_y=True)
    results: dict[str, list[dict[str, float]]] = {}
    # The first split is the last to be fitted, so that its models are there afterwards.
    for k in reversed(range(SPLITS)):
        X, X_test, y, y_test = train_test_split(
            pixels, digits, train_size=TRAINING_ROWS, stratify=digits, random_state=arguments.seed + k
        )
        models: dict[str, BaseEstimator] = {
            OURS: GPClassifier(n_neighbors=N_NEIGHBORS, random_state=arguments.seed, n_jobs=-1),
            "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            "boosted trees": HistGradientBoostingClassifier(random_state=arguments.seed),
        }
        for name, model in models.items():
            # The trees' threads wait for each other: .2 s in one, 26 s in two of which another process took one.
            with threadpool_limits(1, "openmp"):
                start = perf_counter()
                model.fit(X, y)
                spent = perf_counter() - start
                measured = scores(y_test, model.predict_proba(X_test), model.classes_) | {"seconds": spent}
            results.setdefault(name, []).append(measured)
    print(f"Data: ten digits of 8 x 8 pixels; {len(X)} training and {len(X_test)} test rows")
    print(f"GPClassifier(n_neighbors={N_NEIGHBORS}).summary(), first split", models[OURS].summary(), sep="\n")
    print(f"Scores of the test rows next to models of scikit-learn, means of {SPLITS} splits")
    means = [{key: float(np.mean([run[key] for run in runs])) for key in runs[0]} for runs in results.values()]
    columns = [dict(score_rows(mean)) | {"fit": f"{mean['seconds']:.2f} s"} for mean in means]
    lines = [("", *results), *((name, *(column[name] for column in columns)) for name in columns[0])]
    print(aligned([(name, "".join(f"{cell:<21}" for cell in cells).rstrip()) for name, *cells in lines]))
    try:
        from matplotlib.figure import Figure

        from ..plotting import ReliabilityDisplay
    except ImportError:
        print("No picture without matplotlib: pip install 'xgpc[plot]'")
        return
    figure = Figure(figsize=(13.0, 5.4), layout="constrained")
    halves = figure.subfigures(1, 2, squeeze=False)[0]
    calibration = halves[0].subplots()
    ReliabilityDisplay.from_estimator(models, X_test, y_test, ax=calibration)
    calibration.set_title(f"Calibration, {len(X_test)} test rows")
    halves[1].suptitle(f"The test rows that {OURS} is least sure of")
    probability = models[OURS].predict_proba(X_test)
    likeliest = np.argmax(probability, axis=1)
    unsure = np.argsort(np.max(probability, axis=1), kind="stable")
    for axes, i in zip(np.ravel(halves[1].subplots(3, 4)), unsure, strict=False):
        axes.imshow(X_test[i].reshape(8, 8), cmap="gray_r")
        axes.set_title(f"{y_test[i]}: P({likeliest[i]}) = {probability[i, likeliest[i]]:.2f}", fontsize="small")
        axes.set_axis_off()
    with output(arguments.output) as file:
        figure.savefig(file, format=Path(arguments.output).suffix.lower()[1:], dpi=150)
    print(f"Picture: {arguments.output}")
