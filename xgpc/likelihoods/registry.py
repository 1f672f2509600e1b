"""The registry of likelihoods: one record per likelihood and bound, which defines what the two names mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np
from scipy.special import log_softmax

from .. import _sites
from .._sites import LOGISTIC_MIXTURE, Site
from .binary import (
    logit_log_probabilities,
    logit_slopes,
    normal_log_probabilities,
    normal_slopes,
    unflipped_share,
    with_wrong_labels,
)
from .cavity import Cavity, Softmax, TwoClasses
from .coordinates import CutPoints, Rates
from .curvature import Curvature, multinomial_curvature, softmax_curvature
from .logistic_softmax import log_shares, logistic_softmax_log_probabilities
from .multinomial import multinomial_log_probabilities, multinomial_slopes
from .ordinal import ordinal_log_probabilities, ordinal_slopes
from .softmax import (
    softmax_expected_entropy,
    softmax_expected_entropy_slopes,
    softmax_log_probabilities,
    softmax_slopes,
    softmax_table,
)

# The step, probit and logit likelihoods are a step function of the latent value plus normal noise of this variance;
# 1.702 is the scale at which the normal distribution function is nearest to the logistic one.
NOISE_VARIANCES = {"step": 0.0, "probit": 1.0, "logit": 1.702**2}
# The name of a likelihood of ordered classes begins with this; the link's name follows.
ORDINAL = "ordinal-"
# Learning of the label noise starts from this value.
START_NOISE = 0.01
# Predictive functions take this many latent values at a time: their temporaries are many times as large as the result.
PART_VALUES = 8192
# AUGMENTED bounds have one more variable per row. The quadratics of SAFE bounds lie below the objective. The Taylor
# expansion counts as one of these, because vi-Taylor has no bound that a step of the kernel could lower.
AUGMENTED = ("polya-gamma", "augmented")
SAFE = (*AUGMENTED, "taylor")

# (likelihood, bound), the name of a record
Key = tuple[str, str]
# Label noise delta, guess and lapse rate (2,), or the cut points of ordered classes; None for likelihoods without any
Parameter = float | np.ndarray | None
# A record's parameter, by the names that its values have in a fitted model: the probability that a label is not that of
# the largest latent value; the probabilities that a label -1 was replaced by +1, and +1 by -1; and the cut points that
# divide one latent function between ordered classes.
LABEL_NOISE, RATES, CUT_POINTS = ("label_noise",), ("guess_rate", "lapse_rate"), ("cut_points",)
PARAMETER_NAMES = (*LABEL_NOISE, *RATES, *CUT_POINTS)
# Like map: a function and its arguments -> an iterable of the values
Each = Callable[[Callable[[slice], np.ndarray], Sequence[slice]], Iterable[np.ndarray]]


def _parts(mean: np.ndarray) -> list[slice]:
    """Slices of the rows of latent means (n,) or (n, C)."""
    size = max(1, PART_VALUES // (mean.shape[1] if mean.ndim > 1 else 1))
    return [slice(first, first + size) for first in range(0, max(1, len(mean)), size)]


@dataclass(frozen=True)
class LikelihoodBound:
    """A likelihood with one of its bounds: everything except the compiled site function."""

    # The two names of the compiled site function.
    likelihood: str
    bound: str
    _: KW_ONLY
    # Gives log probabilities (n, classes) of labels that are not wrong, from means and variances of the latent values;
    # for ordered classes, those of the two sides of a cut point.
    predictive: Callable[[np.ndarray, np.ndarray], np.ndarray]
    # Gives the derivatives of probabilities by mean and variance: for one latent function (2, n) of p(y = +1), for
    # several (2, n, C, C) of all probabilities by all latent values. None if the probabilities are averages over
    # points.
    slopes: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    # Pairs of a weight w and a variance s. One latent function: p(y = +1 | f) = sum w Phi(f / sqrt(s)), besides label
    # noise and rates; for ordered classes, f minus a cut point takes the place of f, and y = +1 means a class above it.
    # Several latent functions: the label is that of the largest value plus normal noise of variance s. None for other
    # noise.
    link: tuple[tuple[float, float], ...] | None = None
    is_probability: bool = True  # False for a pseudo-likelihood, whose bound is no evidence
    # ``LABEL_NOISE``, ``RATES``, ``CUT_POINTS`` or nothing, and the parameter's values, if it is known.
    parameter: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    # Numbers of ordered classes from the lowest level to the highest; empty: the numbers are the levels. Arrays with an
    # entry for each class are in the order of the numbers; only sites and cut points are in that of the levels.
    order: tuple[int, ...] = ()
    # The bound whose updates make the first posterior, if the prior is a bad place to start, and a second one to try.
    start: Key | None = None
    other_start: Key | None = None
    # log probabilities (n, C) at latent values (n, C); None: those of ``predictive`` with zero variance.
    given_latent: Callable[[np.ndarray], np.ndarray] | None = None
    # The expected entropy (n,) of a label given the latent values, from means and variances (n, C), in closed form.
    expected_entropy: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    # Its derivatives by means and variances, (n, C) each.
    expected_entropy_slopes: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    # The curvature that couples the classes, if the likelihood does not change when all latent values of a row are
    # shifted alike.
    curvature: Curvature | None = None
    # Sites given the sites of neighbours; None for likelihoods without neighbours.
    cavity: Cavity | None = None
    table: Callable[[], np.ndarray] | None = None  # makes the table that the compiled site reads

    @property
    def key(self) -> Key:
        return self.likelihood, self.bound

    @cached_property
    def has_label_noise(self) -> bool:
        return self.parameter == LABEL_NOISE

    @cached_property
    def has_rates(self) -> bool:
        return self.parameter == RATES

    @cached_property
    def is_ordinal(self) -> bool:
        return self.parameter == CUT_POINTS

    @cached_property
    def has_wrong_labels(self) -> bool:
        """Whether labels may be wrong: the likelihood is then not log-concave, so that precisions may be negative."""
        return self.has_label_noise or self.has_rates

    @cached_property
    def is_multi_class(self) -> bool:
        """Whether there is one latent function per class; otherwise there is one for two classes."""
        return self.key in _sites.MULTI_CLASS

    @property
    def is_exact(self) -> bool:
        """Whether the bound's term is the expected log likelihood itself, apart from quadrature errors."""
        return self.bound == "exact"

    @cached_property
    def is_bound(self) -> bool:
        """Whether the objective is a lower bound of the log evidence, which updates should raise."""
        return self.bound != "taylor"

    @property
    def is_safe(self) -> bool:
        """Whether the quadratics never exceed the objective, so that a step that raises them raises the objective."""
        return self.bound in SAFE

    @cached_property
    def has_quadratics(self) -> bool:
        """Whether fixed sites make every row's term a concave quadratic: one latent function, positive precisions."""
        return not (self.is_multi_class or self.has_wrong_labels)

    @property
    def is_jaakkola_jordan(self) -> bool:
        """Whether the quadratics are those of Jaakkola & Jordan 2000, with xi^2 = mean^2 + variance in each row.

        For these sites alone the perturbative correction of latent means and variances is derived.
        """
        return self.bound == "polya-gamma" and not self.is_multi_class

    @property
    def is_step(self) -> bool:
        """Whether the label is that of the largest latent value, but for label noise."""
        return self.link == ((1.0, 0.0),)

    @property
    def exact(self) -> Key | None:
        """The exact expectation of the same likelihood, if this bound augments the likelihood."""
        key = self.likelihood, "exact"
        return key if self.bound in AUGMENTED and key in BY_KEY else None

    @cached_property
    def fallback(self) -> Key | None:
        """For an exact bound, the augmented bound of the same likelihood, whose unit steps cannot fail."""
        keys = ((self.likelihood, bound) for bound in AUGMENTED if self.is_exact)
        return next((key for key in keys if key in BY_KEY), None)

    def n_latents(self, n_classes: int) -> int:
        """The number of latent functions for ``n_classes``."""
        return n_classes if self.is_multi_class else 1

    def levels(self, codes: np.ndarray) -> np.ndarray:
        """Levels (n,) of class numbers, 0 for the lowest."""
        return np.argsort(self.order)[codes] if self.order else codes

    def by_level(self, values: np.ndarray) -> np.ndarray:
        """Values (C,) of the classes from the lowest level to the highest."""
        return values[list(self.order)] if self.order else values

    def site_labels(self, codes: np.ndarray) -> np.ndarray:
        """Labels (n,) for sites: -1, 1, ... by level, or the class numbers if each class has a latent function."""
        labels = self.levels(codes).astype(np.float64)
        return labels if self.is_multi_class else 2.0 * labels - 1.0

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """Class numbers (n,) of labels for the sites."""
        levels = (labels if self.is_multi_class else 0.5 * (labels + 1.0)).astype(np.intp)
        return np.array(self.order)[levels] if self.order else levels

    @property
    def known(self) -> Parameter:
        """The parameter, if it is known."""
        values = np.array(self.values)
        return None if not self.values else float(values[0]) if self.has_label_noise else values

    def site(self, n_classes: int = 2, first: Parameter = START_NOISE) -> Site:
        """The compiled site function, with the parameter if it is known, or a learned one that starts at ``first``."""
        return Site(
            *self.key,
            n_latents=self.n_latents(n_classes),
            parameter=self.known if self.values else first,
            learned=self.has_label_noise and not self.values,
            table=None if self.table is None else self.table(),
            record=self,
        )

    def at(self, parameter: Parameter) -> LikelihoodBound:
        """The likelihood with its parameter; itself if it has none."""
        if not self.parameter or parameter is None:
            return self
        return replace(self, values=tuple(np.atleast_1d(parameter).tolist()))

    def coordinates(self, parameter: Parameter, learned_rates: tuple[bool, bool]) -> CutPoints | Rates | None:
        """The coordinates in which an optimizer learns the parameter; None if it does not."""
        if self.is_ordinal:
            return CutPoints(len(np.asarray(parameter)))
        return Rates(np.array(learned_rates)) if self.has_rates and any(learned_rates) else None

    def named(self) -> dict[str, float | np.ndarray]:
        """The values of the known parameter by the names that they have in a fitted model."""
        values = [np.array(self.values)] if self.is_ordinal else self.values
        return dict(zip(self.parameter, values, strict=True))

    def is_valid(self, n_classes: int) -> bool:
        """Whether a fit to ``n_classes`` could have the parameter."""
        values = np.array(self.values)
        if self.is_ordinal:
            return len(values) == n_classes - 1 and bool(np.all(np.diff(values) > 0.0))
        if self.has_rates:
            return bool(np.all(values >= 0.0) and np.sum(values) < 1.0)
        # The largest label noise is that of guessing.
        return not self.has_label_noise or 0.0 < values[0] < 1.0 - 1.0 / n_classes

    def log_probabilities(self, mean: np.ndarray, variance: np.ndarray, each: Each = map) -> np.ndarray:
        """Predictive log probabilities (n, classes) for latent values N(mean, variance), (n,) or (n, C).

        ``each`` applies a function to parts of the rows, as ``map`` does or with threads.
        """
        if mean.size > PART_VALUES and len(mean) > 1:
            parts = each(lambda part: self.log_probabilities(mean[part], variance[part]), _parts(mean))
            return np.concatenate(list(parts))
        if self.is_ordinal:
            cuts = np.array(self.values)
            value = ordinal_log_probabilities(mean, variance, cuts, self.predictive)
            return value[:, self.levels(np.arange(len(cuts) + 1))]
        value = self.predictive(mean, variance)
        return with_wrong_labels(value, self.values) if self.parameter else value

    def probability_slopes(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Derivatives (2, n, classes, latent functions) of predictive probabilities by latent means and variances.

        ValueError for a likelihood whose probabilities have no formula.
        """
        if self.slopes is None:
            raise ValueError(
                f"The probabilities of likelihood={self.likelihood!r} are averages over points, which have no gradient "
                "here; take predict_latent(X, return_grad=True), or fit with likelihood='softmax'."
            )
        if self.is_ordinal:
            cuts = np.array(self.values)
            return ordinal_slopes(mean, variance, cuts, self.slopes)[..., self.levels(np.arange(len(cuts) + 1)), None]
        slopes = self.slopes(mean, variance)
        if not self.is_multi_class:
            slopes = np.stack([-slopes, slopes], axis=-1)[..., None]
        if self.has_wrong_labels:
            slopes = unflipped_share(self.values, slopes.shape[2]) * slopes
        return slopes

    def probability_gradients(
        self, mean: np.ndarray, variance: np.ndarray, by_x: Sequence[np.ndarray], each: Each = map
    ) -> np.ndarray:
        """Gradients (n, classes, d) of the predictive probabilities, from those of the latent means and variances,
        (n, d) or (n, C, d)."""
        mean_by_x, variance_by_x = (by if by.ndim == 3 else by[:, None] for by in by_x)

        def gradients(part: slice) -> np.ndarray:
            by_mean, by_variance = self.probability_slopes(mean[part], variance[part])
            return np.asarray(by_mean @ mean_by_x[part] + by_variance @ variance_by_x[part])

        return np.concatenate(list(each(gradients, _parts(mean))))

    def log_probabilities_given(self, latent: np.ndarray) -> np.ndarray:
        """log p(y | f) (n, classes) for latent values f, (n,) or (n, C)."""
        if self.given_latent is not None:
            return self.given_latent(latent)
        return self.log_probabilities(latent, np.zeros_like(latent))

    def __reduce__(self) -> tuple[Callable[..., LikelihoodBound], tuple[object, ...]]:
        # Copies of a record, and of a site that holds it, refer to the record in the registry.
        return record_of, (*self.key, self.order, self.values)


_LOGIT = LikelihoodBound(
    "logit", "polya-gamma", predictive=logit_log_probabilities, slopes=logit_slopes, link=LOGISTIC_MIXTURE
)
_STEP, _PROBIT, _NORMAL_LOGIT = (
    LikelihoodBound(
        name,
        "additive-noise",
        predictive=partial(normal_log_probabilities, noise_variance=variance),
        slopes=partial(normal_slopes, noise_variance=variance),
        link=((1.0, variance),),
        parameter=LABEL_NOISE,
        start=("probit", "exact"),
    )
    for name, variance in NOISE_VARIANCES.items()
)
_EXACT_PROBIT = replace(_PROBIT, bound="exact", parameter=(), start=None)
_SOFTMAX = LikelihoodBound(
    "softmax",
    "additive-noise",
    predictive=softmax_log_probabilities,
    slopes=softmax_slopes,
    given_latent=partial(log_softmax, axis=1),
    expected_entropy=softmax_expected_entropy,
    expected_entropy_slopes=softmax_expected_entropy_slopes,
    curvature=softmax_curvature,
)

# The default bound of a likelihood comes first. The exact bounds are closer to the posterior and need fewer iterations
# than the others, at about the same cost per iteration.
#
# Why some bounds have a start: additive noise has no curvature at the prior, and a learned delta then ends at guessing.
# Logistic-softmax has optima at which all classes are equally likely, and reaches them from a prior of large variance.
# Of 108 fits from softmax's bound, 28 ended more than 2 nats above those from the prior, and 3 below.
RECORDS = (
    replace(_LOGIT, bound="exact", cavity=TwoClasses(_sites.LINKS["logit"])),
    _LOGIT,
    replace(_LOGIT, bound="taylor"),
    replace(_EXACT_PROBIT, cavity=TwoClasses(_sites.LINKS["probit"])),
    *(_STEP, _PROBIT, _NORMAL_LOGIT),
    replace(_LOGIT, likelihood="psychometric", bound="exact", parameter=RATES),
    # Class probabilities: Wenzel et al. 2017, equation (13), with the square root that is missing there.
    replace(_EXACT_PROBIT, likelihood="svm", is_probability=False),
    replace(_EXACT_PROBIT, likelihood="svm", bound="augmented", is_probability=False),
    replace(_LOGIT, likelihood=f"{ORDINAL}logit", bound="exact", parameter=CUT_POINTS),
    replace(_EXACT_PROBIT, likelihood=f"{ORDINAL}probit", parameter=CUT_POINTS),
    replace(_SOFTMAX, bound="exact", table=partial(softmax_table, "hazard"), cavity=Softmax()),
    _SOFTMAX,
    *(
        LikelihoodBound(
            f"multinomial-{name}",
            "additive-noise",
            predictive=partial(multinomial_log_probabilities, noise_variance=variance),
            slopes=partial(multinomial_slopes, noise_variance=variance),
            link=((1.0, variance),),
            parameter=LABEL_NOISE,
            start=("softmax", "additive-noise"),
            curvature=multinomial_curvature,
        )
        for name, variance in NOISE_VARIANCES.items()
    ),
    LikelihoodBound(
        "logistic-softmax",
        "polya-gamma",
        predictive=logistic_softmax_log_probabilities,
        start=("softmax", "additive-noise"),
        other_start=("softmax", "exact"),
        given_latent=log_shares,
    ),
)
BY_KEY = {record.key: record for record in RECORDS}
# The records of each likelihood by the names of its bounds, the default bound first.
BY_NAME: dict[str, Mapping[str, LikelihoodBound]] = {
    name: MappingProxyType({r.bound: r for r in RECORDS if r.likelihood == name})
    for name in dict.fromkeys(record.likelihood for record in RECORDS)
}
# Likelihoods of classes without an order, and of ordered ones.
LIKELIHOODS = {name: bounds for name, bounds in BY_NAME.items() if not name.startswith(ORDINAL)}
ORDERED = {name: bounds for name, bounds in BY_NAME.items() if name.startswith(ORDINAL)}
# Likelihoods for any number of classes.
MULTI_CLASS = frozenset(record.likelihood for record in RECORDS if record.is_multi_class)


def record_of(
    likelihood: str, bound: str, order: Iterable[int] = (), values: tuple[float, ...] = ()
) -> LikelihoodBound:
    """The record of a likelihood's bound; ``order`` has the numbers of ordered classes from the lowest level up."""
    record, order = BY_KEY[likelihood, bound], tuple(map(int, order))
    return replace(record, order=order, values=values) if order or values else record


def other_site(key: Key, site: Site) -> Site:
    """The site of another bound, for the latent functions and the prior mean of ``site``."""
    return record_of(*key).site(site.n_latents).with_prior_mean(site.prior_mean)


def predicted_log_probabilities(site: Site, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log probabilities (n, classes) of the labels of new rows, where the latent functions' distances from the prior
    mean are N(mean, variance), (n,) or (C, n)."""
    shape = (site.n_latents, -1) if site.n_latents > 1 else -1
    m, v = (np.reshape(moment, shape).T for moment in (mean, variance))
    return site.record.at(site.parameter).log_probabilities(m + site.prior_mean, v)


def label_log_probabilities(site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``predicted_log_probabilities`` of labels y (n,), as sites take them: the score of rows not learned from."""
    return predicted_log_probabilities(site, mean, variance)[np.arange(len(y)), site.record.codes(y)]


def expected_log_likelihood(site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> float:
    """Sum of the bound's terms over the rows, in nats, for marginals (n,) or (C, n)."""
    ell, *_ = _sites.sites(site, mean, variance, y)
    return float(np.sum(ell))


def resolve(likelihood: str, bound: str, n_classes: int = 2) -> LikelihoodBound:
    """The record of two names; with more than two classes "logit" means softmax.

    ValueError for an unknown name, or for a likelihood of two classes with more classes.
    """
    if not isinstance(likelihood, str) or likelihood not in BY_NAME:
        raise ValueError(f"likelihood must be one of {list(LIKELIHOODS)}; got {likelihood!r}.")
    name = "softmax" if likelihood == "logit" and n_classes > 2 else likelihood
    bounds = BY_NAME[name]
    if n_classes > 2 and name not in MULTI_CLASS and name not in ORDERED:
        several = [name for name in LIKELIHOODS if name in MULTI_CLASS]
        raise ValueError(f"likelihood={likelihood!r} is for two classes; for {n_classes} take one of {several}.")
    if isinstance(bound, str) and bound == "auto":
        return next(iter(bounds.values()))
    if not isinstance(bound, str) or bound not in bounds:
        meaning = f" (for {n_classes} classes {name!r})" if name != likelihood else ""
        raise ValueError(
            f"bound must be 'auto' or, with likelihood {likelihood!r}{meaning}, one of {list(bounds)}; got {bound!r}."
        )
    return bounds[bound]
