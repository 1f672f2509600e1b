import numpy as np

CANCELLATION_LIMIT: float
FAMILIES: dict[str, int]

class InducingKernel:
    n_features: int
    n_inducing: int
    n_terms: int
    n_factors: int
    variance: np.ndarray
    noise: np.ndarray
    term: np.ndarray
    family: np.ndarray
    shape: np.ndarray
    inverse_length_scale: np.ndarray
    inducing_points: np.ndarray
    function: object
    def __init__(
        self,
        variance: object,
        noise: object,
        term: object,
        family: object,
        shape: object,
        inverse_length_scale: object,
        inducing_points: object,
        function: object = None,
    ) -> None: ...
    def cross(self, X: np.ndarray) -> np.ndarray: ...
    def diagonals(self, X: np.ndarray) -> np.ndarray: ...
    def parts_of_diagonal(self, X: np.ndarray) -> np.ndarray: ...
    def diagonal_gradient(self, X: np.ndarray) -> np.ndarray: ...
    def row_gradients(self, X: np.ndarray, G: np.ndarray) -> np.ndarray: ...
    def quadratic_gradients(self, X: np.ndarray, alpha: np.ndarray, B: np.ndarray) -> np.ndarray: ...

class RowScratch:
    def __init__(self, n: int, m: int, d: int) -> None: ...

class KernelGradient:
    sizes: tuple[int, int, int, int]
    values: np.ndarray
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    def __init__(self, sizes: tuple[int, int, int, int], values: np.ndarray | None = None) -> None: ...
    @staticmethod
    def empty(core: InducingKernel) -> KernelGradient: ...
    def __iadd__(self, other: KernelGradient) -> KernelGradient: ...

def vjp(kernel: InducingKernel, cross: KernelGradient, gram: KernelGradient) -> tuple[np.ndarray, np.ndarray]: ...
def neighbour_gradients(
    kernel: InducingKernel, near: np.ndarray, index: np.ndarray, X: np.ndarray, G: np.ndarray
) -> np.ndarray: ...
