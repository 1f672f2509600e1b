from collections.abc import Sequence
from typing import Any

import numpy as np

from ._moving import MovingPrior
from ._sites import Site

SCHEDULES: dict[str, int]
RATE_FLOOR: float

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
    def __init__(self, n_inducing: int, n_latents: int, eta: np.ndarray, schedule: int, a: float, b: float) -> None: ...
    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
    def restore(self, average: np.ndarray, mean_direction: np.ndarray, numbers: np.ndarray) -> None: ...
    def run(
        self,
        kernels: list[Any],
        X: np.ndarray,
        order: np.ndarray,
        batch: int,
        Linv: np.ndarray,
        site: Site,
        y: np.ndarray,
        weight: np.ndarray,
        n_total: float,
        part: BatchPart,
        records: np.ndarray,
        moving: list[MovingPrior] = ...,
        every: int = 1,
    ) -> int: ...
    def begin_step(self) -> int: ...
    def collect_part(
        self,
        kernels: list[Any],
        X: np.ndarray,
        order: np.ndarray,
        Linv: np.ndarray,
        site: Site,
        y: np.ndarray,
        weight: np.ndarray,
        scale: float,
        part: BatchPart,
        moving: list[MovingPrior] = ...,
    ) -> None: ...
    def end_step(
        self, parts: list[BatchPart], scale: float, record: np.ndarray, moving: list[MovingPrior] = ...
    ) -> None: ...
