from typing import Any

import numpy as np

SCHEDULES: dict[str, int]
RATE_FLOOR: float
AVERAGE_POWER: float

class NaturalGradient:
    n_inducing: int
    iteration: int
    steps: int
    average: np.ndarray
    mean_direction: np.ndarray
    def __init__(self, n_inducing: int, n_latents: int, eta: np.ndarray, schedule: int, a: float, b: float) -> None: ...
    def run(self, *args: Any) -> int: ...
