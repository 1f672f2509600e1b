"""CatBoost at its defaults or given settings, with as many trees as are best on a tenth of the training rows, or with
its default number of trees.

That number, a thousand, is also the largest number of trees: CatBoost chooses its learning rate by it.
"""

import catboost
from problems import hold_out

from . import PATIENCE


def prepared(X):
    """Rows as CatBoost takes them, levels as text, a missing one as a level, and the columns of levels."""
    if not hasattr(X, "dtypes"):
        return X, None
    levels = [name for name in X.columns if X[name].dtype == "category"]
    return X.assign(**{name: X[name].astype(object).fillna("missing").astype(str) for name in levels}), levels


class StoppedTrees:
    def __init__(self, threads, seed, is_stopped=True, **settings):
        self.is_stopped = is_stopped
        self.model = catboost.CatBoostClassifier(
            thread_count=threads, random_seed=seed, verbose=False, allow_writing_files=False, **settings
        )

    def fit(self, X, y):
        rows, levels = prepared(X)
        if not self.is_stopped:
            self.model.fit(rows, y, levels)
            return self
        part = hold_out(rows, y)
        self.model.fit(part.X, part.y, levels, eval_set=(part.X_test, part.y_test), early_stopping_rounds=PATIENCE)
        return self

    def predict_proba(self, X):
        return self.model.predict_proba(prepared(X)[0])


make = StoppedTrees
