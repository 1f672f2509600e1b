"""A kernel for classes that are rules on single features; within the package, scikit-learn's kernels, compiled."""

from .axis import AxisMatern

__all__ = ["AxisMatern"]
