import numpy as np

from ._kernels import InducingKernel

Arrays = tuple[np.ndarray, ...]

def pull_back(kernel: InducingKernel, cross: Arrays, gram: Arrays) -> tuple[np.ndarray, np.ndarray]: ...

class MovingPrior:
    kernel: InducingKernel
    vector: np.ndarray
    average: np.ndarray
    units: np.ndarray
    steps: int
    failures: int
    def __init__(
        self,
        kernel: InducingKernel,
        jitter: float,
        vector: np.ndarray,
        limits: np.ndarray,
        unit: np.ndarray,
        offset: np.ndarray,
        row: np.ndarray,
        column: np.ndarray,
        power: np.ndarray,
        prior: tuple[np.ndarray, np.ndarray],
        rate: float,
        delay: float,
    ) -> None: ...
    @property
    def gradient(self) -> np.ndarray: ...
    @property
    def Linv(self) -> np.ndarray: ...
