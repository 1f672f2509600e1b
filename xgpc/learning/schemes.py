"""The optimizers by the values of the parameter ``optimizer``."""

from __future__ import annotations

from ..likelihoods import LikelihoodBound
from .adam import Adam, Stochastic
from .izmailov_kropotov import Alternate, Hybrid, Joint
from .optimizer import Optimizer
from .profile import Profile

SCHEMES: dict[str, type[Optimizer]] = {
    "profile": Profile,
    "alternate": Alternate,
    "joint": Joint,
    "hybrid": Hybrid,
    "adam": Adam,
    "stochastic": Stochastic,
}


def check_optimizer(optimizer: str | None, record: LikelihoodBound) -> None:
    """Raise ValueError for an optimizer that does not support a likelihood's bound."""
    if optimizer is None or SCHEMES[optimizer].allows(record):
        return
    others = [name for name, kind in SCHEMES.items() if kind.allows(record)]
    raise ValueError(
        f"optimizer={optimizer!r} is not for the bound {record.bound!r} of likelihood {record.likelihood!r}; choose "
        f"one of {others}, or {SCHEMES[optimizer].needs}."
    )
