import numpy as np

from ._engine import Workspace
from ._kernels import InducingKernel, KernelGradient

def variances_block(K: np.ndarray, index: np.ndarray, H: np.ndarray, work: Workspace) -> np.ndarray: ...
def marginals_block(
    kernel: InducingKernel, X: np.ndarray, H: np.ndarray, N: np.ndarray, alpha: np.ndarray, work: Workspace
) -> np.ndarray: ...
def gradient_of_block(
    kernel: InducingKernel,
    start: int,
    stop: int,
    G: np.ndarray,
    by_noise: np.ndarray,
    work: Workspace,
    total: KernelGradient,
) -> None: ...
