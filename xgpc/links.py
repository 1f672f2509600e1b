"""Links: predictive log probabilities of every likelihood for independent normal latent values.

Two classes have columns (-1, +1). With C latent values per point, class y is seen if f_y + g_y is the largest of
f_c + g_c, c = 1..C, with independent noise g of one distribution: Gumbel for softmax, normal for multinomial probit.
With H_c the distribution function of f_c + g_c and h_c its density, exactly,

    p_y = integral of h_y(t) prod_{c != y} H_c(t) dt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.ndimage import map_coordinates, spline_filter
from scipy.special import erfcx, log_ndtr, log_softmax, logsumexp, ndtri, wrightomega

from . import _engine

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
# Panels in the scale of the sharpest class near by. A class is dead beyond CORE of its scales and sharp no more.
PANEL, CORE = 2.5, 6.0
MESH = np.array([-40.0, -20.0, -12.0, -8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0])
# The integral starts where prod H = exp(-40): probabilities below exp(-30) whose integrand is cut there have a floor.
FLOOR_BELOW = -30.0
FLOOR_AT = np.linspace(0.0, 1.0, 33)

# (t - mean, scale) -> log H and log(h / H), and log(1 - H)
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Survival = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _panel_edges(mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mesh (n, M) over [low, high] and, at each of its points, the panels to its left."""
    mesh = (mean[:, :, None] + scale[:, :, None] * MESH).reshape(len(mean), -1)
    mesh = np.sort(np.clip(mesh, low[:, None], high[:, None]), axis=1)
    mesh[:, 0], mesh[:, -1] = low, high
    middle = 0.5 * (mesh[:, 1:] + mesh[:, :-1])
    distance = np.maximum(np.abs(middle[:, None, :] - mean[:, :, None]) / (CORE * scale[:, :, None]), 1.0)
    density = np.max(1.0 / (distance**2 * scale[:, :, None]), axis=1)
    panels = np.zeros_like(mesh)
    np.cumsum(density * np.diff(mesh, axis=1) / PANEL, axis=1, out=panels[:, 1:])
    return mesh, panels


def _largest_in_block(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray, evaluate: Evaluate, survival: Survival
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
        with np.errstate(divide="ignore"):
            log_weights = np.log(half * WEIGHTS).reshape(t.shape)
        log_cdf, log_integrand = evaluate(t[:, None, :] - mean[rows, :, None], scale[rows, :, None])
        log_integrand += (log_weights + log_cdf.sum(axis=1))[:, None, :]
        top = log_integrand.max(axis=2, keepdims=True)
        integrand = np.exp(log_integrand - top)
        value[rows] = np.log(integrand.sum(axis=2)) + top[:, :, 0]
        cut[rows] = integrand[:, :, 0] > 1e-9
    r, y = np.nonzero(cut & (value < FLOOR_BELOW) & (mean < low[:, None]))
    if len(r):
        # P(all others <= t < y) for any t is a lower bound, within a small factor at the best t.
        t = mean[r, y, None] + (low[r] - mean[r, y])[:, None] * FLOOR_AT
        log_cdf, _ = evaluate(t[:, None, :] - mean[r, :, None], scale[r, :, None])
        log_cdf[np.arange(len(r)), y] = survival(t - mean[r, y, None], scale[r, y, None])
        value[r, y] = np.maximum(value[r, y], log_cdf.sum(axis=1).max(axis=1))
    return value - logsumexp(value, axis=1, keepdims=True)


# What overflows there is a class that is certain, or without a chance.
@np.errstate(over="ignore")
def _largest_log_probabilities(
    mean: np.ndarray, scale: np.ndarray, reach: tuple[np.ndarray, np.ndarray], evaluate: Evaluate, survival: Survival
) -> np.ndarray:
    """log P(class y is the largest), (n, C), for locations and scales (n, C) of some reach."""
    mean = mean - mean.max(axis=1, keepdims=True)
    low, high = (mean - reach[0]).max(axis=1), (mean + reach[1]).max(axis=1)
    value = np.empty_like(mean)
    step = max(1, BLOCK // (mean.shape[1] * max(len(MESH) * mean.shape[1], 100)))
    for start in range(0, len(mean), step):
        part = slice(start, start + step)
        value[part] = _largest_in_block(mean[part], scale[part], low[part], high[part], evaluate, survival)
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
def _gumbel_normal_table() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(X_LOW, X_HIGH, X_NODES)
    ratios = 1.0 - (1.0 - np.linspace(0.0, 1.0, RHO_NODES)) ** 2
    psi, slope = np.array([_gumbel_normal_row(ratio, x) for ratio in ratios]).transpose(1, 0, 2)
    # Mirroring suits rho: the derivatives by it vanish at either end.
    return spline_filter(psi, mode="mirror"), spline_filter(slope, mode="mirror")


def _gumbel_normal(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """psi = log(-log H) and -d psi / du, u = t - E f, scale = sd(f + g) broadcastable to u.

    Beyond the table psi follows the normal distribution's logarithm to the left, and to the right its hazard as far as
    the Gumbel distribution's, which is one.
    """
    x = (u - np.euler_gamma) / scale
    inside = np.clip(x, X_LOW, X_HIGH)
    at = np.empty((2, *u.shape))
    ratio = np.minimum(np.sqrt(GUMBEL_VARIANCE) / scale, 1.0)
    at[0] = (1.0 - np.sqrt(1.0 - ratio)) * (RHO_NODES - 1)
    at[1] = (inside - X_LOW) * ((X_NODES - 1) / (X_HIGH - X_LOW))
    psi, slope = (map_coordinates(a, at, mode="mirror", prefilter=False) for a in _gumbel_normal_table())
    beyond = x - inside
    if np.any(beyond):
        psi += np.where(beyond < 0.0, -X_LOW * slope * np.log1p(np.minimum(beyond, 0.0) / X_LOW), 0.0)
        right = np.maximum(beyond, 0.0)
        bent = np.minimum(right, np.maximum(scale - slope, 0.0))
        psi -= bent * (slope + 0.5 * bent) + (right - bent) * (slope + bent)
        slope += bent
    return psi, slope / scale


def _gumbel_normal_logs(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    psi, slope = _gumbel_normal(u, scale)
    return -np.exp(psi), psi + np.log(slope)


def _gumbel_normal_survival(u: np.ndarray, scale: np.ndarray) -> np.ndarray:
    psi, _ = _gumbel_normal(u, scale)
    return np.where(psi < -30.0, psi, np.log(-np.expm1(-np.exp(np.maximum(psi, -30.0)))))


def softmax_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log E[softmax(f)], (n, C), for f ~ N(mean, diag(variance)).

    By quadrature; the largest errors measured, for variances up to 1e4 and 2 to 30 classes, are 1e-8 in a probability,
    5e-4 in a logarithm above log 1e-6, and below it 2 % of the logarithm down to -30, 10 % farther. Without variance it
    is log softmax(mean). O(n C); the first call takes about half a second more.

    Notes
    -----
    The Gumbel distribution of g makes softmax(f)_y the probability that f_y + g_y is the largest.
    """
    sd, scale = np.sqrt(variance), np.sqrt(variance + GUMBEL_VARIANCE)
    # log H(-reach) < -39 and 1 - H(reach) < 4e-9, by splitting between f and g.
    reach = 3.7 + 8.95 * sd, 20.0 + 6.0 * sd
    value = _largest_log_probabilities(mean, scale, reach, _gumbel_normal_logs, _gumbel_normal_survival)
    certain = ~np.any(variance, axis=1)
    value[certain] = log_softmax(mean[certain], axis=1)
    return value


def _normal_logs(u: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Of values farther out the square is infinite.
    x = np.clip(u / scale, -1e150, 1e150)
    log_cdf = log_ndtr(x)
    return log_cdf, -0.5 * x * x - log_cdf - np.log(scale * np.sqrt(2.0 * np.pi))


def multinomial_log_probabilities(
    mean: np.ndarray, variance: np.ndarray, noise_variance: float, delta: float
) -> np.ndarray:
    """log p(y = c), (n, C), under additive normal noise and labels replaced by any other with probability delta.

    log[(1 - delta) p_y + delta / (C - 1) (1 - p_y)], p_y the probability that f_y + g_y is the largest.

    By quadrature; the largest errors measured are 1e-8 in p_y, 1e-5 in its logarithm above log 1e-6, below it 5 % of
    the logarithm. O(n C).

    Parameters
    ----------
    mean, variance : (n, C) of the latent values
    noise_variance : 0, 1 or 1.702^2 as for two classes; with the variance it counts as 1e-12 at least
    delta : in [0, 1)
    """
    scale = np.sqrt(np.maximum(variance + noise_variance, 1e-12))
    reach = 9.0 * scale, 7.0 * scale
    value = _largest_log_probabilities(mean, scale, reach, _normal_logs, lambda u, s: log_ndtr(-u / s))
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
