from typing import Any

import numpy as np
from numpy.typing import ArrayLike

KINDS: dict[tuple[str, str], int]
HAZARD_DEGREE: int
MULTI_CLASS: frozenset[tuple[str, str]]
LOGISTIC_MIXTURE: tuple[tuple[float, float], ...]
LINKS: dict[str, int]

class Site:
    likelihood: str
    bound: str
    n_latents: int
    parameter: Any
    learned: bool
    record: Any
    key: str
    prior_mean: np.ndarray
    def __init__(
        self,
        likelihood: str,
        bound: str,
        n_latents: int = 1,
        parameter: Any = 0.01,
        learned: bool = False,
        table: np.ndarray | None = None,
        record: Any = None,
        prior_mean: np.ndarray | None = None,
        key: str | None = None,
    ) -> None: ...
    def with_parameter(self, parameter: Any) -> Site: ...
    def with_prior_mean(self, prior_mean: np.ndarray) -> Site: ...

def sites(
    site: Site,
    mean: np.ndarray,
    variance: np.ndarray,
    y: np.ndarray,
    weight: ArrayLike = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]: ...
def parameter_gradient(
    site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> np.ndarray: ...
def softmax_scores(
    site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def softmax_vjp(
    site: Site, mean: np.ndarray, variance: np.ndarray, by_precision: np.ndarray, by_linear: np.ndarray
) -> tuple[np.ndarray, np.ndarray]: ...
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
def logistic_normal_mean(mean: np.ndarray, variance: np.ndarray) -> np.ndarray: ...
def logistic_normal_logs(mean: np.ndarray, variance: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]: ...
def exp(x: np.ndarray) -> np.ndarray: ...
def normal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

class Values:
    def __init__(
        self,
        tables: np.ndarray,
        low: float,
        high: float,
        mean: np.ndarray,
        scale: np.ndarray,
        row: np.ndarray,
        ends: np.ndarray,
    ) -> None: ...
    def log_probabilities(self) -> np.ndarray: ...
    def slopes(self) -> np.ndarray: ...

def product_games(parts: np.ndarray, nodes: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> np.ndarray: ...
