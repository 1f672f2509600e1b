"""Aligned text about models and scores, for the command line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, Product

Rows = list[tuple[str, str]]

SCORE_NAMES = {
    "error": "error",
    "nll": "mean NLL (nats)",
    "brier": "Brier score",
    "auc": "AUC",
    "ece": "calibration error (ECE)",
}
# Of more than two classes, where these are sums or averages over the classes.
SEVERAL_NAMES = {**SCORE_NAMES, "brier": "Brier score (0 to 2)", "auc": "AUC (one-vs-rest mean)"}
# Wide enough for every name above, so that blocks printed after one another line up.
NAME_WIDTH = max(map(len, [*SCORE_NAMES.values(), *SEVERAL_NAMES.values()]))
# Features listed by name, the most length scales that are listed one by one, and classes whose kernels are shown.
LISTED = 5
# Classes whose shares are shown.
LISTED_CLASSES = 10


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """One line for each (name, value), values starting in the same column."""
    return "\n".join(f"  {name:<{NAME_WIDTH}}  {value}" for name, value in rows)


def score_rows(scores: dict[str, float], n_classes: int = 2) -> Rows:
    """The result of ``metrics.scores``, four decimals each."""
    several = n_classes > 2
    undefined = "undefined: a class has no rows" if several else "undefined: the rows are of one class"
    names = SEVERAL_NAMES if several else SCORE_NAMES
    return [(name, undefined if np.isnan(scores[key]) else f"{scores[key]:.4f}") for key, name in names.items()]


def class_shares(classes: np.ndarray, counts: np.ndarray) -> str:
    """Classes with their shares of the rows; the most frequent ones, if there are many."""
    shares = counts / np.sum(counts)
    if len(classes) <= LISTED_CLASSES:
        return ", ".join(f"{name} {share:.1%}" for name, share in zip(classes, shares, strict=True))
    shown = np.argsort(-counts, kind="stable")[:LISTED_CLASSES]
    listed = ", ".join(f"{classes[k]} {shares[k]:.1%}" for k in shown)
    return f"{len(classes)}: {listed} and {len(classes) - LISTED_CLASSES} more"


def length_scales(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """Length scales (d,) of a constant times RBF or Matern in units of the features' standard deviations (d,)."""
    return np.asarray(kernel.k2.length_scale) / np.where(spread > 0.0, spread, 1.0)


def family(kernel: RBF) -> str:
    """Its name without length scales; Matern is a subclass of RBF."""
    return f"Matern(nu={kernel.nu:g})" if isinstance(kernel, Matern) else "RBF"


def kernel_rows(kernel: Kernel, names: Sequence[str], spread: np.ndarray) -> Rows:
    """A kernel in few lines, however many features it has.

    Parameters
    ----------
    kernel : Kernel
    names : d feature names
    spread : (d,) array
        Standard deviations of the features.
    """
    is_default = isinstance(kernel, Product) and isinstance(kernel.k1, ConstantKernel) and isinstance(kernel.k2, RBF)
    if not is_default or not kernel.k2.anisotropic:
        return [("kernel", str(kernel))]
    relative = length_scales(kernel, spread)
    order = np.argsort(relative, kind="stable")[:LISTED]
    least, median, most = np.quantile(relative, (0.0, 0.5, 1.0))
    rows = [("kernel", f"{kernel.k1} * {family(kernel.k2)}, {len(names)} length scale{'s' if len(names) > 1 else ''}")]
    if len(names) > LISTED:
        rows.append(("length scales (sd)", f"min {least:.3g}, median {median:.3g}, max {most:.3g}"))
    label = "most relevant (sd)" if len(names) > LISTED else "length scales (sd)"
    rows.append((label, ", ".join(f"{names[i]} {relative[i]:.3g}" for i in order)))
    return rows


def model_kernel_rows(
    kernel: Kernel | Sequence[Kernel], classes: np.ndarray, names: Sequence[str], spread: np.ndarray
) -> Rows:
    """The kernel of a model, or the kernels of its classes, those of the first few."""
    if isinstance(kernel, Kernel):
        return kernel_rows(kernel, names, spread)
    rows = [
        (name, f"{label}: {value}")
        for label, one in zip(classes[:LISTED], kernel, strict=False)
        for name, value in kernel_rows(one, names, spread)
    ]
    return rows if len(classes) <= LISTED else [*rows, ("further kernels", str(len(classes) - LISTED))]
