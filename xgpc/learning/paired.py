"""A paired comparison of two models on held-out rows."""

from __future__ import annotations

import numpy as np

from .query_score import standard_error

# A costlier model must raise the mean log probability by at least this many nats.
LEAST_GAIN = 2e-3


def is_better(gains: np.ndarray, weight: np.ndarray) -> tuple[bool, str]:
    """Whether the costlier model predicts held-out rows better by more than a standard error; with words that say so.

    Parameters
    ----------
    gains : (r,), differences of the rows' log probabilities, in nats
    weight : (r,)
    """
    mean, error = float(np.average(gains, weights=weight)), standard_error(gains, weight)
    is_taken = mean > max(error, LEAST_GAIN)
    verdict = "taken" if is_taken else f"not taken, as it must rise by more than {LEAST_GAIN:g} and its standard error"
    words = (
        f"the mean log probability of {len(gains)} held-out rows changes by {mean:+.3g} +- {error:.2g} nats: {verdict}."
    )
    return is_taken, words
