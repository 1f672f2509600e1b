"""Pictures of fitted classifiers, in the style of scikit-learn's displays.

Each display is made by ``from_estimator`` or ``from_predictions``, keeps the numbers that it shows, and draws them by
``plot(ax=...)``; ``ax_`` and ``figure_`` are then what was drawn on. Needs matplotlib, imported when something is
drawn; pyplot is not touched: ``display.figure_.savefig("picture.png")``, or give axes of your own.
"""

from __future__ import annotations

from .pictures.base import Display
from .pictures.boundary import DecisionBoundaryDisplay, decision_contours
from .pictures.calibration import CoverageDisplay, ReliabilityDisplay, reliability_diagram
from .pictures.learning import ImportanceDisplay, LearningDisplay

__all__ = [
    "CoverageDisplay",
    "DecisionBoundaryDisplay",
    "Display",
    "ImportanceDisplay",
    "LearningDisplay",
    "ReliabilityDisplay",
    "decision_contours",
    "reliability_diagram",
]
