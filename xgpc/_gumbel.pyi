import numpy as np

def gumbel_normal(
    tables: np.ndarray, low: float, high: float, u: np.ndarray, scale: np.ndarray, row: np.ndarray
) -> np.ndarray: ...
