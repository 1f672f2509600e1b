"""The algorithms that learn kernel parameters and inducing points, by the values of ``optimizer``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..likelihoods import record_of
from .adam import adam, stochastic
from .izmailov_kropotov import alternate, hybrid, joint
from .profile import Outcome, profile


@dataclass(frozen=True)
class Scheme:
    """A learning algorithm.

    Attributes
    ----------
    function : takes training, start, site and options; Adam's also takes mini-batches
    allows : whether it supports a likelihood and a bound, given by name
    needs : the text that names supported likelihoods and bounds in error messages
    """

    function: Callable[..., Outcome]
    allows: Callable[[str, str], bool]
    needs: str
    takes_batches: bool = False

    def bind(
        self, batch_size: int | None, schedule: tuple[int, float, float], random_state: np.random.RandomState
    ) -> Callable[..., Outcome]:
        """A function of (training, start, site, options); ``schedule`` gives the learning rates of mini-batches."""
        if not self.takes_batches:
            return self.function
        return partial(self.function, batch_size=batch_size, schedule=schedule, random_state=random_state)


def _is_bound(likelihood: str, bound: str) -> bool:
    return record_of(likelihood, bound).is_bound


def _has_quadratics(likelihood: str, bound: str) -> bool:
    return record_of(likelihood, bound).has_quadratics


def _is_jaakkola_jordan(likelihood: str, bound: str) -> bool:
    return record_of(likelihood, bound).is_jaakkola_jordan


SCHEMES = {
    "profile": Scheme(profile, _is_bound, "a bound other than 'taylor'"),
    "alternate": Scheme(alternate, _has_quadratics, "likelihood 'logit', 'probit' or 'svm' without additive noise"),
    "joint": Scheme(joint, _is_jaakkola_jordan, "likelihood='logit' with bound='polya-gamma'"),
    "hybrid": Scheme(hybrid, _is_jaakkola_jordan, "likelihood='logit' with bound='polya-gamma'"),
    "adam": Scheme(adam, _is_bound, "a bound other than 'taylor'", takes_batches=True),
    "stochastic": Scheme(stochastic, _is_bound, "a bound other than 'taylor'", takes_batches=True),
}


def check_optimizer(optimizer: str | None, likelihood: str, bound: str) -> None:
    """Raise ValueError for an optimizer that does not support a likelihood's bound."""
    if optimizer is None or SCHEMES[optimizer].allows(likelihood, bound):
        return
    others = [name for name, scheme in SCHEMES.items() if scheme.allows(likelihood, bound)]
    raise ValueError(
        f"optimizer={optimizer!r} is not for the bound {bound!r} of likelihood {likelihood!r}; choose one of "
        f"{others}, or {SCHEMES[optimizer].needs}."
    )
