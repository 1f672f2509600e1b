"""Extremely fast Gaussian process classification."""

from importlib.metadata import version

from .classifier import GPClassifier

__version__ = version("xgpc")
__all__ = ["GPClassifier", "__version__"]
