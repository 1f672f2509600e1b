"""A start for rows of many features, few of which may matter: trees find these."""

from __future__ import annotations

import numpy as np

from ..approximations.base import KernelPrior
from ..rows.block import dense
from .fit import Fit
from .inducing import centres_of

# With so many features, learning also starts from the features that trees split the rows by. (Of two splits of madelon,
# with 500 features, 20 of which matter, NLL is .3, not .68; of made sets of 100 and 200 features, 20 of which matter,
# it is lower by .08; of other sets of 33 to 90 features it is the same to .001 in the mean, and fits take up to twice
# as long. Of eight sets of more than 4000 rows it was higher by .004 +- .002, of splice, a table of levels, by .001.)
MANY_FEATURES = 32
# Share of the relevance that all features have alike, so that learning can find those that the trees have missed.
EQUAL_SHARE = 0.1


def relevant_prior(fit: Fit, prior: KernelPrior, random_state: np.random.RandomState) -> KernelPrior:
    """``prior`` with short length scales for the features that trees split the rows by, and inducing points to match.

    O(n d log n) for each of the extremely randomised trees (Geurts, Ernst, Wehenkel, Machine Learning 63, 2006).
    """
    # Few fits need trees, whose import takes 40 ms.
    from sklearn.ensemble import ExtraTreesClassifier

    rows, (group,) = dense(fit.source.rows), prior.groups
    # Thirty trees find what a hundred do on madelon. With leaves of three rows or more they split less by noise.
    trees = ExtraTreesClassifier(30, max_features=None, min_samples_leaf=3, random_state=fit.seed)
    share = trees.fit(rows, fit.hold_out.labels, fit.source.weight).feature_importances_
    # In units of the mean relevance; the mean scaled squared distance of two rows stays the same.
    relevance = EQUAL_SHARE + (1.0 - EQUAL_SHARE) * len(share) * share
    spec = group.spec.with_theta(group.spec.theta - np.append(0.0, 0.5 * np.log(relevance))).within_bounds()
    Z = prior.Z
    # All distinct rows stay points.
    if len(Z) < len(np.unique(rows, axis=0)):
        scale = spec.least_length_scales(np.ones(rows.shape[1]))
        Z = scale * centres_of(rows / scale, fit.source.weight, len(Z), random_state)
    return prior.rebuilt([spec], Z)
