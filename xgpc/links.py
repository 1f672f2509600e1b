"""Links: predictive log probabilities of every likelihood for independent normal latent values.

Two classes have columns (-1, +1). With C latent values per point, class y is seen if f_y + g_y is the largest of
f_c + g_c, c = 1..C, with independent noise g of one distribution: Gumbel for softmax, normal for multinomial probit.
With H_c the distribution function of f_c + g_c and h_c its density, exactly,

    p_y = integral of h_y(t) prod_{c != y} H_c(t) dt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.ndimage import spline_filter
from scipy.special import erfcx, log_ndtr, log_softmax, logsumexp, ndtri, wrightomega

from . import _engine
from ._links import gumbel_normal

# Elements of the largest temporaries, of which about ten live at a time.
BLOCK = 120_000


def _alternating_weights(terms: int) -> np.ndarray:
    """Weights that sum an alternating series from its first terms (Cohen, Rodriguez Villegas & Zagier 2000, alg. 1)."""
    d = (3.0 + np.sqrt(8.0)) ** terms
    d = 0.5 * (d + 1.0 / d)
    b, c, weights = -1.0, -d, []
    for k in range(terms):
        c = b - c
        weights.append(c / d)
        b *= (k + terms) * (k - terms) / ((k + 0.5) * (k + 1.0))
    return np.array(weights)


# Their relative error is 5.8^-terms: 14 stay below that of the normal scale mixture, 4e-9.
SERIES_WEIGHTS = _alternating_weights(14)
# Probabilities below this lose digits in the mixture, whose error is absolute.
SERIES_BELOW = 0.05


def logit_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), for latent values N(mean, variance) under the logistic link.

    Absolute error below 1e-8, in either tail (tests/test_sites.py).

    Notes
    -----
    Evaluated for the less probable class, a = |mean|, v = variance, f ~ N(-a, v). The normal scale mixture alone is too
    thin in the tail. For a > v, E[sigma(f)] = exp(v/2 - a) E[sigma(g)], g ~ N(a - v, v), an identity, has its second
    factor above one half. Else, where the mixture's value is small, the geometric series of sigma on each side of zero
    gives, with x = a / sqrt(2 v) and t = sqrt(v / 2),

        E[sigma(f)] = exp(-x^2) / 2 * (erfcx(x) + sum_{j >= 1} (-1)^(j-1) (erfcx(j t - x) - erfcx(j t + x))).
    """
    a = np.abs(mean)
    tilted = a > variance
    small = _engine.logistic_normal_mean(np.where(tilted, a - variance, -a), variance)
    thin = ~tilted & (small < SERIES_BELOW)
    small = np.log(np.where(thin, 1.0, small)) + np.where(tilted, 0.5 * variance - a, 0.0)
    if np.any(thin):
        root = np.sqrt(2.0 * variance[thin])
        x = a[thin] / root
        steps = np.outer(np.arange(1.0, len(SERIES_WEIGHTS) + 1.0), variance[thin] / root)
        series = erfcx(x) + SERIES_WEIGHTS @ (erfcx(steps - x) - erfcx(steps + x))
        small[thin] = np.log(0.5 * series) - x * x
    large = np.log1p(-np.exp(small))
    positive = mean > 0.0
    return np.column_stack([np.where(positive, small, large), np.where(positive, large, small)])


def probit_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log Phi(-+ mean / sqrt(1 + variance)), (n, 2), to round-off: the probit link, also the Bayesian SVM's."""
    t = mean / np.sqrt(1.0 + variance)
    return np.column_stack([log_ndtr(-t), log_ndtr(t)])


def noisy_log_probabilities(mean: np.ndarray, variance: np.ndarray, noise_variance: float, delta: float) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), under additive noise and labels flipped with probability delta.

    log[(1 - delta) Phi(t) + delta Phi(-t)], t = -+ mean / sqrt(variance + noise_variance), to round-off. Without any
    variance it is the limit: a step at mean zero, whose impossible side is -inf if delta is zero.

    Parameters
    ----------
    mean, variance : (n,) of the latent values
    noise_variance : 0, 1 or 1.702^2 for the step, probit or (nearly) logistic likelihood
    delta : in [0, 1)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == 0.0, 0.0, mean / np.sqrt(variance + noise_variance))
        kept, flipped = np.log1p(-delta), np.log(delta)
    sides = np.column_stack([log_ndtr(-t), log_ndtr(t)])
    return np.logaddexp(kept + sides, flipped + sides[:, ::-1])


# Composite Gauss-Legendre quadrature on panels common to all classes: nodes on [-1, 1] and weights of each.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
# Panels in the scale of the sharpest class near by. A class is dead beyond CORE of its scales and sharp no more. The
# largest of many is sharper than each: with panels of 2.5 errors of probit were 2e-8 for 30 classes, 3e-7 for 100.
PANEL, CORE = 1.7, 6.0
# Points at which the panels' density is found: with 24 or 128 errors are the same, for scales from 1e-6 to 1e4.
MESH = 48
# A probability below it is summed in logarithms: its terms leave the range of a double.
TINY = 1e-200
# The integral starts where prod H = exp(-40): probabilities below exp(-30) whose integrand is cut there, its first term
# being more than this share of the sum, have a floor.
CUT, FLOOR_BELOW = 1e-9, -30.0
FLOOR_AT = np.linspace(0.0, 1.0, 33)
# Most bisections for the floors, and the least share of an interval that they leave: with six rounds the logarithms of
# 30 classes of very different scales are 6 % off, with seven 1 %; without a least share 30 %. Each class makes no more
# than a bend: few classes take fewer rounds.
FLOOR_ROUNDS, LEAST_SHARE = 7, 0.1


class Family(NamedTuple):
    """Distributions of f + g: functions of t - mean and scale, whose last axis has one element.

    Attributes
    ----------
    terms : log H and h / H, where H > 0 in double precision
    logs : log H and log(h / H)
    log_survival : log(1 - H)
    """

    terms: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    logs: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    log_survival: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _panel_edges(mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mesh (n, MESH + 1) over [low, high] and, at each of its points, the panels to its left.

    A mean is less than ten of its scales above low, so that a class is sharp no farther from low than sixteen of them:
    panels are as wide as a share of that distance, their number does not grow with the number of classes, and the mesh
    is geometric.
    """
    first = 0.5 * scale.min(axis=1)
    growth = np.linspace(0.0, 1.0, MESH)
    mesh = np.empty((len(mean), MESH + 1))
    mesh[:, 0] = low
    mesh[:, 1:] = low[:, None] + first[:, None] * ((high - low) / first)[:, None] ** growth
    mesh[:, -1] = high
    middle = 0.5 * (mesh[:, 1:] + mesh[:, :-1])
    squares = middle[:, None, :] / CORE - mean[:, :, None] / CORE
    squares *= squares
    np.maximum(squares, scale[:, :, None] ** 2, out=squares)
    density = np.max(np.divide(scale[:, :, None], squares, out=squares), axis=1)
    panels = np.zeros_like(mesh)
    np.cumsum(density * np.diff(mesh, axis=1) / PANEL, axis=1, out=panels[:, 1:])
    return mesh, panels


def _largest_in_block(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray, family: Family
) -> np.ndarray:
    mesh, panels = _panel_edges(mean, scale, low, high)
    # Few distinct numbers of panels, so that rows share their loops.
    count = (4.0 * np.ceil(panels[:, -1] / 4.0)).astype(int)
    value, cut = np.empty_like(mean), np.empty(mean.shape, dtype=bool)
    for number in np.unique(count):
        rows = np.flatnonzero(count == number)
        # Invert the panels' numbers, one row after another on the real line.
        offset = 2.0 * np.arange(len(rows))[:, None]
        at = offset + np.linspace(0.0, 1.0, number + 1)
        known = offset + panels[rows] / panels[rows, -1:]
        edges = np.interp(at.ravel(), known.ravel(), mesh[rows].ravel()).reshape(at.shape)
        half = 0.5 * np.diff(edges, axis=1)[:, :, None]
        t = (0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None] + half * NODES).reshape(len(rows), -1)
        u, scales = t[:, None, :] - mean[rows, :, None], scale[rows, :, None]
        log_cdf, hazard = family.terms(u, scales)
        with np.errstate(divide="ignore"):
            log_mass = np.log(half * WEIGHTS).reshape(t.shape) + log_cdf.sum(axis=1)
            mass = np.exp(log_mass)
            total = np.einsum("rck,rk->rc", hazard, mass)
            value[rows] = np.log(total)
        cut[rows] = hazard[:, :, 0] * mass[:, :1] > CUT * total
        r, y = np.nonzero(total < TINY)
        if len(r):
            log_terms = family.logs(u[r, y], scales[r, y])[1] + log_mass[r]
            top = log_terms.max(axis=1)
            value[rows[r], y] = top + np.log(np.exp(log_terms - top[:, None]).sum(axis=1))
            cut[rows[r], y] = log_terms[:, 0] > value[rows[r], y] + np.log(CUT)
    r, y = np.nonzero(cut & (value < FLOOR_BELOW) & (mean < low[:, None]))
    if len(r):
        value[r, y] = np.maximum(value[r, y], _floors(mean, scale, low, r, y, family))
    return value - logsumexp(value, axis=1, keepdims=True)


def _interleaved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Columns of b (n, k) between those of a (n, k + 1)."""
    both = np.empty((len(a), a.shape[1] + b.shape[1]))
    both[:, ::2], both[:, 1::2] = a, b
    return both


def _root_of_sum(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, fall: np.ndarray, family: Family
) -> tuple[np.ndarray, np.ndarray]:
    """Points t (n, m) up to low, and sqrt(-2 sum_c log H_c(t)) at them.

    They begin at the lowest mean, or where the sum is less by ``fall`` (n,) or more than at low. The root is about the
    norm of the standardised distances to the means above t: convex, and nearly linear but for bends near means. Points
    are put between two others where their tangents meet: at a bend, if there is one.
    """

    def root(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_cdf, log_hazard = family.logs(t[:, None, :] - mean[:, :, None], scale[:, :, None])
        value = np.sqrt(-2.0 * log_cdf.sum(axis=1))
        return value, -np.exp(log_hazard).sum(axis=1) / value

    at_low, _ = root(low[:, None])
    deep = np.sqrt(at_low[:, 0] ** 2 + 2.0 * fall)
    unit = scale.min(axis=1)
    near, far = np.zeros(len(mean)), np.log1p((low - mean.min(axis=1)) / unit)
    for _ in range(FLOOR_ROUNDS):
        middle = 0.5 * (near + far)
        value, _ = root((low - unit * np.expm1(middle))[:, None])
        beyond = value[:, 0] > deep
        near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
    t = np.column_stack([low - unit * np.expm1(far), low])
    value, slope = root(t)
    for _ in range(min(FLOOR_ROUNDS, 2 + int(np.ceil(np.log2(mean.shape[1]))))):
        width = np.diff(t, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (slope[:, 1:] - np.diff(value, axis=1) / width) / np.diff(slope, axis=1)
        share = np.where(np.isfinite(share), share, 0.5)
        between = t[:, :-1] + np.clip(share, LEAST_SHARE, 1.0 - LEAST_SHARE) * width
        more = between, *root(between)
        t, value, slope = (_interleaved(*pair) for pair in zip((t, value, slope), more, strict=True))
    return t, value


def _floors(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, r: np.ndarray, y: np.ndarray, family: Family
) -> np.ndarray:
    """Lower bounds (p,) of log P(class y is the largest) for rows r, ascending, and classes y with means below low.

    P(all others <= t < y) is one for any t, within a small factor at the best of FLOOR_AT.
    """
    rows, place = np.unique(r, return_inverse=True)
    # Where the sum of log H is less than at low by more than -log P(y > low), t = low is the better one.
    fall = np.zeros(len(rows))
    np.maximum.at(fall, place, -family.log_survival((low[r] - mean[r, y])[:, None], scale[r, y, None])[:, 0])
    points, roots = _root_of_sum(mean[rows], scale[rows], low[rows], fall, family)
    t = np.maximum(mean[r, y], points[place, 0])[:, None]
    t = t + (low[r, None] - t) * FLOOR_AT
    u = t - mean[r, y, None]
    own, _ = family.logs(u, scale[r, y, None])
    value = family.log_survival(u, scale[r, y, None]) - own
    ends = np.searchsorted(place, np.arange(len(rows) + 1))
    for i, (start, stop) in enumerate(pairwise(ends)):
        value[start:stop] -= 0.5 * np.interp(t[start:stop], points[i], roots[i]) ** 2
    return value.max(axis=1)


def _largest_log_probabilities(
    mean: np.ndarray, scale: np.ndarray, reach: tuple[np.ndarray, np.ndarray], family: Family
) -> np.ndarray:
    """log P(class y is the largest), (n, C), for locations and scales (n, C) of some reach."""
    mean = mean - mean.max(axis=1, keepdims=True)
    low, high = (mean - reach[0]).max(axis=1), (mean + reach[1]).max(axis=1)
    value = np.empty_like(mean)
    step = max(1, BLOCK // (100 * mean.shape[1]))
    for start in range(0, len(mean), step):
        part = slice(start, start + step)
        value[part] = _largest_in_block(mean[part], scale[part], low[part], high[part], family)
    return value


GUMBEL_VARIANCE = np.pi**2 / 6.0
# H of softmax is a function of two variables, interpolated from a table: the standardised argument x, and
# rho = 1 - sqrt(1 - sd(g) / sd(f + g)), from 0 (normal) to 1 (Gumbel). Errors on the way: 8e-9 in H, 1.4e-8 in h sd.
X_LOW, X_HIGH, X_NODES, RHO_NODES = -11.0, 14.0, 301, 121


def _gumbel_normal_row(ratio: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """psi = log(-log H) and -d psi / dx at the standardised x of normal plus Gumbel, ratio = sd g / sd (f + g).

    H = E[exp(-exp(f - t))] by the trapezoidal rule in z = f / sqrt(v), left of the mean about the integrand's mode;
    right of it 1 - H is summed. Both have a relative error near round-off.
    """
    if ratio == 0.0:
        log_cdf = log_ndtr(x)
        return np.log(-log_cdf), np.exp(-0.5 * x * x - 0.5 * np.log(2.0 * np.pi) - log_cdf) / -log_cdf
    sd_sum = np.sqrt(GUMBEL_VARIANCE) / ratio
    t = np.euler_gamma + sd_sum * x
    sd = np.sqrt(max(sd_sum**2 - GUMBEL_VARIANCE, 1e-12))
    step = min(0.1, 0.4 / sd)
    left = x < 0.0
    t_left = t[left, None]
    z = -wrightomega(2.0 * np.log(sd) - t_left) / sd + step * np.arange(-np.ceil(10.0 / step), np.ceil(10.0 / step))
    y = np.exp(np.minimum(sd * z - t_left, 700.0))
    exponent = -y - 0.5 * z * z
    top = exponent.max(axis=1)
    mass = np.exp(exponent - top[:, None])
    total = mass.sum(axis=1)
    minus_log = -(np.log(total * step / np.sqrt(2.0 * np.pi)) + top)
    slope = sd_sum * (mass * y).sum(axis=1) / (total * minus_log)
    z = step * np.arange(-np.ceil(10.0 / step), np.ceil(24.0 / step))
    y = np.exp(np.minimum(sd * z - t[~left, None], 700.0))
    mass = np.exp(-0.5 * z * z) * step / np.sqrt(2.0 * np.pi)
    upper = -np.expm1(-y) @ mass
    minus_log_right = -np.log1p(-upper)
    slope_right = sd_sum * ((y * np.exp(-y)) @ mass) / ((1.0 - upper) * minus_log_right)
    return np.log(np.append(minus_log, minus_log_right)), np.append(slope, slope_right)


@lru_cache(maxsize=1)
def _gumbel_normal_tables() -> np.ndarray:
    """Spline coefficients (2, RHO_NODES + 2, X_NODES + 2) of psi and slope, mirrored by one row and column."""
    x = np.linspace(X_LOW, X_HIGH, X_NODES)
    ratios = 1.0 - (1.0 - np.linspace(0.0, 1.0, RHO_NODES)) ** 2
    psi, slope = np.array([_gumbel_normal_row(ratio, x) for ratio in ratios]).transpose(1, 0, 2)
    # Mirroring suits rho: the derivatives by it vanish at either end.
    return np.stack([np.pad(spline_filter(values, mode="mirror"), 1, mode="reflect") for values in (psi, slope)])


def _gumbel_normal(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """psi = log(-log H) and -d psi / du, u = t - E f, scale = sd(f + g) with one value along the last axis of u."""
    n = u.shape[-1]
    scales = np.broadcast_to(scale, (*u.shape[:-1], 1)).reshape(-1)
    ratio = np.minimum(np.sqrt(GUMBEL_VARIANCE) / scales, 1.0)
    row = (1.0 - np.sqrt(1.0 - ratio)) * (RHO_NODES - 1)
    flat = np.ascontiguousarray(u).reshape(-1, n)
    psi, slope = gumbel_normal(_gumbel_normal_tables(), X_LOW, X_HIGH, flat, np.ascontiguousarray(scales), row)
    return psi.reshape(u.shape), slope.reshape(u.shape)


def _gumbel_normal_logs(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    psi, slope = _gumbel_normal(u, scale)
    return -np.exp(psi), psi + np.log(slope)


def _gumbel_normal_terms(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    psi, slope = _gumbel_normal(u, scale)
    np.exp(psi, out=psi)
    slope *= psi
    return np.negative(psi, out=psi), slope


def _gumbel_normal_survival(u: np.ndarray, scale: np.ndarray) -> np.ndarray:
    psi, _ = _gumbel_normal(u, scale)
    return np.where(psi < -30.0, psi, np.log(-np.expm1(-np.exp(np.maximum(psi, -30.0)))))


GUMBEL_NORMAL = Family(_gumbel_normal_terms, _gumbel_normal_logs, _gumbel_normal_survival)


def softmax_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log E[softmax(f)], (n, C), for f ~ N(mean, diag(variance)).

    By quadrature; the largest errors measured, for variances up to 1e4 and 2 to 300 classes, are 1e-8 in a probability,
    5e-4 in a logarithm above log 1e-6, and below it 2 % of the logarithm down to -30, 10 % farther. Without variance it
    is log softmax(mean). O(n C): .03, .3 and .7 ms a row of 10, 100 and 300 classes (bench/links.py); the first call
    takes about half a second more.

    Notes
    -----
    The Gumbel distribution of g makes softmax(f)_y the probability that f_y + g_y is the largest.
    """
    sd, scale = np.sqrt(variance), np.sqrt(variance + GUMBEL_VARIANCE)
    # log H(-reach) < -39 and 1 - H(reach) < 4e-9, by splitting between f and g.
    reach = 3.7 + 8.95 * sd, 20.0 + 6.0 * sd
    value = _largest_log_probabilities(mean, scale, reach, GUMBEL_NORMAL)
    certain = ~np.any(variance, axis=1)
    value[certain] = log_softmax(mean[certain], axis=1)
    return value


def _normal_terms(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = u / scale
    cdf, density = (values.reshape(u.shape) for values in _engine.normal(x.ravel()))
    density /= cdf
    density /= scale
    return np.log(cdf, out=cdf), density


def _normal_logs(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = u / scale
    square = 0.5 * x * x
    log_ratio = np.log(0.5 * erfcx(np.sqrt(0.5) * np.abs(x)))
    tail = log_ratio - square
    # Left of the mean x^2 / 2 cancels in the hazard.
    left = x < 0.0
    log_cdf = np.where(left, tail, np.log1p(-np.exp(tail)))
    return log_cdf, np.where(left, -log_ratio, -square - log_cdf) - np.log(scale * np.sqrt(2.0 * np.pi))


NORMAL = Family(_normal_terms, _normal_logs, lambda u, scale: log_ndtr(-u / scale))


def multinomial_log_probabilities(
    mean: np.ndarray, variance: np.ndarray, noise_variance: float, delta: float
) -> np.ndarray:
    """log p(y = c), (n, C), under additive normal noise and labels replaced by any other with probability delta.

    log[(1 - delta) p_y + delta / (C - 1) (1 - p_y)], p_y the probability that f_y + g_y is the largest.

    By quadrature; the largest errors measured, for 2 to 300 classes, are 1e-8 in p_y, 1e-5 in its logarithm above
    log 1e-6, below it 5 % of the logarithm. O(n C): .03, .2 and .6 ms a row of 10, 100 and 300 classes, eight times as
    much where most are impossible (bench/links.py).

    Parameters
    ----------
    mean, variance : (n, C) of the latent values
    noise_variance : 0, 1 or 1.702^2 as for two classes; with the variance it counts as 1e-12 at least
    delta : in [0, 1)
    """
    scale = np.sqrt(np.maximum(variance + noise_variance, 1e-12))
    reach = 9.0 * scale, 7.0 * scale
    value = _largest_log_probabilities(mean, scale, reach, NORMAL)
    with np.errstate(divide="ignore"):
        others = np.log(-np.expm1(np.minimum(value, 0.0))) - np.log(mean.shape[1] - 1.0)
        return np.logaddexp(np.log1p(-delta) + value, np.log(delta) + others)


@lru_cache(maxsize=8)
def _normal_points(n_classes: int) -> np.ndarray:
    """(n_classes, 512) standard normal values: a scrambled Sobol sequence and its mirror image."""
    from scipy.stats import qmc

    half = ndtri(qmc.Sobol(n_classes, seed=0).random(256)).T
    return np.concatenate([half, -half], axis=1)


def logistic_softmax_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log E[sigma(f_y) / sum_c sigma(f_c)], (n, C), sigma the logistic function.

    With 512 fixed quasi-random points: the largest errors measured, for variances about 0.1, 1, 10, 100 and 1e4, are
    4e-5, 2e-4, 6e-4, 2e-3 and 3e-3 in a probability (C = 2, 3, 10, 26) and, for the first three, 4e-4, 8e-3 and 4e-2
    in a logarithm above log 1e-3, at most 0.7 in one above -30 (C = 2). O(n C).

    Notes
    -----
    With S the sum over the other classes, sigma / (sigma + S) = sigma(f_y + log(1 + 1/S)) / (1 + S): the mean over f_y
    is the logit's, and only the others' is one over fixed quasi-random points.
    """
    points, sd = _normal_points(mean.shape[1]), np.sqrt(variance)
    value = np.empty(mean.shape)
    step = max(1, BLOCK // points.size)
    for start in range(0, len(mean), step):
        part = slice(start, start + step)
        m, v = mean[part], variance[part]
        f = m[:, :, None] + sd[part, :, None] * points
        log_sigma = np.minimum(f, 0.0) - np.log1p(np.exp(-np.abs(f)))
        top = log_sigma.max(axis=1, keepdims=True)
        sigma = np.exp(log_sigma - top)
        others = np.full_like(sigma, 1e-300)
        others[:, 1:] += np.cumsum(sigma, axis=1)[:, :-1]
        others[:, :-1] += np.cumsum(sigma[:, ::-1], axis=1)[:, -2::-1]
        log_others = top + np.log(others)
        log_factor = -np.log1p(np.exp(log_others))
        shifted = m[:, :, None] - log_factor - log_others
        own = _engine.logistic_normal_mean(shifted.ravel(), np.repeat(v.ravel(), points.shape[1])).reshape(f.shape)
        probability = np.mean(own * np.exp(log_factor), axis=2)
        value[part] = np.log(np.maximum(probability, 1e-300))
        # The same in logarithms where the error of logistic_normal_mean, which is absolute, may show.
        r, y = np.nonzero(probability < 1e-5)
        own = logit_log_probabilities(shifted[r, y].ravel(), np.repeat(v[r, y], points.shape[1]))[:, 1]
        terms = own.reshape(-1, points.shape[1]) + log_factor[r, y]
        value[start + r, y] = logsumexp(terms, axis=1) - np.log(points.shape[1])
    value -= value.max(axis=1, keepdims=True)
    return value - logsumexp(value, axis=1, keepdims=True)
