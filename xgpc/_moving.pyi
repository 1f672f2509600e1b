from typing import NamedTuple

import numpy as np

from ._kernels import InducingKernel, KernelGradient

AVERAGE_POWER: float

def vjp(kernel: InducingKernel, cross: KernelGradient, gram: KernelGradient) -> tuple[np.ndarray, np.ndarray]: ...

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
    def __init__(
        self,
        kernel: InducingKernel,
        jitter: float,
        free: FreeParameters,
        prior: tuple[np.ndarray, np.ndarray],
        rate: float,
        delay: float,
    ) -> None: ...
