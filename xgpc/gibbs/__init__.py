"""The exact posterior, by Gibbs sampling."""

from .classifier import GibbsClassifier

__all__ = ["GibbsClassifier"]
