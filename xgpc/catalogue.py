"""The systems of the papers, by their names there, as keyword arguments.

All are for ``GPClassifier`` but linear-BSVM, which is for ``BayesianLinearClassifier``:
``GPClassifier(**xgpc.systems["X-GPC"])``. The comments in this
module and the README name the papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_SYSTEMS: dict[str, dict[str, Any]] = {
    # Wenzel, Galy-Fajou, Donner, Kloft, Opper. Efficient Gaussian process classification using Polya-Gamma data
    # augmentation. AAAI 2019: section 4.1, mini-batches with Adam for the kernel; its full batch.
    "X-GPC": {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "adam", "batch_size": 100},
    "X-GPC-batch": {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "adam"},
    # Hensman, Matthews, Ghahramani. Scalable variational Gaussian process classification. AISTATS 2015.
    "SVGPC": {"likelihood": "probit", "bound": "exact", "optimizer": "adam", "batch_size": 100},
    # Izmailov, Kropotov. Faster variational inducing input Gaussian process classification. 2016: section 4.
    "vi-JJ": {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "alternate"},
    "vi-JJ-full": {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "joint"},
    "vi-JJ-hybrid": {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "hybrid"},
    "vi-Taylor": {"likelihood": "logit", "bound": "taylor", "optimizer": "alternate"},
    # Liu, Ong, Yu, Cai, Shen. Scalable Gaussian process classification with additive noise for various likelihoods.
    # 2019: two classes, several classes, and softmax, sections II, III-B and III-D.
    "GPC-I": {"likelihood": "step", "bound": "additive-noise"},
    "GPC-II": {"likelihood": "probit", "bound": "additive-noise"},
    "GPC-III": {"likelihood": "logit", "bound": "additive-noise"},
    "GPC-I-mc": {"likelihood": "multinomial-step", "bound": "additive-noise"},
    "GPC-II-mc": {"likelihood": "multinomial-probit", "bound": "additive-noise"},
    "GPC-III-mc": {"likelihood": "multinomial-logit", "bound": "additive-noise"},
    "GPCsm": {"likelihood": "softmax", "bound": "additive-noise"},
    # Galy-Fajou, Wenzel, Donner, Opper. Multi-class Gaussian process classification made conjugate. UAI 2019.
    "GPCaug-mc": {"likelihood": "logistic-softmax", "bound": "polya-gamma"},
    # Wenzel, Galy-Fajou, Deutsch, Kloft. Bayesian nonlinear support vector machines for big data. ECML 2017: sections
    # 4.2, 4.1 and 4.5. The last is a BayesianLinearClassifier, all others are GPClassifiers.
    "S-BSVM": {"likelihood": "svm", "bound": "augmented", "optimizer": "adam", "batch_size": 10},
    "B-BSVM": {"likelihood": "svm", "bound": "augmented"},
    "linear-BSVM": {"likelihood": "svm", "bound": "augmented"},
}

SYSTEMS: Mapping[str, Mapping[str, Any]] = MappingProxyType({n: MappingProxyType(s) for n, s in _SYSTEMS.items()})
