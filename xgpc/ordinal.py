"""Classes with an order."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .classifier import GPClassifier


class GPOrdinalClassifier(GPClassifier):
    """Gaussian process classifier of ordered classes, such as grades, with any number of levels.

    One latent function has a Gaussian process prior, and learned cut points b_1 < ... < b_{C-1} divide its values into
    the classes, in their order [1]_: p(y <= c | f) = F(b_c - f). The fit is that of ``GPClassifier``, with the same
    parameters and methods and the exceptions below.

    The order is that of ``classes`` in ``fit(X, y, classes=["low", "medium", "high"])``, which may also name levels
    without rows; without it, that of y if y is an ordered Categorical of pandas, an Enum of polars, an ordered
    dictionary of Arrow, or a table with one such column; otherwise that of the sorted labels. Text without an order of
    its own is hardly sorted by its meaning, so that the fit warns. ``fit_batches`` and a first ``partial_fit`` take the
    same argument.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        As for ``GPClassifier``, and so are all parameters that are not listed here.
    likelihood : {"logit", "probit"}, default="logit"
        F is the logistic or the normal distribution function. "probit" takes more time.
    bound : {"auto", "exact"}, default="auto"
    n_neighbors : "auto" or 0, default="auto"
        There are no neighbours.
    optimizer : "profile" or None, default="profile"
        "profile" learns the cut points together with the kernel. None: nothing is learned, and the cut points are those
        that predict the class frequencies where no rows are near.

    Attributes
    ----------
    classes_ : (C,) array
        Class labels, sorted, as everywhere in scikit-learn: probabilities have their columns in this order.
    ordered_classes_ : (C,) array
        Class labels in their order, from the lowest to the highest.
    cut_points_ : (C - 1,) array
        Values of the latent function that divide ``ordered_classes_``, increasing.

    Notes
    -----
    scikit-learn's ``cross_val_predict`` with probabilities numbers the labels as their names sort before it fits: give
    numbers for the levels, in their order, to it.

    Cut points stay at least 0.001 apart, so that a level without rows keeps a small probability. Likelihoods of both
    kinds are log-concave; the expectations of "logit" have a closed form, those of "probit" are integrals by panels.

    References
    ----------
    .. [1] Chu, Ghahramani. Gaussian processes for ordinal regression. Journal of Machine Learning Research 6, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from xgpc import GPOrdinalClassifier
    >>> X = np.linspace(-2.0, 2.0, 60)[:, None]
    >>> y = np.digitize(X[:, 0], [-0.7, 0.7])
    >>> model = GPOrdinalClassifier(random_state=0).fit(X, y)
    >>> model.predict([[-1.5], [0.0], [1.5]])
    array([0, 1, 2])
    """

    _is_ordered = True

    @property
    def ordered_classes_(self) -> np.ndarray:
        """Class labels in their order, from the lowest to the highest."""
        check_is_fitted(self)
        return self._record.by_level(self.classes_)
