"""Kernels next to scikit-learn's, which are here compiled, or called."""

from .axis import AxisMatern
from .wrappers import ActiveDims, Sphere, Tanimoto

__all__ = ["ActiveDims", "AxisMatern", "Sphere", "Tanimoto"]
