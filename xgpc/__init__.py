"""Extremely fast Gaussian process classification."""

from importlib.metadata import version

try:
    from . import _engine  # noqa: F401
except ImportError as error:
    raise ImportError(
        "The compiled modules of xgpc are missing. In the folder of its sources Python finds these before what is "
        "installed: go to another folder; or, to work on them, pip install --no-build-isolation -e ."
    ) from error

from .catalogue import SYSTEMS as systems
from .classifier import GPClassifier
from .linear import BayesianLinearClassifier

__version__ = version("xgpc")
__all__ = ["BayesianLinearClassifier", "GPClassifier", "__version__", "systems"]
