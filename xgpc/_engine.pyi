import numpy as np

from ._kernels import InducingKernel
from ._sites import Site

class Workspace:
    rows: int
    n_inducing: int
    n_features: int
    n_latents: int
    def __init__(self, rows: int, n_inducing: int, n_features: int, n_latents: int = 1, n_tiles: int = 1) -> None: ...

def marginals_block(
    kernel: InducingKernel | None,
    X: np.ndarray,
    cache: np.ndarray,
    cached: bool,
    start: int,
    stop: int,
    Linv: np.ndarray,
    Rinv: np.ndarray,
    w: np.ndarray,
    work: Workspace,
    mean: np.ndarray,
    variance: np.ndarray,
) -> None: ...
def update_block(
    kernel: InducingKernel | None,
    X: np.ndarray,
    cache: np.ndarray,
    cached: bool,
    start: int,
    stop: int,
    Linv: np.ndarray,
    Rinv: np.ndarray,
    w: np.ndarray,
    site: Site,
    y: np.ndarray,
    weight: np.ndarray,
    work: Workspace,
    mean: np.ndarray,
    variance: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
    P: np.ndarray,
    h: np.ndarray,
) -> float: ...
def sites_block(
    site: Site,
    start: int,
    stop: int,
    mean: np.ndarray,
    variance: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    work: Workspace,
    precision: np.ndarray,
    linear: np.ndarray,
) -> float: ...
def statistics_block(
    kernel: InducingKernel | None,
    X: np.ndarray,
    cache: np.ndarray,
    cached: bool,
    start: int,
    stop: int,
    Linv: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
    work: Workspace,
    P: np.ndarray,
    h: np.ndarray,
) -> None: ...
def products_block(
    kernel: InducingKernel | None,
    X: np.ndarray,
    cache: np.ndarray,
    cached: bool,
    start: int,
    stop: int,
    Linv: np.ndarray,
    w: np.ndarray,
    work: Workspace,
    products: np.ndarray,
) -> None: ...
def sums_block(
    kernel: InducingKernel | None,
    X: np.ndarray,
    cache: np.ndarray,
    cached: bool,
    start: int,
    stop: int,
    Linv: np.ndarray,
    values: np.ndarray,
    work: Workspace,
    sums: np.ndarray,
) -> None: ...
def gradient_of_block(
    kernel: InducingKernel | None,
    X: np.ndarray,
    cache: np.ndarray,
    cached: bool,
    start: int,
    stop: int,
    Linv: np.ndarray,
    M: np.ndarray,
    alpha: np.ndarray,
    w: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
    work: Workspace,
    terms: np.ndarray,
    shapes: np.ndarray,
    sums: np.ndarray,
    products: np.ndarray,
    squares: np.ndarray,
) -> None: ...
def gradient_of_gram(
    kernel: InducingKernel,
    Z: np.ndarray,
    G: np.ndarray,
    terms: np.ndarray,
    shapes: np.ndarray,
    sums: np.ndarray,
    products: np.ndarray,
    squares: np.ndarray,
) -> None: ...
def matrix_gradients(
    Linv: np.ndarray, Rinv: np.ndarray, P: np.ndarray, h: np.ndarray, w: np.ndarray, jitter: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
