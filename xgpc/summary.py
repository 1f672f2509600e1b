"""What a fit came to, in a few lines of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import xlogy

from .data.encoding import LevelColumn, of_table
from .kernels.spec import KernelSpec

# Names and values, a line each.
Rows = list[tuple[str, str]]

# Width of the names, so that blocks printed after one another line up; the longest are those of scores.
NAME_WIDTH = 23
# Length scales that are listed one by one, and classes whose kernels are shown.
LISTED = 5
IN_DEVIATIONS = "in standard deviations of their features: "
# Classes whose shares are shown.
LISTED_CLASSES = 10


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """One line for each (name, value), values starting in the same column."""
    return "\n".join(f"  {name:<{NAME_WIDTH}}  {value}" for name, value in rows)


def sentences(title: str, found: Sequence[str]) -> str:
    """A title with a line for each sentence; empty without any."""
    return "".join([f"\n{title}:", *(f"\n- {one}" for one in found)]) if found else ""


def summary(model: Any) -> str:
    """Text of a fitted GPClassifier: its data and model, then its warnings and decisions."""
    said = sentences("Warnings", model.warnings_) + sentences("Decisions", model.decisions_)
    return aligned(summary_rows(model)) + said


def summary_rows(model: Any) -> Rows:
    """Data, kernel, posterior and bound of a fitted GPClassifier."""
    likelihood, bound = model._resolved
    Z, counts = model.inducing_points_, model.class_count_
    score = model.query_score_
    # By their frequencies alone every row has log probabilities of this mean.
    shares = counts / np.sum(counts)
    base = np.sum(xlogy(shares, shares))
    full = model.posterior_.prior.is_full
    # After later calls of partial_fit it is the bound of the last batch.
    n_last = int(model.history_["n_rows"][-1])
    is_last = n_last < model.n_samples_seen_
    # With neighbours it is not that of the posterior that predicts, and takes a fit to find.
    elbo = 0.0 if model.n_neighbors_ else model.elbo_
    of_rows = f"of the last batch, of {n_last} rows" if is_last else f"{elbo / np.sum(counts):.4f} per row"
    table = of_table(model.encoding_)
    categorical = [] if table is None else [one.name for one in table.columns if isinstance(one, LevelColumn)]
    return [
        ("rows", str(model.n_samples_seen_)),
        ("features", str(model.n_features_in_)),
        *([("categorical", ", ".join(map(repr, categorical)))] if categorical else []),
        ("classes", class_shares(model.classes_, counts)),
        ("likelihood", f"{likelihood}, bound {bound}"),
        *([("label noise", f"{model.label_noise_:.3g}")] if hasattr(model, "label_noise_") else []),
        *(
            [("prior mean", ", ".join(f"{one:.3g}" for one in np.atleast_1d(model.mean_)))]
            if np.any(model.mean_)
            else []
        ),
        *kernels_rows(model),
        ("inducing points", "all rows" if full else str(len(Z)) if Z.ndim == 2 else f"{Z.shape[1]} for each class"),
        *([("neighbours", f"{model.n_neighbors_}; the model holds the training rows")] if model.n_neighbors_ else []),
        *([] if model.n_neighbors_ else [("bound (ELBO)", f"{elbo:.2f} nats, {of_rows}")]),
        ("class frequencies alone", f"{base:.4f} nats per row"),
        *([("held-out rows", f"log probability {score[0]:.4f} +- {score[1]:.4f} nats per row")] if score else []),
    ]


def class_shares(classes: np.ndarray, counts: np.ndarray) -> str:
    """Classes with their shares of the rows; the most frequent ones, if there are many."""
    shares = counts / np.sum(counts)
    if len(classes) <= LISTED_CLASSES:
        return ", ".join(f"{name} {share:.1%}" for name, share in zip(classes, shares, strict=True))
    shown = np.argsort(-counts, kind="stable")[:LISTED_CLASSES]
    listed = ", ".join(f"{classes[k]} {shares[k]:.1%}" for k in shown)
    return f"{len(classes)} classes: {listed} and {len(classes) - LISTED_CLASSES} more"


def kernels_rows(model: Any) -> Rows:
    """The kernel of a model, or the kernels of the first few classes."""
    specs = [group.spec for group in model.posterior_.prior.groups]
    encoding, spread = of_table(model.encoding_), model.feature_spread_
    names = getattr(model, "feature_names_in_", [f"feature {j}" for j in range(len(spread))])
    names = [str(name) for name in (names if encoding is None else encoding.matrix_names)]
    if len(specs) == 1:
        return kernel_rows(specs[0], names, spread)
    rows = [
        (name, f"{label}: {value}")
        for label, spec in zip(model.classes_[:LISTED], specs, strict=False)
        for name, value in kernel_rows(spec, names, spread)
    ]
    return rows if len(specs) <= LISTED else [*rows, ("further kernels", str(len(specs) - LISTED))]


def kernel_rows(spec: KernelSpec, names: Sequence[str], spread: np.ndarray) -> Rows:
    """A kernel in few lines, however many length scales it has.

    Parameters
    ----------
    spec : KernelSpec
    names : d names of the features, the columns of the matrix that a table becomes
    spread : (d,) array
        Standard deviations of the features.
    """
    kernel, groups = spec.kernel, spec.groups
    rows = [("kernel", re.sub(r"length_scale=\[[^]]*\]", "length_scale=[...]", str(kernel)))]
    for _, leaf in spec.compiled(kernel).factors:
        scales = np.atleast_1d(getattr(leaf.kernel, "length_scale", 1.0))
        if len(scales) == 1:
            continue
        whose, unit = names, spread
        if len(scales) != len(names) and groups is not None:
            whose, unit = groups.names, np.sqrt(groups.sums(spread**2))
        # Along a constant feature no row differs.
        varying = np.flatnonzero(unit > 0.0)
        relative = scales[varying] / unit[varying]
        order = np.argsort(relative, kind="stable")[:LISTED]
        listed = ", ".join(f"{whose[varying[j]]} {relative[j]:.3g}" for j in order)
        is_long = len(varying) > LISTED
        if is_long:
            least, median, most = np.quantile(relative, (0.0, 0.5, 1.0))
            limits = f"from {least:.3g} to {most:.3g} standard deviations of their features, median {median:.3g}"
            rows.append(("length scales", f"{len(varying)} length scales, {limits}"))
        rows.append(("the shortest" if is_long else "length scales", f"{IN_DEVIATIONS}{listed}"))
    return rows
