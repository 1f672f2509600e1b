"""The exact posterior, by sampling."""

from .classifier import GibbsClassifier

__all__ = ["GibbsClassifier"]
