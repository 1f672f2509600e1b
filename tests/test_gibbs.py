"""Gibbs sampling: every step against closed forms, the chain against integration over a grid, and its faults."""

import pickle
import sys
import warnings
from functools import cache

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import moons
from scipy.special import expit, log_expit, log_ndtr, logsumexp
from scipy.stats import kstest, multivariate_normal
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError, SkipTestWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.utils.estimator_checks import check_estimator

from xgpc import GPClassifier, gibbs
from xgpc.diagnostics import effective_sample_size, split_r_hat
from xgpc.gibbs import DISPERSION, WATCHED, GibbsClassifier
from xgpc.kernels import KernelSpec
from xgpc.posterior import JITTER, Prior
from xgpc.sampling import Conditional, Model, Proposals, Whitening

SMOOTH = ConstantKernel(3.0) * Matern(1.2, nu=1.5)
NOISY = SMOOTH + WhiteKernel(0.7)
LINEAR = DotProduct(1.0) + WhiteKernel(0.7)
NEW = np.array([[0.1, 0.4], [2.5, -1.0], [-0.8, 0.9]])

short_chains = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def small(kernel=SMOOTH, **options):
    return GibbsClassifier(kernel, **{"n_samples": 20, "n_warmup": 2, "n_chains": 2, "random_state": 0, **options})


# Polya-Gamma variables.


def polya_gamma_cumulants(c):
    """The first four of PG(1, c), whose Laplace transform is cosh(c / 2) / cosh(sqrt((c^2 / 2 + t) / 2))."""
    with mpmath.workdps(40):
        # cosh of a root is a power series: neither root nor c = 0 needs care.
        cosh_root = lambda u: mpmath.hyp0f1(0.5, u / 4)  # noqa: E731
        log_laplace = lambda t: -mpmath.log(cosh_root((mpmath.mpf(c) ** 2 / 2 + t) / 2))  # noqa: E731
        series = mpmath.taylor(log_laplace, 0, 4)
        return [float((-1) ** k * mpmath.factorial(k) * series[k]) for k in range(1, 5)]


def polya_gamma_cdf(x, c):
    """Of PG(1, c): its density is cosh(c / 2) exp(-c^2 x / 2) sum_n (-1)^n 2 a / sqrt(2 pi x^3) exp(-a^2 / (2 x)),
    a = n + 1 / 2, each term of which is in proportion to the density of a first passage time."""
    a = np.arange(200)[:, None] + 0.5
    # Terms beyond it are nothing; their logarithms overflow.
    with np.errstate(over="ignore", divide="ignore"):
        drifting = log_ndtr((c * x - a) / np.sqrt(x)) + c * (0.5 - a)
        returning = log_ndtr(-(c * x + a) / np.sqrt(x)) + c * (0.5 + a)
    return (1.0 + np.exp(-c)) * np.sum(
        (-1.0) ** np.arange(200)[:, None] * (np.exp(drifting) + np.exp(returning)), axis=0
    )


@pytest.mark.parametrize("c", [0.0, 0.5, -3.0, 20.0])
def test_polya_gamma_draws(c):
    n = 30_000
    draws = gibbs._polya_gamma_sampler()(np.full(n, c), np.random.default_rng(1))
    mean, variance, _, fourth = polya_gamma_cumulants(c)
    if c:
        assert mean == pytest.approx(np.tanh(c / 2) / (2 * c), rel=1e-12)
        assert variance == pytest.approx((np.tanh(c / 2) / c - 0.5 / np.cosh(c / 2) ** 2) / (2 * c**2), rel=1e-12)
    assert np.mean(draws) == pytest.approx(mean, abs=5 * np.sqrt(variance / n))
    assert np.var(draws) == pytest.approx(variance, abs=5 * np.sqrt((fourth + 2 * variance**2) / n))
    x = np.linspace(1e-4, 30 * np.sqrt(variance), 20_001)
    assert np.trapezoid(1.0 - polya_gamma_cdf(x, abs(c)), x) + x[0] == pytest.approx(mean, rel=1e-5)
    assert kstest(draws, lambda x: polya_gamma_cdf(x, abs(c))).pvalue > 1e-3


# Draws of the latent values given Polya-Gamma variables.


class Numbers:
    """In place of a random generator: hands out given numbers."""

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers, dtype=float)

    def standard_normal(self, size):
        count = int(np.prod(size))
        part, self.numbers = self.numbers[:count], self.numbers[count:]
        return part.reshape(size)


def normal_of(draw, count):
    """Mean and covariance of an affine function of ``count`` standard normal numbers, by its values."""
    mean = draw(np.zeros(count))
    root = np.column_stack([draw(unit) - mean for unit in np.eye(count)])
    random = np.random.default_rng(9).normal(size=count)
    assert_allclose(draw(random), mean + root @ random, rtol=0, atol=1e-10 * np.abs(root).sum())
    return mean, root @ root.T


def smooth_part(kernel):
    return kernel.k1 if isinstance(getattr(kernel, "k2", None), WhiteKernel) else kernel


def build(n, m, kernel=NOISY, full=False, seed=0):
    """A model of n rows and m inducing points, which are the first rows; full: all rows are among them."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2))
    Z = np.vstack([X, random.normal(size=(m, 2))])[:m]
    if full:
        X = Z[np.arange(n) % m]
    whitening = Whitening(KernelSpec(kernel, 2), Z, full)
    return Model(whitening, X, random.choice([-1.0, 1.0], n)), X, Z, whitening


def sites_of_the_bound(model, X, Z, kernel, full):
    """Precisions and linear terms (n,) as the sampler makes them."""
    sampler = GibbsClassifier(kernel, inducing_points="all" if full else Z)
    return sampler._sites(sampler._approximation(X, model.y, np.random.RandomState(0)), X, model.y)


def fitc(smooth, jitter, X, Z, new):
    """k(new, Z) K_mm^-1 k(Z, X): the covariance of rows that the inducing points give."""
    K = smooth(Z)
    K += jitter * np.mean(np.diag(K)) * np.eye(len(Z))
    return smooth(new, Z) @ np.linalg.solve(K, smooth(Z, X))


def assembled(model, z, e):
    """(z, f)."""
    return np.concatenate([z.ravel(), (model.A @ z + e).ravel()])


def dense_conditional(model, precision, linear):
    """Mean and covariance of (z, f) in proportion to N(z; 0, I) N(f; A z, diag(k)) exp(-precision f^2 / 2 + linear f).

    f is the pseudo-observation linear / precision with variance 1 / precision.
    """
    A = model.A
    C = A @ A.T + np.diag(model.residual)
    prior = np.block([[np.eye(A.shape[1]), A.T], [A, C]])
    gain = prior[:, A.shape[1] :] @ np.linalg.inv(C + np.diag(1.0 / precision))
    return gain @ (linear / precision), prior - gain @ prior[A.shape[1] :]


every_shape = pytest.mark.parametrize(
    ("n", "m", "kernel", "full"),
    [
        (6, 6, SMOOTH, False), (6, 6, NOISY, False), (9, 3, SMOOTH, False), (9, 3, NOISY, False),
        (3, 9, SMOOTH, False), (3, 9, NOISY, False),
        # All rows, each once, some again, and more of them than a kernel has features.
        (6, 6, SMOOTH, True), (6, 6, NOISY, True), (9, 6, NOISY, True), (8, 8, LINEAR, True),
    ],
)  # fmt: skip


@every_shape
def test_the_prior_is_that_of_fully_independent_training_conditionals(n, m, kernel, full):
    """Q + diag(k - Q), and where the inducing points leave no more than the jitter, nothing is independent.

    Of a full process Q is K, without jitter, and nothing is independent but the noise.
    """
    model, X, Z, whitening = build(n, m, kernel, full)
    smooth = smooth_part(kernel)
    jitter = 0.0 if full else Prior.build(KernelSpec(kernel, 2), Z).jitter
    Q = smooth(X) if full else fitc(smooth, jitter, X, Z, X)
    noise = kernel.diag(X) - smooth.diag(X)
    left = smooth.diag(X) - np.diag(Q)
    assert whitening.size == model.A.shape[1] == (3 if kernel is LINEAR else m)
    assert_allclose(model.A @ model.A.T, Q, rtol=0, atol=1e-12 if full else 1e-8)
    assert np.array_equal(model.residual > 0.0, (noise > 0.0) | (not full and np.arange(n) >= m))
    varies = model.residual > 0.0
    assert_allclose(model.residual[varies], (left + noise)[varies], rtol=0, atol=1e-12 if full else 1e-8)
    assert np.all(left[:m] < 2.0 * JITTER * smooth.diag(X[:m]))
    # New rows.
    A, residual = whitening.rows(NEW)
    cross = smooth(NEW, X) if full else fitc(smooth, jitter, X, Z, NEW)
    explained = np.einsum("ij,ji->i", cross, np.linalg.pinv(Q, rcond=1e-12, hermitian=True) @ cross.T)
    assert_allclose(A @ model.A.T, cross, rtol=0, atol=1e-11 if full else 1e-8)
    if full:
        assert_allclose(residual, kernel.diag(NEW) - explained, rtol=0, atol=1e-11)
    else:
        assert_allclose(residual, kernel.diag(NEW) - np.diag(fitc(smooth, jitter, NEW, Z, NEW)), rtol=0, atol=1e-8)


@pytest.mark.parametrize("full", [False, True])
def test_an_inducing_point_at_every_row_leaves_nothing_of_a_variance_that_differs_from_row_to_row(full):
    """The jitter is a share of the mean variance."""
    kernel = ConstantKernel(0.1) * RBF(1.0) + DotProduct(0.01)
    model, X, *_ = build(30, 30, kernel, full)
    variance = kernel.diag(X)
    assert np.max(variance) > 20.0 * np.min(variance)
    assert np.array_equal(model.residual, np.zeros(30))


@pytest.mark.parametrize(
    ("kernel", "shift"),
    [(DotProduct() + 4.0 * RBF(0.7), 3000.0), (ConstantKernel(1e6) + 4.0 * RBF(0.7), 0.0), (NOISY, 0.0)],
    ids=["far from the origin", "a large constant", "noise"],
)
@pytest.mark.parametrize("repeats", [1, 2])
def test_whitened_rows_have_the_covariance_of_the_kernel_without_jitter(kernel, shift, repeats):
    Z = make_moons(60, noise=0.3, random_state=0)[0] + shift
    X = np.tile(Z, (repeats, 1))
    A, residual = Whitening(KernelSpec(kernel, 2), Z, True).rows(X)
    # Noise is of a row, not of its place.
    K = smooth_part(kernel)(X)
    K += np.diag(kernel.diag(X) - np.diag(K))
    assert A.shape[1] <= len(Z)
    assert_allclose(A @ A.T + np.diag(residual), K, rtol=0, atol=1e-9 * np.max(K))
    assert_allclose(residual, kernel.diag(X) - smooth_part(kernel).diag(X), rtol=0, atol=1e-12)
    # The small part of the kernel is not lost beside the large one.
    contrasts = np.eye(60) - 1.0 / 60
    small = contrasts @ (A @ A.T + np.diag(residual) - K)[:60, :60] @ contrasts
    assert np.max(np.abs(small)) < 1e-3


@pytest.mark.parametrize("again", [0, 5])
@pytest.mark.parametrize(
    ("kernel", "plain", "shift"),
    [
        (DotProduct() + 4.0 * RBF(0.7), DotProduct() + 4.0 * RBF(0.7), 3000.0),
        (ConstantKernel(1e6) + 4.0 * RBF(0.7), 4.0 * RBF(0.7), 0.0),
    ],
    ids=["far from the origin", "a large constant"],
)
def test_a_small_part_of_a_kernel_is_kept_next_to_a_large_one(kernel, plain, shift, again):
    """Latent moments differ from the bound's by what they do without the large part."""
    X, y = make_moons(60, noise=0.3, random_state=0)
    X, y = np.vstack([X, X[:again]]), np.concatenate([y, y[:again]])
    new = np.vstack([X[:10], np.random.default_rng(8).normal(size=(20, 2))])

    def ratio_and_difference(kernel, shift):
        sampler = GibbsClassifier(kernel, random_state=0).fit(X + shift, y)
        bound = GPClassifier(kernel, inducing_points="all", bound="exact", optimizer=None).fit(X + shift, y)
        mean, variance = sampler.predict_latent(new + shift)
        other_mean, other_variance = bound.predict_latent(new + shift)
        return other_variance / variance, (other_mean - mean) / np.sqrt(variance)

    ratio, difference = ratio_and_difference(kernel, shift)
    ratio_plain, difference_plain = ratio_and_difference(plain, 0.0)
    assert np.mean(np.abs(np.log(ratio))) < 0.1
    assert np.mean(ratio) == pytest.approx(np.mean(ratio_plain), abs=0.03)
    assert np.max(np.abs(np.log(ratio))) < 0.2
    # Monte Carlo error adds to the bound's.
    assert np.mean(np.abs(difference)) < np.mean(np.abs(difference_plain)) + 0.03


@every_shape
@pytest.mark.parametrize("from_rows", [True, False])
def test_a_draw_is_from_the_dense_posterior_given_omega(n, m, kernel, full, from_rows):
    """p(z, f | omega, y), in proportion to the prior times exp(y f / 2 - omega f^2 / 2), exactly."""
    model, *_ = build(n, m, kernel, full)
    m = model.A.shape[1]
    model._from_rows, model._gram = from_rows, model.A @ model.A.T if from_rows else None
    omega = np.random.default_rng(2).uniform(0.02, 0.6, n)
    actual = normal_of(lambda xi: assembled(model, *model.draw(omega, Numbers(xi))), m + 2 * n)
    mean, covariance = dense_conditional(model, omega, model.y / 2)
    assert_allclose(actual[0], mean, rtol=0, atol=1e-8)
    assert_allclose(actual[1], covariance, rtol=0, atol=1e-8)
    # The conditional of f as it is printed: S = (C^-1 + diag(omega))^-1, mean S y / 2.
    P = np.linalg.inv(model.A @ model.A.T + np.diag(model.residual)) + np.diag(omega)
    assert_allclose(P @ actual[0][m:], model.y / 2, rtol=0, atol=1e-6)
    assert_allclose(P @ actual[1][m:, m:], np.eye(n), rtol=0, atol=1e-6)


@every_shape
def test_draws_of_normal_factors_are_from_the_dense_posterior(n, m, kernel, full):
    """Many at a time; with ``scale``, z has so many times its standard deviation, and e is what it is given z."""
    model, *_ = build(n, m, kernel, full)
    m = model.A.shape[1]
    random = np.random.default_rng(4)
    factors = random.uniform(0.01, 2.0, n), random.normal(size=n)
    conditional = Conditional(model, *factors)
    mean, covariance = dense_conditional(model, *factors)
    slope = covariance[m:, :m] @ np.linalg.inv(covariance[:m, :m])
    rest = covariance[m:, m:] - slope @ covariance[:m, m:]
    for scale in (1.0, 1.5):
        moments = normal_of(lambda xi, c=scale: assembled(model, *conditional.draw(1, Numbers(xi), c)), m + n)
        of_z = scale**2 * covariance[:m, :m]
        scaled = np.block([[of_z, of_z @ slope.T], [slope @ of_z, slope @ of_z @ slope.T + rest]])
        assert_allclose(moments[0], mean, rtol=0, atol=1e-8)
        assert_allclose(moments[1], scaled, rtol=0, atol=1e-8)
    numbers = random.normal(size=(m + n) * 3)
    Z, E = conditional.draw(3, Numbers(numbers))
    for c in range(3):
        own = np.concatenate([numbers[: 3 * m].reshape(m, 3)[:, c], numbers[3 * m :].reshape(n, 3)[:, c]])
        z, e = conditional.draw(1, Numbers(own))
        assert_allclose(Z[:, c], z[:, 0], rtol=0, atol=1e-12)
        assert_allclose(E[:, c], e[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("m", "full"), [(2, False), (2, True)])
def test_draws_have_the_sample_moments_of_the_dense_posterior(m, full):
    """The generator's numbers are independent: no number is used twice."""
    model, *_ = build(3, m, full=full)
    omega, count = np.array([0.1, 0.3, 0.2]), 6000
    random = np.random.default_rng(0)
    for gram in (model.A @ model.A.T, None):
        model._gram = gram
        mean, covariance = normal_of(lambda xi: assembled(model, *model.draw(omega, Numbers(xi))), 8)
        draws = np.array([assembled(model, *model.draw(omega, random)) for _ in range(count)])
        variance = np.diag(covariance)
        assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / count))
        error = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
        assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * error)


# Metropolis steps.


def log_target(model, z, e):
    """log p(z, e, y) up to a constant, for z (m, count) and e (n, count), of the residuals that vary."""
    some = model.residual > 0.0
    prior = -0.5 * np.sum(z**2, axis=0) - 0.5 * np.sum(e[some] ** 2 / model.residual[some, None], axis=0)
    return prior + log_expit((model.A @ z + e).T * model.y).sum(axis=1)


def log_proposal(model, conditional, z, e):
    """log q(z, e), of the residuals that vary, by the mean and the covariance of its draws."""
    some, (n, m) = model.residual > 0.0, model.A.shape
    vector = lambda z, e: np.concatenate([z, e[some]])  # noqa: E731
    mean, covariance = normal_of(lambda xi: vector(*conditional.draw(1, Numbers(xi)))[:, 0], m + n)
    return multivariate_normal(mean, covariance).logpdf(vector(z, e).T)


@pytest.mark.parametrize(
    ("n", "m", "kernel", "full"),
    [
        (8, 8, SMOOTH, False), (12, 4, SMOOTH, False), (8, 8, NOISY, False), (9, 3, NOISY, False),
        (8, 8, SMOOTH, True), (12, 8, SMOOTH, True), (8, 8, NOISY, True), (9, 6, NOISY, True), (8, 8, LINEAR, True),
    ],
)  # fmt: skip
def test_log_weight_is_the_log_ratio_of_posterior_and_proposal(n, m, kernel, full):
    """Up to a constant."""
    model, X, Z, _ = build(n, m, kernel, full)
    proposals = Proposals(model, *sites_of_the_bound(model, X, Z, kernel, full))
    m = model.A.shape[1]
    random = np.random.default_rng(3)
    z = 3.0 * random.normal(size=(m, 30))
    e = np.sqrt(model.residual)[:, None] * random.normal(size=(n, 30))
    weight = proposals.log_weight(model.A @ z + e)
    difference = log_target(model, z, e) - log_proposal(model, proposals.normal, z, e)
    assert np.ptp(weight) > 1.0
    assert_allclose(weight - weight[0], difference - difference[0], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("n", "m", "kernel"), [(10, 10, SMOOTH), (10, 4, NOISY)])
def test_proposals_have_the_factors_of_the_exact_bounds_posterior(n, m, kernel):
    """P = I + sum_i lambda_i a_i a_i^T and h = sum_i r_i a_i of it, to the thousandth of a nat that they stop at."""
    model, X, Z, _ = build(n, m, kernel)
    q = Proposals(model, *sites_of_the_bound(model, X, Z, kernel, False)).normal
    reference = GPClassifier(kernel, inducing_points=Z, optimizer=None, tol=1e-10).fit(X, model.y).posterior_
    near = reference.with_natural(np.eye(m) + model.A.T @ (q.precision[:, None] * model.A), model.A.T @ q.linear)
    assert 0.0 <= near.kl_to(reference) < 1e-3
    assert np.all(q.precision > 0.0)


@pytest.mark.parametrize(("n", "m", "kernel"), [(10, 10, SMOOTH), (10, 10, NOISY), (12, 9, NOISY), (12, 9, SMOOTH)])
def test_proposals_of_a_full_process_have_the_marginals_of_the_exact_bounds_posterior(n, m, kernel):
    """To the thousandth of a nat that they stop at; repeated rows have one latent value, or with noise each its own."""
    model, X, Z, _ = build(n, m, kernel, True)
    precision, linear = sites_of_the_bound(model, X, Z, kernel, True)
    reference = GPClassifier(kernel, inducing_points="all", bound="exact", optimizer=None, tol=1e-10)
    p = reference.fit(X, model.y).posterior_
    mean, covariance = dense_conditional(model, precision, linear)
    distinct = slice(-n, None) if kernel is NOISY else slice(-n, m - n or None)
    mean, covariance = mean[distinct], covariance[distinct, distinct]
    if kernel is NOISY:
        # Rows in order, of which the prior's covariance has the noise on its diagonal.
        inverse = np.linalg.inv(p.prior.K) + np.diag(p.precision)
        assert np.array_equal(p.prior.Z, X)
    else:
        order = np.array([np.flatnonzero(np.all(row == p.prior.Z, axis=1))[0] for row in Z])
        inverse = np.linalg.inv(SMOOTH(Z)) + np.diag(p.precision[order])
    other_mean = np.linalg.solve(inverse, p.linear if kernel is NOISY else p.linear[order])
    assert_allclose(other_mean, p.mean if kernel is NOISY else p.mean[order], rtol=0, atol=1e-8)
    product = inverse @ covariance
    gap = mean - other_mean
    kl = 0.5 * (np.trace(product) - len(gap) - np.linalg.slogdet(product)[1] + gap @ inverse @ gap)
    assert -1e-9 <= kl < 1e-3
    assert np.all(precision > 0.0)


@pytest.mark.parametrize(
    ("kernel", "m", "full"),
    [(SMOOTH, 3, False), (NOISY, 3, False), (SMOOTH, 7, True), (NOISY, 7, True), (NOISY, 5, True), (LINEAR, 7, True)],
)
def test_steps_are_those_of_metropolis_and_hastings(kernel, m, full):
    model, X, Z, _ = build(7, m, kernel, full)
    proposals = Proposals(model, *sites_of_the_bound(model, X, Z, kernel, full))
    random = np.random.default_rng(5)
    z, e = 2.0 * random.normal(size=model.A.shape[1]), np.sqrt(model.residual) * random.normal(size=7)
    Z, E, F, accepted = proposals.steps(z, e, 200, np.random.default_rng(6))
    same = np.random.default_rng(6)
    candidates = proposals.normal.draw(200, same)
    log_uniform = np.log(same.uniform(size=200))
    every = [np.column_stack(pair) for pair in zip((z, e), candidates, strict=True)]
    weight = log_target(model, *every) - log_proposal(model, proposals.normal, *every)
    here, path = 0, []
    for i in range(1, 201):
        here = i if log_uniform[i - 1] < weight[i] - weight[here] else here
        path.append(here)
    assert accepted == len(set(path) - {0})
    assert 0 < accepted < 200
    assert np.array_equal(Z, every[0][:, path])
    assert np.array_equal(E, every[1][:, path])
    assert_allclose(F, model.A @ Z + E, rtol=0, atol=1e-12)


@short_chains
def test_every_proposal_is_accepted_where_the_posterior_is_the_prior():
    X, y = moons(30)
    model = small(1e-10 * RBF(0.5)).fit(X, y)
    assert model.acceptance_rate_ == pytest.approx(1.0, abs=1e-12)
    assert_allclose(model.predict_proba(X), 0.5, atol=1e-4)


# The chain as a whole.


class TruePosterior:
    """Integrals over a grid in whitened coordinates of f at three rows at most, cov f = Q(X, X) + diag(rest).

    Q is what the inducing points Z give, all of the smooth kernel's where they are X. The trapezoidal rule is as good
    as exact: the logistic function has no pole within pi, more than a standard deviation, of the real line.
    """

    AXIS = np.arange(-7.5, 7.6, 0.5)

    def __init__(self, kernel, smooth, X, y, Z):
        self.kernel, self.smooth, self.X, self.Z = kernel, smooth, X, Z
        self.C = fitc(smooth, 0.0, X, Z, X)
        # Rows that are equal have a singular one.
        np.fill_diagonal(self.C, kernel.diag(X) + 1e-12)
        z = np.stack(np.meshgrid(*[self.AXIS] * len(X), indexing="ij")).reshape(len(X), -1)
        self.f = np.linalg.cholesky(self.C) @ z
        log_density = -0.5 * np.sum(z**2, axis=0) + log_expit(y[:, None] * self.f).sum(axis=0)
        self.p = np.exp(log_density - logsumexp(log_density))
        self.log_evidence = logsumexp(log_density) - len(X) * logsumexp(-0.5 * self.AXIS**2)

    def at(self, new):
        """Mean and variance of the latent value, and probability of the label +1, (3, r) at the rows (r, d)."""
        cross = fitc(self.smooth, 0.0, self.X, self.Z, new)
        B = np.linalg.solve(self.C, cross.T).T
        rest = np.maximum(self.kernel.diag(new) - np.sum(B * cross, axis=1), 0.0)
        given = B @ self.f
        mean = given @ self.p
        variance = rest + (given - mean[:, None]) ** 2 @ self.p
        weight = np.exp(-0.5 * self.AXIS**2)
        weight /= weight.sum()
        positive = sum(
            w * expit(given + t * np.sqrt(rest)[:, None]) @ self.p for t, w in zip(self.AXIS, weight, strict=True)
        )
        return np.array([mean, variance, positive])


THREE = np.array([[-1.0, 0.0], [0.3, 0.5], [0.8, -0.4]])
AGAIN = np.array([[0.5, 0.5], [0.5, 0.5], [-0.6, 0.5]])
WIDE = ConstantKernel(6.0) * RBF(1.0)
WIDE_NOISY = WIDE + WhiteKernel(1.5)
PROBLEMS = {
    "three rows": (WIDE, THREE, (1.0, -1.0, 1.0), None),
    "a repeated row": (WIDE, AGAIN, (1.0, -1.0, 1.0), None),
    "noise": (WIDE_NOISY, THREE, (1.0, 1.0, -1.0), None),
    "noise at a repeated row": (WIDE_NOISY, AGAIN, (1.0, -1.0, -1.0), None),
    "two inducing points": (WIDE, THREE, (1.0, -1.0, 1.0), THREE[:2] + 0.3),
    "an inducing point and noise": (WIDE_NOISY, THREE, (1.0, 1.0, -1.0), THREE[1:2]),
    "four inducing points": (WIDE, AGAIN[1:], (1.0, -1.0), np.vstack([THREE, AGAIN[:1]])),
}


@cache
def true_moments(name):
    kernel, X, y, Z = PROBLEMS[name]
    Z = np.unique(X, axis=0) if Z is None else Z
    return TruePosterior(kernel, WIDE, X, np.array(y), Z).at(np.vstack([X, NEW[:2]]))


@pytest.mark.parametrize("n_proposals", [0, 30])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_chain_is_stationary_at_the_true_posterior(name, n_proposals):
    """At training rows and new ones, to five standard errors."""
    kernel, X, y, Z = PROBLEMS[name]
    new = np.vstack([X, NEW[:2]])
    sampler = GibbsClassifier(
        kernel,
        inducing_points="all" if Z is None else Z,
        n_samples=20_000 if n_proposals else 2000,
        thin=1,
        n_chains=4,
        n_proposals=n_proposals,
        random_state=1,
    ).fit(X, y)
    assert sampler.ess_ > 1500
    mean, variance, positive = true_moments(name)
    draws = sampler.sample_latent(new)

    def within(actual, expected, quantity):
        error = quantity.std(axis=(0, 1)) / np.sqrt(effective_sample_size(quantity))
        assert np.all(np.abs(actual - expected) < 5.0 * error)

    actual_mean, actual_variance = sampler.predict_latent(new)
    within(actual_mean, mean, draws)
    within(actual_variance, variance, (draws - mean) ** 2)
    within(sampler.predict_proba(new)[:, 1], positive, expit(draws))
    assert np.isnan(sampler.acceptance_rate_) if n_proposals == 0 else 0.2 < sampler.acceptance_rate_ < 1.0


DATA = moons(40)
GRID = np.random.default_rng(8).normal(size=(9, 2))


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
@short_chains
def test_results_depend_on_random_state_alone(Z):
    X, y = DATA
    fits = [
        small(inducing_points=Z, n_chains=3, n_jobs=n_jobs, random_state=seed).fit(X, y)
        for n_jobs, seed in ((1, 0), (2, 0), (3, np.random.RandomState(0)), (2, 1))
    ]
    for same in fits[1:3]:
        assert np.array_equal(same.samples_, fits[0].samples_)
        assert np.array_equal(same.predict_latent(GRID), fits[0].predict_latent(GRID))
        assert (same.r_hat_, same.ess_, same.acceptance_rate_) == (
            fits[0].r_hat_, fits[0].ess_, fits[0].acceptance_rate_,
        )  # fmt: skip
    chains = [*fits[0].samples_, *fits[3].samples_]
    assert len({chain.tobytes() for chain in chains}) == len(chains)


@pytest.mark.parametrize(("n_proposals", "thin", "n_samples"), [(0, 4, 6), (3, 7, 5), (50, 3, 9), (3, 1, 8), (4, 9, 5)])
@short_chains
def test_thinning_keeps_every_so_many_of_the_states_and_all_are_averaged(n_proposals, thin, n_samples):
    X, y = DATA
    options = {"n_proposals": n_proposals, "n_chains": 2}
    thinned = small(thin=thin, n_samples=n_samples, **options).fit(X, y)
    every = small(thin=1, n_samples=thin * n_samples, **options).fit(X, y)
    assert thinned.samples_.shape == (2, n_samples, len(X))
    assert np.array_equal(thinned.samples_, every.samples_[:, thin - 1 :: thin])
    assert np.array_equal(thinned.predict_latent(GRID), every.predict_latent(GRID))
    _, residual = every._whitening.rows(GRID)
    states = every.sample_latent(GRID).reshape(-1, len(GRID))
    mean, variance = thinned.predict_latent(GRID)
    assert_allclose(mean, states.mean(axis=0), rtol=0, atol=1e-10)
    assert_allclose(variance, residual + states.var(axis=0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_proposals", [0, 3])
@short_chains
def test_sweeps_alternate_between_polya_gamma_variables_and_latent_values(n_proposals, monkeypatch):
    """The variables are drawn at f = A z + e of the latest state and handed on as they are."""
    X, y = DATA
    tilts, variables, given, states = [], [], [], []
    sampler, draw, steps = gibbs._polya_gamma_sampler(), Model.draw, Proposals.steps

    def sample(c, rng):
        tilts.append(c.copy())
        variables.append(sampler(c, rng))
        return variables[-1]

    def record_draw(self, omega, rng):
        given.append(omega)
        z, e = draw(self, omega, rng)
        states.append(self.A @ z + e)
        return z, e

    def record_steps(self, z, e, count, rng):
        assert_allclose(self.model.A @ z + e, states[-1], rtol=0, atol=1e-12)
        Z, E, F, accepted = steps(self, z, e, count, rng)
        states[-1] = self.model.A @ Z[:, -1] + E[:, -1]
        return Z, E, F, accepted

    monkeypatch.setattr(gibbs, "_polya_gamma_sampler", lambda: sample)
    monkeypatch.setattr(Model, "draw", record_draw)
    monkeypatch.setattr(Proposals, "steps", record_steps)
    small(NOISY, inducing_points=GRID, n_chains=1, n_proposals=n_proposals, thin=1).fit(X, y)
    assert len(tilts) == 2 + 20 // (n_proposals + 1)
    assert_allclose(tilts[1:], states[:-1], rtol=0, atol=1e-10)
    assert all(a is b for a, b in zip(variables, given, strict=True))


@short_chains
def test_warm_up_throws_the_first_sweeps_away():
    X, y = DATA
    whole, rest = (small(thin=1, n_proposals=4, n_warmup=w, n_samples=s).fit(X, y) for w, s in ((0, 35), (3, 20)))
    assert np.array_equal(whole.samples_[:, 15:], rest.samples_)


@short_chains
def test_chains_start_apart(monkeypatch):
    """Each from a draw of its own, with DISPERSION times the standard deviation of the proposals."""
    X, y = DATA
    starts = []
    draw = Conditional.draw

    def record(self, count, rng, scale=1.0):
        drawn = draw(self, count, rng, scale)
        if scale != 1.0:
            starts.append((scale, drawn[0].tobytes()))
        return drawn

    monkeypatch.setattr(Conditional, "draw", record)
    small(n_chains=3, n_proposals=2).fit(X, y)
    assert [scale for scale, _ in starts] == [DISPERSION] * 3
    assert len(set(starts)) == 3
    assert DISPERSION > 1.0


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
def test_latent_draws_are_the_whitened_ones_and_agree_with_the_predictions(Z):
    X, y = DATA
    new = np.vstack([NEW, X[:3]])
    model = GibbsClassifier(SMOOTH, inducing_points=Z, n_samples=1000, random_state=3).fit(X, y)
    Z = model.inducing_points_
    draws = model.sample_latent(new)
    # f = k(x, Z) K_mm^-1 u, u = L z, with a root L of K_mm, which is K of a full process.
    if isinstance(model.get_params()["inducing_points"], str):
        assert np.array_equal(Z, np.unique(X, axis=0))
        root, _ = model._whitening.rows(Z)
        assert_allclose(root @ root.T, SMOOTH(Z), rtol=0, atol=1e-12)
    else:
        root = Prior.build(KernelSpec(SMOOTH, 2), Z).L
    u = model.samples_ @ root.T
    weights = np.linalg.solve(root @ root.T, SMOOTH(Z, new))
    assert draws.shape == (4, 1000, len(new))
    assert_allclose(draws, u @ weights, rtol=0, atol=1e-7 * np.abs(weights).max())
    mean, variance = model.predict_latent(new)
    residual = SMOOTH.diag(new) - np.sum(weights * SMOOTH(Z, new), axis=0)
    least = effective_sample_size(draws).min()
    sd = draws.reshape(-1, len(new)).std(axis=0)
    assert np.all(np.abs(draws.mean(axis=(0, 1)) - mean) < 5 * sd / np.sqrt(least))
    fourth = np.mean((draws - mean) ** 4, axis=(0, 1)) - sd**4
    assert np.all(np.abs(sd**2 + residual - variance) < 5 * np.sqrt(fourth / least))
    assert np.all(variance >= residual)

    f = draws[..., None] + np.sqrt(np.maximum(residual, 0.0))[:, None] * np.linspace(-8.0, 8.0, 81)
    weight = np.exp(-0.5 * np.linspace(-8.0, 8.0, 81) ** 2)
    positive = np.mean(expit(f) @ (weight / weight.sum()), axis=(0, 1))
    assert_allclose(model.predict_proba(new), np.column_stack([1 - positive, positive]), rtol=0, atol=1e-7)
    assert_allclose(model.predict_log_proba(new), np.log(model.predict_proba(new)), rtol=0, atol=1e-13)
    assert np.array_equal(model.predict(new), model.classes_[np.argmax(model.predict_proba(new), axis=1)])


@short_chains
def test_diagnostics_are_those_of_the_log_likelihood_and_the_latent_values():
    X, y = DATA
    model = small(n_samples=200, thin=2).fit(X, y)
    f = model.sample_latent(X)
    log_likelihood = log_expit(np.where(y == 1, 1.0, -1.0) * f).sum(axis=2, keepdims=True)
    watched = np.concatenate([log_likelihood, f], axis=2)
    assert model.r_hat_ == pytest.approx(split_r_hat(watched).max(), rel=1e-9)
    assert model.ess_ == pytest.approx(effective_sample_size(watched).min(), rel=1e-6)


@short_chains
def test_acceptance_rate_is_the_share_of_proposals_that_move_the_chain():
    """Of six states the first is a sweep's. Sweeps before the warm-up's end do not count."""
    X, y = DATA
    model = small(thin=1, n_proposals=5, n_samples=120, n_warmup=7).fit(X, y)
    states = np.concatenate([model.samples_, model.samples_[:, :1]], axis=1)
    moves = np.any(np.diff(states, axis=1) != 0.0, axis=2).reshape(2, 20, 6)
    assert model.acceptance_rate_ == pytest.approx(moves[:, :, :5].mean(), rel=1e-12)
    assert 0.1 < model.acceptance_rate_ < 1.0
    assert np.all(moves[:, :-1, 5])


@pytest.mark.parametrize("n", [60, 150])
@short_chains
def test_a_hundred_rows_are_watched_or_all(n, monkeypatch):
    X, y = moons(n)
    seen = []
    monkeypatch.setattr(gibbs, "split_r_hat", lambda chains: seen.append(chains) or split_r_hat(chains))
    small(inducing_points=GRID).fit(X, y)
    (watched,) = seen
    assert watched.shape == (2, 20, min(n, WATCHED) + 1)
    # Distinct rows, none for certain.
    assert len(np.unique(watched[0, 0])) == watched.shape[2]


@short_chains
def test_probabilities_stay_probabilities_where_they_are_certain():
    X, y = DATA
    model = small().fit(X, y)
    for scale in (1e-10, 1e2, 1e8):
        model.samples_ = scale * np.sign(model.samples_)
        probabilities = model.predict_proba(GRID)
        assert np.all((probabilities >= 0.0) & (probabilities <= 1.0))
        assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-15)
        assert not np.any(np.isnan(model.predict_log_proba(GRID)))


def exact_residuals(X, new):
    """Variances of 100 (1 + x . x') + exp(-|x - x'|^2 / 2) at new rows given those at X, in fifty digits."""
    with mpmath.workdps(50):
        X, new = ([[mpmath.mpf(float(value)) for value in row] for row in rows] for rows in (X, new))

        def k(a, b):
            square = sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
            return 100 * (1 + sum(p * q for p, q in zip(a, b, strict=True))) + mpmath.exp(-square / 2)

        K = mpmath.matrix([[k(a, b) for b in X] for a in X])
        crosses = [mpmath.matrix([k(row, b) for b in X]) for row in new]
        return np.array(
            [float(k(row, row) - (c.T * mpmath.lu_solve(K, c))[0]) for row, c in zip(new, crosses, strict=True)]
        )


@pytest.mark.parametrize(("smooth", "far"), [(False, 18.0), (True, 34.0)], ids=["closed form", "quadrature"])
@short_chains
def test_log_probabilities_are_accurate_in_the_tails(smooth, far):
    """The logarithm of the mean over draws of the logistic function, or of its mean given z by quadrature."""
    random = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = random.normal(size=(20, 2)) + 2.0 * (2 * y - 1)[:, None]
    kernel = 100.0 * DotProduct(1.0) + RBF(1.0) if smooth else 100.0 * DotProduct(1.0)
    model = small(kernel, n_samples=100).fit(X, y)
    new = np.outer([-far, -1.0, 1.0, far], [1.0, 1.0])
    draws = model.sample_latent(new).reshape(-1, 4).T
    # Of a linear function nothing is left.
    residual = exact_residuals(X, new) if smooth else np.zeros(4)
    assert_allclose(model._whitening.rows(new)[1], residual, rtol=1e-7, atol=0)
    t = np.linspace(-14.0, 14.0, 561)
    log_weight = -0.5 * t**2 - logsumexp(-0.5 * t**2)
    f = draws[..., None] + np.sqrt(residual)[:, None, None] * t
    expected = np.column_stack([logsumexp(log_expit(s * f) + log_weight, axis=(1, 2)) for s in (-1.0, 1.0)])
    expected -= np.log(draws.shape[1])
    actual = model.predict_log_proba(new)
    assert_allclose(actual, expected, rtol=1e-7, atol=1e-7)
    assert -85.0 < expected[0, 1] < -55.0
    assert -85.0 < expected[3, 0] < -55.0
    assert_allclose(model.predict_proba(new).sum(axis=1), 1.0, rtol=0, atol=1e-14)
    assert_allclose(logsumexp(actual, axis=1), 0.0, rtol=0, atol=1e-14)
    # Much farther they are finite still.
    farther = model.predict_log_proba(1e4 * new)
    assert np.all(np.isfinite(farther))
    assert farther.min() < -30.0


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
@short_chains
def test_predictions_are_the_same_in_blocks(Z, monkeypatch):
    X, y = DATA
    model = small(NOISY, inducing_points=Z).fit(X, y)
    new = np.vstack([GRID, X])
    predictions = model.predict_proba, model.predict_log_proba, model.sample_latent, model.predict_latent
    whole = [predict(new) for predict in predictions]
    monkeypatch.setattr(gibbs, "ROWS", 7)
    monkeypatch.setattr(gibbs, "DRAWS", 3)
    sizes = []
    rows = Whitening.rows
    monkeypatch.setattr(Whitening, "rows", lambda self, X: sizes.append(len(X)) or rows(self, X))
    for predict, expected in zip(predictions, whole, strict=True):
        assert_allclose(predict(new), expected, rtol=0, atol=1e-10)
    assert sizes == 4 * 7 * [7]
    assert np.array_equal(model.predict(new), model.classes_[np.argmax(whole[0], axis=1)])


@short_chains
def test_quantities_that_do_not_vary_have_no_part_in_the_diagnostics():
    """The log likelihood is a constant to rounding, the latent values are small but vary."""
    X, y = DATA
    model = small(1e-40 * RBF(1.0)).fit(X, y)
    f = model.sample_latent(X)
    assert np.all(np.std(f, axis=(0, 1)) < 1e-19)
    assert model.r_hat_ == pytest.approx(split_r_hat(f).max(), rel=1e-9)
    assert model.ess_ == pytest.approx(effective_sample_size(f).min(), rel=1e-6)


def test_where_nothing_varies_chains_agree(monkeypatch):
    X, y = DATA
    nothing = lambda chains: np.full(chains.shape[2], np.nan)  # noqa: E731
    assert np.all(np.isnan(split_r_hat(np.ones((2, 20, 3)))))
    assert np.all(np.isnan(effective_sample_size(np.ones((2, 20, 3)))))
    monkeypatch.setattr(gibbs, "split_r_hat", nothing)
    monkeypatch.setattr(gibbs, "effective_sample_size", nothing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small().fit(X, y)
    assert (model.r_hat_, model.ess_) == (1.0, 40.0)


# The estimator.


def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        # Raised by scikit-learn where its array-API switch is off; the check says nothing of this estimator.
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(small(RBF(1.0), n_samples=4, thin=1, n_proposals=2), on_fail=None)
    assert [result["check_name"] for result in results if result["status"] not in ("passed", "skipped")] == []
    assert [r["check_name"] for r in results if r["status"] == "skipped"] in ([], ["check_array_api_input"])


@short_chains
def test_labels_of_strings():
    X, y = DATA
    plain, named = (small().fit(X, labels) for labels in (y, np.array(["no", "yes"])[y]))
    assert named.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(named.predict(GRID), np.array(["no", "yes"])[plain.predict(GRID)])
    assert np.array_equal(named.predict_proba(GRID), plain.predict_proba(GRID))
    assert np.array_equal(small().fit(X.tolist(), y.astype(bool)).predict(GRID), plain.predict(GRID).astype(bool))


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
@short_chains
def test_without_a_kernel_it_is_learned_as_by_a_classifier(Z):
    X, y = DATA
    model = small(None, inducing_points=Z).fit(X, y)
    reference = GPClassifier(inducing_points=Z, learn_inducing=False, random_state=0).fit(X, y)
    assert model.kernel_ == reference.kernel_
    assert np.array_equal(model.inducing_points_, reference.inducing_points_)
    fixed = small(model.kernel_, inducing_points=Z).fit(X, y)
    assert fixed.kernel_ == model.kernel_
    for ours, theirs in zip(fixed._whitening.rows(GRID), model._whitening.rows(GRID), strict=True):
        assert np.array_equal(ours, theirs)


@short_chains
def test_a_fitted_sampler_pickles():
    X, y = DATA
    model = small().fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(GRID), model.predict_proba(GRID))
    assert np.array_equal(again.predict_latent(GRID), model.predict_latent(GRID))


@short_chains
def test_float32_rows_are_the_same_rows_in_double_precision():
    X, y = DATA
    narrow = X.astype(np.float32)
    a, b = (small().fit(rows, y) for rows in (narrow, narrow.astype(np.float64)))
    assert np.array_equal(a.samples_, b.samples_)
    assert np.array_equal(a.predict_proba(narrow), b.predict_proba(narrow.astype(np.float64)))


@short_chains
def test_progress_goes_to_stderr(capsys):
    X, y = DATA
    options = {"n_samples": 12, "thin": 2, "n_proposals": 4, "n_warmup": 3, "n_chains": 2}
    small(**options).fit(X, y)
    assert capsys.readouterr() == ("", "")
    small(verbose=1, **options).fit(X, y)
    out, err = capsys.readouterr()
    # ceil(24 / 5) sweeps after the warm-up.
    assert out == ""
    assert "xgpc: sweeps" in err
    assert "16/16" in err


# Faults.

FAULTS = {
    "three classes": ({}, {"y": np.arange(40) % 3}, "two classes|binary classification"),
    "one class": ({}, {"y": np.ones(40)}, "rows of two classes"),
    "NaN": ({}, {"X": np.where(np.arange(80).reshape(40, 2) == 7, np.nan, DATA[0])}, "NaN"),
    "huge": ({}, {"X": 1e200 * DATA[0]}, "scale the features"),
    "lengths": ({}, {"y": DATA[1][:-1]}, "inconsistent"),
    "k-means": ({"inducing_points": "kmeans"}, {}, "'all' or a numeric array \\(m, d\\); got 'kmeans'"),
    "shape": ({"inducing_points": np.ones((3, 5))}, {}, "inducing_points"),
    "n_jobs": ({"n_jobs": 0}, {}, "n_jobs"),
    "kernel": ({"kernel": "rbf"}, {}, "kernel must be a scikit-learn kernel"),
}
FAULTS |= {
    f"{name}={value}": ({name: value}, {}, f"{name} must be an integer of at least")
    for name, least in (("n_samples", 4), ("thin", 1), ("n_warmup", 0), ("n_chains", 1), ("n_proposals", 0))
    for value in (least - 1, float(least), True, None, "2")
}


@pytest.mark.parametrize("fault", FAULTS)
@short_chains
def test_faults_are_named_and_leave_the_estimator_as_it_was(fault):
    parameters, data, message = FAULTS[fault]
    X, y = DATA
    model = small().fit(X[:, :1], y)
    model.set_params(**parameters)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(**({"X": X, "y": y} | data))
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@short_chains
def test_a_chain_that_fails_leaves_the_estimator_as_it_was(monkeypatch):
    X, y = DATA
    model = small().fit(X[:, :1], y)
    before = dict(vars(model))

    def fail(c, rng):
        raise KeyboardInterrupt

    monkeypatch.setattr(gibbs, "_polya_gamma_sampler", lambda: fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:20], y[:20])
    assert all(vars(model)[name] is value for name, value in before.items())


def test_without_the_polyagamma_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "polyagamma", None)
    model = small()
    with pytest.raises(ImportError, match=r"extra 'gibbs': pip install polyagamma tqdm\."):
        model.fit(*DATA)
    assert not hasattr(model, "samples_")


@short_chains
def test_progress_without_the_tqdm_package_is_refused_before_any_work(monkeypatch):
    model = small().fit(*DATA)
    model.set_params(verbose=1)
    before = dict(vars(model))
    monkeypatch.setattr(gibbs, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"verbose=1 .* pip install tqdm"):
        model.fit(*DATA)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert small().fit(*DATA).acceptance_rate_ > 0.0


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "predict_latent", "sample_latent"])
def test_an_unfitted_sampler_predicts_nothing(method):
    with pytest.raises(NotFittedError):
        getattr(small(), method)(GRID)


@short_chains
def test_rows_to_predict_must_have_the_features_of_the_training_rows():
    model = small().fit(*DATA)
    for method in (model.predict_proba, model.predict_latent, model.sample_latent):
        with pytest.raises(ValueError, match="2 features"):
            method(np.ones((4, 3)))


def test_chains_that_disagree_warn_where_fit_was_called(monkeypatch):
    X, y = DATA
    monkeypatch.setattr(gibbs, "LARGEST_R_HAT", np.inf)
    agreeing = small().fit(X, y)
    monkeypatch.setattr(gibbs, "LARGEST_R_HAT", 0.5)
    message = rf"R-hat is {agreeing.r_hat_:.4g}, above 0\.5: chains that disagree.* n_samples=20 or thin=10; n_warmup"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        model = small().fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]
    assert np.array_equal(model.samples_, agreeing.samples_)


def test_an_interrupt_ends_all_chains(monkeypatch):
    """After one chain fails, the others stop at their next sweep, of the million that they have before them."""
    X, y = moons(30)
    sweeps = []
    honest = gibbs.Model.draw

    def draw(self, omega, rng):
        sweeps.append(None)
        if len(sweeps) == 20:
            raise KeyboardInterrupt
        return honest(self, omega, rng)

    monkeypatch.setattr(gibbs.Model, "draw", draw)
    model = GibbsClassifier(RBF(1.0), n_samples=1_000_000, thin=1, n_proposals=0, n_jobs=2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(sweeps) < 1000
    assert not hasattr(model, "classes_")
