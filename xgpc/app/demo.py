"""``xgpc demo``: a fit to real data beside a linear model and boosted trees, printed and on a page."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
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

from ..acquisition import mutual_information
from ..classifier import GPClassifier
from ..metrics import scores
from ..report import LISTED, other_predictions, report
from ..summary import aligned, score_rows
from .output import check_output, output

# Chosen by three other splits (random_state 100 to 102): mean NLL and error of 400 training rows are .148 and .046
# (.193 and .053 without neighbours), of boosted trees .293 and .074, of logistic regression .204 and .061; of 200 rows
# .261 and .076, .494 and .120, .333 and .083.
TRAINING_ROWS, N_NEIGHBORS = 400, 24
# In a single split chance decides which of the better two comes first.
SPLITS = 5
OURS = f"xgpc, {N_NEIGHBORS} neighbours"


def demo(arguments: argparse.Namespace) -> None:
    """Fit three models to several splits of the digits; print their scores, and write a page on the first split."""
    check_output(arguments.html)
    # A data frame has names of the pixels, which are pixel_ROW_COLUMN.
    pixels, digits = load_digits(return_X_y=True, as_frame=find_spec("pandas") is not None)
    results: dict[str, list[dict[str, float]]] = {}
    # The first split is the last to be fitted, so that its models are there afterwards.
    for k in reversed(range(SPLITS)):
        X, X_test, y, y_test = train_test_split(
            pixels, np.asarray(digits), train_size=TRAINING_ROWS, stratify=digits, random_state=arguments.seed + k
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
    print(f"Ten digits of 8 x 8 pixels: {len(X)} training and {len(X_test)} test rows, means of {SPLITS} splits")
    means = [{key: float(np.mean([run[key] for run in runs])) for key in runs[0]} for runs in results.values()]
    columns = [dict(score_rows(mean, len(model.classes_))) | {"fit": f"{mean['seconds']:.2f} s"} for mean in means]
    lines = [("", *results), *((name, *(column[name] for column in columns)) for name in columns[0])]
    print(aligned([(name, "".join(f"{cell:<21}" for cell in cells).rstrip()) for name, *cells in lines]))
    ours = models.pop(OURS)
    log_p = ours.predict_log_proba(X_test)
    top, is_wrong = np.max(np.exp(log_p), axis=1), ours.classes_[np.argmax(log_p, axis=1)] != y_test
    order = np.argsort(top, kind="stable")
    # Of the latent value of the predicted digit.
    deviation = np.sqrt(ours.predict_latent(X_test)[1][np.arange(len(top)), np.argmax(log_p, axis=1)])
    next_rows = np.argsort(-mutual_information(ours, X_test), kind="stable")[:5]
    print(f"GPClassifier(n_neighbors={N_NEIGHBORS}) in the first split:")
    print(f"- Probabilities: {np.mean(~is_wrong):.1%} of the predictions are right; it expected {np.mean(top):.1%}.")
    share = f"{np.sum(is_wrong[order[: len(order) // 10]])} of {np.sum(is_wrong)} mistakes"
    print(f"- Uncertainty: {share} are in the tenth of the rows that the model is least sure of.")
    wrong, right = np.mean(deviation[is_wrong]), np.mean(deviation[~is_wrong])
    print(f"- Latent values of its predictions are known to +- {wrong:.1f} where it is wrong, {right:.1f} elsewhere.")
    print(f"- Where to measure next: labels of the test rows {', '.join(map(str, next_rows))} would tell it most.")
    print("- Neighbours are set by hand here; the default keeps them only if held-out rows gain by them.")
    others = other_predictions(ours, X_test, models)
    page = report(ours, X_test, log_p, y_test, others, _drawn(np.asarray(X_test), y_test, order, ours, log_p))
    with output(arguments.html) as file:
        file.write(page.encode())
    print(f"Page with pictures, for a browser: {arguments.html}")


def _drawn(X: np.ndarray, y: np.ndarray, order: np.ndarray, model: BaseEstimator, log_p: np.ndarray) -> str:
    """A section with pictures of the first rows of an order, and what the model predicts."""
    pictures = []
    for i in order[:LISTED]:
        best = int(np.argmax(log_p[i]))
        squares = "".join(
            f'<path d="M{j % 8} {j // 8}h1v1h-1z" fill-opacity="{value / 16.0:g}"/>'
            for j, value in enumerate(X[i])
            if value
        )
        text = f"{y[i]}: P({model.classes_[best]}) = {np.exp(log_p[i, best]):.2f}"
        pictures.append(
            '<figure style="display: inline-block; margin: .5em; text-align: center">'
            f'<svg viewBox="0 0 8 8" style="width: 6em">{squares}</svg><figcaption>{text}</figcaption></figure>'
        )
    return (
        f"<section><h2>Digits that it is least sure of (first of {SPLITS} splits)</h2><p>The data are scikit-learn's "
        "digits of 8 x 8 pixels. Pixels without names are numbered row by row: feature 21 is in row 2, column 5, both "
        f"from 0.</p>{''.join(pictures)}</section>"
    )
