from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._kernels import InducingKernel, KernelGradient
from ._sites import Site

TILE_ROWS: int
ROUND_OFF: float
MAX_HALVINGS: int
FALLBACK_AFTER: int

def tolerance_unit(bound: float) -> float: ...

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

def workspace(rows: int, n_inducing: int, n_features: int, n_latents: int = 1) -> Workspace: ...
def marginals_block(groups: list[WhitenedRows], Rinv: np.ndarray, w: np.ndarray) -> np.ndarray: ...
def update_block(
    groups: list[WhitenedRows], Rinv: np.ndarray, w: np.ndarray, site: Site, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, float, float, np.ndarray, np.ndarray]: ...
def statistics_block(
    groups: list[WhitenedRows], precision: np.ndarray, linear: np.ndarray
) -> tuple[np.ndarray, np.ndarray]: ...
def products_block(groups: list[WhitenedRows], w: np.ndarray) -> np.ndarray: ...
def sums_block(groups: list[WhitenedRows], values: np.ndarray) -> np.ndarray: ...
def gradient_of_block(
    groups: list[WhitenedRows],
    M: np.ndarray,
    alpha: np.ndarray,
    w: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
) -> list[KernelGradient]: ...
def gradient_of_gram(kernel: InducingKernel, G: np.ndarray, total: KernelGradient) -> None: ...
def matrix_gradients(
    groups: tuple[Any, ...], Rinv: np.ndarray, P: np.ndarray, h: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[KernelGradient]]: ...
def first_order_gain(
    P: np.ndarray,
    h: np.ndarray,
    Rinv: np.ndarray,
    w: np.ndarray,
    target_P: np.ndarray,
    target_h: np.ndarray,
    other_Rinv: np.ndarray,
    other_w: np.ndarray,
) -> float: ...
def inducing_factors(
    kernel: InducingKernel, least: float, n_jitters: int
) -> tuple[np.ndarray, np.ndarray, float] | None: ...
def means(Rinv: np.ndarray, h: np.ndarray) -> np.ndarray: ...
def gaussian(
    natural_P: np.ndarray, natural_h: np.ndarray, before: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float] | None: ...
def divergence(Rinv: np.ndarray, w: np.ndarray, other: Any, enough: float = ...) -> tuple[float, float]: ...
def kept_rows(cache: dict[str, Any], key: str, n_latents: int) -> list[WhitenedRows] | None: ...
def outer_sums(b: np.ndarray, t: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
def moments_of_rows(b: np.ndarray, w: np.ndarray, Rinv: np.ndarray) -> np.ndarray: ...
def cholesky_and_inverse(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None: ...
def kernel_gradient(
    kernel: InducingKernel,
    X: np.ndarray,
    G: np.ndarray,
    g: np.ndarray,
    work: Workspace,
    total: KernelGradient,
    is_noise: bool = False,
) -> None: ...
def full_covariance(kernel: InducingKernel) -> tuple[np.ndarray, np.ndarray] | None: ...
def full_posterior(
    K: np.ndarray, precision: np.ndarray, linear: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float] | None: ...
def gradient_by_covariance(alpha: np.ndarray, factors: Sequence[np.ndarray]) -> np.ndarray: ...
def full_ascent(
    K: np.ndarray,
    noise: np.ndarray,
    places: np.ndarray,
    site: Site,
    safe_site: Callable[[], Site] | None,
    y: np.ndarray,
    weight: np.ndarray,
    start: Sequence[np.ndarray],
    start_H: np.ndarray,
    start_half_log_det: float,
    tol: float,
    max_iter: int,
    has_passed: Callable[[], bool],
) -> tuple[np.ndarray, np.ndarray, float, float, float, int, bool]: ...
def full_marginals(
    kernel: InducingKernel, X: np.ndarray, H: np.ndarray, N: np.ndarray, alpha: np.ndarray, work: Workspace
) -> np.ndarray: ...
