"""Class probabilities as a graph, for each predictive function of ``xgpc.likelihoods``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from onnx import TensorProto
from scipy.special import erfcx

from .._sites import LOGISTIC_MIXTURE
from ..likelihoods import LikelihoodBound
from ..likelihoods.binary import logit_log_probabilities, normal_log_probabilities
from ..likelihoods.logistic_softmax import logistic_softmax_log_probabilities, normal_points
from ..likelihoods.multinomial import LEAST_VARIANCE, multinomial_log_probabilities, normal_reach
from ..likelihoods.softmax import (
    GUMBEL_VARIANCE,
    RHO_NODES,
    X_HIGH,
    X_LOW,
    X_NODES,
    gumbel_reach,
    softmax_log_probabilities,
    softmax_table,
)
from ..ranges import LEAST_DIVISOR
from .graph import Tensor, absolute, concatenated, exp, log, maximum, minimum, sqrt, where
from .largest import largest_probabilities

# ONNX has no normal distribution function in double precision that all runtimes know. For x >= 0,
# log Phi(-x) + x^2 / 2 - log t is nearly a polynomial of t = 1 / (1 + x / TAIL_SCALE): with this degree the error is
# 4e-10, which is also the relative error of Phi in its tail.
TAIL_SCALE, TAIL_DEGREE = 3.0, 14


@lru_cache(maxsize=1)
def _tail_coefficients() -> list[float]:
    """Coefficients of the powers of 2 t - 1, the highest first."""
    t = 0.5 * (1.0 + np.cos(np.pi * (np.arange(400) + 0.5) / 400))
    values = np.log(0.5 * erfcx(TAIL_SCALE * (1.0 / t - 1.0) / np.sqrt(2.0)) / t)
    fit = Chebyshev.fit(t, values, TAIL_DEGREE, domain=[0.0, 1.0])
    return [float(c) for c in fit.convert(kind=Polynomial, domain=[0.0, 1.0], window=[-1.0, 1.0]).coef[::-1]]


def _log_tail(x: Tensor) -> Tensor:
    """log Phi(-x), x >= 0."""
    t = 1.0 / (1.0 + x / TAIL_SCALE)
    s = 2.0 * t - 1.0
    first, second, *lower = _tail_coefficients()
    value = first * s + second
    for coefficient in lower:
        value = value * s + coefficient
    return value + log(t) - 0.5 * (x * x)


def _two_classes(mean: Tensor, small: Tensor) -> Tensor:
    """Columns (-1, +1) from the probability of the less probable class, whose sign is opposite to the mean's."""
    large, positive = 1.0 - small, -mean < 0.0
    return concatenated([where(positive, small, large), where(positive, large, small)], 1)


def _logistic_normal_mean(mean: Tensor, variance: Tensor) -> Tensor:
    """E[sigma(f)], f ~ N(mean, variance), elementwise; a normal scale mixture approximates sigma."""
    weights, widths = np.array(LOGISTIC_MIXTURE).T
    z = mean.with_axis(-1) / sqrt(variance.with_axis(-1) + widths)
    small = exp(_log_tail(absolute(z)))
    return (where(z < 0.0, small, 1.0 - small) @ weights[:, None]).apply("Squeeze", [-1])


class Latent(NamedTuple):
    """Mean and variance (rows, n_latents) of independent normal latent values; two classes have one latent value."""

    mean: Tensor
    variance: Tensor
    n_latents: int


def logit(latent: Latent) -> Tensor:
    """The logistic link, as in ``logit_log_probabilities`` but without the series."""
    a, variance = absolute(latent.mean), latent.variance
    tilted = variance < a
    small = _logistic_normal_mean(where(tilted, a - variance, -a), variance)
    return _two_classes(latent.mean, small * exp(where(tilted, 0.5 * variance - a, 0.0)))


def normal(latent: Latent, noise_variance: float) -> Tensor:
    """A step with additive normal noise."""
    t = latent.mean / sqrt(maximum(latent.variance + noise_variance, LEAST_DIVISOR))
    return _two_classes(t, exp(_log_tail(absolute(t))))


def _normal_terms(u: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    x = u / scale
    tail = _log_tail(absolute(x))
    log_cdf = where(x < 0.0, tail, log(1.0 - exp(tail)))
    return log_cdf, exp(-0.5 * (x * x) - log_cdf) / (np.sqrt(2.0 * np.pi) * scale)


def multinomial(latent: Latent, noise_variance: float) -> Tensor:
    """The largest of several normal values."""
    scale = sqrt(maximum(latent.variance + noise_variance, LEAST_VARIANCE))
    return largest_probabilities(latent.mean, scale, normal_reach(scale), _normal_terms)


def _spline_rows(row: Tensor) -> tuple[Tensor, Tensor]:
    """Spline coefficients along x (rows, C, X_NODES + 2) of psi and slope, at positions (rows, C, 1) between rows."""
    distance = absolute(row - np.arange(-1.0, RHO_NODES + 1.0))
    near, far = maximum(1.0 - distance, 0.0), maximum(2.0 - distance, 0.0)
    # Weights of the cubic B-spline.
    weights = far * far * far / 6.0 - near * near * near * (2.0 / 3.0)
    psi, slope = softmax_table("gumbel_normal")
    return weights @ psi, weights @ slope


def _along_rows(x: Tensor, psi: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Values of two splines at x (rows, C, T), which is clipped to their range."""
    position = (minimum(maximum(x, X_LOW), X_HIGH) - X_LOW) * ((X_NODES - 1) / (X_HIGH - X_LOW))
    first = minimum(position.apply("Floor"), float(X_NODES - 2))
    s = position - first
    # NaN rows stay NaN through s, but their index must be valid, and no operator promises that.
    unchecked = first.cast(TensorProto.INT64).cast(TensorProto.DOUBLE)
    index = minimum(maximum(unchecked, 0.0), float(X_NODES - 2)).cast(TensorProto.INT64)
    r = 1.0 - s
    weights = (
        r * r * r / 6.0, 2.0 / 3.0 - 0.5 * (s * s) * (1.0 + r), 2.0 / 3.0 - 0.5 * (r * r) * (1.0 + s), s * s * s / 6.0,
    )  # fmt: skip

    def value(coefficients: Tensor) -> Tensor:
        parts = [w * coefficients.apply("GatherElements", index + k, axis=2) for k, w in enumerate(weights)]
        return parts[0] + parts[1] + parts[2] + parts[3]

    return value(psi), value(slope)


def _gumbel_terms(u: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """log H and h / H for the sum of a normal and a Gumbel value, as in ``src/xgpc/largest.c``."""
    ratio = minimum(float(np.sqrt(GUMBEL_VARIANCE)) / scale, 1.0)
    x = (u - float(np.euler_gamma)) / scale
    psi, slope = _along_rows(x, *_spline_rows((1.0 - sqrt(1.0 - ratio)) * (RHO_NODES - 1.0)))
    left, right = minimum(x, X_LOW), maximum(x - X_HIGH, 0.0)
    psi = psi - X_LOW * slope * log(left / X_LOW)
    slope = slope * (X_LOW / left)
    bent = minimum(maximum(scale - slope, 0.0), right)
    psi = psi - bent * (slope + 0.5 * bent) - (right - bent) * (slope + bent)
    minus_log = exp(psi)
    return -minus_log, (slope + bent) / scale * minus_log


def softmax(latent: Latent) -> Tensor:
    """Softmax: the largest of the latent values plus Gumbel noise."""
    reach, scale = gumbel_reach(sqrt(latent.variance)), sqrt(latent.variance + GUMBEL_VARIANCE)
    return largest_probabilities(latent.mean, scale, reach, _gumbel_terms)


def logistic_softmax(latent: Latent) -> Tensor:
    """Logistic-softmax, as in ``logistic_softmax_log_probabilities`` at the same points (C, S)."""
    mean, variance, points = latent.mean.with_axis(2), latent.variance.with_axis(2), normal_points(latent.n_latents)
    f = mean + sqrt(variance) * points
    log_sigma = minimum(f, 0.0) - log(1.0 + exp(-absolute(f)))
    top = log_sigma.max(1)
    sigma = exp(log_sigma - top)
    others = sigma.apply("CumSum", 1, exclusive=1) + sigma.apply("CumSum", 1, exclusive=1, reverse=1)
    # A maximum, because onnxruntime drops the addition of a number that is zero in single precision.
    log_others = top + log(maximum(others, LEAST_DIVISOR))
    factor = 1.0 / (1.0 + exp(log_others))
    own = _logistic_normal_mean(mean + log(1.0 + exp(log_others)) - log_others, variance)
    value = (own * factor).sum(2).apply("Squeeze", [2])
    return value / value.sum(1)


# Predictive function -> function of the latent values and the noise variance that makes probabilities (rows, classes)
LINKS: dict[Callable[..., np.ndarray], Callable[..., Tensor]] = {
    logit_log_probabilities: logit,
    normal_log_probabilities: normal,
    softmax_log_probabilities: softmax,
    multinomial_log_probabilities: multinomial,
    logistic_softmax_log_probabilities: logistic_softmax,
}


def probabilities(record: LikelihoodBound, latent: Latent) -> Tensor:
    """Probabilities (rows, classes)."""
    if record.is_ordinal:
        raise ValueError("Models of ordered classes have no ONNX form here; save() writes a file for xgpc.")
    predictive = partial(record.predictive)
    p = LINKS[predictive.func](latent, **predictive.keywords)
    if not record.has_wrong_labels:
        return p
    rates, others = np.broadcast_to(record.values, max(2, latent.n_latents)), 1.0 - p
    # The sum over the classes is C - 1.
    return (1.0 - rates)[None] * p + rates[None, ::-1] * (others / others.sum(1))
