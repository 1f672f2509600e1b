"""Pictures of fitted classifiers that scikit-learn lacks, in the style of its displays.

``from_estimator`` or ``from_predictions`` makes a display, which keeps its numbers. ``plot(ax=...)`` draws it again;
``ax_`` and ``figure_`` are the axes and the figure. Displays need matplotlib and do not use pyplot: save by
``display.figure_.savefig("picture.png")``, or give axes of your own.
"""

from __future__ import annotations

from .pictures.base import Display
from .pictures.calibration import CoverageDisplay, ReliabilityDisplay
from .pictures.explain import ShapleyDisplay
from .pictures.learning import ImportanceDisplay, LearningDisplay

__all__ = [
    "CoverageDisplay",
    "Display",
    "ImportanceDisplay",
    "LearningDisplay",
    "ReliabilityDisplay",
    "ShapleyDisplay",
]
