"""LightGBM at its defaults or given settings, with as many trees as are best on a tenth of the training rows.

Without that its probabilities would be overconfident.
"""

import lightgbm
from problems import hold_out

from . import MOST_TREES, PATIENCE


class StoppedTrees:
    def __init__(self, threads, seed, **settings):
        self.model = lightgbm.LGBMClassifier(
            n_estimators=MOST_TREES, n_jobs=threads, random_state=seed, verbose=-1, **settings
        )  # fmt: skip

    def fit(self, X, y):
        part = hold_out(X, y)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        self.model.fit(part.X, part.y, eval_X=part.X_test, eval_y=part.y_test, callbacks=[stop])
        return self

    def predict_proba(self, X):
        return self.model.predict_proba(X)


make = StoppedTrees
