"""Why a row has its prediction: exact Shapley values of the latent mean, with their uncertainty.

With a kernel that is a product over features, the mean over all subsets of the features is an integral of a polynomial,
so that nothing is sampled.

References
----------
.. [1] Owen. Multilinear extensions of games. Management Science 18, 1972.
.. [2] Lundberg, Lee. A unified approach to interpreting model predictions. NIPS 2017.
.. [3] Mohammadi, Chau, Muandet. Computing exact Shapley values in polynomial time for product-kernel methods. 2025,
   arXiv 2505.16516. There, absent features have the factor 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import roots_sh_legendre
from sklearn.base import BaseEstimator

from ._sites import exp, product_games
from .approximations.base import CovarianceForm
from .estimator import LatentClassifier
from .kernels.factors import LOG_FACTORS
from .kernels.spec import KernelSpec, ValuedFactors
from .names import MatrixLike, TwoArrays
from .ranges import small_is_zero
from .rows.blas import single_threaded_blas
from .rows.block import dense
from .rows.executor import on_threads

# Operations for the relevance of features, some tenths of a second, which takes from LEAST to MOST inducing points.
RELEVANCE_FLOPS, LEAST, MOST = 5e9, 10, 100
# Most numbers (features, rows, points) of a block, unless a row has more. With 2^15 or 2^20 a row takes 1.2 to 1.3
# times as long.
BLOCK_NUMBERS = 2**17
# Nodes (g, K), weights (g,) and slopes (K,) of ``product_games``
Quadrature = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """Shapley values of the latent mean at n rows; arrays of C latent functions have a last axis (C,).

    ``baseline_value + values.sum(axis=1) + residual`` is the latent mean, ``model.predict_latent(X)[0]``.

    Attributes
    ----------
    values : (n, p) or (n, p, C) array
        What each of the p features, or columns of a table, adds to the latent mean.
    std : (n, p) or (n, p, C) array
        Posterior standard deviations: a value is normal, because it is linear in the latent function.
    baseline_value : float or (C,) array
        Latent mean at the baseline, averaged over its rows.
    residual : (n,) or (n, C) array
        What the nearest rows add to the latent mean, which belongs to no feature; zeros without neighbours.
    """

    values: np.ndarray
    std: np.ndarray
    baseline_value: float | np.ndarray
    residual: np.ndarray


class NotAProduct(ValueError):
    """A kernel is no product over features."""


class Game(NamedTuple):
    """The features of a model's kernel as players, against baselines."""

    terms: list[tuple[float, ValuedFactors]]
    players: np.ndarray  # (d,) player of each feature, from 0
    baseline: np.ndarray  # (b, d)
    rule: Quadrature
    n_players: int

    def products(self, factors: ValuedFactors, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Each player's part (p, r, m) of a product of factors between rows X (r, d) and Z (m, d)."""
        logs = np.zeros((len(self.players), len(X), len(Z)))
        # Beyond the range of a double the squared distance is infinite, and the factor 0.
        with np.errstate(over="ignore"):
            for leaf, _, scale in factors:
                logs += LOG_FACTORS[leaf.family](np, np.abs((X / scale).T[:, :, None] - (Z / scale).T[:, None, :]))
        # The columns that a column of a table became are one player.
        order = np.argsort(self.players, kind="stable")
        logs = np.add.reduceat(logs[order], np.flatnonzero(np.diff(self.players[order], prepend=-1)), axis=0)
        return exp(logs.ravel()).reshape(logs.shape)

    def weights(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Shapley values (p, r, m) of k(x, z) for rows X (r, d) and points Z (m, d), averaged over the baselines."""
        total = np.zeros((self.n_players, len(X) * len(Z)))
        for variance, factors in self.terms:
            of_rows, of_baselines = self.products(factors, X, Z), self.products(factors, self.baseline, Z)
            parts, share = np.empty((2, *of_rows.shape)), variance / len(self.baseline)
            parts[0] = of_rows
            for b in range(len(self.baseline)):
                parts[1] = of_baselines[:, b, None]
                total += share * product_games(parts.reshape(2, len(of_rows), -1), *self.rule)
        return total.reshape(self.n_players, len(X), len(Z))

    def prior_variances(self, X: np.ndarray) -> np.ndarray:
        """Prior variances (p, r) of the Shapley values of rows X (r, d).

        A value is a mean of differences of the latent function at rows that take some features from x, the others from
        b. In the covariance of two such means each feature is in both, in one or in neither set.
        """
        total, n = np.zeros((self.n_players, len(X))), len(self.baseline)
        # The rule over two values of t, for the covariance of two games' values.
        nodes, weights, slopes = (np.kron(part, part) for part in self.rule)
        for variance, factors in self.terms:
            single, none = (self.products(factors, rows, self.baseline) for rows in (X, self.baseline))
            for b in range(n):
                for c in range(n):
                    neither = np.broadcast_to(none[:, b, c, None], single.shape[:2])
                    parts = np.stack([np.ones(single.shape[:2]), single[:, :, c], single[:, :, b], neither])
                    total += variance / n**2 * product_games(parts, nodes, weights, slopes)
        return total


def _block(game: Game, forms: Sequence[CovarianceForm], Z: np.ndarray, with_prior: bool, X: np.ndarray) -> TwoArrays:
    """Return means and variances (forms, p, r) of the Shapley values of a block of rows.

    The variances are those that the inducing points' values cause; ``with_prior`` adds the variance of the latent
    function given these values.
    """
    W = game.weights(X, Z)
    flat = W.reshape(-1, W.shape[2])
    variances = [np.sum((flat @ form.added.T) ** 2, axis=1).reshape(W.shape[:2]) for form in forms]
    if with_prior:
        prior, last_matrix = game.prior_variances(X), None
        for form, variance in zip(forms, variances, strict=True):
            # Latent functions that share a kernel share this matrix.
            if last_matrix is not form.explained:
                last_matrix = form.explained
                unexplained = np.maximum(prior - np.sum((flat @ last_matrix.T) ** 2, axis=1).reshape(prior.shape), 0.0)
            variance += unexplained
    return np.stack([W @ form.weights for form in forms]), np.stack(variances)


@small_is_zero
def shapley_values(
    model: BaseEstimator, X: MatrixLike, baseline: MatrixLike | ArrayLike | None = None
) -> ShapleyValues:
    """Exact Shapley values of the latent mean at rows, against a baseline.

    With v(S) the latent mean at a row that takes the features in S from x and the others from the baseline, the value
    of feature j is the mean of v(S and j) - v(S) over all orders in which features may join [1]_, the baseline game of
    [2]_. The values of a row sum to the difference of the latent means of the row and the baseline. For two classes,
    positive values speak for ``classes_[1]``, for ordered classes they speak for the higher ones.

    Parameters
    ----------
    model : fitted GPClassifier or BayesianLinearClassifier
        The kernel must be a product over features: RBF (or Matern with nu=inf), AxisMatern and constants, with or
        without a WhiteKernel, and sums, products and powers of them. A default fit without neighbours has one.
    X : (n, p) array, sparse matrix or table, as for ``predict``
        Of a table, each column has one value, however many columns of ``encoding_`` it became.
    baseline : (p,) array, or (b, p) array or table, default=None
        The row to compare with, or a background sample: with several rows the game is averaged over them, as in SHAP's
        interventional game; time grows with their number, and that of ``std`` with its square. In a feature in which a
        row equals a single baseline, its value is exactly 0. None is the mean of the training rows after
        encoding (``feature_mean_``): in a feature that ``encoding_`` warps it is the mean of the warped values. Of a
        table with levels it is the row of each column's most frequent level, or of the number that more than half of
        the rows have, because no row has a blend of levels, and its latent mean would be that of no row. A given row
        has the features' own units.

    Returns
    -------
    ShapleyValues
        ``values`` and ``std`` (n, p) or (n, p, C), ``baseline_value``, and ``residual``. ``std`` is the exact posterior
        standard deviation. With neighbours, values and ``std`` explain the function that the inducing points' values
        determine, and ``residual`` is what the nearest rows add.

    Raises
    ------
    ValueError
        If a kernel is no product over features, for another kind of model, for rows that do not fit it, and if a
        BayesianLinearClassifier, which keeps no mean, gets no baseline.

    Notes
    -----
    A term of the kernel between x and an inducing point is a product game, whose Shapley values are integrals of
    polynomials; Gauss's rule with p / 2 nodes is exact. Without any division, zeros do no harm. Time is O(n b p^2 m)
    for the values and O(n (C p m^2 + b^2 p^3)) for their variances, with m inducing points. Of a linear model with
    baseline mean b, they are coef_j (x_j - b_j).

    Latent values are log odds for "logit", in standard deviations for "probit". Features that go together in the data
    are mixed from x and the baseline all the same: v(S) may be the model's opinion of a row that never occurs.

    References
    ----------
    .. [1] Owen. Multilinear extensions of games. Management Science 18, 1972.
    .. [2] Lundberg, Lee. A unified approach to interpreting model predictions. NIPS 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from xgpc import GPClassifier
    >>> from xgpc.explain import shapley_values
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GPClassifier(n_inducing=32, random_state=0).fit(X, y)
    >>> shapley_values(model, X[:5]).values.shape
    (5, 30)
    """
    if isinstance(model, LatentClassifier):
        rows = np.asarray(dense(model._rows(X)), dtype=np.float64)
        if hasattr(model, "coef_"):
            return _of_linear(model, rows, np.mean(_baseline_rows(model, baseline), axis=0))
        if hasattr(model, "posterior_"):
            return _of_kernel(model, rows, _baseline_rows(model, baseline))
    raise ValueError(
        f"model must be a fitted GPClassifier or BayesianLinearClassifier; got {type(model).__name__}. For a "
        "pipeline give the last step, and rows transformed by the other steps."
    )


def _baseline_rows(model: BaseEstimator, baseline: MatrixLike | ArrayLike | None) -> np.ndarray:
    """The rows (b, d) to compare with, encoded."""
    if baseline is None:
        if not hasattr(model, "feature_mean_"):
            raise ValueError(
                f"A {type(model).__name__} keeps no mean of its features: give baseline, such as X_train.mean(axis=0)."
            )
        return model._encoding.typical(model.feature_mean_)[None]
    with warnings.catch_warnings():
        if np.ndim(baseline) == 1:
            # A row has no column names.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            baseline = np.asarray(baseline, dtype=object if model._encoding.columns else None).reshape(1, -1)
        rows = np.asarray(dense(model._rows(baseline)), dtype=np.float64)
    if not len(rows):
        raise ValueError("baseline must have at least one row; got none. None is a typical row.")
    return rows


def _of_linear(model: BaseEstimator, X: np.ndarray, baseline: np.ndarray) -> ShapleyValues:
    difference, (coef,) = X - baseline, model.coef_
    std = np.abs(difference) * np.sqrt(np.diag(model.coef_covariance_)[: len(coef)])
    return ShapleyValues(difference * coef, std, float(coef @ baseline + model.intercept_[0]), np.zeros(len(X)))


def _of_kernel(model: BaseEstimator, X: np.ndarray, baseline: np.ndarray) -> ShapleyValues:
    q, players = model.posterior_, model._encoding.features_of(X.shape[1])
    is_local, n_players = q.n_neighbors > 0, model.n_features_in_
    # Which neighbours a row has depends on all of its features: their part is no sum over products.
    explained = q.without_neighbors()
    # Gauss's rule over t in [0, 1], exact for the polynomials of degree n_players - 1 of a game.
    t, weights = roots_sh_legendre((n_players + 1) // 2)
    rule, moments = (np.column_stack([t, 1.0 - t]), weights, np.array([1.0, -1.0])), []
    with single_threaded_blas():
        for group, forms in explained.forms_by_group:
            game = Game(_terms(group.spec), players, baseline, rule, n_players)
            n_rows = max(1, BLOCK_NUMBERS // (len(group.Z) * len(players)))
            blocks = [X[first : first + n_rows] for first in range(0, max(1, len(X)), n_rows)]
            block = partial(_block, game, forms, group.Z, not is_local)
            parts = on_threads(model.n_jobs)(block, blocks)
            moments.append([np.concatenate(arrays, axis=2) for arrays in zip(*parts, strict=True)])
    values, variances = (np.concatenate(arrays) for arrays in zip(*moments, strict=True))
    variances *= q.variance_scale
    values, std = (np.reshape(part.T, (len(X), n_players, *q.shape)) for part in (values, np.sqrt(variances)))
    at_baseline = np.mean(explained.marginals(baseline, model.n_jobs)[0], axis=-1) + model.mean_
    residual = np.zeros((len(X), *q.shape))
    if is_local:
        residual = model._latent_at(X)[0].T - at_baseline - np.sum(values, axis=1)
    return ShapleyValues(values, std, at_baseline if q.shape else float(at_baseline), residual)


def _terms(spec: KernelSpec) -> list[tuple[float, ValuedFactors]]:
    """The terms of a kernel but for noise; NotAProduct if one is no product over features."""
    terms = spec.latent_terms()
    obstacles = [f"the kernel is not compiled: {spec.not_compiled}"] if spec.not_compiled else []
    leaves = [leaf for _, factors in terms for leaf, *_ in factors if leaf.family not in LOG_FACTORS]
    obstacles += [f"{type(leaf.kernel).__name__} is no product over features" for leaf in leaves]
    if obstacles:
        n_scales = spec.n_features if spec.groups is None else len(spec.groups.names)
        raise NotAProduct(
            f"{obstacles[0]}, which exact Shapley values need. Allowed are RBF, AxisMatern, Matern with nu=inf, "
            "constants and WhiteKernel, and their sums, products and powers. Give such a kernel, as "
            f"kernel=ConstantKernel() * RBF(np.ones({n_scales})): without one, a fit with neighbours may choose Matern."
        )
    return terms


def relevance(model: BaseEstimator) -> TwoArrays:
    """Mean absolute Shapley values (p,) at some inducing points, over all latent functions, and their mean deviations.

    The latter are at least the deviations of the former: |mean |a_i| - mean |b_i|| is at most mean |a_i - b_i|, whose
    root mean square is at most the mean of the root mean squares. Both are empty where they would take long. A kernel
    that is no product over features raises NotAProduct.
    """
    points = np.reshape(model.inducing_points_, (-1, model.inducing_points_.shape[-1]))
    m, n_latents = model.inducing_points_.shape[-2], model.posterior_.n_latents
    n_rows = int(RELEVANCE_FLOPS / (4.0 * n_latents * model.n_features_in_ * m**2))
    if n_rows < LEAST:
        return np.empty(0), np.empty(0)
    some = points[np.unique(np.linspace(0, len(points) - 1, min(n_rows, MOST)).astype(int))]
    shapley = _of_kernel(model, some, _baseline_rows(model, None))
    sizes, std = (np.moveaxis(part, 1, 0).reshape(model.n_features_in_, -1) for part in (shapley.values, shapley.std))
    return np.mean(np.abs(sizes), axis=1), np.mean(std, axis=1)
