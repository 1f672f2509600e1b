"""Registry of likelihoods: their bounds, the compiled site of each, and the link for prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from . import _engine
from ._engine import Site
from .links import (
    logistic_softmax_log_probabilities,
    logit_log_probabilities,
    multinomial_log_probabilities,
    noisy_log_probabilities,
    probit_log_probabilities,
    softmax_log_probabilities,
)
from .quasi_random import normal_nodes

# Variance of the noise that makes each likelihood of the step's; the normal distribution nearest to the logistic one.
NOISE_VARIANCES = {"step": 0.0, "probit": 1.0, "logit": 1.702**2}
# What a learned label noise starts from.
START_NOISE = 0.01

# (mean, variance) and, with additive noise, delta -> (n, classes) predictive log probabilities
Link = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Likelihood:
    """One likelihood p(y | f): y in {-1, +1} and one latent function, or C classes and as many latent functions.

    Attributes
    ----------
    name : str
    links : dict, the predictive log probabilities of each bound, the best bound first ("auto" means that one)
    multi_class : bool
    """

    name: str
    links: dict[str, Link]
    multi_class: bool = False

    @property
    def bounds(self) -> tuple[str, ...]:
        return tuple(self.links)

    def n_latents(self, n_classes: int) -> int | None:
        """Latent functions for so many classes; None stands for one."""
        return n_classes if self.multi_class else None

    def site(
        self, bound: str, n_classes: int = 2, label_noise: float | None = None, first_noise: float = START_NOISE
    ) -> Site:
        """The compiled site function of a bound.

        Parameters
        ----------
        label_noise : float or None
            delta of additive noise; None: learned.
        first_noise : float
            What a learned delta starts from.
        """
        if self.multi_class:
            nodes = normal_nodes(n_classes) if (self.name, bound) == ("softmax", "exact") else None
            latents = n_classes
        elif not has_label_noise(self.name, bound):
            return _engine.SITES[self.name, bound]
        else:
            nodes, latents = None, 1
        learned = label_noise is None and has_label_noise(self.name, bound)
        delta = first_noise if label_noise is None else label_noise
        return Site(self.name, bound, n_latents=latents, parameter=delta, learned=learned, nodes=nodes)

    def log_probabilities(self, bound: str, mean: np.ndarray, variance: np.ndarray, delta: float | None) -> np.ndarray:
        """Predictive log probabilities (n, classes) for latent values N(mean, variance), (n,) or (n, C)."""
        link = self.links[bound]
        return link(mean, variance, delta=delta) if has_label_noise(self.name, bound) else link(mean, variance)


def has_label_noise(likelihood: str, bound: str) -> bool:
    """Whether a bound has the parameter delta: labels that are not those of the largest latent value."""
    return bound == "additive-noise" and likelihood != "softmax"


def expected_log_likelihood(site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> float:
    """Sum over points of the bound's term, in nats, for marginals (n,) or (C, n)."""
    ell = np.empty(len(y))
    _engine.sites(site, mean, variance, y, np.empty(0), ell, np.empty_like(mean), np.empty_like(mean))
    return float(np.sum(ell))


# The exact bounds are closer to the posterior and need fewer iterations than others at about the same cost each.
_noisy = {name: partial(noisy_log_probabilities, noise_variance=nu) for name, nu in NOISE_VARIANCES.items()}
_multinomial = {name: partial(multinomial_log_probabilities, noise_variance=nu) for name, nu in NOISE_VARIANCES.items()}
LIKELIHOODS = {
    likelihood.name: likelihood
    for likelihood in (
        Likelihood(
            "logit",
            {
                "exact": logit_log_probabilities,
                "polya-gamma": logit_log_probabilities,
                "taylor": logit_log_probabilities,
                "additive-noise": _noisy["logit"],
            },
        ),
        Likelihood("probit", {"exact": probit_log_probabilities, "additive-noise": _noisy["probit"]}),
        Likelihood("step", {"additive-noise": _noisy["step"]}),
        # The probit link of Wenzel et al. 2017, equation (13), with the square root that it lacks there.
        Likelihood("svm", {"exact": probit_log_probabilities, "augmented": probit_log_probabilities}),
        Likelihood(
            "softmax",
            {"exact": softmax_log_probabilities, "additive-noise": softmax_log_probabilities},
            multi_class=True,
        ),
        *(
            Likelihood(f"multinomial-{name}", {"additive-noise": _multinomial[name]}, multi_class=True)
            for name in NOISE_VARIANCES
        ),
        Likelihood("logistic-softmax", {"polya-gamma": logistic_softmax_log_probabilities}, multi_class=True),
    )
}


def resolve(likelihood: str, bound: str, n_classes: int = 2) -> tuple[Likelihood, str]:
    """Look up a likelihood and one of its bounds by name; "logit" stands for softmax with more than two classes.

    Raises
    ------
    ValueError
        For an unknown name, or a likelihood of two classes with more; the message lists what there is.
    """
    if not isinstance(likelihood, str) or likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {list(LIKELIHOODS)}; got {likelihood!r}.")
    name = "softmax" if likelihood == "logit" and n_classes > 2 else likelihood
    found = LIKELIHOODS[name]
    if n_classes > 2 and not found.multi_class:
        several = [name for name, other in LIKELIHOODS.items() if other.multi_class]
        raise ValueError(f"likelihood={likelihood!r} is for two classes; for {n_classes} take one of {several}.")
    if isinstance(bound, str) and bound == "auto":
        return found, found.bounds[0]
    if not isinstance(bound, str) or bound not in found.bounds:
        meaning = f" (for {n_classes} classes {name!r})" if name != likelihood else ""
        raise ValueError(
            f"bound must be 'auto' or, with likelihood {likelihood!r}{meaning}, one of {list(found.bounds)}; "
            f"got {bound!r}."
        )
    return found, bound
