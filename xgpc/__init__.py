"""Extremely fast Gaussian process classification."""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

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
from .ordinal import GPOrdinalClassifier
from .preference import GPPreference

__version__ = version("xgpc")
__all__ = ["BayesianLinearClassifier", "GPClassifier", "GPOrdinalClassifier", "GPPreference", "__version__", "systems"]
# Modules that are imported where they are first asked for.
_LAZY = ("acquisition",)


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
