import numpy as np

from ._engine import Workspace
from ._kernels import InducingKernel

def variances_block(K: np.ndarray, index: np.ndarray, H: np.ndarray, work: Workspace, variance: np.ndarray) -> None: ...
def marginals_block(
    kernel: InducingKernel,
    X: np.ndarray,
    start: int,
    stop: int,
    H: np.ndarray,
    N: np.ndarray,
    alpha: np.ndarray,
    work: Workspace,
    mean: np.ndarray,
    variance: np.ndarray,
) -> None: ...
def gradient_of_block(
    kernel: InducingKernel,
    X: np.ndarray,
    start: int,
    stop: int,
    G: np.ndarray,
    by_noise: np.ndarray,
    work: Workspace,
    terms: np.ndarray,
    shapes: np.ndarray,
    sums: np.ndarray,
    products: np.ndarray,
    squares: np.ndarray,
) -> None: ...
