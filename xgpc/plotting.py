"""Pictures of fitted classifiers, in the style of scikit-learn's displays.

``from_estimator`` or ``from_predictions`` makes a display, which keeps its numbers. ``plot(ax=...)`` draws it again;
``ax_`` and ``figure_`` are the axes and the figure. Displays need matplotlib and do not use pyplot: save by
``display.figure_.savefig("picture.png")``, or give axes of your own.
"""

from __future__ import annotations

from .pictures.base import Display
from .pictures.boundary import DecisionBoundaryDisplay, decision_contours
from .pictures.calibration import CoverageDisplay, ReliabilityDisplay, reliability_diagram
from .pictures.explain import ShapleyDisplay
from .pictures.learning import ImportanceDisplay, LearningDisplay

__all__ = [
    "CoverageDisplay",
    "DecisionBoundaryDisplay",
    "Display",
    "ImportanceDisplay",
    "LearningDisplay",
    "ReliabilityDisplay",
    "ShapleyDisplay",
    "decision_contours",
    "reliability_diagram",
]
