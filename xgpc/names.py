"""Names that constructor arguments may take, as types: a type checker finds a wrong one before anything runs.

``shown`` and ``listed`` are the texts of a value, and of many names, in messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

# Whatever scikit-learn takes as X: arrays, data frames, Arrow tables, sparse matrices.
MatrixLike: TypeAlias = Any
TwoArrays: TypeAlias = tuple[np.ndarray, np.ndarray]
# Means, variances or covariances of latent functions, and their gradients if these are wanted.
Moments: TypeAlias = tuple[np.ndarray, ...]
RandomSeed = int | np.random.Generator | np.random.RandomState | None

LikelihoodName = Literal[
    "logit",
    "probit",
    "step",
    "svm",
    "psychometric",
    "softmax",
    "multinomial-step",
    "multinomial-probit",
    "multinomial-logit",
    "logistic-softmax",
]
BoundName = Literal["auto", "exact", "polya-gamma", "taylor", "additive-noise", "augmented"]
LinearLikelihoodName = Literal["logit", "probit", "svm"]
LinearBoundName = Literal["auto", "exact", "polya-gamma", "taylor", "augmented"]
OptimizerName = Literal["profile", "alternate", "joint", "hybrid", "adam", "stochastic"]
PointsName = Literal["kmeans", "random", "greedy", "all"]
ShareName = Literal["auto", "kernel", "none"]
PrecisionName = Literal["double", "mixed"]
Auto = Literal["auto"]
# Points (m, d). Not ArrayLike, of which every string is one.
Points = np.ndarray | Sequence[Sequence[float]]
LearningRate = Literal["adaptive"] | float | tuple[float, float]
ClassWeight = dict[Any, float] | Literal["balanced"]

# Names that a message has.
LISTED = 5


def shown(value: object) -> str:
    """Return the text of a value in messages; a scalar of NumPy is shown as the number or text that it holds."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """Return the first names, and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
