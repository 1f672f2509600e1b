"""The local posterior: predictions, cavities, sites and joint covariances, against dense formulas."""

from dataclasses import replace
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_expit
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import Matern
from support.dense import derivative, full_prior, labelled
from support.fits import losses, quietly
from support.internals import Coefficients, Sweep
from support.local import KERNELS, Dense, Problem, expectation_propagation, probit_moments, tilted_moments
from support.reference import moons
from support.training import ascended, training

from xgpc import GPClassifier, _sites
from xgpc.likelihoods import record_of

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def dense(problem, c=0):
    prior, order = problem.prior, (problem.index, problem.n_earlier)
    return Dense(problem.kernel, problem.X, prior.Z, prior.jitter, *problem.sites[:, c], *order)


@every_kernel
@pytest.mark.parametrize("k", [1, 7, 8, 9, 40])
def test_predictions_and_cavities_are_those_of_the_formula(kernel, k):
    """A cavity is predicted from neighbours other than the row, its own term taken out of q(z)."""
    problem = Problem(kernel, n=40, k=k, n_latents=2)
    T = np.random.default_rng(1).normal(size=(11, 2))
    predicted, cavity = np.array(problem.predicted(T)), problem.sweep
    assert not np.any(problem.index == np.arange(40)[:, None])
    for c in range(2):
        reference = dense(problem, c)
        expected = np.transpose([*map(reference.predict, T, problem.neighbours_of(T))])
        assert_allclose(predicted[:, c], expected, rtol=1e-10, atol=1e-10)
        left_out = np.transpose([*map(reference.cavity, range(40))])
        assert_allclose([cavity.mean[c], cavity.variance[c]], left_out, rtol=1e-8, atol=1e-8)


def full_moments(problem, T):
    """Means and variances of the full process, by Gaussian regression of the targets of the first latent function."""
    precision, linear = problem.sites[:, 0]
    noisy, across = problem.kernel(problem.X) + np.diag(1.0 / precision), problem.kernel(T, problem.X)
    variance = problem.kernel.diag(T) - np.sum(across * np.linalg.solve(noisy, across.T).T, axis=1)
    return across @ np.linalg.solve(noisy, linear / precision), variance


@every_kernel
def test_with_all_neighbours_predictions_and_cavities_are_those_of_the_full_process(kernel):
    """Nothing is left out, of q(z) as little as of the rest."""
    problem = Problem(kernel, n=40, k=40)
    precision, linear = problem.sites[:, 0]
    T = np.random.default_rng(1).normal(size=(11, 2))
    assert_allclose(np.array(problem.predicted(T))[:, 0], full_moments(problem, T), rtol=1e-8, atol=1e-8)
    cavity, inverse = problem.sweep, np.linalg.inv(problem.kernel(problem.X) + np.diag(1.0 / precision))
    # Leave-one-out predictions of targets, less their noise (Rasmussen and Williams, equation (5.12)).
    left_out = linear / precision - (inverse @ (linear / precision)) / np.diag(inverse)
    assert_allclose(cavity.mean[0], left_out, rtol=1e-7, atol=1e-7)
    assert_allclose(cavity.variance[0], 1.0 / np.diag(inverse) - 1.0 / precision, rtol=1e-7, atol=1e-7)


@every_kernel
@pytest.mark.parametrize("distance", [1e3, 1e6, 1e9, 1e12])
def test_far_from_all_rows_predictions_are_the_prior(kernel, distance):
    """Its own where covariances vanish with distance; else they are finite."""
    problem = Problem(kernel)
    posterior = problem.posterior(8)
    T = problem.X[:9] + distance * np.array([0.6, -0.8])
    mean, variance = posterior.marginals(T)
    assert np.all(np.isfinite(mean))
    assert np.all(variance >= 0.0)
    if not np.any(kernel(problem.X, T)):
        assert not np.any(mean)
        assert_allclose(variance, problem.kernel.diag(T), rtol=1e-12)


def test_sites_without_precision_say_nothing():
    """They leave the prior, though their targets and noise variances are infinite."""
    problem = Problem(KERNELS["matern-3/2"])
    problem.sites = np.zeros((2, 1, 60))
    T = problem.X[:9] + 0.1
    mean, variance = problem.predicted(T)
    assert np.array_equal(mean, np.zeros((1, 9)))
    assert_allclose(variance[0], problem.kernel.diag(T), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 8, 39])
def test_sweeps_that_share_covariances_are_those_of_one_sweep(k):
    problem = Problem(KERNELS["matern-3/2"], n=61, k=k, n_latents=2)
    shared = problem.local
    for factor in (1.0, 0.5):
        sites = np.array([factor * problem.sites[0], problem.sites[1]])
        alone, found = Sweep(replace(shared, blocks=None), sites), Sweep(shared, sites)
        assert np.array_equal(found.mean, alone.mean)
        assert np.array_equal(found.variance, alone.variance)


POINTS = [(2.5, 0.3), (-1.0, 9.0), (-12.0, 1.0), (-60.0, 4.0), (-60.0, 900.0), (40.0, 2500.0)]
# The logistic function is a mixture of normal distribution functions, whose error this is.
MIXTURE_ERROR = 2e-6


def moments_by_mpmath(link, t, v):
    """log E[p(y | f)] for f ~ N(t, v), and mean and variance of f given the label."""
    with mp.workdps(16):
        sd = mp.sqrt(v)
        # Breaks are where the prior is, where the likelihood bends, and where their product is for rare labels.
        if link == "logit":
            likelihood, shift, spread = lambda f: 1 / (1 + mp.exp(-f)), t + v, sd
        else:
            likelihood, shift, spread = mp.ncdf, t / (1 + v), mp.sqrt(v / (1 + mp.mpf(v)))
        around = (t, sd), (shift, spread), (0, mp.mpf(2) / 3)
        breaks = sorted({centre + j * scale for centre, scale in around for j in range(-12, 13, 2)})
        z, first, second = (
            mp.quad(lambda f, power=power: (f - t) ** power * likelihood(f) * mp.npdf(f, t, sd), breaks)
            for power in range(3)
        )
        return float(mp.log(z)), float(t + first / z), float(second / z - (first / z) ** 2)


@pytest.mark.parametrize("link", _sites.LINKS)
@pytest.mark.parametrize(("t", "v"), POINTS)
def test_cavities_and_sites_match_the_moments_of_the_tilted_distribution(link, t, v):
    # Far out, the slope of the normal tail's logarithm is nearly linear: its curvature is what cancels least.
    rtol = MIXTURE_ERROR if link == "logit" else 1e-10 * (10.0 + t * t / (1.0 + v))
    value, mean, variance = moments_by_mpmath(link, t, v)
    for y in (1.0, -1.0):
        arguments = np.array([y * t]), np.array([v]), np.array([y])
        (found,), (d_mean,), (d_variance,) = _sites.cavity_scores(_sites.LINKS[link], *arguments)
        assert found == pytest.approx(value, rel=rtol, abs=rtol)
        # The derivatives of log E are what the moments of the tilted distribution differ by from the cavity's.
        shift, shrink = (mean - t) / v, (variance - v) / v**2
        assert d_mean == pytest.approx(y * shift, rel=20 * rtol, abs=rtol)
        assert d_variance == pytest.approx(0.5 * (shrink + shift**2), rel=20 * rtol, abs=rtol)
        (precision,), (linear,) = _sites.cavity_sites(_sites.LINKS[link], *arguments)
        combined = 1.0 / (1.0 / v + precision)
        assert combined == pytest.approx(variance, rel=20 * rtol * max(1.0, v))
        assert combined * (y * t / v + linear) == pytest.approx(y * mean, rel=20 * rtol, abs=20 * rtol * max(1.0, v))
        assert precision > 0.0


@pytest.mark.parametrize("v", [6e3, 1e5, 1e6])
def test_far_logit_cavities_of_huge_variances_do_not_underflow(v):
    """Towards the tilted branch the normal tails are below the smallest double: their ratios are not."""
    t = -0.499999 * v
    (value,), (slope,), _ = _sites.cavity_scores(_sites.LINKS["logit"], np.array([t]), np.array([v]), np.ones(1))
    # E[sigma(f)] at t = -v / 2 is E of a logistic function under exp(f / 2): the normal density at 0 times pi.
    assert_allclose(value, -0.125 * v + np.log(np.pi) - 0.5 * np.log(2.0 * np.pi * v), rtol=1e-4)
    assert_allclose(slope, 0.5, atol=1e-2)


@pytest.mark.parametrize("link", _sites.LINKS)
def test_vjp_is_the_derivative_of_the_sites(link):
    rng, code = np.random.default_rng(0), _sites.LINKS[link]
    n = 200
    mean, variance = 4.0 * rng.normal(size=n), np.exp(1.5 * rng.normal(size=n))
    y, by_sites = np.where(rng.random(n) < 0.5, 1.0, -1.0), rng.normal(size=(2, n))

    def value(mean, variance):
        return np.sum(by_sites * _sites.cavity_sites(code, mean, variance, y), axis=0)

    d_mean, d_variance = _sites.cavity_vjp(code, mean, variance, y, *by_sites)
    assert_allclose(d_mean, derivative(lambda s: value(mean + s, variance), 1e-4), rtol=1e-6, atol=1e-8)
    relative = derivative(lambda s: value(mean, variance * (1.0 + s)), 1e-4)
    assert_allclose(d_variance * variance, relative, rtol=1e-6, atol=1e-8)


# One inducing point that no row has a covariance with: nothing but neighbours.
FAR = {"Z": np.full((1, 2), 1e6)}


@pytest.mark.parametrize(
    ("name", "weighted", "m"),
    [("rbf", False, 5), ("rbf", True, 30), ("matern-1/2", True, 0), ("matern-1/2", False, 30), ("white", True, 5)],
)
@pytest.mark.parametrize("link", _sites.LINKS)
def test_with_all_neighbours_it_is_expectation_propagation(name, link, weighted, m):
    """Of the full process, whatever the m inducing points: of weight w, a row is w rows, of which the cavity keeps all
    but one."""
    weight = np.random.default_rng(3).integers(1, 4, 60).astype(float) if weighted else None
    problem = Problem(KERNELS[name], n=60, k=60, name=link, weight=weight, **{"m": m} if m else FAR)
    sweeps = problem.swept(1e-9)
    moments = partial(tilted_moments, link) if link == "logit" else probit_moments
    K = problem.kernel(problem.X)
    precision, linear, _, _ = expectation_propagation(K, problem.y, moments, 1.0 if weight is None else weight)
    rtol = 20 * MIXTURE_ERROR if link == "logit" else 1e-7
    assert_allclose(sweeps.sites[0][0], precision, rtol=rtol)
    assert_allclose(sweeps.sites[1][0], linear, rtol=rtol, atol=rtol)
    T = np.random.default_rng(1).normal(size=(30, 2))
    (mean,), (variance,) = problem.predicted(T)
    expected = full_moments(problem, T)
    assert_allclose(mean, expected[0], rtol=1e-6, atol=1e-6)
    assert_allclose(variance, expected[1], rtol=1e-6)


PARTS = {
    "halves": (1.0, [0.5, 0.5]), "uneven": (1.0, [0.15, 0.6, 0.25]), "of less than one": (0.4, [0.3, 0.1]),
    "of more than one": (2.5, [2.0, 0.5]), "many": (1.2, [0.3, 0.3, 0.3, 0.3]),
}  # fmt: skip


@pytest.mark.parametrize(("weight", "shares"), PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("link", _sites.LINKS)
@pytest.mark.parametrize("variance", [2.0, 1e4])
def test_a_row_is_its_parts_whose_weights_sum_to_its_own(weight, shares, link, variance):
    """A tenth of the rows twice with different labels, which are divided, too."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 2))
    X[:4] = X[4:8]
    y = np.where(np.sin(3.0 * X[:, 0]) + 0.5 * rng.normal(size=40) > 0.0, 1.0, -1.0)
    y[:4] = -y[4:8]
    kernel, T, found = C(variance) * Matern(0.8, nu=1.5), rng.normal(size=(20, 2)), []
    for copies, weights in ((1, [weight]), (len(shares), shares)):
        rows = {"X": np.repeat(X, copies, axis=0), "y": np.repeat(y, copies), "weight": np.tile(weights, 40)}
        problem = Problem(kernel, k=len(rows["X"]), name=link, **rows, **FAR)
        assert not np.any(problem.rows.a)
        # Log probabilities here are some hundred nats, with rounding errors of 1e-7.
        problem.swept(1e-6)
        found.append(problem.predicted(T))
    (mean, variance), (mean_of_parts, variance_of_parts) = found
    assert_allclose(mean_of_parts, mean, rtol=1e-3, atol=1e-3)
    assert_allclose(variance_of_parts, variance, rtol=1e-3)


@pytest.mark.parametrize("variance", [1.0, 1e2, 6e4])
def test_sweeps_end_near_their_limit_whatever_the_variance(variance):
    """Beside a large variance sites are so small that their changes alone would say nothing."""
    problem = Problem(C(variance) * Matern([0.5, 2.0], nu=0.5), n=800, m=6, k=10)
    T = np.random.default_rng(0).normal(size=(400, 2))
    found = []
    for tol in (None, 1e-9):
        problem.swept(tol)
        mean, spread = problem.predicted(T)
        found.append(log_expit(mean / np.sqrt(1.0 + np.pi / 8.0 * spread)))
    assert np.mean(np.abs(found[0] - found[1])) < 0.005


@pytest.mark.parametrize("link", _sites.LINKS)
def test_converged_sites_are_those_of_their_own_cavities(link):
    """The fixed point, with inducing points and a few neighbours, from any start."""
    problem = Problem(KERNELS["sum"], n=150, k=10, m=8, name=link)
    found = [problem.swept(1e-9, factor=factor) for factor in (3.0, 0.0, 1.0)]
    for sites in (problem.sweep.sites(), *(sweeps.sites for sweeps in found)):
        assert_allclose(sites, problem.sites, rtol=1e-6, atol=1e-7)


@every_kernel
def test_joint_covariance_is_that_of_the_errors(kernel):
    problem = Problem(kernel, n=120, m=6, k=9)
    posterior = problem.posterior(9)
    T = np.random.default_rng(1).normal(size=(40, 2))
    covariance, (_, variance) = posterior.covariance(T), posterior.marginals(T)
    expected = dense(problem).joint_covariance(T, problem.neighbours_of(T))
    assert_allclose(np.diag(expected), variance, rtol=1e-9, atol=1e-9)
    assert_allclose(covariance, expected, rtol=1e-8, atol=1e-9)
    assert np.array_equal(covariance, covariance.T)
    assert np.array_equal(np.diag(covariance), variance)
    assert np.linalg.eigvalsh(covariance)[0] > -1e-9 * variance.max()


def test_scores_and_sites_of_several_classes_are_expectations_over_the_latent_values():
    rng = np.random.default_rng(1)
    mean, variance, y = rng.normal(size=(4, 5)), rng.gamma(1.0, 0.3, (4, 5)), rng.integers(0, 4, 5).astype(float)
    values = mean[..., None] + np.sqrt(variance)[..., None] * rng.normal(size=(4, 5, 100_000))
    p = np.exp(values - values.max(axis=0))
    p /= p.sum(axis=0)
    site, n = record_of("softmax", "exact").site(4), p.shape[2]

    def agrees(found, samples, nodes_error):
        return np.all(np.abs(found - samples.mean(axis=-1)) < 4.0 * samples.std(axis=-1) / np.sqrt(n) + nodes_error)

    scores, _ = site.record.cavity.scores(site, mean, variance, y)
    assert agrees(np.exp(scores), p[y.astype(int), np.arange(5)], 5e-3)
    precision, linear = site.record.cavity.sites(site, mean, variance, y)
    assert agrees(precision, p * (1.0 - p), 5e-3)
    is_label = np.arange(4)[:, None] == y
    # Of latent values less their mean over the classes, which changes no probability.
    assert agrees(is_label - linear + precision * (mean - mean.mean(axis=0)), p, 5e-3)


@pytest.mark.parametrize("variance", [2.0, 1e3])
@pytest.mark.parametrize("m", [0, 6])
def test_with_all_neighbours_several_classes_have_the_posterior_of_the_full_process(variance, m):
    """Whatever the inducing points: means and variances of the full bound's optimum."""
    X, classes = labelled(60, seed=3)
    weight, T = np.random.default_rng(0).uniform(0.3, 2.0, 60), np.random.default_rng(1).normal(size=(20, 2))
    kernel = C(variance) * Matern(0.8, nu=1.5)
    points = {"Z": X[:m]} if m else FAR
    problem = Problem(kernel, k=60, X=X, y=classes.astype(float), weight=weight, name="softmax", **points)
    problem.swept(1e-7)
    rows, start = training(X, problem.y, weight, 3), full_prior(X, [kernel]).at_prior(3)
    full, *_ = ascended(rows, start, problem.site, tol=1e-10, max_iter=3000)
    for mine, theirs in zip(problem.predicted(T), full.marginals(T), strict=True):
        assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


def test_a_fit_of_several_classes_with_a_number_of_neighbours():
    (X, y), (new, y_new) = moons(300), moons(2000, seed=1)
    y, y_new = y + (X[:, 0] > 1.0), y_new + (new[:, 0] > 1.0)
    model = quietly(GPClassifier(n_neighbors=5, n_inducing=10, max_iter=3, random_state=0), X, y)
    assert model.n_neighbors_ == 5
    # By default the fit chooses: with so few points, 24 neighbours, which predict other rows better than none.
    few = GPClassifier(n_inducing=5, max_iter=3, random_state=0)
    auto, none = (quietly(clone(few).set_params(n_neighbors=k), X, y) for k in ("auto", 0))
    assert (auto.n_neighbors_, none.n_neighbors_) == (24, 0)
    assert losses(auto, new, y_new).mean() < losses(none, new, y_new).mean() - 0.01
    assert model.posterior_.precision.shape == (3, 300)
    mean, covariance = model.predict_latent(X[:20], return_cov=True)
    assert mean.shape == (20, 3)
    assert np.linalg.eigvalsh(np.moveaxis(covariance, -1, 0)).min() > -1e-9
    assert_allclose(np.einsum("iic->ic", covariance), model.predict_latent(X[:20])[1], rtol=1e-9)
    probabilities = model.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(probabilities.argmax(axis=1) == y) > 0.9


@pytest.mark.parametrize("name", ["logit", "probit", "softmax"])
def test_rows_of_weight_zero_are_predicted_and_change_nothing(name):
    """With all rows as neighbours: sites and predictions are those of the other rows alone."""
    rng, n, n_held_out = np.random.default_rng(0), 30, 6
    X, kept = rng.normal(size=(n, 2)), slice(n_held_out, n)
    y = rng.integers(0, 3, n).astype(float) if name == "softmax" else np.where(rng.random(n) < 0.5, -1.0, 1.0)
    given = {"k": n, "Z": rng.normal(size=(5, 2)), "name": name}
    whole = Problem(KERNELS["matern-3/2"], X=X, y=y, weight=(np.arange(n) >= n_held_out).astype(float), **given)
    alone = Problem(KERNELS["matern-3/2"], X=X[kept], y=y[kept], **given)
    found, expected = whole.swept(1e-10), alone.swept(1e-10)
    assert not np.any(found.sites[..., :n_held_out])
    assert_allclose(found.sites[..., kept], expected.sites, rtol=1e-6, atol=1e-7)
    (mean, variance), (mean_alone, variance_alone) = found.predicted, alone.predicted(X[:n_held_out])
    assert_allclose(centred(mean[:, :n_held_out]), centred(mean_alone), rtol=1e-6, atol=1e-7)
    assert_allclose(variance[:, :n_held_out], variance_alone, rtol=1e-6, atol=1e-7)


def centred(mean):
    """Without what labels do not determine of several classes: the average over these."""
    return mean - np.mean(mean, axis=0) if len(mean) > 1 else mean


@pytest.mark.parametrize("seed", range(5))
def test_labels_beside_which_the_prior_is_below_rounding_have_a_posterior(seed):
    """Of rows that almost coincide: in some directions their precisions are 1e19 times as large as the prior's."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, 60)) * 10.0 ** rng.uniform(0.0, 9.5, size=(30, 1))
    q = Coefficients.given(np.ones((1, 60)), (rows.T @ rows)[None])
    assert np.all(np.isfinite(q.w))
    assert_allclose(q.V[0], q.V[0].T, rtol=0.0, atol=1e-12)
    # No direction is less certain than under the prior.
    eigenvalues = np.linalg.eigvalsh(q.V[0])
    assert np.all((eigenvalues > -1e-9) & (eigenvalues < 1.0 + 1e-9))
