"""Memory that fits to many classes take, and how many inducing points there is room and time for."""

from __future__ import annotations

import math

from ..status import warn_user
from .inducing import FIRST_INDUCING, MAX_INDUCING

# Bytes for each row and class: marginals and sites of the latest posterior, and of the one to go back to. For each
# class and pair of inducing points, with one kernel for all classes or one for each: precisions, their factors and
# targets of the posteriors that a step compares. (Measured with tracemalloc, 2000 and 4000 rows, 50 to 200 classes, 20
# to 100 points.)
ROW_BYTES = 80
PAIR_BYTES, OWN_PAIR_BYTES = 200, 300
# Above this a fit warns, and what is chosen by default stays below: half of the memory of a small machine.
MOST_BYTES = 4e9
# Rows times classes times points up to which points are added by default: a pass takes a quarter of a second or so
# there. Of shuttle, 52 200 rows and seven classes, learning with 512 points took over ten minutes, for .002 nats a row;
# with 136 points 272 s (.0015), with 68 about 100 (.0011 and .0026, two splits).
MOST_VALUES = 2.5e7


def fit_bytes(n_rows: int, n_classes: int, n_inducing: int, own_kernels: bool) -> float:
    """Memory of a fit of several latent functions beside its rows, without the caches that have limits of their own."""
    pairs = (OWN_PAIR_BYTES if own_kernels else PAIR_BYTES) * n_inducing**2
    return float(n_classes) * (ROW_BYTES * float(n_rows) + pairs)


def most_points(n_rows: int, n_classes: int | None, own_kernels: bool) -> int:
    """Up to how many inducing points are added by default: as many as half of that memory has room for, and in time."""
    if n_classes is None:
        return MAX_INDUCING
    pair = OWN_PAIR_BYTES if own_kernels else PAIR_BYTES
    in_memory = math.isqrt(int(0.5 * MOST_BYTES / (pair * n_classes)))
    return min(MAX_INDUCING, in_memory, max(FIRST_INDUCING, int(MOST_VALUES / (n_rows * n_classes))))


def warn_of_many_classes(n_rows: int, n_classes: int, n_inducing: int, own_kernels: bool) -> None:
    """UserWarning of a fit that takes much memory, with what takes less; shown where the user calls ``fit``."""
    needed = fit_bytes(n_rows, n_classes, n_inducing, own_kernels)
    if needed <= MOST_BYTES:
        return
    one_kernel = "share='kernel', " if own_kernels else ""
    warn_user(
        f"A fit of {n_rows} rows to {n_classes} classes with {n_inducing} inducing points takes about "
        f"{1e-9 * needed:.2g} GB. Less is taken by {one_kernel}fewer inducing points (n_inducing), fewer rows, or "
        "sklearn.multiclass.OneVsRestClassifier(GPClassifier(...)), which has one class in memory at a time."
    )
