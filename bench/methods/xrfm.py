"""xRFM at its defaults: kernel machines that learn features, chosen by the NLL of a tenth of the training rows."""

import torch
from problems import hold_out
from xrfm import xRFM

from .sklearn import scaled_columns


class FeatureMachine:
    def __init__(self, threads, seed):
        self.settings = {"device": "cpu", "n_threads": threads, "random_state": seed, "tuning_metric": "logloss"}

    def fit(self, X, y):
        self.columns_ = scaled_columns(X).fit(X)
        self.model_ = xRFM(**self.settings, categorical_info=self._levels(), verbose=False)
        part = hold_out(self.columns_.transform(X), y)
        rows, chosen = (torch.as_tensor(one, dtype=torch.float32) for one in (part.X, part.X_test))
        self.model_.fit(rows, torch.as_tensor(part.y), chosen, torch.as_tensor(part.y_test))
        return self

    def _levels(self):
        """Which columns are levels of one category, as the documentation recommends."""
        encoder = getattr(self.columns_, "named_transformers_", {}).get("onehotencoder")
        if not hasattr(encoder, "categories_"):
            return None
        blocks = torch.arange(sum(sizes := [len(levels) for levels in encoder.categories_])).split(sizes)
        count = len(self.columns_.get_feature_names_out())
        return {
            "numerical_indices": torch.arange(sum(sizes), count), "categorical_indices": list(blocks),
            "categorical_vectors": [torch.eye(size) for size in sizes],
        }  # fmt: skip

    def predict_proba(self, X):
        return self.model_.predict_proba(torch.as_tensor(self.columns_.transform(X), dtype=torch.float32))


make = FeatureMachine
