"""Acquisition functions: scores of candidate rows by a fitted classifier, and batches of candidates.

In active learning, ``predictive_entropy``, ``mutual_information`` and ``latent_variance`` score rows to label, and
``select`` chooses a batch of them. ``straddle``, ``misclassification_probability`` and
``expected_misclassification_reduction`` score rows that would tell where a boundary runs, and
``probability_of_failure`` is the share of a population beyond it. In Bayesian optimisation, ``expected_improvement``
scores settings to try; ``probability_of_feasibility`` and ``constrained_expected_improvement`` are for settings that
may fail. Their logarithms, ``log_...``, have slopes where the scores underflow. ``pair_information`` and
``expected_best`` score pairs that a ``GPPreference`` could ask for.
"""

from .labels import latent_variance, mutual_information, predictive_entropy, select
from .levels import (
    FailureProbability,
    expected_misclassification_reduction,
    misclassification_probability,
    probability_of_failure,
    straddle,
)
from .pairs import expected_best, pair_information
from .trials import (
    constrained_expected_improvement,
    expected_improvement,
    log_constrained_expected_improvement,
    log_expected_improvement,
    log_probability_of_feasibility,
    probability_of_feasibility,
)

__all__ = [
    "FailureProbability",
    "constrained_expected_improvement",
    "expected_best",
    "expected_improvement",
    "expected_misclassification_reduction",
    "latent_variance",
    "log_constrained_expected_improvement",
    "log_expected_improvement",
    "log_probability_of_feasibility",
    "misclassification_probability",
    "mutual_information",
    "pair_information",
    "predictive_entropy",
    "probability_of_failure",
    "probability_of_feasibility",
    "select",
    "straddle",
]
