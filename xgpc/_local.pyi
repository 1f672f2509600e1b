import numpy as np

from ._engine import Workspace
from ._kernels import InducingKernel, KernelGradient

OUTPUTS: tuple[str, ...]
LINKS: dict[str, int]

class Support:
    def __init__(self, kernel: InducingKernel, *arrays: np.ndarray) -> None: ...
    def condition(self, arrays: tuple[np.ndarray | None, ...]) -> list[tuple[np.ndarray, ...]]: ...
    def vjp(
        self, arrays: tuple[np.ndarray | None, ...], given: list[tuple[np.ndarray, ...]]
    ) -> tuple[
        list[tuple[np.ndarray, ...]],
        np.ndarray,
        tuple[np.ndarray, np.ndarray, np.ndarray],
    ]: ...

def residual_rows(a: np.ndarray, A: np.ndarray, index: np.ndarray, gamma: np.ndarray) -> np.ndarray: ...
def cavity_scores(
    link: int, mean: np.ndarray, variance: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def cavity_sites(link: int, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
def cavity_vjp(
    link: int,
    mean: np.ndarray,
    variance: np.ndarray,
    y: np.ndarray,
    d_precision: np.ndarray,
    d_linear: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]: ...
def kernel_gradient(
    kernel: InducingKernel, X: np.ndarray, G: np.ndarray, g: np.ndarray, work: Workspace, total: KernelGradient
) -> None: ...
