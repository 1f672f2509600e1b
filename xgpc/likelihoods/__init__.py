"""Likelihoods: a record for each of their bounds, and the probabilities of classes that they give.

How large the errors of predicted probabilities are is said by the function of each likelihood:
``binary.logit_log_probabilities``, ``binary.probit_log_probabilities``, ``binary.noisy_log_probabilities``,
``softmax.softmax_log_probabilities``, ``multinomial.multinomial_log_probabilities`` and
``logistic_softmax.logistic_softmax_log_probabilities``.
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
