"""Probabilities that each of several independent values is the largest, as a graph: ``xgpc.likelihoods.largest``.

The quadrature is the same, but that every row has the same number of panels, and no probability is made in logarithms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..likelihoods.largest import CORE, MESH, NODES, WEIGHTS
from .graph import Tensor, absolute, concatenated, exp, log, maximum, minimum

# Panels of every row, where rows of few or alike classes need about ten and of very different scales up to forty.
PANELS = 32
# Relative spacing of numbers, eight times: no point is placed more finely.
SPACING = 8.0 * np.finfo(float).eps
TINY = 1e-300

# (u (rows, C, T), scale (rows, C, 1)) -> log H and h / H
Terms = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _mesh(mean: Tensor, scale: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Mesh (rows, MESH + 1) over [low, high], and panels to the left of its points."""
    scale = maximum(scale, SPACING * absolute(low))
    first = 0.5 * scale.min(1)
    growth = np.linspace(0.0, 1.0, MESH)[None]
    inside = low + first * exp(growth * log((high - low) / first))
    mesh = concatenated([low, inside], 1)
    widths = mesh.slice(1, 1, MESH + 1) - mesh.slice(1, 0, MESH)
    middle = 0.5 * (mesh.slice(1, 1, MESH + 1) + mesh.slice(1, 0, MESH))
    distance = middle.with_axis(1) / CORE - mean.with_axis(2) / CORE
    scale = scale.with_axis(2)
    density = (scale / maximum(distance * distance, scale * scale)).max(1).reshaped(0, MESH)
    panels = (density * widths).cumulated(1)
    return mesh, concatenated([0.0 * low, panels], 1)


def _edges(mesh: Tensor, panels: Tensor) -> Tensor:
    """Edges (rows, PANELS + 1) that share the panels' number evenly, by linear interpolation between mesh points."""
    total = panels.slice(1, MESH, MESH + 1)
    wanted = (total * np.linspace(0.0, 1.0, PANELS + 1)[None]).with_axis(2)
    before, after = panels.slice(1, 0, MESH).with_axis(1), panels.slice(1, 1, MESH + 1).with_axis(1)
    # Mesh points that rounding has made one have no panels between them.
    share = minimum(maximum((wanted - before) / maximum(after - before, TINY), 0.0), 1.0)
    widths = (mesh.slice(1, 1, MESH + 1) - mesh.slice(1, 0, MESH)).with_axis(1)
    return mesh.slice(1, 0, 1) + (share * widths).sum(2).reshaped(0, PANELS + 1)


def largest_probabilities(mean: Tensor, scale: Tensor, reach: tuple[Tensor, Tensor], terms: Terms) -> Tensor:
    """P(class y is the largest), (rows, C), for locations and scales (rows, C) of some reach."""
    mean = mean - mean.max(1)
    low, high = (mean - reach[0]).max(1), (mean + reach[1]).max(1)
    edges = _edges(*_mesh(mean, scale, low, high))
    right, left = edges.slice(1, 1, PANELS + 1).with_axis(2), edges.slice(1, 0, PANELS).with_axis(2)
    half, count = 0.5 * (right - left), PANELS * len(NODES)
    t = (0.5 * (right + left) + half * NODES).reshaped(0, 1, count)
    log_cdf, hazard = terms(t - mean.with_axis(2), scale.with_axis(2))
    log_mass = log((half * WEIGHTS).reshaped(0, 1, count)) + log_cdf.sum(1)
    value = (hazard * exp(log_mass - log_mass.max(2))).sum(2).apply("Squeeze", [2])
    return value / value.sum(1)
