"""Likelihoods: one record per bound, and predictive class probabilities.

Each predictive function, such as ``binary.logit_log_probabilities``, states the error of its probabilities.
"""

from .registry import (
    LIKELIHOODS,
    START_NOISE,
    Likelihood,
    LikelihoodBound,
    expected_log_likelihood,
    has_label_noise,
    other_site,
    record_of,
    resolve,
)

__all__ = [
    "LIKELIHOODS",
    "START_NOISE",
    "Likelihood",
    "LikelihoodBound",
    "expected_log_likelihood",
    "has_label_noise",
    "other_site",
    "record_of",
    "resolve",
]
