"""The full Gaussian process, inducing_points="all": against dense formulas, the sparse code at Z = X, and itself."""

import pickle
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reference import moons
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic, WhiteKernel
from test_gradients import KERNELS, SOME_KERNELS, derivative, points_apart
from test_kernel_algebra import kernel_trees, magnitude
from threadpoolctl import threadpool_limits

import xgpc.posterior
from xgpc import GPClassifier, blocks, full, learning
from xgpc._engine import Site
from xgpc.full import FullPasses, FullPosterior, FullPrior
from xgpc.hyperparameters import Options, Outcome, thetas
from xgpc.inference import History, coordinate_ascent, starting_posterior
from xgpc.kernels import KernelSpec
from xgpc.learning import Data, Learner
from xgpc.likelihoods import LIKELIHOODS, has_label_noise
from xgpc.passes import LEAST_COMPLEMENT, PRECISION_RATE
from xgpc.posterior import SeparatePriors, SparsePosterior

REGISTERED = [(name, bound) for name, likelihood in LIKELIHOODS.items() for bound in likelihood.bounds]
CASES = [(*key, "kernel") for key in REGISTERED]
CASES += [(*key, "none") for key in REGISTERED if LIKELIHOODS[key[0]].multi_class]
POLYA_GAMMA = LIKELIHOODS["logit"].site("polya-gamma")
EXACT = LIKELIHOODS["logit"].site("exact")
# Covariance matrices that have inverses in double precision.
SMOOTH = ConstantKernel(2.0) * Matern(1.2, nu=0.5)
THREE_KERNELS = (
    SMOOTH,
    ConstantKernel(1.5) * RBF(0.3) + WhiteKernel(0.2),
    RationalQuadratic(0.7, 1.5) * DotProduct(1.0),
)
seeds = st.integers(0, 2**20)
repeatable = settings(deadline=None, derandomize=True, max_examples=8)


def assert_near(actual, expected, tolerance):
    """To ``tolerance`` of the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * np.abs(expected).max())


def full_prior(Z, kernels):
    priors = tuple(FullPrior.build(KernelSpec(kernel, Z.shape[1]), Z) for kernel in kernels)
    return priors[0] if len(priors) == 1 else SeparatePriors(priors)


def ascend(passes, q, site, tol=1e-13):
    q, elbo, _, converged = coordinate_ascent(passes, q, site, tol=tol, max_iter=5000, history=History())
    assert converged
    return q, elbo


def labelled(n, seed=0, n_classes=3, d=2):
    """Rows that are apart and overlapping classes."""
    random = np.random.default_rng(seed)
    X = points_apart(random, n, d)
    f = np.sin(2.0 * X[:, 0] + np.linspace(0.0, 6.0, n_classes + 1)[:n_classes, None])
    return random.permuted(X, axis=1), np.argmax(f + 0.4 * random.normal(size=f.shape), axis=0)


def quietly(model, X, y, **options):
    """A fit whose warnings of convergence are not what the test is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **options)


def classifier(kernel=SMOOTH, **options):
    options = {"optimizer": None, "tol": 1e-12, "max_iter": 5000, "random_state": 0, **options}
    return GPClassifier(kernel, inducing_points="all", **options)


# The posterior of given sites.


class Dense:
    """N(Sigma r, Sigma), Sigma = (K^-1 + diag(lambda))^-1, with the inverses and determinants of the textbook."""

    def __init__(self, kernel, Z, precision, linear):
        self.kernel, self.Z = kernel, Z
        self.K = kernel(Z)
        self.K_inverse = np.linalg.inv(self.K)
        self.P = self.K_inverse + np.diag(precision)
        self.Sigma = np.linalg.inv(self.P)
        self.mean = self.Sigma @ linear

    def kl_to(self, mean, P, Sigma):
        difference = self.mean - mean
        log_dets = np.linalg.slogdet(Sigma)[1] - np.linalg.slogdet(self.Sigma)[1]
        return 0.5 * (np.trace(P @ self.Sigma) + difference @ P @ difference - len(mean) + log_dets)

    @property
    def kl(self):
        return self.kl_to(np.zeros(len(self.K)), self.K_inverse, self.K)

    def at(self, X):
        """Mean and covariance at rows that are not training rows."""
        k = self.kernel(X, self.Z)
        kappa = k @ self.K_inverse
        return kappa @ self.mean, self.kernel(X) - kappa @ k.T + kappa @ self.Sigma @ kappa.T


def proper_precisions(random, K, share_negative):
    """(n,) sites, some negative, whose posterior precision is three tenths or more of its way from being singular."""
    precision = random.uniform(0.0, 3.0, len(K)) * (random.random(len(K)) < 0.9)
    negative = np.flatnonzero(random.random(len(K)) < share_negative)
    precision[negative] = 0.0
    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))[np.ix_(negative, negative)]
    size = random.uniform(0.2, 2.0, len(negative))
    largest = np.linalg.eigvalsh(np.sqrt(size)[:, None] * Sigma * np.sqrt(size)).max(initial=1e-300)
    precision[negative] = -random.uniform(0.1, 0.7) / largest * size
    return precision


CHOICES = {
    "one": ([SMOOTH], ()),
    "one with noise": ([THREE_KERNELS[1]], ()),
    "several of one kernel": ([THREE_KERNELS[2]], (3,)),
    "several of their own": (THREE_KERNELS, (3,)),
}


@pytest.mark.parametrize("share_negative", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("choice", CHOICES)
@repeatable
@given(seed=seeds, n=st.integers(1, 14), d=st.integers(1, 3))
def test_posterior_is_the_textbooks(choice, share_negative, seed, n, d):
    kernels, shape = CHOICES[choice]
    random = np.random.default_rng(seed)
    Z, new = points_apart(random, n, d), random.normal(size=(5, d))
    prior = full_prior(Z, kernels)
    latents = list(kernels) * (3 if shape and len(kernels) == 1 else 1)
    sites = []
    for _ in range(2):
        precision = np.array([proper_precisions(random, kernel(Z), share_negative) for kernel in latents])
        sites.append((precision, random.normal(size=precision.shape)))
    q, p = (FullPosterior.from_natural(prior, a.reshape(*shape, n), b.reshape(*shape, n)) for a, b in sites)
    dense, other = ([Dense(*args) for args in zip(latents, [Z] * 3, *site, strict=False)] for site in sites)

    assert (q.shape, q.n_latents) == (shape, 3 if shape else None)
    assert_near(q.mean.reshape(-1, n), [one.mean for one in dense], 1e-8)
    assert_near(q.variance.reshape(-1, n), [np.diag(one.Sigma) for one in dense], 1e-8)
    assert_near(q.alpha.reshape(-1, n), [one.K_inverse @ one.mean for one in dense], 1e-8)
    for one, factor in zip(dense, q.factors, strict=True):
        M = one.K_inverse - one.K_inverse @ one.Sigma @ one.K_inverse
        tolerance = 1e-8 * np.abs(one.K_inverse).max()
        np.testing.assert_allclose(factor.matrix(), M, atol=tolerance)
        np.testing.assert_allclose(factor.times(one.mean), M @ one.mean, atol=tolerance * np.abs(one.mean).sum())
    mean, variance = q.marginals(new)
    means, covariances = zip(*(one.at(new) for one in dense), strict=True)
    assert_near(mean.reshape(-1, 5), means, 1e-8)
    assert_near(variance.reshape(-1, 5), [np.diag(covariance) for covariance in covariances], 1e-8)
    assert_near(q.covariance(new).reshape(-1, 5, 5), covariances, 1e-8)
    assert q.kl == pytest.approx(sum(one.kl for one in dense), rel=1e-8, abs=1e-8)
    assert q.squared_norm == pytest.approx(sum(one.mean @ one.K_inverse @ one.mean for one in dense), rel=1e-8)
    expected = sum(one.kl_to(two.mean, two.P, two.Sigma) for one, two in zip(dense, other, strict=True))
    assert q.kl_to(p) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert q.kl_to(q) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("choice", CHOICES)
@repeatable
@given(seed=seeds, n=st.integers(1, 14), n_positive=st.integers(0, 13))
def test_there_is_no_posterior_from_where_its_precision_is_singular(choice, seed, n, n_positive):
    """Negative sites grow in proportion until an eigenvalue of K^-1 + diag(lambda) crosses zero, which eigvalsh tells.

    Of several latent functions one is enough.
    """
    kernels, shape = CHOICES[choice]
    random = np.random.default_rng(seed)
    Z = points_apart(random, n, 2)
    prior, K = full_prior(Z, kernels), kernels[-1](Z)
    growing = np.arange(n) >= min(n_positive, n - 1)
    size = random.uniform(0.2, 2.0, n)
    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(size * ~growing))[np.ix_(growing, growing)]
    critical = 1.0 / np.linalg.eigvalsh(np.sqrt(size[growing])[:, None] * Sigma * np.sqrt(size[growing])).max()
    for factor in (0.5, 1.0 - 1e-5, 1.0 + 1e-5, 2.0, 1e3):
        precision = np.where(growing, -factor * critical * size, size)
        sites = np.stack([np.full(n, 0.5), np.zeros(n), precision]) if shape else precision
        q = FullPosterior.from_natural(prior, sites, np.ones((*shape, n)))
        smallest = np.linalg.eigvalsh(np.linalg.inv(K) + np.diag(precision)).min()
        assert (q is None) == (smallest <= 0.0) == (factor > 1.0)
        if q is not None:
            dense = Dense(kernels[-1], Z, precision, np.ones(n))
            assert_near(q.variance.reshape(-1, n)[-1], np.diag(dense.Sigma), 1e-5)
            assert_near(q.mean.reshape(-1, n)[-1], dense.mean, 1e-5)


def exactly(K, cross, diagonal, precision, linear):
    """Marginals and log |I + K Lambda| / 2 by K - K (K + Lambda^-1)^-1 K in 60 digits; no inverse of K, no clipping."""
    with mpmath.workdps(60):
        K, cross = mpmath.matrix(K.tolist()), mpmath.matrix(cross.tolist())
        precision, linear = [mpmath.mpf(x) for x in precision], mpmath.matrix(linear.tolist())
        M = mpmath.inverse(K + mpmath.diag([1 / x for x in precision]))
        variance = [k - (cross[i, :] * M * cross[i, :].T)[0] for i, k in enumerate(diagonal)]
        mean = cross * linear - cross * (M * (K * linear))
        half_log_det = mpmath.log(mpmath.det(mpmath.eye(len(precision)) + K * mpmath.diag(precision))) / 2
        return np.array(mean.tolist(), float).ravel(), np.array(variance, float), float(half_log_det)


@pytest.mark.parametrize("variance", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("length_scale", [1.0, 1e3])
@pytest.mark.parametrize("least", [0.02, -0.05])
def test_singular_covariance_matrices_cost_no_digits_that_matter(variance, length_scale, least):
    """Equal rows and, at length scale 1000, rows that are all but equal: K has rank one in double precision."""
    random = np.random.default_rng(0)
    Z = random.normal(size=(8, 2))
    Z[[5, 6]] = Z[[1, 2]]
    prior = FullPrior.build(KernelSpec(ConstantKernel(variance) * RBF(length_scale), 2), Z)
    precision, linear = random.uniform(0.02, 1.0, 8), random.normal(size=8)
    precision[0], precision[1] = 1.0, least
    new = np.vstack([Z[:2] + 0.1, random.normal(size=(3, 2))])
    q = FullPosterior.from_natural(prior, precision, linear)
    assert prior.jitter == 0.0
    assert np.linalg.matrix_rank(prior.K) < 8
    for rows, marginals in ((Z, (q.mean, q.variance)), (Z, q.marginals(Z)), (new, q.marginals(new))):
        mean, latent_variance, half_log_det = exactly(
            prior.K, prior.core.cross(rows), prior.core.diagonals(rows), precision, linear
        )
        assert_near(marginals[0], mean, 1e-8)
        np.testing.assert_allclose(marginals[1], latent_variance, rtol=1e-8, atol=1e-14 * variance)
    expected = half_log_det + 0.5 * (q.alpha @ q.mean - precision @ q.variance)
    assert q.kl == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(q.alpha, linear - precision * q.mean, atol=1e-7)
    np.testing.assert_allclose(q.variance[[5, 6]], q.variance[[1, 2]], rtol=1e-8)
    np.testing.assert_allclose(np.diag(q.covariance(new)), q.marginals(new)[1], rtol=1e-8, atol=1e-14 * variance)


def test_a_posterior_is_a_value():
    X, y = labelled(20, n_classes=2)
    q = classifier().fit(X, y).posterior_
    for array in (q.alpha, q.mean, q.variance, q.precision, q.linear, q.prior.K, q.prior.Z, q.factors[0].H):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    again = q.with_natural(*q.natural)
    assert again.kl == pytest.approx(q.kl, rel=1e-12)
    assert np.array_equal(pickle.loads(pickle.dumps(q)).marginals(X)[1], q.marginals(X)[1])


# Steps.


@pytest.mark.parametrize("bound", ["exact", "additive-noise"])
@pytest.mark.parametrize("share", ["kernel", "none"])
def test_mean_of_softmax_solves_the_newton_system(bound, share, monkeypatch):
    """(K^-1 + sum_i H_i) mean = sum_i g_i + H_i m_i, at the latent values of rows of which some are equal."""
    monkeypatch.setattr(full, "CG_TOL", 1e-12)
    monkeypatch.setattr(full, "CG_MAX_ITER", 500)
    X, classes = labelled(8, seed=15)
    random, place = np.random.default_rng(0), np.append(np.arange(8), [1, 1, 4])
    Z, place = np.unique(X, axis=0), np.unique(X[place], axis=0, return_inverse=True)[1].ravel()
    X, y, weight = Z[place], random.permutation(np.resize(classes, 11)).astype(float), random.uniform(0.3, 2.0, 11)
    kernels = THREE_KERNELS if share == "none" else [SMOOTH] * 3
    prior = full_prior(Z, kernels if share == "none" else [SMOOTH])
    site, passes = LIKELIHOODS["softmax"].site(bound, 3), FullPasses(X, y, weight, None, 3, Z)
    q = FullPosterior.from_natural(prior, random.uniform(0.0, 1.0, (3, 8)), random.normal(size=(3, 8)))
    _, target, _ = passes.update(q, site)
    precision, linear = passes.coupled_target(q, site)
    np.testing.assert_allclose(precision, q.precision + PRECISION_RATE * (target - q.precision))

    lam, m = passes.precision, passes.mean
    g = passes.linear - lam * m
    p = (np.arange(3)[:, None] == y) - g / weight
    d = lam / np.clip(1.0 - p, LEAST_COMPLEMENT, 1.0)
    system, right = np.zeros((3, 8, 3, 8)), np.zeros((3, 8))
    for i, k in enumerate(place):
        H = np.diag(d[:, i]) - np.outer(d[:, i], d[:, i]) / np.sum(d[:, i])
        system[:, k, :, k] += H
        right[:, k] += g[:, i] + H @ m[:, i]
    for c, kernel in enumerate(kernels):
        system[c, :, c] += np.linalg.inv(kernel(Z))
    expected = np.linalg.solve(system.reshape(24, 24), right.ravel()).reshape(3, 8)
    assert_near(q.with_natural(precision, linear).mean, expected, 1e-8)


@pytest.mark.parametrize("n_latents", [None, 3])
def test_the_prior_is_the_posterior_of_no_sites(n_latents):
    X, _ = labelled(9)
    prior = full_prior(X, [SMOOTH])
    q = FullPasses(X, np.zeros(9), None, None, n_latents, X).at_prior(prior)
    assert q.kl == 0.0
    assert not np.any(q.mean)
    assert np.array_equal(q.variance, np.broadcast_to(np.diag(prior.K), (*q.shape, 9)))


# Equal to the sparse code with Z = X.


@pytest.mark.parametrize(("likelihood", "bound", "share"), CASES)
def test_equals_the_sparse_code_with_an_inducing_point_at_each_row(likelihood, bound, share, monkeypatch):
    monkeypatch.setattr(xgpc.posterior, "JITTER", 1e-13)
    X, y = labelled(30, seed=1, n_classes=3)
    y = y if LIKELIHOODS[likelihood].multi_class else y > 0
    random = np.random.default_rng(2)
    new, weight = random.normal(size=(12, 2)), random.uniform(0.3, 2.0, 30)
    model = classifier(likelihood=likelihood, bound=bound, share=share, tol=1e-10)
    model.fit(X, y, sample_weight=weight)
    sparse = clone(model).set_params(inducing_points=X).fit(X, y, sample_weight=weight)
    assert isinstance(model.posterior_, FullPosterior)
    assert isinstance(sparse.posterior_, SparsePosterior)
    assert (model.jitter_, sparse.jitter_) == (0.0, 1e-13)
    assert model.elbo_ == pytest.approx(sparse.elbo_, rel=1e-8)
    assert_near(model.predict_proba(new), sparse.predict_proba(new), 1e-6)
    for mine, theirs in zip(model.predict_latent(new, True), sparse.predict_latent(new, True), strict=True):
        assert mine.shape == theirs.shape
        assert_near(mine, theirs, 1e-6)
    assert model.posterior_.kl == pytest.approx(sparse.posterior_.kl, rel=1e-6)
    assert model.elbo(X, y) == pytest.approx(sparse.elbo(X, y), rel=1e-6)
    if has_label_noise(likelihood, bound):
        assert model.label_noise_ == pytest.approx(sparse.label_noise_, rel=1e-6)
    np.testing.assert_allclose(np.diagonal(model.predict_latent(new, True)[1]).T, model.predict_latent(new)[1])


def test_marginals_at_the_rows_are_those_of_their_latent_values():
    """Without a white kernel, under which a row to predict has noise of its own; so the bound is that of the fit."""
    X, y = labelled(40, n_classes=2)
    model = classifier().fit(X, y)
    q = model.posterior_
    for marginals, values in zip(q.marginals(model.inducing_points_), (q.mean, q.variance), strict=True):
        np.testing.assert_allclose(marginals, values, rtol=1e-10)
    assert model.elbo(X, y) == pytest.approx(model.elbo_, rel=1e-10)


# Gibbs and MacKay's bound, appendix A.5 of Wenzel et al. 2018.


def gibbs_mackay(c, K, y, weight=1.0):
    """sum log sigma(c) - c / 2 + theta c^2 / 2, plus log integral N(f; 0, K) exp(y.f / 2 - f^T Theta f / 2) df.

    Also the mean and variance of the normal distribution under the integral.
    """
    theta = weight * (expit(c) - 0.5) / c
    linear = 0.5 * weight * y
    scaled = np.eye(len(K)) + K * theta
    Sigma = np.linalg.inv(scaled) @ K
    terms = weight * (log_expit(c) - 0.5 * c) + 0.5 * theta * c**2
    value = np.sum(terms) + 0.5 * linear @ Sigma @ linear - 0.5 * np.linalg.slogdet(scaled)[1]
    return value, Sigma @ linear, np.diag(Sigma)


def fixed_point(K, y, weight=1.0):
    """The maximum of Gibbs and MacKay's bound, by c^2 = mean^2 + variance in turn with the posterior."""
    c = np.ones(len(y))
    for _ in range(1000):
        value, mean, variance = gibbs_mackay(c, K, y, weight)
        c = np.sqrt(mean**2 + variance)
    return value, mean, variance


@pytest.mark.parametrize("kernel", [SMOOTH, ConstantKernel(30.0) * RBF(0.4), SMOOTH + WhiteKernel(0.3)], ids=str)
def test_polya_gamma_is_gibbs_and_mackays_bound_at_its_maximum(kernel):
    """Differences of its values are all that the maximisation uses; appendix A.5 says where it ends."""
    X, classes = labelled(16, seed=3, n_classes=2)
    y, K = 2.0 * classes - 1.0, kernel(X)
    model = classifier(kernel, bound="polya-gamma", tol=1e-14).fit(X, classes)
    start = np.random.default_rng(0).uniform(0.3, 3.0, len(y))
    found = minimize(
        lambda c: -gibbs_mackay(c, K, y)[0], start, method="L-BFGS-B", jac="3-point", bounds=[(1e-3, None)] * len(y),
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000, "maxfun": 10**6},
    )  # fmt: skip
    second_moment = model.posterior_.mean**2 + model.posterior_.variance
    order = [np.flatnonzero(np.all(row == X, axis=1)).item() for row in model.inducing_points_]
    assert model.elbo_ == pytest.approx(-found.fun, rel=1e-7)
    np.testing.assert_allclose(found.x[order], np.sqrt(second_moment), rtol=1e-4)
    # And anywhere else it is lower.
    for scale in (0.9, 1.1):
        assert gibbs_mackay(scale * found.x, K, y)[0] < model.elbo_


# Gradients.


def rebuilt(prior, theta):
    values = np.split(theta, np.cumsum([len(group.spec.theta) for group in prior.groups])[:-1])
    specs = [group.spec.with_theta(value) for group, value in zip(prior.groups, values, strict=True)]
    return prior.rebuilt(specs, prior.Z)


def check_gradient(passes, prior, site):
    """Gradient of max_q F by every kernel parameter against differences of it.

    Relative to the gradient's size 1e-5: the inner solves end about 1e-6 standard deviations from the optimum.
    """
    q, elbo = ascend(passes, starting_posterior(passes, None, prior, site), site)
    passes.update(q, site)
    by_theta, by_Z = passes.bound_gradient(q, passes.target)
    assert by_Z.shape == prior.Z.shape
    assert not np.any(by_Z)

    def F(theta):
        other = rebuilt(prior, theta)
        return ascend(passes, passes.carry_over(q, other, site), site)[1]

    theta = thetas(prior)
    assert F(theta) == pytest.approx(elbo, rel=1e-9)
    expected = [derivative(lambda h, unit=unit: F(theta + h * unit), 2e-3) for unit in np.eye(len(theta))]
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-5 * max(1.0, np.abs(by_theta).max(initial=0.0)))


def gradient_problem(kernels, n_classes, n=14, d=2, weighted=True, seed=4):
    X, classes = labelled(n, seed, n_classes, d)
    weight = np.random.default_rng(seed).uniform(0.3, 2.0, n) if weighted else None
    several = n_classes > 2
    y = classes.astype(float) if several else 2.0 * classes - 1.0
    return FullPasses(X, y, weight, None, n_classes if several else None, X), full_prior(X, kernels)


@pytest.mark.parametrize(
    ("kernel", "site"),
    [(kernel, EXACT) for kernel in KERNELS] + [(kernel, POLYA_GAMMA) for kernel in SOME_KERNELS],
    ids=lambda value: value.bound if isinstance(value, Site) else value,
)
def test_gradient_by_kernel_parameters(kernel, site):
    passes, prior = gradient_problem([KERNELS[kernel](np.array([0.8, 1.3]), 1.7, 0.3)], 2)
    check_gradient(passes, prior, site)


@settings(repeatable, max_examples=40, phases=[Phase.generate])
@given(
    tree=st.integers(1, 3).flatmap(lambda d: st.tuples(kernel_trees(d), st.just(d))),
    seed=seeds,
    n=st.integers(1, 12),
    n_latents=st.sampled_from([None, 2]),
)
def test_gradient_of_any_tree_is_scikit_learns(tree, seed, n, n_latents):
    """tr((alpha alpha^T - M) dK) / 2, summed over the latent functions, at whatever q; and at repeated rows."""
    kernel, d = tree
    random = np.random.default_rng(seed)
    Z = 0.5 * points_apart(random, n, d)
    Z[n // 2] = Z[0]
    shape = (n,) if n_latents is None else (n_latents, n)
    prior = full_prior(Z, [kernel])
    precision = random.uniform(-1.0, 2.0, shape)
    precision[precision < 0.0] *= 0.9 / np.trace(prior.K)
    q = FullPosterior.from_natural(prior, precision, random.normal(size=shape))
    passes = FullPasses(Z, np.ones(n), None, None, n_latents, Z)
    by_theta, _ = passes.bound_gradient(q, q.natural)
    G = sum(np.outer(a, a) - f.matrix() for a, f in zip(q.alpha.reshape(-1, n), q.factors, strict=True)) / 2
    expected = np.einsum("kl,klt->t", G, kernel(Z, eval_gradient=True)[1]) if len(by_theta) else []
    size = np.sum(np.abs(G) * magnitude(kernel, Z, Z)) + np.abs(np.diag(G)) @ kernel.diag(Z)
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-12 * size)


@pytest.mark.parametrize(
    ("likelihood", "bound", "share"),
    [
        ("softmax", "exact", "kernel"),
        ("softmax", "exact", "none"),
        ("softmax", "additive-noise", "kernel"),
        ("logistic-softmax", "polya-gamma", "none"),
    ],
)
def test_gradient_by_the_kernel_parameters_of_several_latent_functions(likelihood, bound, share):
    kernels = THREE_KERNELS if share == "none" else THREE_KERNELS[1:2]
    site = LIKELIHOODS[likelihood].site(bound, 3, 0.05)
    check_gradient(*gradient_problem(kernels, 3, 10), site)


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_gradient_with_negative_precisions(likelihood):
    """A fifth of the labels are wrong, which additive noise takes for what they are."""
    X, _ = labelled(24, seed=4)
    y = np.where(np.sin(2.0 * X[:, 0]) > 0.0, 1.0, -1.0)
    y[::5] *= -1.0
    prior = full_prior(X, [ConstantKernel(4.0) * RBF(1.5) + WhiteKernel(0.1)])
    passes = FullPasses(X, y, None, None, None, X)
    check_gradient(passes, prior, LIKELIHOODS[likelihood].site("additive-noise", label_noise=0.02))
    assert np.any(passes.precision < 0.0)


def test_gradient_of_equal_rows_adds_up():
    """As latent values of their own under white noise, and as one value of a kernel without."""
    X, _ = labelled(8, n_classes=2)
    rows, y = np.repeat(X, 3, axis=0), np.where(np.random.default_rng(0).random(24) < 0.6, 1.0, -1.0)
    for kernel, Z in ((SMOOTH, np.unique(X, axis=0)), (SMOOTH + WhiteKernel(0.3), rows)):
        check_gradient(FullPasses(rows, y, None, None, None, Z), full_prior(Z, [kernel]), EXACT)


# Invariances.


def outcome(model, new):
    """All that a fit gives that does not depend on the order of the rows."""
    return [model.elbo_, *thetas(model.posterior_.prior), *model.predict_latent(new), model.predict_proba(new)]


def assert_same(mine, theirs, tolerance):
    for a, b in zip(mine, theirs, strict=True):
        assert_near(a, b, tolerance)


EVERY_CASE = pytest.mark.parametrize(
    ("likelihood", "bound"), [("logit", "exact"), ("step", "additive-noise"), ("softmax", "exact")]
)


@EVERY_CASE
@pytest.mark.parametrize("optimizer", [None, "profile"])
def test_repeated_rows_count_as_weights(likelihood, bound, optimizer):
    X, y = labelled(18, seed=5)
    y = y if likelihood == "softmax" else np.minimum(y, 1)
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    new = X[:4] + 0.2
    # With a learned kernel the default one, whose start depends on the rows, and a few steps.
    options = {"kernel": SMOOTH} if optimizer is None else {"kernel": None, "max_iter": 6, "tol": 1e-3}
    model = classifier(likelihood=likelihood, bound=bound, optimizer=optimizer, **options)
    weighted = quietly(clone(model), X, y, sample_weight=counts)
    repeated = quietly(clone(model), np.repeat(X, counts, axis=0), np.repeat(y, counts))
    both = quietly(clone(model), np.repeat(X, 2, axis=0), np.repeat(y, 2), sample_weight=np.repeat(counts / 2, 2))
    assert np.array_equal(repeated.inducing_points_, np.unique(X, axis=0))
    assert np.array_equal(weighted.inducing_points_, repeated.inducing_points_)
    assert_same(outcome(repeated, new), outcome(weighted, new), 1e-7)
    assert_same(outcome(both, new), outcome(weighted, new), 1e-7)


def test_contradicting_labels_of_equal_rows_meet_in_one_latent_value():
    X, y = labelled(12, n_classes=2)
    rows, labels, weight = np.vstack([X, X]), np.append(y, 1 - y), np.repeat([2.0, 1.0], 12)
    model = classifier(bound="polya-gamma").fit(rows, labels, sample_weight=weight)
    value, mean, variance = fixed_point(SMOOTH(rows), 2.0 * labels - 1.0, weight)
    assert model.elbo_ == pytest.approx(value, rel=1e-9)
    order = np.unique(rows, axis=0, return_index=True)[1]
    assert_near(model.posterior_.mean, mean[order], 1e-6)
    assert_near(model.posterior_.variance, variance[order], 1e-6)


@EVERY_CASE
@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.2)], ids=["distinct", "noise"])
def test_the_order_of_the_rows_does_not_matter(likelihood, bound, kernel):
    X, y = labelled(24, seed=6)
    y = y if likelihood == "softmax" else np.minimum(y, 1)
    X, y = np.vstack([X, X[:5]]), np.append(y, y[5:10])
    model = classifier(kernel, likelihood=likelihood, bound=bound)
    expected = outcome(clone(model).fit(X, y), X[:6] + 0.1)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        assert_same(outcome(clone(model).fit(X[order], y[order]), X[:6] + 0.1), expected, 1e-7)


@pytest.mark.parametrize(
    ("likelihood", "bound", "share"),
    [
        ("logit", "exact", "kernel"),
        ("step", "additive-noise", "kernel"),
        ("softmax", "exact", "kernel"),
        ("softmax", "exact", "none"),
        ("multinomial-probit", "additive-noise", "none"),
    ],
)
def test_no_bit_depends_on_the_number_of_threads(likelihood, bound, share, monkeypatch):
    X, y = labelled(70, seed=7)
    y = y if LIKELIHOODS[likelihood].multi_class else np.minimum(y, 1)
    options = {"likelihood": likelihood, "bound": bound, "share": share, "max_iter": 3, "tol": 1e-3}
    options |= {"optimizer": "profile" if likelihood in ("logit", "softmax") else None}
    model = classifier(SMOOTH + WhiteKernel(0.1) * DotProduct(0.5), **options)
    alone = quietly(clone(model), X, y)
    monkeypatch.setattr(blocks, "MIN_PARALLEL_WORK", 0)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 16)
    monkeypatch.setattr(blocks, "TILE_ROWS", 7)
    results = []
    for n_jobs in (1, 2, 3):
        with blocks.BlockMap(len(X), len(X), 2, n_jobs) as rows:
            assert rows.n_threads == n_jobs
        results.append(outcome(quietly(clone(model).set_params(n_jobs=n_jobs), X, y), X[:40] + 0.1))
    for other in results[1:]:
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(results[0], other, strict=True))
    assert_same(results[0], outcome(alone, X[:40] + 0.1), 1e-7)


def test_no_bit_depends_on_the_threads_of_blas(tmp_path):
    """With matrices for which LAPACK takes threads of its own: fits, loaded models and covariances."""
    X, y = moons(300)
    results = []
    for limit in (1, 2):
        with threadpool_limits(limit):
            model = quietly(classifier(None, optimizer="profile", max_iter=2, tol=1e-3), X, y)
            model.save(tmp_path / "model.npz")
            for fitted in (model, GPClassifier.load(tmp_path / "model.npz")):
                results.append([fitted.predict_proba(X), *fitted.predict_latent(X[:50], return_cov=True)])
    for other in results[1:]:
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(results[0], other, strict=True))


LAYOUTS = {
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda X: np.ascontiguousarray(X[::-1])[::-1],
    "lists": lambda X: X.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.1)], ids=["distinct", "noise"])
def test_layouts_change_no_bit(kernel, layout):
    X, y = labelled(40, seed=8, n_classes=2)
    X = np.vstack([X, X[:5]])
    y = np.append(y, y[:5])
    expected = outcome(classifier(kernel).fit(X, y), X + 0.1)
    actual = outcome(classifier(kernel).fit(LAYOUTS[layout](X), y), LAYOUTS[layout](X + 0.1))
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(actual, expected, strict=True))


@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.1)], ids=["distinct", "noise"])
def test_single_precision_features(kernel):
    """The same as the doubles of equal value, and nearly as those they were rounded from."""
    X, y = labelled(40, seed=8, n_classes=2)
    X, y = np.vstack([X, X[:5]]), np.append(y, y[:5])
    new, single = X + 0.1, X.astype(np.float32)
    model = classifier(kernel).fit(single, y)
    results = outcome(model, new.astype(np.float32))
    assert model.inducing_points_.dtype == np.float64
    equal = classifier(kernel).fit(single.astype(float), y)
    assert_same(results, outcome(equal, new.astype(np.float32).astype(float)), 1e-12)
    assert_same(results, outcome(classifier(kernel).fit(X, y), new), 1e-5)


def test_white_noise_is_each_rows_own():
    """Equal rows have K = k(X, X) + s^2 I, and a new row the noise once more, equal to a training row or not."""
    X, _ = labelled(10, seed=9, n_classes=2)
    rows = np.repeat(X, [1, 3, 1, 2, 1, 4, 1, 1, 2, 1], axis=0)
    labels = np.random.default_rng(0).permuted(np.repeat([0, 1], [8, 9]))
    y, s2 = 2.0 * labels - 1.0, 0.7
    model = classifier(SMOOTH + WhiteKernel(s2), bound="polya-gamma").fit(rows, labels)
    K = SMOOTH(rows) + s2 * np.eye(len(rows))
    value, mean, variance = fixed_point(K, y)
    assert np.array_equal(model.inducing_points_, rows)
    assert model.elbo_ == pytest.approx(value, rel=1e-9)
    assert_near(model.posterior_.mean, mean, 1e-6)
    assert_near(model.posterior_.variance, variance, 1e-6)
    new = np.vstack([rows[:3], X[:4] + 0.1])
    kappa = np.linalg.solve(K, SMOOTH(rows, new)).T
    theta = np.tanh(np.sqrt(mean**2 + variance) / 2) / (2 * np.sqrt(mean**2 + variance))
    explained = SMOOTH(new, rows) @ np.linalg.solve(K + np.diag(1 / theta), SMOOTH(rows, new))
    latent, covariance = model.predict_latent(new, return_cov=True)
    assert_near(latent, kappa @ mean, 1e-6)
    assert_near(covariance, SMOOTH(new) + s2 * np.eye(len(new)) - explained, 1e-6)
    assert_near(model.predict_latent(new)[1], np.diag(covariance), 1e-12)
    # A new row's noise is not what the labels have told of that of the training rows.
    assert model.elbo(rows, labels) < model.elbo_


# Learning.


def test_profile_finds_the_maximum_over_kernel_parameters():
    """That of Gibbs and MacKay's bound over c and theta together, by L-BFGS with differences of dense formulas."""
    X, classes = moons(40)
    X = np.vstack([X, X[:4]])
    classes = np.append(classes, 1 - classes[:4])
    y, kernel = 2.0 * classes - 1.0, ConstantKernel(1.0, (1e-3, 1e4)) * RBF(2.0, (1e-2, 1e2))
    model = classifier(kernel, bound="polya-gamma", optimizer="profile", tol=1e-8, max_iter=2000).fit(X, classes)
    distances = np.sum((X[:, None] - X) ** 2, axis=2)

    def negative(vector):
        K = np.exp(vector[0] - 0.5 * np.exp(-2.0 * vector[1]) * distances)
        return -gibbs_mackay(vector[2:], K, y)[0]

    start = np.concatenate([kernel.theta, np.ones(len(y))])
    found = minimize(
        negative, start, method="L-BFGS-B", jac="3-point", bounds=[(-6.9, 9.2), (-4.6, 4.6)] + [(1e-3, None)] * len(y),
        options={"ftol": 1e-13, "gtol": 1e-6, "maxiter": 5000, "maxfun": 10**6},
    )  # fmt: skip
    assert model.elbo_ > classifier(kernel, bound="polya-gamma").fit(X, classes).elbo_ + 0.5
    assert model.elbo_ == pytest.approx(-found.fun, rel=1e-6)
    np.testing.assert_allclose(model.kernel_.theta, found.x[:2], atol=0.01)
    assert np.array_equal(model.inducing_points_, np.unique(X, axis=0))
    assert model.jitter_ == 0.0
    assert model.converged_


@pytest.mark.parametrize("share", ["kernel", "none"])
@pytest.mark.parametrize("likelihood", ["logit", "softmax", "multinomial-probit"])
def test_learning_raises_the_bound_and_leaves_the_rows(likelihood, share):
    X, y = load_iris(return_X_y=True)
    X, y = X[::5], y[::5]
    options = {"likelihood": likelihood, "share": share, "tol": 1e-4}
    given_kernel = classifier(None, **options).fit(X, y)
    learned = quietly(
        classifier(None, **options | {"optimizer": "profile", "max_iter": 15, "subset_sizes": [10]}), X, y
    )
    rows = np.unique(X, axis=0)
    separate = share == "none"
    assert learned.elbo_ > given_kernel.elbo_ + 1.0
    assert isinstance(learned.kernel_, list) == separate
    assert np.array_equal(learned.inducing_points_, np.stack([rows] * 3) if separate else rows)
    assert learned.jitter_ == 0.0
    # All rows are in use from the start, whatever the subsets.
    assert set(learned.history_["n_rows"]) == {len(X)}
    assert set(learned.history_["n_inducing"]) == {len(rows)}


def test_restarts_find_what_a_bad_start_does_not():
    X, y = moons(40)
    kernel = ConstantKernel(0.02, (1e-2, 1e4)) * RBF(0.01, (1e-2, 1e2))
    options = {"optimizer": "profile", "tol": 1e-4, "max_iter": 30}
    models = [quietly(classifier(kernel, n_restarts_optimizer=restarts, **options), X, y) for restarts in (0, 4)]
    assert models[1].elbo_ > models[0].elbo_ + 1.0
    assert np.array_equal(models[1].inducing_points_, np.unique(X, axis=0))


def test_outcomes_are_compared_by_the_bound_of_rows_of_the_data(monkeypatch):
    """Of more rows than LAST_ROWS restarts may be compared on a subset: its sites are then those of its own rows."""
    monkeypatch.setattr(learning, "LAST_ROWS", 25)
    X, classes = labelled(40, seed=10, n_classes=2)
    X, y = np.vstack([X, X]), np.tile(2.0 * classes - 1.0, 2)
    prior = full_prior(np.unique(X, axis=0), [SMOOTH])
    options = Options(False, 1e-10, 500, History())
    learner = Learner(Data(X, y, None, None), EXACT, None, options, None, np.random.RandomState(0))
    q = FullPosterior.from_natural(prior, *np.zeros((2, prior.n_inducing)))
    chosen = learner.subsets.rows(25)
    bounds = [classifier().fit(X[rows], y[rows]).elbo_ for rows in (chosen, slice(None))]
    assert learner.comparable(Outcome(q, 0.0, 0)) in [pytest.approx(bound, rel=1e-6) for bound in bounds]


# Files and warm starts.


@pytest.mark.parametrize(
    ("likelihood", "share", "kernel"),
    [
        ("logit", "kernel", None),
        ("logit", "kernel", SMOOTH + WhiteKernel(0.1)),
        ("step", "kernel", SMOOTH),
        ("softmax", "kernel", None),
        ("softmax", "none", SMOOTH + WhiteKernel(0.1)),
        ("multinomial-probit", "none", SMOOTH),
    ],
)
def test_saved_models_predict_the_same_bits(tmp_path, likelihood, share, kernel):
    X, y = labelled(30, seed=11)
    X, y = np.vstack([X, X[:5]]), np.append(y, y[5:10])
    y = y if LIKELIHOODS[likelihood].multi_class else np.minimum(y, 1)
    options = {"optimizer": "profile", "max_iter": 3, "tol": 1e-3, "likelihood": likelihood, "share": share}
    model = quietly(classifier(kernel, **options), X.astype(np.float32), np.array(["a", "b", "c"])[y])
    model.save(tmp_path / "model.npz")
    new = X + 0.1
    for other in (GPClassifier.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert isinstance(other.posterior_, FullPosterior)
        assert np.array_equal(other.predict_proba(new), model.predict_proba(new))
        for mine, theirs in zip(other.predict_latent(new, True), model.predict_latent(new, True), strict=True):
            assert np.array_equal(mine, theirs)
        assert (other.elbo_, other.jitter_, other.inducing_points) == (model.elbo_, 0.0, "all")
        assert other.posterior_.kl == model.posterior_.kl
        assert other.kernel_ == model.kernel_
        assert np.array_equal(other.inducing_points_, model.inducing_points_)


@pytest.mark.parametrize(
    "damage",
    [{"eta": np.zeros(4)}, {"eta": np.eye(20)}, {"eta": np.full(20, -1e6)}, {"Z": np.full((20, 2), np.nan)}],
    ids=["short", "a matrix", "improper", "nan"],
)
def test_damaged_files_are_refused(tmp_path, damage):
    X, y = labelled(20, n_classes=2)
    path = tmp_path / "model.npz"
    classifier().fit(X, y).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | damage))
    with pytest.raises(ValueError, match="is not a model saved by"):
        GPClassifier.load(path)


SPARSE = {"inducing_points": "kmeans", "n_inducing": 8}


@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.2)], ids=["distinct", "noise"])
@pytest.mark.parametrize(("likelihood", "share"), [("logit", "kernel"), ("softmax", "kernel"), ("softmax", "none")])
@pytest.mark.parametrize(("first", "second"), [({}, {}), (SPARSE, {}), ({}, SPARSE)], ids=["more rows", "up", "down"])
def test_warm_starts_end_where_cold_ones_do(likelihood, share, kernel, first, second):
    X, y = labelled(36, seed=12)
    y = y if likelihood == "softmax" else np.minimum(y, 1)
    new = X[:5] + 0.1
    model = classifier(kernel, likelihood=likelihood, share=share, warm_start=True)
    model.set_params(**first).fit(X[:24], y[:24])
    model.set_params(**{"inducing_points": "all"} | second).fit(X, y)
    cold = clone(model).set_params(warm_start=False).fit(X, y)
    assert type(model.posterior_) is type(cold.posterior_) is (SparsePosterior if second else FullPosterior)
    assert np.array_equal(model.inducing_points_, cold.inducing_points_)
    assert_same(outcome(model, new), outcome(cold, new), 1e-5)
    assert model.elbo_ == pytest.approx(cold.elbo_, rel=1e-10)


def test_a_warm_start_goes_on_from_the_learned_kernel():
    X, y = labelled(40, seed=13, n_classes=2)
    model = quietly(classifier(None, optimizer="profile", tol=1e-5, warm_start=True), X[:30], y[:30])
    again = quietly(model, X[:30], y[:30])
    assert again.history_["elbo"][0] > classifier(None).fit(X[:30], y[:30]).elbo_
    more = quietly(model, X, y)
    assert more.inducing_points_.shape == (40, 2)
    assert more.elbo_ > classifier(None).fit(X, y).elbo_


# Faults.


def assert_refused(model, X, y, match):
    """With a ValueError, and the estimator, fitted before or not, is what it was."""
    for before in ({}, vars(classifier().fit(X[:20], y[:20]))):
        model = clone(model)
        fitted = {name: value for name, value in before.items() if name.endswith("_") or name.startswith("_")}
        vars(model).update(fitted)
        state = dict(vars(model))
        with pytest.raises(ValueError, match=match):
            model.fit(X, y)
        assert vars(model) == state


@pytest.mark.parametrize("optimizer", ["alternate", "joint", "hybrid", "adam"])
def test_other_optimizers_are_refused(optimizer):
    X, y = labelled(30, n_classes=2)
    match = f"inducing_points='all'.* optimizer must be 'profile' or None; got '{optimizer}'"
    assert_refused(classifier(optimizer=optimizer, bound="polya-gamma"), X, y, match)


@pytest.mark.parametrize("batch_size", [10, 1000])
@pytest.mark.parametrize("optimizer", [None, "profile"])
def test_mini_batches_are_refused(batch_size, optimizer):
    X, y = labelled(30, n_classes=2)
    match = f"inducing_points='all'.* batch_size must be None; got {batch_size}"
    assert_refused(classifier(optimizer=optimizer, batch_size=batch_size), X, y, match)


@pytest.mark.parametrize("share", ["kernel", "none"])
def test_too_many_distinct_rows_are_refused(share, monkeypatch):
    monkeypatch.setattr(full, "MAX_ROWS", 25)
    X, y = labelled(30, seed=14)
    match = "inducing_points='all' allows 25 distinct rows, got 30. Take inducing points"
    assert_refused(classifier(share=share), X, y, match)
    # Rows that are repeated count once, unless each has its own noise.
    X, y = np.repeat(X[:20], 2, axis=0), np.repeat(y[:20], 2)
    assert classifier(share=share).fit(X, y).posterior_.prior.n_inducing == 20
    assert_refused(classifier(SMOOTH + WhiteKernel(), share=share), X, y, "allows 25 distinct rows, got 40")


@pytest.mark.parametrize(
    "kernel",
    [ConstantKernel(1e300) * ConstantKernel(1e300) * RBF(), DotProduct() ** 50 * ConstantKernel(1e300)],
    ids=str,
)
def test_covariances_that_are_not_finite_are_refused(kernel):
    X, y = labelled(30, n_classes=2)
    assert_refused(classifier(kernel), 1e6 * X, y, "is not finite; kernel: .* Scale the features")
