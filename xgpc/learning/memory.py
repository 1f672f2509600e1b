"""Memory that fits with many classes need, and how many inducing points memory and time allow."""

from __future__ import annotations

import math

from ..status import warn_user
from .inducing import FIRST_INDUCING, MAX_INDUCING

# Bytes for each row and class (marginals and sites of two posteriors), and for each class and pair of inducing points
# with a shared kernel or with own kernels (matrices of the posteriors that a step compares). Measured with tracemalloc.
ROW_BYTES = 80
PAIR_BYTES, OWN_PAIR_BYTES = 200, 300
# A fit that needs more memory warns, and defaults stay below: half of the memory of a small machine.
MOST_BYTES = 4e9
# Limit on rows x classes x points when points are added by default; a pass then takes about a quarter of a second. On
# shuttle (52 200 rows, seven classes) 512 points took over ten minutes for 0.002 nats a row.
MOST_VALUES = 2.5e7


def fit_bytes(n_rows: int, n_classes: int, n_inducing: int, own_kernels: bool) -> float:
    """Memory of a fit with several latent functions, without its rows and without the caches, which have own limits."""
    pairs = (OWN_PAIR_BYTES if own_kernels else PAIR_BYTES) * n_inducing**2
    return float(n_classes) * (ROW_BYTES * float(n_rows) + pairs)


def most_points(n_rows: int, n_classes: int | None, own_kernels: bool) -> int:
    """Largest number of inducing points by default: it fits half of the memory limit and the time limit."""
    if n_classes is None:
        return MAX_INDUCING
    pair = OWN_PAIR_BYTES if own_kernels else PAIR_BYTES
    in_memory = math.isqrt(int(0.5 * MOST_BYTES / (pair * n_classes)))
    return min(MAX_INDUCING, in_memory, max(FIRST_INDUCING, int(MOST_VALUES / (n_rows * n_classes))))


def warn_of_many_classes(n_rows: int, n_classes: int, n_inducing: int, own_kernels: bool) -> None:
    """Warn the user of a fit that needs much memory, and name settings that need less."""
    needed = fit_bytes(n_rows, n_classes, n_inducing, own_kernels)
    if needed <= MOST_BYTES:
        return
    one_kernel = "share='kernel', " if own_kernels else ""
    warn_user(
        f"A fit of {n_rows} rows to {n_classes} classes with {n_inducing} inducing points needs about "
        f"{1e-9 * needed:.2g} GB of memory. To need less, use {one_kernel}fewer inducing points "
        "(n_inducing), fewer rows, or sklearn.multiclass.OneVsRestClassifier(GPClassifier(...)), which keeps "
        "one class in memory at a time."
    )
