from collections.abc import Sequence

import numpy as np

from ._engine import Workspace
from ._kernels import InducingKernel

class Tree:
    order: np.ndarray
    def __init__(
        self, rows: np.ndarray, mean: np.ndarray, directions: np.ndarray, power: int, places: np.ndarray, most: int
    ) -> None: ...
    def of(self, points: np.ndarray, k: int) -> np.ndarray: ...
    def of_rows(self, first: int, last: int, k: int) -> np.ndarray: ...

class Neighbourhoods:
    support: tuple[np.ndarray, np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    sites: np.ndarray | tuple[np.ndarray, np.ndarray]
    index: np.ndarray
    def __init__(
        self,
        kernel: InducingKernel,
        support: tuple[np.ndarray, np.ndarray, np.ndarray],
        rows: tuple[np.ndarray, np.ndarray, np.ndarray],
        sites: np.ndarray | tuple[np.ndarray, np.ndarray],
        index: np.ndarray,
        n_earlier: np.ndarray | None = None,
        blocks: np.ndarray | None = None,
    ) -> None: ...
    def condition(self, first: int, last: int, out: Sequence[tuple[np.ndarray, ...]]) -> None: ...
    def vjp(
        self,
        first: int,
        last: int,
        given: Sequence[tuple[np.ndarray, ...]],
        out: Sequence[tuple[np.ndarray, ...]],
        d_a: np.ndarray,
        d_diagonal: np.ndarray,
        by_near: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
    def spread(
        self,
        first: int,
        last: int,
        pulled: Sequence[tuple[np.ndarray, ...]],
        by_near: np.ndarray,
        d_a: np.ndarray,
        d_near: np.ndarray,
    ) -> None: ...

class Predictor:
    def __init__(
        self,
        kernel: InducingKernel,
        Linv: np.ndarray,
        tree: Tree,
        scale: np.ndarray,
        largest: float,
        support: tuple[np.ndarray, np.ndarray, np.ndarray],
        sites: tuple[np.ndarray, np.ndarray],
        w: np.ndarray,
        V: np.ndarray,
        k: int,
    ) -> None: ...
    def moments(self, X: np.ndarray, work: Workspace) -> np.ndarray: ...

def transform_rows(
    kernel: InducingKernel, Linv: np.ndarray, X: np.ndarray, first: int, work: Workspace, out: tuple[np.ndarray, ...]
) -> None: ...
def chain_terms(
    index: np.ndarray,
    n_earlier: np.ndarray,
    gamma: np.ndarray,
    variance: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
    targets: np.ndarray,
) -> np.ndarray: ...
def neighbour_sums(index: np.ndarray, gamma: np.ndarray, x: np.ndarray) -> np.ndarray: ...
