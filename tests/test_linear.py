"""The linear classifier: published formulas, the prior variance, sparse rows, scikit-learn's contract."""

import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.utils import get_tags
from sklearn.utils.fixes import parse_version
from support.fits import assert_weights_are_copies, failed_checks
from support.reference import standardised

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.likelihoods import LIKELIHOODS

NAMES = ["logit", "probit", "svm"]
BOUNDS = [(name, bound) for name in NAMES for bound in LIKELIHOODS[name] if bound != "additive-noise"]
X, Y = standardised(load_breast_cancer)
SIGNS = 2.0 * Y - 1.0
# With fewer rows than features the classifier is one in the span of the rows.
every_step = pytest.mark.parametrize("step", [1, 72], ids=["many rows", "8 rows of 30 features"])


def fit(X=X, y=Y, sample_weight=None, **params):
    params = {"random_state": 0, "max_iter": 3000, **params}
    return BayesianLinearClassifier(**params).fit(X, y, sample_weight)


@pytest.mark.parametrize("params", [{}, {"prior_variance": 1.0}], ids=str)
def test_scikit_learns_own_checks(params):
    # Those of sparse rows, too.
    assert get_tags(BayesianLinearClassifier()).input_tags.sparse
    failed = failed_checks(BayesianLinearClassifier(max_iter=10, **params))
    if parse_version(sklearn.__version__) < parse_version("1.7"):
        # They make two classes of three by the label of the first row, which is not the same one in the two fits that
        # they compare.
        failed -= {f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")}
    assert failed == set()


@every_step
def test_fixed_point_of_polya_gamma(step):
    """Jaakkola & Jordan's updates, dense: xi^2 = E[f^2], Sigma^-1 = I/s^2 + sum theta(xi) x x^T, mu = Sigma X^T y/2."""
    s2, rows, signs = 0.3, X[::step], SIGNS[::step]
    mu, Sigma = np.zeros(30), s2 * np.eye(30)
    for _ in range(2000):
        xi = np.sqrt((rows @ mu) ** 2 + np.sum(rows @ Sigma * rows, axis=1))
        Sigma = np.linalg.inv(np.eye(30) / s2 + rows.T @ (rows * (np.tanh(xi / 2) / (2 * xi))[:, None]))
        mu = Sigma @ rows.T @ signs / 2
    model = fit(rows, Y[::step], bound="polya-gamma", prior_variance=s2, fit_intercept=False, tol=1e-14)
    assert model.posterior_.prior.n_inducing == min(len(rows), 30)
    np.testing.assert_allclose(model.coef_[0], mu, atol=1e-6)
    np.testing.assert_allclose(model.coef_covariance_, Sigma, atol=1e-6)
    m, v = X @ mu, np.einsum("ij,jk,ik->i", X, Sigma, X)
    c = np.sqrt(m**2 + v)[::step]
    kl = 0.5 * (np.trace(Sigma) / s2 + mu @ mu / s2 - 30 + 30 * np.log(s2) - np.linalg.slogdet(Sigma)[1])
    assert model.elbo_ == pytest.approx(np.sum(signs * m[::step] / 2 - np.log(2 * np.cosh(c / 2))) - kl, rel=1e-9)
    mean, variance = model.predict_latent(X)
    np.testing.assert_allclose(mean, m, atol=1e-4)
    np.testing.assert_allclose(variance, v, rtol=1e-6)


def test_linear_bayesian_svm_by_equation_14():
    """Wenzel et al. 2017, equation (14), dense, with Z = Y X: alpha, zeta and mu in turn."""
    s2, Z = 0.3, SIGNS[:, None] * X
    mu, zeta = np.zeros(30), s2 * np.eye(30)
    for _ in range(2000):
        alpha = (1 - Z @ mu) ** 2 + np.sum(Z @ zeta * Z, axis=1)
        zeta = np.linalg.inv(Z.T @ (Z / np.sqrt(alpha)[:, None]) + np.eye(30) / s2)
        mu = zeta @ Z.T @ (alpha**-0.5 + 1)
    model = fit(likelihood="svm", bound="augmented", prior_variance=s2, fit_intercept=False, tol=1e-13)
    np.testing.assert_allclose(model.coef_[0], mu, atol=1e-5)
    np.testing.assert_allclose(model.coef_covariance_, zeta, atol=1e-5)


@pytest.mark.parametrize(("likelihood", "bound"), BOUNDS)
def test_is_the_gaussian_process_of_a_linear_kernel(likelihood, bound):
    """Also that an intercept is a constant feature of variance 100."""
    s2 = 0.05
    both = {"likelihood": likelihood, "bound": bound, "max_iter": 3000, "tol": 1e-9}
    kernel = ConstantKernel(s2, "fixed") * DotProduct(0.0, "fixed")
    process = GPClassifier(kernel, inducing_points=np.eye(X.shape[1]), optimizer=None, **both).fit(X, Y)
    model = fit(prior_variance=s2, fit_intercept=False, **both)
    # The process has a jitter of 1e-6 at its inducing points.
    assert model.elbo_ == pytest.approx(process.elbo_, abs=1e-2)
    np.testing.assert_allclose(model.predict_proba(X), process.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(model.decision_function(X), process.decision_function(X), atol=1e-3)
    rows = np.column_stack([X, np.full(len(X), np.sqrt(100.0 / s2))])
    by_hand, model = fit(rows, prior_variance=s2, fit_intercept=False, **both), fit(prior_variance=s2, **both)
    assert model.elbo_ == pytest.approx(by_hand.elbo_, rel=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(rows), atol=1e-9)


@pytest.mark.parametrize(("i", "key"), [*enumerate(key for key in BOUNDS if key[1] != "taylor")])
def test_learned_prior_variance_is_a_maximum_of_the_bound(i, key):
    params = {"likelihood": key[0], "bound": key[1], "fit_intercept": i % 2 == 0, "tol": 1e-10, "X": X[:, :10]}
    model = fit(**params)
    assert model.converged_
    s2, step = model.prior_variance_, 0.01
    lower, upper = (fit(prior_variance=s2 * np.exp(h), **params).elbo_ for h in (-step, step))
    assert max(lower, upper) < model.elbo_
    assert (upper - lower) / (2 * step) == pytest.approx(0.0, abs=2e-3)
    far = [fit(prior_variance=s2 * factor, **{**params, "tol": 1e-6}).elbo_ for factor in (0.2, 5.0)]
    assert max(far) < min(lower, upper)
    assert fit(**{**params, "tol": 1e-4}).elbo_ == pytest.approx(model.elbo_, abs=0.05)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 3e3), (1, 1, 1, 1e6), (1, 1e4), (1, 1e4, 1e8), (1, 1e4, 1e4)])
@pytest.mark.parametrize("likelihood", NAMES)
def test_features_that_are_much_larger_than_others_do_not_hide_them(likelihood, sizes):
    """The bound has other maxima, where only large features count."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, len(sizes))) * sizes
    y = (rows[:, 0] + rng.normal(size=1000) > 0.0).astype(int)
    for given in (rows, sparse.csr_array(rows)):
        model, other = (fit(given, y, likelihood=likelihood, prior_variance=each) for each in ("auto", 1.0))
        assert model.converged_
        assert model.elbo_ > other.elbo_
    # A row that hardly counts has the largest feature.
    rows[0], weight = 1e30, np.where(np.arange(1000), 1.0, 1e-100)
    assert np.isfinite(fit(rows, y, likelihood=likelihood, sample_weight=weight).elbo_)


@pytest.mark.parametrize("density", [0.02, 0.3])
@pytest.mark.parametrize("params", [{}, {"prior_variance": 0.5, "batch_size": 100, "tol": 1e-2}], ids=str)
def test_sparse_rows_give_what_dense_ones_give(density, params):
    """Of more than two blocks."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(2600, 40)) * (random.random((2600, 40)) < density)
    f = 2.0 * rows @ random.normal(size=40) / np.sqrt(40 * density)
    y = (random.random(2600) < expit(f)).astype(int)
    dense = fit(rows, y, **params)
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_matrix):
        model = fit(kind(rows), y, **params)
        np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-10)
        np.testing.assert_allclose(model.coef_covariance_, dense.coef_covariance_, atol=1e-10)
        assert model.elbo_ == pytest.approx(dense.elbo_, rel=1e-12)
        np.testing.assert_allclose(model.predict_proba(kind(rows)), dense.predict_proba(rows), atol=1e-10)


@pytest.mark.parametrize(("i", "likelihood"), [*enumerate(NAMES)])
@pytest.mark.parametrize(("j", "learning_rate"), [*enumerate(["adaptive", 0.05, (10.0, 0.7)])])
def test_mini_batches_come_close_to_the_batch_bound(i, likelihood, j, learning_rate):
    params = {"likelihood": likelihood, "prior_variance": ("auto", 0.3)[(i + j) % 2]}
    full = fit(**params)
    model = fit(batch_size=50, learning_rate=learning_rate, **params)
    assert model.converged_
    assert full.elbo_ - 0.01 * abs(full.elbo_) < model.elbo_ < full.elbo_ + 1e-2
    assert model.prior_variance_ == pytest.approx(full.prior_variance_, rel=0.15)
    assert np.sum(np.isfinite(model.history_["learning_rate"])) >= 11 * (model.n_iter_ - 1)


@pytest.mark.parametrize("likelihood", NAMES)
def test_integer_weights_are_repeated_rows(likelihood):
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    model = BayesianLinearClassifier(likelihood, max_iter=3000, tol=1e-8)
    weighted, repeated = assert_weights_are_copies(model, X, Y, weight, 1e-9, 1e-6)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)


@pytest.mark.parametrize("likelihood", NAMES)
def test_predictions_agree_with_each_other(likelihood):
    labels, far = np.array(["no", "yes"])[Y], np.vstack([X, 50 * X])
    model = fit(y=labels, likelihood=likelihood)
    proba, log_odds = model.predict_proba(far), model.decision_function(far)
    mean, variance = model.predict_latent(far)
    assert model.score(X, labels) > 0.97
    assert np.array_equal(model.predict(far), model.classes_[(log_odds > 0).astype(int)])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(expit(log_odds), proba[:, 1], atol=1e-12)
    np.testing.assert_allclose(mean, far @ model.coef_[0] + model.intercept_, rtol=1e-9, atol=1e-9)
    rows = np.column_stack([far, np.ones(len(far))])
    np.testing.assert_allclose(variance, np.sum(rows @ model.coef_covariance_ * rows, axis=1), rtol=1e-8)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_rows", [len(X), 3], ids=["many rows", "fewer rows than features"])
def test_the_joint_covariance_is_that_of_the_coefficients(n_rows, kind):
    """Also away from the span of the training rows, where the coefficients have their prior."""
    model = fit(kind(X[:n_rows]), np.arange(n_rows) % 2, prior_variance=0.5)
    far = np.vstack([X[:4], 9.0 * X[5:7], X[:1], np.eye(X.shape[1])])
    rows = np.column_stack([far, np.ones(len(far))])
    mean, covariance = model.predict_latent(kind(far), return_cov=True)
    np.testing.assert_array_equal(mean, model.predict_latent(kind(far))[0])
    np.testing.assert_allclose(covariance, rows @ model.coef_covariance_ @ rows.T, rtol=1e-8, atol=1e-9)
    with pytest.raises(ValueError, match="return_grad is for means and variances: give it without return_cov"):
        model.predict_latent(far, return_grad=True, return_cov=True)


@every_step
@pytest.mark.parametrize("factor", [1e-130, 1e-3, 1e130])
def test_scale_of_all_features_does_not_matter(factor, step):
    scaled, plain = (fit(size * X[::step], Y[::step]).predict_proba(size * X) for size in (factor, 1.0))
    np.testing.assert_allclose(scaled, plain, atol=1e-5)
