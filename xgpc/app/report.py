"""Aligned text about scores, for the command line."""

from __future__ import annotations

import numpy as np

from ..summary import Rows

SCORE_NAMES = {
    "error": "error",
    "nll": "mean NLL (nats)",
    "brier": "Brier score",
    "auc": "AUC",
    "ece": "calibration error (ECE)",
}
# Of more than two classes, where these are sums or averages over the classes.
SEVERAL_NAMES = {**SCORE_NAMES, "brier": "Brier score (0 to 2)", "auc": "AUC (one-vs-rest mean)"}


def score_rows(scores: dict[str, float], n_classes: int = 2) -> Rows:
    """The result of ``metrics.scores``, four decimals each."""
    several = n_classes > 2
    undefined = "undefined: a class has no rows" if several else "undefined: the rows are of one class"
    names = SEVERAL_NAMES if several else SCORE_NAMES
    return [(name, undefined if np.isnan(scores[key]) else f"{scores[key]:.4f}") for key, name in names.items()]
