"""Two models compared by rows that neither has seen."""

from __future__ import annotations

import numpy as np

from .query_score import standard_error

# What costs time and memory is taken for so much of the mean log probability, in nats, at least.
LEAST_GAIN = 2e-3


def is_better(gains: np.ndarray, weight: np.ndarray) -> tuple[bool, str]:
    """Whether held-out rows are more likely with what costs more, by over a standard error; and the end of a sentence.

    Parameters
    ----------
    gains : (r,), of the rows' log probabilities, in nats
    weight : (r,)
    """
    mean, error = float(np.average(gains, weights=weight)), standard_error(gains, weight)
    is_taken = mean > max(error, LEAST_GAIN)
    verdict = "taken" if is_taken else f"not taken, as it must rise by more than {LEAST_GAIN:g} and its standard error"
    words = (
        f"the mean log probability of {len(gains)} held-out rows changes by {mean:+.3g} +- {error:.2g} nats: {verdict}."
    )
    return is_taken, words
