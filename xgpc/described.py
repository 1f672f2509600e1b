"""What a fitted classifier tells about itself: decisions, a summary, a report on test rows, and plain arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .approximations.local import Posterior
from .arrays import arrays_of
from .estimator import LatentClassifier
from .names import MatrixLike
from .report import Report, other_predictions, report
from .summary import summary


class Described(LatentClassifier):
    """A classifier that can be described, from the attributes that a fit has set."""

    posterior_: Posterior
    mean_: float | np.ndarray
    class_count_: np.ndarray
    warnings_: list[str]
    history_: dict[str, np.ndarray]

    @property
    def decisions_(self) -> list[str]:
        """The fit's decisions and their reasons, one sentence each, in order: those in ``history_["decision"]``."""
        check_is_fitted(self)
        return [str(text) for text in self.history_.get("decision", ()) if text]

    def summary(self) -> str:
        """Text that summarises the fit: rows, kernel with named length scales, bound, features that matter, warnings,
        decisions, and what to try next. A notebook shows it as a table.

        Length scales are in standard deviations of their features (``feature_spread_``). For comparison, the text gives
        the mean log probability of the labels under the class frequencies alone; a useful model has a higher bound per
        row. A feature matters if the mean absolute value of its Shapley values (``xgpc.explain``) at inducing points
        exceeds two standard deviations, of which the text gives an upper bound; ``report`` and ``feature_importances_``
        answer other questions, as the guide's page "Is my model any good?" says. Bound, warnings and decisions are
        those of the last call.
        """
        check_is_fitted(self)
        return summary(self)

    def report(self, X: MatrixLike, y: ArrayLike, others: Mapping[str, BaseEstimator] | None = None) -> Report:
        """One HTML page on the predictions of test rows; a notebook shows it, and ``save(path)`` writes it to a file.

        It shows whether the probabilities can be trusted, what is gained over the class frequencies and over
        ``others``, the mistakes, the features that matter, the rows that the model is least sure of, and the fit's
        decisions. It needs no server, no network and no further package.

        Parameters
        ----------
        X : (n, d) array or table
            Rows that the model was not fitted to.
        y : (n,) array of labels
        others : dict of name to fitted classifier, default=None
            Models to compare with, of the same classes, such as ``{"linear": LogisticRegression().fit(X, y)}``.

        Returns
        -------
        Report
            A str, the HTML text. Beside the predictions of X it takes as long as those of 20 000 rows, each with a
            shuffled feature; with more than 400 features the page leaves out which of them matter.

        Raises
        ------
        ValueError
            For labels that are no classes or not as many as rows, and for others of other classes or of a name that
            the page has already.
        """
        return report(self, X, self.predict_log_proba(X), y, other_predictions(self, X, others or {}))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays from which some lines of NumPy make the same predictions of new rows, for programs without xgpc.

        The guide's page "Models in other programs" has these lines. All arrays are in the units of rows as
        ``encoding_.encode(X)`` returns them; of an array X without outlying values, the warps alone make these.

        Returns
        -------
        dict of arrays
            With L latent functions (L = 1, or the number of classes), m points, T terms and F factors of the kernel,
            and W warped features.

            * ``classes`` (C,); ``likelihood``, a name; ``label_noise``, 0 without any.
            * ``class_weight`` (C,): probabilities are multiplied by it at last, and divided by their sum.
            * ``mean`` (L,): prior means, to be added to all latent means.
            * ``points`` (L, m, d): inducing points, or the distinct rows of a full Gaussian process.
            * ``term_variance`` (L, T), ``term_is_noise`` (T,): the kernel is a sum of terms, each its variance times
              its factors. Terms of noise count only in the variance k(x, x) of a row.
            * ``factor_term`` (F,), ``factor_family`` (F,), ``factor_shape`` (L, F), ``inverse_length_scale`` (L, F, d):
              for each factor its term, the name of its function, its parameter (alpha of RationalQuadratic, sigma_0^2
              of DotProduct) and inverse length scales.
            * ``alpha`` (L, m), ``B`` (L, m, m), without neighbours: mean = alpha'k and variance = k(x, x) - k'B k, for
              k = k(points, x).
            * ``whitening`` (L, m, m), ``whitened_mean`` (L, m), ``whitened_covariance`` (L, m, m), with inducing
              points: the whitened values at the points, L^-1 u with k(points, points) = L L', have a normal
              distribution; ``whitening`` is L^-1.
            * ``rows`` (n, d), ``site_precision`` (L, n), ``site_linear`` (L, n), ``n_neighbors``, ``variance_scale``,
              with neighbours: training rows, their sites, number of neighbours, and a factor of all variances.
            * ``distance_scale`` (d,), ``distance_power``, with neighbours: they are the nearest by the sum of
              ``abs(scale * (x - row)) ** power``.
            * ``link_weights``, ``link_variances`` (K,): ``p(classes[1] | f)`` = sum of weight * Phi(f /
              sqrt(variance)), then wrong with probability ``label_noise``. Not for "softmax" and "logistic-softmax".
            * ``rates`` (2,), with one latent function: guess and lapse rate, which are the label noise of a likelihood
              with label noise. The probability becomes guess + (1 - guess - lapse) times that of the link.
            * ``cut_points``, with one latent function: f - cut takes the place of f, for the probability of the classes
              above each cut. (C - 1,) for ordered classes, otherwise a 0.
            * ``levels`` (C,), with one latent function: the position of each class between the cuts, 0 for the lowest.
            * ``warp_feature``, ``warp_centre``, ``warp_scale`` (W,): centre + scale * arcsinh((x - centre) / scale)
              stands for such a feature x.

        Raises
        ------
        ValueError
            For a kernel that is not compiled.

        Notes
        -----
        O(L m^3) time. ``numpy.savez`` writes the arrays to a file, without pickled objects if the labels are numbers or
        text.
        """
        check_is_fitted(self)
        return arrays_of(self)
