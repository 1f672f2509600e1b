import numpy as np

FAMILIES: dict[str, int]

class InducingKernel:
    n_features: int
    n_inducing: int
    n_terms: int
    diagonal: float
    white: float
    family: np.ndarray
    variance: np.ndarray
    inverse_length_scale: np.ndarray
    inducing_points: np.ndarray
    def __init__(
        self, family: object, variance: object, inverse_length_scale: object, white: float, inducing_points: object
    ) -> None: ...
    def cross(self, X: np.ndarray) -> np.ndarray: ...
