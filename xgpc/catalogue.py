"""The systems of the papers, by their names there, as keyword arguments.

All are for ``GPClassifier`` but linear-BSVM, which is for ``BayesianLinearClassifier``:
``GPClassifier(**xgpc.systems["X-GPC"])``. An entry is the paper's way to fit, as far as keywords can say it:
likelihood, bound, optimizer, mini-batches, whether inducing points move. The way of this library, for the same
likelihood and bound, is had by these two keywords alone: ``GPClassifier(likelihood="logit", bound="polya-gamma")``.
What keywords cannot say:

* Kernels depend on the data, and are given beside: ``GPClassifier(kernel, **xgpc.systems["X-GPC"])``. Without one it is
  this library's, with a length scale for each feature and no noise. Those of [1]_ and [3]_ have one length scale and
  noise, ``ConstantKernel() * RBF(d**0.5) + WhiteKernel()`` for d standardised features; those of [5]_ start at variance
  5; those of [4]_ are fixed for each data set.
* Numbers of inducing points are 100, those of [1]_, where a paper has others for each data set: [3]_, and S-BSVM's, a
  fifth of the rows.
* X-GPC, X-GPC-batch and SVGPC: the paper names neither Adam's rate nor how its steps alternate with those of the
  posterior. Here one of Adam, at a falling rate, follows each natural-gradient step, and the model is the average over
  the steps, the later the more. ``converged_`` is judged as in section 5.2 of [1]_, by the relative change of the
  natural parameters, averaged over a window of five steps, but here of their averages over the steps, and the fit
  goes on while the bound rises. ``tol`` is looser
  for large batches and few rows. Then the posterior of all rows is fitted under the kernel that was learned, in a few
  passes, which the paper does not have. SVGPC's natural gradients are this library's; [2]_ has plain ones.
* vi-JJ and its kin stop when the bound, averaged over five iterations, no longer gains; the paper says nothing of that.
* GPC-I to GPCsm: the paper's Adam also moves the posterior, which here has natural gradients; its 10 000 steps are here
  as many as it takes.
* GPCaug-mc is the model of [6]_ with its natural-gradient steps on mini-batches, of 1024 rows and beside Adam as [5]_
  compares it, and with one kernel for all classes. Its inducing points move, too.
* S-BSVM and B-BSVM are those of the paper's table 1, whose kernels are fixed; learning them is had by
  ``optimizer="profile"``. Rates of S-BSVM's steps are adaptive.

References
----------
.. [1] Wenzel, Galy-Fajou, Donner, Kloft, Opper. Efficient Gaussian process classification using Polya-Gamma data
   augmentation. AAAI 2019. Sections 4.1 and 5.
.. [2] Hensman, Matthews, Ghahramani. Scalable variational Gaussian process classification. AISTATS 2015.
.. [3] Izmailov, Kropotov. Faster variational inducing input Gaussian process classification. 2016. Sections 4 and 5.1.
.. [4] Wenzel, Galy-Fajou, Deutsch, Kloft. Bayesian nonlinear support vector machines for big data. ECML 2017. Sections
   4.1, 4.2, 4.5 and 5.
.. [5] Liu, Ong, Yu, Cai, Shen. Scalable Gaussian process classification with additive noise for various likelihoods.
   2019. Sections II, III-B, III-D and appendix D.
.. [6] Galy-Fajou, Wenzel, Donner, Opper. Multi-class Gaussian process classification made conjugate. UAI 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_M = {"n_inducing": 100}
# The papers know of no prior of kernel parameters.
_LEARNED = {"length_scale_prior": None, **_M}
_X_GPC = {"likelihood": "logit", "bound": "polya-gamma", "optimizer": "stochastic", **_LEARNED}
# Inducing points stay at the centres of k-means; all rows from the beginning.
_VI_JJ = {"likelihood": "logit", "bound": "polya-gamma", "learn_inducing": False, "subset_sizes": None, **_LEARNED}
_GPC = {"bound": "additive-noise", "optimizer": "stochastic", "batch_size": 1024, **_LEARNED}
_BSVM = {"likelihood": "svm", "bound": "augmented"}
_SYSTEMS: dict[str, dict[str, Any]] = {
    "X-GPC": {**_X_GPC, "batch_size": 100},
    "X-GPC-batch": _X_GPC,
    "SVGPC": {
        "likelihood": "probit",
        "bound": "exact",
        "optimizer": "stochastic",
        "batch_size": 100,
        "n_neighbors": 0,
        **_LEARNED,
    },
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
    "GPCaug-mc": {
        "likelihood": "logistic-softmax",
        "bound": "polya-gamma",
        "share": "kernel",
        "optimizer": "stochastic",
        "batch_size": 1024,
        **_LEARNED,
    },
    "S-BSVM": {**_BSVM, "optimizer": None, "batch_size": 10, **_M},
    "B-BSVM": {**_BSVM, "optimizer": None, "inducing_points": "all"},
    "linear-BSVM": _BSVM,
}

SYSTEMS: Mapping[str, Mapping[str, Any]] = MappingProxyType({n: MappingProxyType(s) for n, s in _SYSTEMS.items()})
