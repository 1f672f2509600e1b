"""The sampler's steps against closed forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_expit
from scipy.stats import multivariate_normal
from sklearn.datasets import make_moons
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from support.dense import smooth_part
from support.gibbs import NEW, NOISY, SMOOTH, fitc, short_chains, small
from support.reference import moons
from support.sites import build, evaluate_one

from xgpc import GPClassifier
from xgpc.approximations.sparse import JITTER, SparsePrior
from xgpc.gibbs.chain import Conditional, Model, Whitening
from xgpc.kernels.spec import KernelSpec

LINEAR = DotProduct(1.0) + WhiteKernel(0.7)


class Numbers:
    """In place of a random generator: hands out given numbers."""

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers, dtype=float)

    def standard_normal(self, size):
        part, self.numbers = np.split(self.numbers, [np.prod(size)])
        return part.reshape(size)


def normal_of(draw, count):
    """Mean and covariance of an affine function of ``count`` standard normal numbers, by its values."""
    mean = draw(np.zeros(count))
    root = np.column_stack([draw(unit) - mean for unit in np.eye(count)])
    random = np.random.default_rng(9).normal(size=count)
    assert_allclose(draw(random), mean + root @ random, rtol=0, atol=1e-10 * np.abs(root).sum())
    return mean, root @ root.T


def problem(n, m, kernel=NOISY, full=False, seed=0):
    """A model of n rows and m inducing points, which are the first rows; full: all rows are among them."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2))
    Z = np.vstack([X, random.normal(size=(m, 2))])[:m]
    if full:
        X = Z[np.arange(n) % m]
    whitening = Whitening(KernelSpec(kernel, 2), Z, full)
    return Model(whitening, X, random.choice([-1.0, 1.0], n)), X, Z, whitening


def stacked(*parts):
    return np.concatenate([part.ravel() for part in parts])


def dense_conditional(model, precision, linear):
    """Mean and covariance of (z, f) in proportion to N(z; 0, I) N(f; A z, diag(k)) exp(-precision f^2 / 2 + linear f).

    f is the pseudo-observation linear / precision with variance 1 / precision.
    """
    A = model.A
    C = A @ A.T + np.diag(model.residual)
    prior = np.block([[np.eye(A.shape[1]), A.T], [A, C]])
    gain = prior[:, A.shape[1] :] @ np.linalg.inv(C + np.diag(1.0 / precision))
    return gain @ (linear / precision), prior - gain @ prior[A.shape[1] :]


SHAPES = [(n, m, kernel, False) for n, m in ((6, 6), (9, 3), (3, 9)) for kernel in (SMOOTH, NOISY)]
# All rows, each once, some again, and more of them than a kernel has features.
SHAPES += [(6, 6, SMOOTH, True), (6, 6, NOISY, True), (9, 6, NOISY, True), (8, 8, LINEAR, True)]
every_shape = pytest.mark.parametrize(("n", "m", "kernel", "full"), SHAPES)


@every_shape
def test_the_prior_is_that_of_fully_independent_training_conditionals(n, m, kernel, full):
    """Q + diag(k - Q), and where the inducing points leave no more than the jitter, nothing is independent.

    Of a full process Q is K, without jitter, and nothing is independent but the noise.
    """
    model, X, Z, whitening = problem(n, m, kernel, full)
    smooth = smooth_part(kernel)
    jitter = 0.0 if full else SparsePrior.build(KernelSpec(kernel, 2), Z).jitter
    Q = smooth(X) if full else fitc(smooth, jitter, X, Z, X)
    noise = kernel.diag(X) - smooth.diag(X)
    left = smooth.diag(X) - np.diag(Q)
    assert model.A.shape[1] == (3 if kernel is LINEAR else m)
    assert_allclose(model.A @ model.A.T, Q, rtol=0, atol=1e-12 if full else 1e-8)
    assert np.array_equal(model.residual > 0.0, (noise > 0.0) | (not full and np.arange(n) >= m))
    varies = model.residual > 0.0
    assert_allclose(model.residual[varies], (left + noise)[varies], rtol=0, atol=1e-12 if full else 1e-8)
    assert np.all(left[:m] < 2.0 * JITTER * smooth.diag(X[:m]))
    # New rows.
    A, residual = whitening.rows(NEW)
    if full:
        cross, tolerance = smooth(NEW, X), 1e-11
        explained = cross @ np.linalg.pinv(Q, rcond=1e-12, hermitian=True) @ cross.T
    else:
        cross, explained, tolerance = *(fitc(smooth, jitter, rows, Z, NEW) for rows in (X, NEW)), 1e-8
    assert_allclose(A @ model.A.T, cross, rtol=0, atol=tolerance)
    assert_allclose(residual, kernel.diag(NEW) - np.diag(explained), rtol=0, atol=tolerance)


FAR = (DotProduct() + 4.0 * RBF(0.7), 3000.0), (ConstantKernel(1e6) + 4.0 * RBF(0.7), 0.0), (NOISY, 0.0)


@pytest.mark.parametrize(("kernel", "shift"), FAR, ids=["far from the origin", "a large constant", "noise"])
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
    assert np.max(np.abs(contrasts @ (A @ A.T + np.diag(residual) - K)[:60, :60] @ contrasts)) < 1e-3


@every_shape
def test_draws_are_from_the_dense_posterior_given_normal_factors(n, m, kernel, full):
    """Such as Polya-Gamma variables give. Many at a time; with ``scale``, z has so many times its standard deviation,
    and e is what it is given z."""
    model, *_ = problem(n, m, kernel, full)
    m = model.A.shape[1]
    random = np.random.default_rng(4)
    factors = random.uniform(0.01, 2.0, n), random.normal(size=n)
    conditional = Conditional(model, *factors)
    mean, covariance = dense_conditional(model, *factors)
    # The conditional of f as it is printed: S = (C^-1 + diag(omega))^-1, mean S y / 2 for linear terms y / 2.
    P = np.linalg.inv(model.A @ model.A.T + np.diag(model.residual)) + np.diag(factors[0])
    assert_allclose(P @ mean[m:], factors[1], rtol=0, atol=1e-6)
    assert_allclose(P @ covariance[m:, m:], np.eye(n), rtol=0, atol=1e-6)
    slope = covariance[m:, :m] @ np.linalg.inv(covariance[:m, :m])
    rest = covariance[m:, m:] - slope @ covariance[:m, m:]
    for scale in (1.0, 1.5):
        moments = normal_of(lambda xi, c=scale: stacked(*conditional.draw(1, Numbers(xi), c)), m + n)
        of_z = scale**2 * covariance[:m, :m]
        scaled = np.block([[of_z, of_z @ slope.T], [slope @ of_z, slope @ of_z @ slope.T + rest]])
        assert_allclose(moments[0], mean, rtol=0, atol=1e-8)
        assert_allclose(moments[1], scaled, rtol=0, atol=1e-8)
    numbers = random.normal(size=(m + n) * 3)
    Z, E = conditional.draw(3, Numbers(numbers))
    for c in range(3):
        # The numbers are those of z (m, 3) and of e (n, 3).
        z, e = conditional.draw(1, Numbers(numbers.reshape(m + n, 3)[:, c]))
        assert_allclose(np.vstack([Z, E])[:, [c]], np.vstack([z, e]), rtol=0, atol=1e-12)


def log_target(model, z, e):
    """log p(z, e, y) up to a constant, for z (m, count) and e (n, count), of the residuals that vary."""
    some = model.residual > 0.0
    prior = -0.5 * np.sum(z**2, axis=0) - 0.5 * np.sum(e[some] ** 2 / model.residual[some, None], axis=0)
    return prior + log_expit((model.A @ z + e).T * model.y).sum(axis=1)


def log_proposal(model, conditional, z, e):
    """log q(z, e), of the residuals that vary, by the mean and the covariance of its draws."""
    some, (n, m) = model.residual > 0.0, model.A.shape

    def drawn(numbers):
        z, f = conditional.draw(1, Numbers(numbers))
        return stacked(z, (f - model.A @ z)[some])

    return multivariate_normal(*normal_of(drawn, m + n)).logpdf(np.concatenate([z, e[some]]).T)


@pytest.mark.parametrize(
    ("kernel", "m", "full"),
    [(SMOOTH, 3, False), (NOISY, 3, False), (SMOOTH, 7, True), (NOISY, 7, True), (NOISY, 5, True), (LINEAR, 7, True)],
)
def test_steps_are_those_of_metropolis_and_hastings(kernel, m, full):
    model, X, Z, _ = problem(7, m, kernel, full)
    # Of the exact bound's sites at its posterior.
    params = {"optimizer": None, "n_neighbors": 0, "feature_transform": None, "random_state": 0}
    fitted = GPClassifier(kernel, inducing_points="all" if full else Z, **params).fit(X, model.y)
    proposals = Conditional(model, *evaluate_one(build("logit", "exact", 2), *fitted.predict_latent(X), model.y)[1:])
    random = np.random.default_rng(5)
    z, e = 2.0 * random.normal(size=model.A.shape[1]), np.sqrt(model.residual) * random.normal(size=7)
    Z, F, accepted = proposals.steps(z[:, None], (model.A @ z + e)[:, None], 200, np.random.default_rng(6))
    Z, F = Z[:, 1:], F[:, 1:]
    same = np.random.default_rng(6)
    proposed, latent = proposals.draw(200, same)
    log_uniform = np.log(same.uniform(size=200))
    every = np.column_stack([z, proposed]), np.column_stack([e, latent - model.A @ proposed])
    weight = log_target(model, *every) - log_proposal(model, proposals, *every)
    here, path = 0, []
    for i in range(1, 201):
        here = i if log_uniform[i - 1] < weight[i] - weight[here] else here
        path.append(here)
    assert accepted == len(set(path) - {0})
    assert 0 < accepted < 200
    assert np.array_equal(Z, every[0][:, path])
    assert_allclose(F, (model.A @ every[0] + every[1])[:, path], rtol=0, atol=1e-12)


@short_chains
def test_every_proposal_is_accepted_where_the_posterior_is_the_prior():
    X, y = moons(30)
    model = small(1e-10 * RBF(0.5)).fit(X, y)
    assert model.acceptance_rate_ == pytest.approx(1.0, abs=1e-12)
    assert_allclose(model.predict_proba(X), 0.5, atol=1e-4)
