import numpy as np

from ._kernels import InducingKernel, KernelGradient
from ._sites import Site

class Workspace:
    rows: int
    n_inducing: int
    n_features: int
    n_latents: int
    def __init__(self, rows: int, n_inducing: int, n_features: int, n_latents: int = 1, n_tiles: int = 1) -> None: ...

class RowCache:
    values: np.ndarray
    is_filled: bool
    def __init__(self, values: np.ndarray, is_filled: bool = False) -> None: ...

class WhitenedRows:
    def __init__(
        self,
        kernel: InducingKernel | None,
        X: np.ndarray | None,
        Linv: np.ndarray | None,
        cache: RowCache,
        work: Workspace,
    ) -> None: ...

def marginals_block(block: WhitenedRows, Rinv: np.ndarray, w: np.ndarray) -> np.ndarray: ...
def update_block(
    block: WhitenedRows,
    Rinv: np.ndarray,
    w: np.ndarray,
    site: Site,
    y: np.ndarray,
    weight: np.ndarray,
    P: np.ndarray,
    h: np.ndarray,
) -> tuple[np.ndarray, float]: ...
def statistics_block(
    block: WhitenedRows, precision: np.ndarray, linear: np.ndarray, P: np.ndarray, h: np.ndarray
) -> None: ...
def products_block(block: WhitenedRows, w: np.ndarray) -> np.ndarray: ...
def sums_block(block: WhitenedRows, values: np.ndarray) -> np.ndarray: ...
def gradient_of_block(
    block: WhitenedRows,
    M: np.ndarray,
    alpha: np.ndarray,
    w: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
    total: KernelGradient,
) -> None: ...
def gradient_of_gram(kernel: InducingKernel, G: np.ndarray, total: KernelGradient) -> None: ...
def matrix_gradients(
    Linv: np.ndarray, Rinv: np.ndarray, P: np.ndarray, h: np.ndarray, w: np.ndarray, jitter: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def lower_triangles(matrices: np.ndarray) -> np.ndarray: ...
def cholesky_and_inverse(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None: ...
def kernel_gradient(
    kernel: InducingKernel, X: np.ndarray, G: np.ndarray, g: np.ndarray, work: Workspace, total: KernelGradient
) -> None: ...
def full_variances(K: np.ndarray, index: np.ndarray, H: np.ndarray, work: Workspace) -> np.ndarray: ...
def full_marginals(
    kernel: InducingKernel, X: np.ndarray, H: np.ndarray, N: np.ndarray, alpha: np.ndarray, work: Workspace
) -> np.ndarray: ...
def full_gradient(
    kernel: InducingKernel,
    start: int,
    stop: int,
    G: np.ndarray,
    by_noise: np.ndarray,
    work: Workspace,
    total: KernelGradient,
) -> None: ...
