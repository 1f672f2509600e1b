"""Likelihoods: one record per bound, and predictive class probabilities.

Each predictive function, such as ``binary.logit_log_probabilities``, states the error of its probabilities.
"""

from .registry import (
    LIKELIHOODS,
    MULTI_CLASS,
    START_NOISE,
    LikelihoodBound,
    expected_log_likelihood,
    other_site,
    record_of,
    resolve,
)

__all__ = [
    "LIKELIHOODS",
    "MULTI_CLASS",
    "START_NOISE",
    "LikelihoodBound",
    "expected_log_likelihood",
    "other_site",
    "record_of",
    "resolve",
]
