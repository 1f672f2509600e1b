"""Kernels next to scikit-learn's, which are here compiled, or called."""

from .axis import AxisMatern
from .wrappers import ActiveDims, Precomputed, Sphere, Tanimoto

__all__ = ["ActiveDims", "AxisMatern", "Precomputed", "Sphere", "Tanimoto"]
