"""A fit to real data, reported and drawn: ``xgpc demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from ..classifier import GPClassifier
from ..metrics import scores
from .report import Rows, aligned, kernel_rows, length_scales, score_rows

TEST_SHARE = 0.4
# More change the bound of these 341 rows by less than a nat.
N_INDUCING = 64
# Of the model of two features, few enough to be told apart in its picture.
N_INDUCING_DRAWN = 16


@dataclass(frozen=True)
class Demo:
    """A fitted model with the data it was fitted to and tested on; labels are the names of the classes."""

    model: GPClassifier
    names: list[str]
    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    seconds: float

    @property
    def spread(self) -> np.ndarray:
        """Standard deviations (d,) of the features."""
        return np.std(self.X_train, axis=0)

    def test_scores(self) -> dict[str, float]:
        """Scores of the probabilities of the test rows."""
        return scores(self.y_test == self.model.classes_[1], self.model.predict_log_proba(self.X_test))

    def report(self) -> str:
        """Data, model and scores as aligned text."""
        n_train, n_test, d = len(self.y_train), len(self.y_test), len(self.names)
        y = np.concatenate([self.y_train, self.y_test])
        shares = [f"{name} {np.mean(y == name):.1%}" for name in self.model.classes_]
        data: Rows = [
            ("rows", f"{n_train + n_test} ({n_train} train, {n_test} test)"),
            ("features", str(d)),
            ("classes", ", ".join(shares)),
        ]
        model: Rows = [
            *kernel_rows(self.model.kernel_, self.names, self.spread),
            ("inducing points", str(len(self.model.inducing_points_))),
            ("bound (ELBO)", f"{self.model.elbo_:.2f} nats, {self.model.elbo_ / n_train:.4f} per row"),
            ("fit", f"{self.seconds:.2f} s"),
        ]
        blocks = {
            "Data: breast cancer (Wisconsin, diagnostic), malignant or benign": data,
            "Model: Gaussian process classifier": model,
            "Scores of the test rows": score_rows(self.test_scores()),
        }
        return "\n".join(f"{title}\n{aligned(rows)}" for title, rows in blocks.items())

    def draw(self, file: Path | BinaryIO, file_format: str) -> None:
        """Write the picture: a reliability diagram, and a model of the two most relevant features."""
        from matplotlib.figure import Figure

        from ..plotting import decision_contours, reliability_diagram

        figure = Figure(figsize=(13.0, 5.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        positive = self.model.classes_[1]
        reliability_diagram(self.y_test == positive, self.model.predict_proba(self.X_test)[:, 1], ax=left)
        left.set(
            title=f"Calibration, {len(self.y_test)} test rows, {len(self.names)} features",
            xlabel=f"Predicted probability of {positive}",
            ylabel=f"Observed frequency of {positive}, 95 % interval",
        )
        pair = np.argsort(length_scales(self.model.kernel_, self.spread), kind="stable")[:2]
        X = self.X_train[:, pair]
        plane = GPClassifier(n_inducing=N_INDUCING_DRAWN, random_state=self.model.random_state).fit(X, self.y_train)
        decision_contours(plane, X, self.y_train, ax=right)
        x_name, y_name = (self.names[k].capitalize() for k in pair)
        right.set(title="A model of the two most relevant features, training rows", xlabel=x_name, ylabel=y_name)
        figure.savefig(file, format=file_format, dpi=150)


def run(seed: int) -> Demo:
    """Fit the demonstration; ``seed`` decides on the split and the start of the fit."""
    data = load_breast_cancer()
    labels = data.target_names[data.target]
    X_train, X_test, y_train, y_test = train_test_split(
        data.data, labels, test_size=TEST_SHARE, stratify=labels, random_state=seed
    )
    start = perf_counter()
    model = GPClassifier(n_inducing=N_INDUCING, random_state=seed, n_jobs=-1).fit(X_train, y_train)
    seconds = perf_counter() - start
    return Demo(model, data.feature_names.tolist(), X_train, X_test, y_train, y_test, seconds)
