"""Probabilities that each of several independent values is the largest, as a graph; see ``xgpc.likelihoods.largest``.

The integral has Gauss-Legendre panels, as many for every row. Small probabilities are not summed in logarithms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ranges import LEAST_DIVISOR
from .graph import Tensor, absolute, concatenated, exp, log, maximum, minimum

# Gauss-Legendre nodes on [-1, 1] and weights of every panel.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
# Panels have widths in proportion to the smallest scale among the classes near by; a class needs no fine panels beyond
# CORE scales from its mean.
CORE = 6.0
# Points at which the panels' density is computed; 24 and 128 points gave the same errors, for scales of 1e-6 to 1e4.
MESH = 48
# Panels of every row. Rows with few or similar classes need about ten, and rows with very different scales up to forty.
PANELS = 32
# Least relative distance of two points: eight times the spacing of doubles.
SPACING = 8.0 * np.finfo(float).eps

# (u (rows, C, T), scale (rows, C, 1)) -> log H and h / H
Terms = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _ends(points: Tensor, n_intervals: int) -> tuple[Tensor, Tensor]:
    """Left and right ends (rows, n) of the intervals between points (rows, n + 1)."""
    return points.slice(1, 0, n_intervals), points.slice(1, 1, n_intervals + 1)


def _mesh(mean: Tensor, scale: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Mesh (rows, MESH + 1) over [low, high], and the number of panels to the left of each point."""
    scale = maximum(scale, SPACING * absolute(low))
    first = 0.5 * scale.min(1)
    growth = np.linspace(0.0, 1.0, MESH)[None]
    mesh = concatenated([low, low + first * exp(growth * log((high - low) / first))], 1)
    left, right = _ends(mesh, MESH)
    middle = 0.5 * (right + left)
    distance = middle.with_axis(1) / CORE - mean.with_axis(2) / CORE
    scale = scale.with_axis(2)
    density = (scale / maximum(distance * distance, scale * scale)).max(1).apply("Squeeze", [1])
    return mesh, concatenated([0.0 * low, (density * (right - left)).apply("CumSum", 1)], 1)


def _edges(mesh: Tensor, panels: Tensor) -> Tensor:
    """Edges (rows, PANELS + 1) of equal shares of the panels, by linear interpolation between mesh points."""
    total = panels.slice(1, MESH, MESH + 1)
    wanted = (total * np.linspace(0.0, 1.0, PANELS + 1)[None]).with_axis(2)
    panels_left, panels_right = (end.with_axis(1) for end in _ends(panels, MESH))
    # Mesh points that coincide after rounding have no panels between them.
    share = minimum(maximum((wanted - panels_left) / maximum(panels_right - panels_left, LEAST_DIVISOR), 0.0), 1.0)
    left, right = _ends(mesh, MESH)
    return mesh.slice(1, 0, 1) + (share * (right - left).with_axis(1)).sum(2).apply("Squeeze", [2])


def largest_probabilities(mean: Tensor, scale: Tensor, reach: tuple[Tensor, Tensor], terms: Terms) -> Tensor:
    """P(class y is the largest), (rows, C), for means, scales and distances ``reach`` that the integral covers."""
    mean = mean - mean.max(1)
    low, high = (mean - reach[0]).max(1), (mean + reach[1]).max(1)
    left, right = (end.with_axis(2) for end in _ends(_edges(*_mesh(mean, scale, low, high)), PANELS))
    half, count = 0.5 * (right - left), PANELS * len(NODES)
    t = (0.5 * (right + left) + half * NODES).apply("Reshape", [0, 1, count])
    log_cdf, hazard = terms(t - mean.with_axis(2), scale.with_axis(2))
    log_mass = log((half * WEIGHTS).apply("Reshape", [0, 1, count])) + log_cdf.sum(1)
    value = (hazard * exp(log_mass - log_mass.max(2))).sum(2).apply("Squeeze", [2])
    return value / value.sum(1)
