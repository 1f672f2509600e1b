"""RealMLP and TabM at the defaults of pytabkit, stopped by the NLL of a tenth of the training rows.

For this measure the documentation recommends ``val_metric_name="cross_entropy"``, and no smoothed labels of RealMLP.
"""

from problems import hold_out
from pytabkit import RealMLP_TD_Classifier, TabM_D_Classifier


class Network:
    def __init__(self, threads, seed, name):
        common = {"device": "cpu", "n_threads": threads, "random_state": seed, "val_metric_name": "cross_entropy"}
        self.model = TabM_D_Classifier(**common) if name == "tabm" else RealMLP_TD_Classifier(**common, use_ls=False)

    def fit(self, X, y):
        # Numbers may not be missing.
        self.means_ = X.mean(numeric_only=True) if hasattr(X, "dtypes") else None
        part = hold_out(self._filled(X), y)
        self.model.fit(part.X, part.y, part.X_test, part.y_test)
        return self

    def _filled(self, X):
        return X if self.means_ is None else X.fillna(self.means_)

    def predict_proba(self, X):
        return self.model.predict_proba(self._filled(X))


make = Network
