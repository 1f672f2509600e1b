import numpy as np

from ._kernels import InducingKernel

Arrays = tuple[np.ndarray, ...]

AVERAGE_POWER: float

def vjp(kernel: InducingKernel, cross: Arrays, gram: Arrays) -> tuple[np.ndarray, np.ndarray]: ...

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
        vector: np.ndarray,
        limits: np.ndarray,
        unit: np.ndarray,
        logarithms: Arrays,
        prior: tuple[np.ndarray, np.ndarray],
        rate: float,
        delay: float,
    ) -> None: ...
    def state(self) -> tuple[np.ndarray, np.ndarray]: ...
    def restore(self, vectors: np.ndarray, numbers: np.ndarray) -> None: ...
