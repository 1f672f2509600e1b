"""Probabilities that each of several independent values is the largest, by quadrature on panels common to all classes.

A row has C latent values, and its label is y if f_y + g_y is the largest of f_c + g_c, c = 1..C. The noise values g are
independent: Gumbel for softmax, normal for multinomial probit. With H_c the distribution function of f_c + g_c and h_c
its density,

    p_y = integral of h_y(t) prod_{c != y} H_c(t) dt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

# Elements of a large temporary array; about ten exist at a time.
BLOCK = 120_000
# Gauss-Legendre nodes on [-1, 1] and weights of every panel.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
# Panels are this wide, in units of the smallest scale among the classes near by; a class needs no fine panels beyond
# CORE scales from its mean. Panels of 2.5 gave probit errors of 2e-8 for 30 classes and 3e-7 for 100.
PANEL, CORE = 1.7, 6.0
# Points at which the panels' density is computed; 24 and 128 points gave the same errors, for scales of 1e-6 to 1e4.
MESH = 48
# A smaller probability is summed in logarithms, because its terms leave the range of a double.
TINY = 1e-200
# The integral starts where prod H = exp(-40). If the first term is more than this share of the sum, the integrand was
# cut there; a probability below exp(-30) then gets a lower bound, its floor.
CUT, FLOOR_BELOW = 1e-9, -30.0
FLOOR_AT = np.linspace(0.0, 1.0, 33)
# Points of each row, besides the means, at which the sum of all log H is computed for floors. Logarithms of 10 to 100
# classes are at most 18 % lower than with many more points, for variances of 1e-4 to 1e4 and means with deviations of 3
# to 300; without the means some were fifty times as low.
FLOOR_MESH = np.linspace(1.0, 0.0, 129)


class Family(NamedTuple):
    """Distribution H of f + g, by functions of t - mean and of the scale, whose last axis has one element."""

    logs: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # log H and log(h / H)
    log_survival: Callable[[np.ndarray, np.ndarray], np.ndarray]  # log(1 - H)
    terms: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]  # log H, h / H and h' / h, for H > 0 in doubles


def _panel_edges(mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mesh (n, MESH + 1) over [low, high], and the number of panels to the left of each point.

    A mean is less than ten of its scales above low: the panels' width grows with the distance from low, their number
    does not grow with the number of classes, and the mesh is geometric.
    """
    # Points are no closer than the spacing of doubles near low.
    scale = np.maximum(scale, 8.0 * np.spacing(np.abs(low))[:, None])
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


def _nodes(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers (r,) of rows, their nodes t (r, k), and the nodes' weights."""
    mesh, panels = _panel_edges(mean, scale, low, high)
    # Multiples of four, so that many rows have the same number of panels and share an iteration.
    count = (4.0 * np.ceil(panels[:, -1] / 4.0)).astype(int)
    for number in np.unique(count):
        rows = np.flatnonzero(count == number)
        # Invert the cumulated panels of all rows by one interpolation, with each row in an interval of its own.
        offset = 2.0 * np.arange(len(rows))[:, None]
        wanted = offset + np.linspace(0.0, 1.0, number + 1)
        cumulated = offset + panels[rows] / panels[rows, -1:]
        edges = np.interp(wanted.ravel(), cumulated.ravel(), mesh[rows].ravel()).reshape(wanted.shape)
        half = 0.5 * np.diff(edges, axis=1)[:, :, None]
        t = (0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None] + half * NODES).reshape(len(rows), -1)
        yield rows, t, (half * WEIGHTS).reshape(t.shape)


def _largest_in_block(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray, family: Family
) -> np.ndarray:
    value, cut = np.empty_like(mean), np.empty(mean.shape, dtype=bool)
    for rows, t, weight in _nodes(mean, scale, low, high):
        u, scales = t[:, None, :] - mean[rows, :, None], scale[rows, :, None]
        log_cdf, hazard, _ = family.terms(u, scales)
        with np.errstate(divide="ignore"):
            log_mass = np.log(weight) + log_cdf.sum(axis=1)
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


def _floors(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, r: np.ndarray, y: np.ndarray, family: Family
) -> np.ndarray:
    """Lower bounds (p,) of log P(class y is the largest), for ascending rows r and classes y with means below low.

    P(all others <= t < y) is a lower bound for every t, and within a small factor at the best t of FLOOR_AT. The root
    sqrt(-2 sum_c log H_c(t)) is convex, and nearly linear except for bends near the means: it is interpolated between
    the means, and points whose distance from low grows geometrically.
    """
    rows, place = np.unique(r, return_inverse=True)
    m, s, lows = mean[rows], scale[rows], low[rows, None]
    unit = s.min(axis=1, keepdims=True)
    points = lows - unit * np.expm1(np.log1p((lows - m.min(axis=1, keepdims=True)) / unit) * FLOOR_MESH)
    points = np.sort(np.concatenate([points, np.minimum(m, lows)], axis=1), axis=1)
    log_cdf, _ = family.logs(points[:, None, :] - m[:, :, None], s[:, :, None])
    roots = np.sqrt(-2.0 * log_cdf.sum(axis=1))
    own_mean, own_scale = mean[r, y, None], scale[r, y, None]
    t = own_mean + (low[r, None] - own_mean) * FLOOR_AT
    value = family.log_survival(t - own_mean, own_scale) - family.logs(t - own_mean, own_scale)[0]
    ends = np.searchsorted(place, np.arange(len(rows) + 1))
    for i, (start, stop) in enumerate(pairwise(ends)):
        value[start:stop] -= 0.5 * np.interp(t[start:stop], points[i], roots[i]) ** 2
    return value.max(axis=1)


def _slopes_in_block(
    mean: np.ndarray, scale: np.ndarray, low: np.ndarray, high: np.ndarray, family: Family
) -> np.ndarray:
    """Derivatives (n, 2, C, C) of p_y by the mean and the variance of f_c. As dH_c / dv_c = h'_c / 2 (heat equation),

        dp_y / dm_c = -integral of h_y h_c prod H,   dp_y / dv_c = integral of h_y h'_c prod H / 2,   c != y,

    with the product over the other classes. Those with c = y make the derivatives of all p sum to zero.
    """
    value = np.empty((len(mean), 2, mean.shape[1], mean.shape[1]))
    for rows, t, weight in _nodes(mean, scale, low, high):
        u, scales = t[:, None, :] - mean[rows, :, None], scale[rows, :, None]
        log_cdf, hazard, bend = family.terms(u, scales)
        mass = hazard * (weight * np.exp(log_cdf.sum(axis=1)))[:, None]
        value[rows, 0] = -mass @ np.swapaxes(hazard, 1, 2)
        value[rows, 1] = 0.5 * mass @ np.swapaxes(hazard * bend, 1, 2)
    own = np.arange(mean.shape[1])
    value[..., own, own] = 0.0
    value[..., own, own] = -value.sum(axis=-2)
    return value


Range = tuple[np.ndarray, np.ndarray]


# A class that is certain or impossible overflows harmlessly.
@np.errstate(over="ignore")
def _in_blocks(
    function: Callable[..., np.ndarray], mean: np.ndarray, scale: np.ndarray, reach: Range, family: Family
) -> np.ndarray:
    """The values of one of the functions of a block above, for all rows."""
    mean = mean - mean.max(axis=1, keepdims=True)
    low, high = (mean - reach[0]).max(axis=1), (mean + reach[1]).max(axis=1)
    step = max(1, BLOCK // (100 * mean.shape[1]))
    parts = [slice(start, start + step) for start in range(0, max(1, len(mean)), step)]
    return np.concatenate([function(mean[part], scale[part], low[part], high[part], family) for part in parts])


def largest_log_probabilities(mean: np.ndarray, scale: np.ndarray, reach: Range, family: Family) -> np.ndarray:
    """log P(class y is the largest), (n, C), for means, scales and distances ``reach`` that the integral covers."""
    return _in_blocks(_largest_in_block, mean, scale, reach, family)


def largest_slopes(mean: np.ndarray, scale: np.ndarray, reach: Range, family: Family) -> np.ndarray:
    """Derivatives (2, n, C, C) of P(class y is the largest) by the means and by the variances of the C values."""
    return np.swapaxes(_in_blocks(_slopes_in_block, mean, scale, reach, family), 0, 1)
