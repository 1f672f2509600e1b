"""Extremely fast Gaussian process classification."""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

try:
    from . import _engine  # noqa: F401
except ImportError as error:
    raise ImportError(
        "The compiled modules of xgpc are missing. In the folder of its sources Python finds these before what is "
        "installed: go to another folder; or, to work on them, pip install --no-build-isolation -e ."
    ) from error

from .catalogue import SYSTEMS as systems

if TYPE_CHECKING:
    from .classifier import GPClassifier
    from .linear import BayesianLinearClassifier
    from .ordinal import GPOrdinalClassifier
    from .preference import GPPreference

__version__ = version("xgpc")
__all__ = ["BayesianLinearClassifier", "GPClassifier", "GPOrdinalClassifier", "GPPreference", "__version__", "systems"]
# Names that are imported where they are first asked for, and their modules: the help of the command needs few.
_LAZY = {
    "BayesianLinearClassifier": ".linear",
    "GPClassifier": ".classifier",
    "GPOrdinalClassifier": ".ordinal",
    "GPPreference": ".preference",
    **{name: f".{name}" for name in ("acquisition", "explain", "kernels", "metrics", "rows")},
}


def __getattr__(name: str) -> ModuleType:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name], __name__)
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
