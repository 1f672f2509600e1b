"""Two models compared by rows that neither has seen."""

from __future__ import annotations

import numpy as np

from .query_score import standard_error

# What costs time and memory is taken for so much of the mean log probability, in nats, at least.
LEAST_GAIN = 2e-3


def is_better(gains: np.ndarray, weight: np.ndarray) -> tuple[bool, str]:
    """Whether rows kept apart are more likely with what costs more, by over a standard error; and what there is to say.

    Parameters
    ----------
    gains : (r,), of the rows' log probabilities, in nats
    weight : (r,)
    """
    mean, error = float(np.average(gains, weights=weight)), standard_error(gains, weight)
    words = (
        f"the mean log probability of {len(gains)} rows kept apart by {mean:.3g} with a standard error of {error:.2g}"
    )
    return mean > max(error, LEAST_GAIN), words
