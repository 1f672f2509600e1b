"""Extremely fast Gaussian process classification."""

from importlib.metadata import version

from .catalogue import SYSTEMS as systems
from .classifier import GPClassifier
from .linear import BayesianLinearClassifier

__version__ = version("xgpc")
__all__ = ["BayesianLinearClassifier", "GPClassifier", "__version__", "systems"]
