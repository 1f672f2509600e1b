from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._kernels import InducingKernel
from ._sites import Site

class FreeParameters(NamedTuple):
    vector: np.ndarray
    limits: np.ndarray
    unit: np.ndarray
    logarithms: tuple[np.ndarray, ...]

class GradientSums:
    def __init__(self, kernel: InducingKernel) -> None: ...

class MovingPrior:
    kernel: InducingKernel
    vector: np.ndarray
    average: np.ndarray
    units: np.ndarray
    steps: int
    failures: int
    gradient: np.ndarray
    Linv: np.ndarray
    prior_precision: np.ndarray
    prior_linear: np.ndarray
    def __init__(
        self,
        kernel: InducingKernel,
        jitter: float,
        free: FreeParameters,
        prior: tuple[np.ndarray, np.ndarray],
        rate: float,
        delay: float,
    ) -> None: ...

SCHEDULES: dict[str, int]

class BatchRows:
    def __init__(self, kernels: list[Any], Linv: np.ndarray, X: Any, y: np.ndarray, weight: np.ndarray) -> None: ...

class BatchPart:
    def __init__(
        self,
        n_inducing: int,
        n_latents: int,
        tile: int,
        n_features: int,
        moving: Sequence[MovingPrior] = ...,
        n_kernels: int = 1,
    ) -> None: ...

class NaturalGradient:
    n_inducing: int
    n_latents: int
    iteration: int
    steps: int
    squared_norm: float
    memory: float
    average: np.ndarray
    mean_direction: np.ndarray
    def __init__(
        self,
        n_inducing: int,
        n_latents: int,
        eta: np.ndarray,
        schedule: tuple[int, float, float],
        scale: float,
        moving: list[MovingPrior],
    ) -> None: ...
    def begin_step(self) -> int: ...
    def collect(self, batch: BatchRows, order: np.ndarray, site: Site, part: BatchPart) -> None: ...
    def end_step(self, parts: list[BatchPart], records: np.ndarray, step: int) -> None: ...
