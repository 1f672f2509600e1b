"""The systems of the papers, by their names there, as keyword arguments.

``GPClassifier(**xgpc.systems["X-GPC"])`` fits as the paper does, as far as keywords can say it: with its likelihood,
bound, optimizer and mini-batches, and with fixed or learned inducing points. Give the kernel too, as kernels depend on
the data. "linear-BSVM" is for ``BayesianLinearClassifier``. The page "Systems of the papers" of the user guide lists
the papers and the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

System = Mapping[str, Any]
_M = {"n_inducing": 100}
# The papers have no prior of the kernel parameters.
_LEARNED = {"length_scale_prior": None, **_M}
_X_GPC = {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "stochastic", **_LEARNED}
# The inducing points stay at the centres of k-means, and the fit uses all rows from the start.
_VI_JJ = {"likelihood": "logit", "bound": "polya-gamma", "learn_inducing": False, "subset_sizes": None, **_LEARNED}
_GPC = {"bound": "additive-noise", "optimizer": "stochastic", "batch_size": 1024, **_LEARNED}
_BSVM = {"likelihood": "svm", "bound": "augmented"}
_SYSTEMS: dict[str, System] = {
    "X-GPC": {**_X_GPC, "batch_size": 100},
    "X-GPC-batch": _X_GPC,
    "SVGPC": {**_GPC, "likelihood": "probit", "bound": "exact", "batch_size": 100, "n_neighbors": 0},
    "vi-JJ": {**_VI_JJ, "optimizer": "alternate"},
    "vi-JJ-full": {**_VI_JJ, "optimizer": "joint"},
    "vi-JJ-hybrid": {**_VI_JJ, "optimizer": "hybrid"},
    "vi-Taylor": {**_VI_JJ, "bound": "taylor", "optimizer": "alternate"},
    "GPC-I": {**_GPC, "likelihood": "step"},
    "GPC-II": {**_GPC, "likelihood": "probit"},
    "GPC-III": {**_GPC, "likelihood": "logit"},
    "GPC-I-mc": {**_GPC, "likelihood": "multinomial-step"},
    "GPC-II-mc": {**_GPC, "likelihood": "multinomial-probit"},
    "GPC-III-mc": {**_GPC, "likelihood": "multinomial-logit"},
    "GPCsm": {**_GPC, "likelihood": "softmax"},
    "GPCaug-mc": {**_GPC, "likelihood": "logistic-softmax", "bound": "polya-gamma", "share": "kernel"},
    "S-BSVM": {**_BSVM, "optimizer": None, "batch_size": 10, **_M},
    "B-BSVM": {**_BSVM, "optimizer": None, "inducing_points": "all"},
    "linear-BSVM": _BSVM,
}


class _Systems(dict[str, System]):
    def __missing__(self, name: object) -> System:
        raise KeyError(f"{name!r} is none of the systems {list(self)}.")


SYSTEMS: Mapping[str, System] = MappingProxyType(_Systems({n: MappingProxyType(s) for n, s in _SYSTEMS.items()}))
