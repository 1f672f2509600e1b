"""The registry of likelihoods: a record for each of their bounds, which alone says what a name means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from scipy.special import log_softmax

from .. import _sites
from .._sites import MULTI_CLASS, Site
from .binary import logit_log_probabilities, noisy_log_probabilities, probit_log_probabilities
from .logistic_softmax import log_shares, logistic_softmax_log_probabilities
from .multinomial import multinomial_curvature, multinomial_log_probabilities
from .row_sites import RowSites
from .softmax import hazard_table, softmax_curvature, softmax_expected_entropy, softmax_log_probabilities

# Variance of the noise that makes each likelihood of the step's; the normal distribution nearest to the logistic one.
NOISE_VARIANCES = {"step": 0.0, "probit": 1.0, "logit": 1.702**2}
# What a learned label noise starts from.
START_NOISE = 0.01
# Rows whose latent values become probabilities at a time: temporaries are many times the result.
LINK_ROWS = 8192

# (likelihood, bound), the name of a record
Key = tuple[str, str]
# (mean, variance) and, with label noise, delta -> (n, classes) predictive log probabilities
Predictive = Callable[..., np.ndarray]
# As map: a function and its arguments -> an iterable of its values
Each = Callable[[Callable[[slice], None], Sequence[slice]], Iterable[None]]
# (y, weight, sites) -> function of values (C, rows) that makes products (C, rows)
Curvature = Callable[[np.ndarray, np.ndarray, RowSites], Callable[[np.ndarray], np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class LikelihoodBound:
    """A likelihood with one of its bounds: all that is to be known of it besides the site function, which is compiled.

    Attributes
    ----------
    likelihood, bound : str, a name of the compiled sites
    predictive : function
        (mean, variance), and delta if there is label noise, of latent values -> (n, classes) log probabilities.
    given_latent : function or None
        Latent values (n, C) -> (n, C) log probabilities given them; None: ``predictive`` without variance.
    expected_entropy : function or None
        Means and variances (n, C) -> expected entropy (n,) of the label given latent values; None: not in closed form.
    table : function or None
        Makes the table that the site reads.
    start : (likelihood, bound) or None
        Whose updates make the first posterior, as the prior is no place to start from.
    other_start : (likelihood, bound) or None
        Whose posterior is tried beside it, where no single start leads to the better optimum for all kernels.
    fallback : (likelihood, bound) or None
        A lower bound of this one whose unit step cannot fail, to take where this one's does.
    exact : (likelihood, bound) or None
        The exact expectation, of a bound that augments the likelihood.
    curvature : function or None
        (y, weight, sites) -> the curvature across classes, as a function that makes products with values (C, rows), of
        likelihoods that what adds to all latent functions alike leaves as it is. y (rows,) are labels, weight (rows,)
        or empty, sites have mean, variance, precision and linear (C, rows).
    is_exact : bool
        ell is the expected log likelihood itself, but for its quadrature.
    is_bound : bool
        The objective is a lower bound of the evidence: its updates ascend it.
    is_damped : bool
        The precision depends on the mean so much that a unit step overshoots: it goes a part of the way.
    has_label_noise : bool
        There is a parameter delta, the probability of labels that are not those of the largest latent value.
    has_quadratics : bool
        With the sites fixed every row's term is a concave quadratic of its latent value: one latent function, positive
        precisions, no parameter.
    is_safe : bool
        The quadratics never exceed the objective, so that what raises them raises it; or there is none to look at.
    is_jaakkola_jordan : bool
        The quadratics are those of Jaakkola & Jordan 2000: one parameter xi of each row makes them, at its best
        xi^2 = mean^2 + variance.
    has_correction : bool
        The perturbative correction of latent means and variances is known.
    """

    likelihood: str
    bound: str
    predictive: Predictive
    given_latent: Callable[[np.ndarray], np.ndarray] | None = None
    expected_entropy: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    table: Callable[[], np.ndarray] | None = None
    start: Key | None = None
    other_start: Key | None = None
    fallback: Key | None = None
    exact: Key | None = None
    curvature: Curvature | None = None
    is_exact: bool = False
    is_bound: bool = True
    is_damped: bool = False
    has_label_noise: bool = False
    has_quadratics: bool = False
    is_safe: bool = False
    is_jaakkola_jordan: bool = False
    has_correction: bool = False

    @property
    def key(self) -> Key:
        return self.likelihood, self.bound

    @property
    def is_multi_class(self) -> bool:
        """Whether there is a latent function for each class; else one, for two classes."""
        return self.key in MULTI_CLASS

    @property
    def is_linear(self) -> bool:
        """Whether the linear classifier takes it: its updates need no more than the quadratics."""
        return self.has_quadratics

    @property
    def has_bound_gap(self) -> bool:
        """Whether it is known how much the exact expectation has more."""
        return self.is_exact or self.exact is not None

    def site(self, n_classes: int = 2, label_noise: float | None = None, first_noise: float = START_NOISE) -> Site:
        """The compiled site function.

        Parameters
        ----------
        n_classes : int
        label_noise : float or None
            delta of additive noise; None: learned.
        first_noise : float
            What a learned delta starts from.
        """
        return Site(
            *self.key,
            n_latents=n_classes if self.is_multi_class else 1,
            parameter=first_noise if label_noise is None else label_noise,
            learned=label_noise is None and self.has_label_noise,
            table=None if self.table is None else self.table(),
            record=self,
        )

    def log_probabilities(
        self, mean: np.ndarray, variance: np.ndarray, delta: float | None, each: Each = map
    ) -> np.ndarray:
        """Predictive log probabilities (n, classes) for latent values N(mean, variance), (n,) or (n, C).

        ``each`` applies a function to parts of the rows, as ``map`` does; it may do so on threads.
        """
        link = partial(self.predictive, delta=delta) if self.has_label_noise else self.predictive
        value = np.empty((len(mean), mean.shape[1] if self.is_multi_class else 2))

        def fill(part: slice) -> None:
            value[part] = link(mean[part], variance[part])

        for _ in each(fill, [slice(first, first + LINK_ROWS) for first in range(0, len(mean), LINK_ROWS)]):
            pass
        return value

    def log_probabilities_given(self, latent: np.ndarray, delta: float | None) -> np.ndarray:
        """log p(y | f) (n, classes) of latent values f, (n,) or (n, C)."""
        if self.given_latent is not None:
            return self.given_latent(latent)
        return self.log_probabilities(latent, np.zeros_like(latent), delta)

    def __reduce__(self) -> tuple[Callable[..., LikelihoodBound], Key]:
        # A record is the registry's: a copy of it, or of a site that has it, has the same one.
        return record_of, self.key


@dataclass(frozen=True)
class Likelihood:
    """One likelihood p(y | f): y in {-1, +1} and one latent function, or C classes and as many latent functions.

    Attributes
    ----------
    name : str
    bounds : mapping of names to records, the best bound first ("auto" means that one)
    """

    name: str
    bounds: Mapping[str, LikelihoodBound]

    @property
    def multi_class(self) -> bool:
        return all(record.is_multi_class for record in self.bounds.values())

    def n_latents(self, n_classes: int) -> int | None:
        """Latent functions for so many classes; None stands for one."""
        return n_classes if self.multi_class else None

    def site(
        self, bound: str, n_classes: int = 2, label_noise: float | None = None, first_noise: float = START_NOISE
    ) -> Site:
        """The compiled site function of a bound; see ``LikelihoodBound.site``."""
        return self.bounds[bound].site(n_classes, label_noise, first_noise)

    def log_probabilities(
        self, bound: str, mean: np.ndarray, variance: np.ndarray, delta: float | None, each: Each = map
    ) -> np.ndarray:
        """Predictive log probabilities; see ``LikelihoodBound.log_probabilities``."""
        return self.bounds[bound].log_probabilities(mean, variance, delta, each)


# Of each likelihood the best bound first: the exact ones are closer to the posterior and need fewer iterations than
# others at about the same cost each.
#
# Starts: additive noise has no curvature where nothing is known, and its delta then ends at what guessing gives.
# Logistic-softmax has optima at which every class is as likely, and finds them from the prior of a large variance: of
# 108 kernels on six data sets (variances .3 to 3000, length scales .4 to 2.5 sqrt(d)), its start ended more than 2 nats
# above the prior's in 28, by up to 590, and below in 3; test likelihoods were better in 35 and worse in none. It began
# higher in all 108, so the two are not compared. It is compared with that of exact softmax, see inference/starts.py.
RECORDS = (
    LikelihoodBound(
        likelihood="logit",
        bound="exact",
        predictive=logit_log_probabilities,
        fallback=("logit", "polya-gamma"),
        is_exact=True,
        has_quadratics=True,
    ),
    LikelihoodBound(
        likelihood="logit",
        bound="polya-gamma",
        predictive=logit_log_probabilities,
        exact=("logit", "exact"),
        has_quadratics=True,
        is_safe=True,
        is_jaakkola_jordan=True,
        has_correction=True,
    ),
    LikelihoodBound(
        likelihood="logit",
        bound="taylor",
        predictive=logit_log_probabilities,
        is_bound=False,
        has_quadratics=True,
        is_safe=True,
    ),
    LikelihoodBound(
        likelihood="probit",
        bound="exact",
        predictive=probit_log_probabilities,
        is_exact=True,
        has_quadratics=True,
    ),
    *(
        LikelihoodBound(
            likelihood=name,
            bound="additive-noise",
            predictive=partial(noisy_log_probabilities, noise_variance=variance),
            start=("probit", "exact"),
            is_damped=True,
            has_label_noise=True,
        )
        for name, variance in NOISE_VARIANCES.items()
    ),
    # The probit link of Wenzel et al. 2017, equation (13), with the square root that it lacks there.
    LikelihoodBound(
        likelihood="svm",
        bound="exact",
        predictive=probit_log_probabilities,
        fallback=("svm", "augmented"),
        is_exact=True,
        has_quadratics=True,
    ),
    LikelihoodBound(
        likelihood="svm",
        bound="augmented",
        predictive=probit_log_probabilities,
        exact=("svm", "exact"),
        has_quadratics=True,
        is_safe=True,
    ),
    LikelihoodBound(
        likelihood="softmax",
        bound="exact",
        predictive=softmax_log_probabilities,
        given_latent=partial(log_softmax, axis=1),
        expected_entropy=softmax_expected_entropy,
        table=hazard_table,
        curvature=softmax_curvature,
        is_exact=True,
    ),
    LikelihoodBound(
        likelihood="softmax",
        bound="additive-noise",
        predictive=softmax_log_probabilities,
        given_latent=partial(log_softmax, axis=1),
        expected_entropy=softmax_expected_entropy,
        curvature=softmax_curvature,
    ),
    *(
        LikelihoodBound(
            likelihood=f"multinomial-{name}",
            bound="additive-noise",
            predictive=partial(multinomial_log_probabilities, noise_variance=variance),
            start=("softmax", "additive-noise"),
            curvature=multinomial_curvature,
            has_label_noise=True,
        )
        for name, variance in NOISE_VARIANCES.items()
    ),
    LikelihoodBound(
        likelihood="logistic-softmax",
        bound="polya-gamma",
        predictive=logistic_softmax_log_probabilities,
        given_latent=log_shares,
        start=("softmax", "additive-noise"),
        other_start=("softmax", "exact"),
        is_safe=True,
    ),
)


def _likelihoods() -> dict[str, Likelihood]:
    names = dict.fromkeys(record.likelihood for record in RECORDS)
    return {
        name: Likelihood(name, MappingProxyType({r.bound: r for r in RECORDS if r.likelihood == name}))
        for name in names
    }


LIKELIHOODS = _likelihoods()


def record_of(likelihood: str, bound: str) -> LikelihoodBound:
    """The record of a likelihood's bound."""
    return LIKELIHOODS[likelihood].bounds[bound]


def other_site(key: Key, site: Site) -> Site:
    """The site of another bound, of the same latent functions as a site."""
    return record_of(*key).site(site.n_latents).with_prior_mean(site.prior_mean)


def has_label_noise(likelihood: str, bound: str) -> bool:
    """Whether a bound has the parameter delta: labels that are not those of the largest latent value."""
    return record_of(likelihood, bound).has_label_noise


def expected_log_likelihood(site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> float:
    """Sum over points of the bound's term, in nats, for marginals (n,) or (C, n)."""
    ell = np.empty(len(y))
    _sites.sites(site, mean, variance, y, np.empty(0), ell, np.empty_like(mean), np.empty_like(mean))
    return float(np.sum(ell))


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
        return found, next(iter(found.bounds))
    if not isinstance(bound, str) or bound not in found.bounds:
        meaning = f" (for {n_classes} classes {name!r})" if name != likelihood else ""
        raise ValueError(
            f"bound must be 'auto' or, with likelihood {likelihood!r}{meaning}, one of {list(found.bounds)}; "
            f"got {bound!r}."
        )
    return found, bound
