from typing import Any

import numpy as np

from ._engine import Workspace
from ._moving import MovingPrior
from ._sites import Site

SCHEDULES: dict[str, int]
RATE_FLOOR: float

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
        work: Workspace,
        labels: np.ndarray,
        weights: np.ndarray,
        records: np.ndarray,
        moving: list[MovingPrior] = ...,
        every: int = 1,
    ) -> int: ...
