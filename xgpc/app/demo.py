"""A fit to real data beside a linear model and boosted trees, reported and drawn: ``xgpc demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ..classifier import GPClassifier
from ..metrics import scores
from ..summary import Rows, aligned
from .report import score_rows

# Odd and even digits are not linear in the pixels. Chosen by four other splits (random_state 100 to 103): mean NLL and
# error of 400 training rows are .100 and .037 (.132 and .051 without neighbours), of boosted trees .121 and .041, of
# logistic regression .25 and .097; of 1000 rows .048 and .018, .048 and .018, .23 and .085.
TRAINING_ROWS, N_NEIGHBORS = 400, 24
# Of a single split chance decides which of the better two comes first.
SPLITS = 5
OURS, LINEAR, TREES = "GPClassifier", "logistic regression", "boosted trees"
# Characters of a column of scores, and the images in the picture.
WIDTH, IMAGES = 21, (3, 4)


@dataclass(frozen=True)
class Demo:
    """Models fitted to the first split, by name, with its test rows; and the scores of all splits.

    Attributes
    ----------
    models : dict of name to classifier
    X_test : (n, 64) array of pixels
    y_test : (n,) "even" or "odd"
    digits : (n,) 0 to 9
    found : dict of name to a list with the scores, and the seconds of the fit, of each split
    """

    models: dict[str, Any]
    X_test: Any
    y_test: np.ndarray
    digits: np.ndarray
    found: dict[str, list[dict[str, float]]]

    def score_rows(self) -> Rows:
        """Means over the splits, a column for each model."""
        means = [{key: float(np.mean([one[key] for one in runs])) for key in runs[0]} for runs in self.found.values()]
        columns = [dict(score_rows(mean)) | {"fit": f"{mean['seconds']:.2f} s"} for mean in means]
        lines = [("", *self.found), *((name, *(one[name] for one in columns)) for name in columns[0])]
        return [(name, "".join(f"{value:<{WIDTH}}" for value in values).rstrip()) for name, *values in lines]

    def report(self) -> str:
        """Data, model and scores as aligned text."""
        return "\n".join(
            [
                f"Data: digits of 8 x 8 pixels, even or odd; {TRAINING_ROWS} training and {len(self.y_test)} test rows",
                f"GPClassifier(n_neighbors={N_NEIGHBORS}).summary(), first split",
                self.models[OURS].summary(),
                f"Scores of the test rows next to models of scikit-learn, means of {len(self.found[OURS])} splits",
                aligned(self.score_rows()),
            ]
        )

    def draw(self, file: Path | BinaryIO, file_format: str) -> None:
        """Write the picture: calibration of the models, and the test rows that ours is least sure of."""
        from matplotlib.figure import Figure

        from ..plotting import ReliabilityDisplay

        figure = Figure(figsize=(13.0, 5.4), layout="constrained")
        halves: Any = figure.subfigures(1, 2)
        left, right = halves
        calibration = left.subplots()
        ReliabilityDisplay.from_estimator(dict(self.models), self.X_test, self.y_test, ax=calibration)
        calibration.set_title(f"Calibration, {len(self.y_test)} test rows")
        probability = self.models[OURS].predict_proba(self.X_test)[:, 1]
        pixels, unsure = self.X_test, np.argsort(np.abs(probability - 0.5), kind="stable")
        right.suptitle(f"The test rows that {OURS} is least sure of")
        for axes, i in zip(np.ravel(right.subplots(*IMAGES)), unsure, strict=False):
            axes.imshow(pixels[i].reshape(8, 8), cmap="gray_r")
            axes.set_title(f"{self.digits[i]}: P(odd) = {probability[i]:.2f}", fontsize="small")
            axes.set_axis_off()
        figure.savefig(file, format=file_format, dpi=150)


def run(seed: int) -> Demo:
    """Fit the demonstration; ``seed`` decides on the splits and the starts of the fits."""
    data = load_digits()
    odd = np.where(data.target % 2, "odd", "even")
    found: dict[str, list[dict[str, float]]] = {OURS: [], LINEAR: [], TREES: []}
    for k in range(SPLITS):
        X, X_test, y, y_test, _, digits = train_test_split(
            data.data, odd, data.target, train_size=TRAINING_ROWS, stratify=data.target, random_state=seed + k
        )
        models: dict[str, Any] = {
            OURS: GPClassifier(n_neighbors=N_NEIGHBORS, random_state=seed, n_jobs=-1),
            LINEAR: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            TREES: HistGradientBoostingClassifier(random_state=seed),
        }
        for name, model in models.items():
            start = perf_counter()
            # The trees' threads wait for each other: .2 s in one, 26 s in two of which another process took one.
            with threadpool_limits(1, "openmp"):
                model.fit(X, y)
            spent = perf_counter() - start
            with np.errstate(divide="ignore"):
                log_proba = np.log(model.predict_proba(X_test))
            found[name].append({**scores(y_test == model.classes_[1], log_proba), "seconds": spent})
        if k == 0:
            first = models, X_test, y_test, digits
    return Demo(*first, found)
