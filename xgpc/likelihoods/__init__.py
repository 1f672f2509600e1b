"""Likelihoods: one record per bound, and predictive class probabilities.

Each predictive function, such as ``binary.logit_log_probabilities``, states the error of its probabilities.
"""

from .registry import LIKELIHOODS as LIKELIHOODS
from .registry import MULTI_CLASS as MULTI_CLASS
from .registry import NOISE_VARIANCES as NOISE_VARIANCES
from .registry import ORDERED as ORDERED
from .registry import ORDINAL as ORDINAL
from .registry import PARAMETER_NAMES as PARAMETER_NAMES
from .registry import RECORDS as RECORDS
from .registry import START_NOISE as START_NOISE
from .registry import LikelihoodBound as LikelihoodBound
from .registry import Parameter as Parameter
from .registry import expected_log_likelihood as expected_log_likelihood
from .registry import label_log_probabilities as label_log_probabilities
from .registry import other_site as other_site
from .registry import predicted_log_probabilities as predicted_log_probabilities
from .registry import record_of as record_of
from .registry import resolve as resolve
