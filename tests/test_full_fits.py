"""Fits of the full Gaussian process: invariances, learning, files, warm starts and faults."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, PairwiseKernel, WhiteKernel
from support.dense import SMOOTH, assert_all_near, assert_near, classifier, fixed_point, gibbs_mackay, labelled
from support.fits import quietly, refuses
from support.internals import Executor
from support.latents import cases
from support.reference import moons

from xgpc import GPClassifier
from xgpc.likelihoods import MULTI_CLASS


def outcome(model, new):
    """All that a fit gives that does not depend on the order of the rows."""
    return [
        model.elbo_,
        *np.concatenate([kernel.theta for kernel in np.atleast_1d(model.kernel_)]),
        *model.predict_latent(new),
        model.predict_proba(new),
    ]


def data(n, seed, likelihood):
    """Rows with labels of three classes, or of two where a likelihood has no more."""
    X, y = labelled(n, seed)
    return X, y if likelihood in MULTI_CLASS else np.minimum(y, 1)


KEYS = [("logit", "exact"), ("step", "additive-noise"), ("softmax", "exact")]
EVERY_CASE = pytest.mark.parametrize(("likelihood", "bound"), KEYS)


@EVERY_CASE
@pytest.mark.parametrize(("noise", "optimizer"), [(None, "profile"), (0.5, None), (0.5, "profile")])
def test_repeated_rows_count_as_weights(likelihood, bound, optimizer, noise):
    X, y = data(18, 5, likelihood)
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    new = X[:4] + 0.2
    # None is the default kernel, whose start depends on the rows.
    kernel = None if noise is None else SMOOTH + WhiteKernel(noise)
    options = {} if optimizer is None else {"max_iter": 6, "tol": 1e-3}
    model = classifier(kernel, likelihood=likelihood, bound=bound, optimizer=optimizer, **options)
    weighted = quietly(clone(model), X, y, sample_weight=counts)
    repeated = quietly(clone(model), np.repeat(X, counts, axis=0), np.repeat(y, counts))
    both = quietly(clone(model), np.repeat(X, 2, axis=0), np.repeat(y, 2), sample_weight=np.repeat(counts / 2, 2))
    assert np.array_equal(repeated.inducing_points_, np.unique(X, axis=0))
    assert np.array_equal(weighted.inducing_points_, repeated.inducing_points_)
    assert_all_near(outcome(repeated, new), outcome(weighted, new), 1e-7)
    assert_all_near(outcome(both, new), outcome(weighted, new), 1e-7)


@EVERY_CASE
@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.2)], ids=["distinct", "noise"])
def test_the_order_of_the_rows_does_not_matter(likelihood, bound, kernel):
    X, y = data(24, 6, likelihood)
    X, y = np.vstack([X, X[:5]]), np.append(y, y[5:10])
    model = classifier(kernel, likelihood=likelihood, bound=bound)
    expected = outcome(clone(model).fit(X, y), X[:6] + 0.1)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        assert_all_near(outcome(clone(model).fit(X[order], y[order]), X[:6] + 0.1), expected, 1e-7)


THREE_CLASSES = [("softmax", "exact", "none"), ("multinomial-probit", "additive-noise", "none")]


@cases([*((*key, "kernel") for key in KEYS), *THREE_CLASSES])
def test_no_bit_depends_on_the_number_of_threads(likelihood, bound, share, monkeypatch, tuned):
    X, y = data(70, 7, likelihood)
    options = {"likelihood": likelihood, "bound": bound, "share": share, "max_iter": 3, "tol": 1e-3}
    options |= {"optimizer": "profile" if likelihood in ("logit", "softmax") else None}
    model = classifier(SMOOTH + WhiteKernel(0.1) * DotProduct(0.5), **options)
    alone = quietly(clone(model), X, y)
    tuned(parallel_work=0, block_rows=16, tile_rows=7)
    submit, started = Executor.submit, []
    monkeypatch.setattr(Executor, "submit", lambda self, *task: started.append(self.n_threads) or submit(self, *task))
    fits = [quietly(clone(model).set_params(n_jobs=n_jobs), X, y) for n_jobs in (1, 2, 3)]
    assert set(started) == {2, 3}
    first, *others = (outcome(fit, X[:40] + 0.1) for fit in fits)
    for other in others:
        np.testing.assert_equal(other, first)
    assert_all_near(first, outcome(alone, X[:40] + 0.1), 1e-7)


def test_white_noise_is_each_rows_own():
    """Equal rows have one latent value without noise; each row, a new one too, adds s^2 to the variance of its own."""
    X, _ = labelled(10, seed=9, n_classes=2)
    rows = np.repeat(X, [1, 3, 1, 2, 1, 4, 1, 1, 2, 1], axis=0)
    labels = np.random.default_rng(0).permuted(np.repeat([0, 1], [8, 9]))
    y, s2 = 2.0 * labels - 1.0, 0.7
    model = classifier(SMOOTH + WhiteKernel(s2), bound="polya-gamma").fit(rows, labels)
    value, mean, variance = fixed_point(SMOOTH(rows), y, noise=s2)
    distinct, order = np.unique(rows, axis=0, return_index=True)
    assert np.array_equal(model.inducing_points_, distinct)
    assert model.elbo_ == pytest.approx(value, rel=1e-9)
    assert_near(model.posterior_.mean[0], mean[order], 1e-6)
    assert_near(model.posterior_.variance[0], variance[order], 1e-6)
    new = np.vstack([rows[:3], X[:4] + 0.1])
    c = np.sqrt(mean**2 + variance + s2)
    S = SMOOTH(rows) + np.diag(2 * c / np.tanh(c / 2))
    k = SMOOTH(new, rows)
    explained = k @ np.linalg.solve(S, k.T)
    # The pseudo-observation of a row is y / (2 theta).
    latent, covariance = model.predict_latent(new, return_cov=True)
    assert_near(latent, k @ np.linalg.solve(S, y * c / np.tanh(c / 2)), 1e-6)
    assert_near(covariance, SMOOTH(new) + s2 * np.eye(len(new)) - explained, 1e-6)
    assert_near(model.predict_latent(new)[1], np.diag(covariance), 1e-12)
    assert model.elbo(rows, labels) == pytest.approx(model.elbo_, rel=1e-10)


def test_profile_finds_the_maximum_over_kernel_parameters():
    """That of Gibbs and MacKay's bound over c and theta together, by L-BFGS with differences of dense formulas."""
    X, classes = moons(32)
    X = np.vstack([X, X[:4]])
    classes = np.append(classes, 1 - classes[:4])
    y, kernel = 2.0 * classes - 1.0, ConstantKernel(1.0, (1e-3, 1e4)) * RBF(2.0, (1e-2, 1e2))
    model = classifier(kernel, bound="polya-gamma", optimizer="profile", tol=1e-8, max_iter=2000).fit(X, classes)
    distances = np.sum((X[:, None] - X) ** 2, axis=2)
    # Of the logarithms of variance and length scale, and of c.
    found = minimize(
        lambda v: -gibbs_mackay(v[2:], np.exp(v[0] - 0.5 * np.exp(-2.0 * v[1]) * distances), y)[0],
        np.concatenate([kernel.theta, np.ones(len(y))]), method="L-BFGS-B", jac="3-point",
        bounds=[(-6.9, 9.2), (-4.6, 4.6)] + [(1e-3, None)] * len(y),
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
    given_kernel = classifier(None, likelihood=likelihood, share=share, tol=1e-4).fit(X, y)
    learned = quietly(clone(given_kernel).set_params(optimizer="profile", max_iter=15, subset_sizes=[10]), X, y)
    rows = np.unique(X, axis=0)
    separate = share == "none"
    assert learned.elbo_ > given_kernel.elbo_ + 1.0
    assert isinstance(learned.kernel_, list) == separate
    assert np.array_equal(learned.inducing_points_, np.stack([rows] * 3) if separate else rows)
    assert learned.jitter_ == 0.0
    # All rows are in use from the start, whatever the subsets.
    assert set(learned.history_["n_rows"]) == {len(X)}
    assert set(learned.history_["n_inducing"]) == {len(rows)}


SPARSE = {"inducing_points": "kmeans", "n_inducing": 8}
# What a first and a second fit have, and how many of the rows of the first are among those of the second.
WARM = {"more rows": ({}, {}, 24), "up": (SPARSE, {}, 24), "down": ({}, SPARSE, 24)}
WARM |= {"other rows": ({}, {}, 0), "down, other rows": ({}, SPARSE, 0)}


@pytest.mark.parametrize("kernel", [SMOOTH, SMOOTH + WhiteKernel(0.2)], ids=["distinct", "noise"])
@pytest.mark.parametrize(("likelihood", "share"), [("logit", "kernel"), ("softmax", "kernel"), ("softmax", "none")])
@pytest.mark.parametrize("kind", WARM)
def test_warm_starts_end_where_cold_ones_do(likelihood, share, kernel, kind):
    first, second, kept = WARM[kind]
    X, y = data(60, 12, likelihood)
    new = X[:5] + 0.1
    model = classifier(kernel, likelihood=likelihood, share=share, warm_start=True)
    model.set_params(**first).fit(X[:24], y[:24])
    X, y = X[24 - kept : 60 - kept], y[24 - kept : 60 - kept]
    model.set_params(**{"inducing_points": "all"} | second).fit(X, y)
    cold = clone(model).set_params(warm_start=False).fit(X, y)
    # Of a full process these are diagonals.
    assert model.posterior_.eta[0].shape == cold.posterior_.eta[0].shape
    assert np.array_equal(model.inducing_points_, cold.inducing_points_)
    assert_all_near(outcome(model, new), outcome(cold, new), 1e-5)
    assert model.elbo_ == pytest.approx(cold.elbo_, rel=1e-10)


def refuses_in_each_state(model, X, y, message):
    for each in (model, classifier().fit(X[:20], y[:20]).set_params(**model.get_params())):
        refuses(message, each.fit, X, y)


NOT_FULL = [{"optimizer": "joint", "bound": "polya-gamma"}, {"optimizer": "stochastic"}, {"batch_size": 10}]


@pytest.mark.parametrize("options", NOT_FULL, ids=str)
def test_other_optimizers_and_mini_batches_are_refused(options):
    X, y = labelled(30, n_classes=2)
    refuses_in_each_state(classifier(**options), X, y, f"inducing_points='all'.* {next(iter(options))} must be ")


@pytest.mark.parametrize("share", ["kernel", "none"])
def test_too_many_distinct_rows_are_refused(share, tuned):
    tuned(full_rows=25)
    X, y = labelled(30, seed=14)
    match = "inducing_points='all' allows 25 distinct rows, got 30. Take inducing points"
    refuses_in_each_state(classifier(share=share), X, y, match)
    # Rows that are repeated count once, with noise or without.
    X, y = np.repeat(X[:20], 2, axis=0), np.repeat(y[:20], 2)
    for kernel in (SMOOTH, SMOOTH + WhiteKernel()):
        assert classifier(kernel, share=share).fit(X, y).posterior_.prior.n_inducing == 20


HUGE = ConstantKernel(1e300)


@pytest.mark.parametrize("kernel", [HUGE * HUGE * RBF(), DotProduct() ** 50 * HUGE], ids=str)
def test_covariances_that_are_not_finite_are_refused(kernel):
    X, y = labelled(30, n_classes=2)
    refuses_in_each_state(classifier(kernel), 1e6 * X, y, "is not finite; kernel: .* Scale the features")


def test_conjugate_gradients_end_where_rounding_leaves_no_curvature():
    """A linear kernel of a huge variance: three classes that it cannot separate."""
    X, y = moons(40)
    params = {"likelihood": "softmax", "inducing_points": "all", "optimizer": None, "max_iter": 30}
    model = quietly(GPClassifier(1e5 * DotProduct(), **params), X, np.where(X[:, 0] > 0.0, 2, y))
    assert np.isfinite(model.elbo_)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-9)


@EVERY_CASE
def test_few_rows_learn_as_a_full_process_does(likelihood, bound):
    """If all rows are inducing points, a fit has the same kernel and bound, and is of inducing points all the same."""
    X, y = data(60, 3, likelihood)
    model = GPClassifier(SMOOTH, likelihood=likelihood, bound=bound, tol=1e-7, max_iter=300, random_state=0)
    full = quietly(clone(model).set_params(inducing_points="all"), X, y)
    quietly(model, X, y)
    assert (model.inducing_points_.shape, model.jitter_, full.jitter_) == (X.shape, 1e-6, 0.0)
    assert model.elbo_ == pytest.approx(full.elbo_, rel=1e-4)
    assert_near(model.kernel_.theta, full.kernel_.theta, 1e-3)
    assert_near(model.predict_proba(X + 0.1), full.predict_proba(X + 0.1), 1e-3)
    # Inducing points can take further rows.
    model.partial_fit(X[:2] + 3.0, y[:2])


def test_a_full_process_is_that_of_all_rows_and_its_kernels_noise_is_known():
    """Learning has inducing points where they only look like all rows, and where a kernel of one's own has noise."""

    class Noisy(PairwiseKernel):
        def __call__(self, X, Y=None, eval_gradient=False):
            K = super().__call__(X, Y)
            return K + np.diag(self.diag(X) - 1.0) if Y is None else K

        def diag(self, X):
            return 1.1 + X[:, 0] ** 2

    X, y = data(40, 1, "logit")
    repeated = quietly(GPClassifier(SMOOTH, inducing_points=np.repeat(X[:4], 12, axis=0), random_state=0), X, y)
    assert repeated.elbo_ > quietly(GPClassifier(SMOOTH, inducing_points=X[:4], random_state=0), X, y).elbo_ - 1.0
    kernel = ConstantKernel(2.0) * Noisy(metric="laplacian")
    own = quietly(GPClassifier(kernel, random_state=0), X, y)
    given = quietly(GPClassifier(own.kernel_, optimizer=None, random_state=0), X, y)
    start = quietly(GPClassifier(kernel, optimizer=None, random_state=0), X, y)
    assert own.elbo_ == pytest.approx(given.elbo_, abs=0.01)
    assert own.elbo_ >= start.elbo_ - 0.01


def test_subsets_of_few_rows_are_followed():
    X, y = data(60, 3, "logit")
    some, whole = (quietly(GPClassifier(SMOOTH, subset_sizes=sizes, random_state=0), X, y) for sizes in ([30], None))
    assert 30 in some.history_["n_rows"]
    assert abs(some.kernel_.theta - whole.kernel_.theta).max() > 0.01
