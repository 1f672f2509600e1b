"""The full Gaussian process, inducing_points="all": against dense formulas, the sparse code at Z = X, and itself."""

from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, RationalQuadratic, WhiteKernel
from support import internals
from support.dense import (
    SMOOTH,
    assert_all_near,
    assert_near,
    classifier,
    differences,
    full_prior,
    gibbs_mackay,
    kernel_trees,
    labelled,
    magnitude,
    points_apart,
)
from support.latents import CASES, cases, marginals, seeds
from support.reference import DenseModel, divergence
from support.training import rebuilt, sites_of, softmax_curvatures, thetas, training

from xgpc.likelihoods import MULTI_CLASS, RECORDS, record_of

# Covariance matrices that have inverses in double precision.
NOISY, PRODUCT = ConstantKernel(1.5) * RBF(0.3) + WhiteKernel(0.2), RationalQuadratic(0.7, 1.5) * DotProduct(1.0)
THREE_KERNELS = (SMOOTH, NOISY, PRODUCT)


def ascend(rows, q, site, tol=1e-13):
    found = internals.coordinate_ascent(rows, q, site, tol=tol, max_iter=5000, history=internals.History())
    assert found.converged
    return found.point


def dense(kernel, Z, precision, linear, new=None):
    """N(Sigma r, Sigma), Sigma = (K^-1 + diag(lambda))^-1, at Z or new rows.

    K is without noise, which scikit-learn leaves out of covariances of two sets of rows; each new row has its own.
    """
    at = DenseModel(kernel, kernel.diag, 0.0, Z if new is None else new, Z, None)
    at.eta_1, at.eta_2 = linear, -0.5 * (at.K_inverse + np.diag(precision))
    return at


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
    "one with noise": ([NOISY], ()),
    "several of one kernel": ([PRODUCT], (3,)),
    "several of their own": (THREE_KERNELS, (3,)),
}


@pytest.mark.parametrize("share_negative", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("choice", CHOICES)
@settings(max_examples=5)
@given(seed=seeds, n=st.integers(1, 14), d=st.integers(1, 3))
def test_posterior_is_the_textbooks(choice, share_negative, seed, n, d):
    kernels, shape = CHOICES[choice]
    random = np.random.default_rng(seed)
    Z, new = points_apart(random, n, d), random.normal(size=(5, d))
    prior = full_prior(Z, kernels)
    latents = list(kernels) * (3 if shape and len(kernels) == 1 else 1)
    sites = []
    for _ in range(2):
        precision = np.array([proper_precisions(random, kernel(Z, Z), share_negative) for kernel in latents])
        sites.append((precision, random.normal(size=precision.shape)))
    q, p = (prior.posterior(site) for site in sites)
    models, others = ([dense(*args, new) for args in zip(latents, [Z] * 3, *site, strict=False)] for site in sites)

    assert (q.shape, q.n_latents) == (shape, 3 if shape else 1)
    assert_near(q.mean, [one.moments[0] for one in models], 1e-8)
    assert_near(q.variance, [np.diag(one.moments[1]) for one in models], 1e-8)
    assert_near(q.alpha, [one.K_inverse @ one.moments[0] for one in models], 1e-8)
    for one, factor in zip(models, q.factors, strict=True):
        mean, Sigma = one.moments
        M = one.K_inverse - one.K_inverse @ Sigma @ one.K_inverse
        tolerance = 1e-8 * np.abs(one.K_inverse).max()
        np.testing.assert_allclose(factor.H.T @ factor.H - factor.N.T @ factor.N, M, atol=tolerance)
        np.testing.assert_allclose(factor.times(mean), M @ mean, atol=tolerance * np.abs(mean).sum())
    for found, each in zip(q.marginals(new), marginals(models), strict=True):
        assert_near(found.reshape(-1, 5), each, 1e-8)
    covariances = [
        kernel(new) + one.kappa @ (one.moments[1] - one.K_mm) @ one.kappa.T
        for kernel, one in zip(latents, models, strict=True)
    ]
    assert_near(q.covariance(new).reshape(-1, 5, 5), covariances, 1e-8)
    assert q.kl == pytest.approx(sum(divergence(*one.moments, 0.0, one.K_mm) for one in models), rel=1e-8, abs=1e-8)
    squares = sum(one.moments[0] @ one.K_inverse @ one.moments[0] for one in models)
    assert q.squared_norm == pytest.approx(squares, rel=1e-8)
    expected = sum(divergence(*one.moments, *two.moments) for one, two in zip(models, others, strict=True))
    assert q.kl_to(p) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert q.kl_to(q) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("choice", CHOICES)
@settings(max_examples=5)
@given(seed=seeds, n=st.integers(1, 14), n_positive=st.integers(0, 13))
def test_there_is_no_posterior_from_where_its_precision_is_singular(choice, seed, n, n_positive):
    """Negative sites grow in proportion until an eigenvalue of K^-1 + diag(lambda) crosses zero, which eigvalsh tells.

    Of several latent functions one is enough.
    """
    kernels, shape = CHOICES[choice]
    random = np.random.default_rng(seed)
    Z = points_apart(random, n, 2)
    prior, K = full_prior(Z, kernels), kernels[-1](Z, Z)
    growing = np.arange(n) >= min(n_positive, n - 1)
    size = random.uniform(0.2, 2.0, n)
    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(size * ~growing))[np.ix_(growing, growing)]
    critical = 1.0 / np.linalg.eigvalsh(np.sqrt(size[growing])[:, None] * Sigma * np.sqrt(size[growing])).max()
    for factor in (0.5, 1.0 - 1e-5, 1.0 + 1e-5, 2.0, 1e3):
        precision = np.where(growing, -factor * critical * size, size)
        sites = np.stack([np.full(n, 0.5), np.zeros(n), precision] if shape else [precision])
        q = prior.posterior((sites, np.ones(sites.shape)))
        smallest = np.linalg.eigvalsh(np.linalg.inv(K) + np.diag(precision)).min()
        assert (q is None) == (smallest <= 0.0) == (factor > 1.0)
        if q is not None:
            mean, Sigma = dense(kernels[-1], Z, precision, np.ones(n)).moments
            assert_near(q.variance[-1], np.diag(Sigma), 1e-5)
            assert_near(q.mean[-1], mean, 1e-5)


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
    prior = internals.FullPrior.build(internals.KernelSpec(ConstantKernel(variance) * RBF(length_scale), 2), Z)
    precision, linear = random.uniform(0.02, 1.0, 8), random.normal(size=8)
    precision[0], precision[1] = 1.0, least
    new = np.vstack([Z[:2] + 0.1, random.normal(size=(3, 2))])
    q = prior.posterior((precision[None], linear[None]))
    assert prior.jitter == 0.0
    assert np.linalg.matrix_rank(prior.K) < 8
    for rows, of_rows in ((Z, (q.mean[0], q.variance[0])), (Z, q.marginals(Z)), (new, q.marginals(new))):
        cross, diagonal = prior.core.cross(rows), prior.core.diagonals(rows)
        mean, latent_variance, half_log_det = exactly(prior.K, cross, diagonal, precision, linear)
        assert_near(of_rows[0], mean, 1e-8)
        np.testing.assert_allclose(of_rows[1], latent_variance, rtol=1e-8, atol=1e-14 * variance)
    expected = half_log_det + 0.5 * (q.alpha[0] @ q.mean[0] - precision @ q.variance[0])
    assert q.kl == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(q.alpha[0], linear - precision * q.mean[0], atol=1e-7)
    np.testing.assert_allclose(q.variance[0, [5, 6]], q.variance[0, [1, 2]], rtol=1e-8)
    np.testing.assert_allclose(np.diag(q.covariance(new)), q.marginals(new)[1], rtol=1e-8, atol=1e-14 * variance)


@pytest.mark.parametrize("bound", ["exact", "additive-noise"])
@pytest.mark.parametrize("share", ["kernel", "none"])
def test_mean_of_softmax_solves_the_newton_system(bound, share, tuned):
    """(K^-1 + sum_i H_i) mean = sum_i g_i + H_i m_i, at the latent values of rows of which some are equal."""
    tuned(measured_steps=internals.MEASURED._replace(cg_tol=1e-12), softmax_iterations=500)
    X, classes = labelled(8, seed=15)
    random, place = np.random.default_rng(0), np.append(np.arange(8), [1, 1, 4])
    Z, place = np.unique(X, axis=0), np.unique(X[place], axis=0, return_inverse=True)[1].ravel()
    X, y, weight = Z[place], random.permutation(np.resize(classes, 11)).astype(float), random.uniform(0.3, 2.0, 11)
    kernels = THREE_KERNELS if share == "none" else [SMOOTH] * 3
    prior = full_prior(Z, kernels if share == "none" else [SMOOTH])
    site, rows = record_of("softmax", bound).site(3), training(X, y, weight, n_latents=3)
    q = prior.posterior((random.uniform(0.0, 1.0, (3, 8)), random.normal(size=(3, 8))))
    point = internals.update(rows, q, site)
    precision, linear = internals.steps_from(rows, point)(1.0).eta
    rate = internals.MEASURED.precision_rate
    np.testing.assert_allclose(precision, q.precision + rate * (point.target[0] - q.precision))
    point_sites = sites_of(rows, q, site)
    g, H = softmax_curvatures(point_sites, y, weight)
    system, right = np.zeros((3, 8, 3, 8)), np.zeros((3, 8))
    for i, k in enumerate(place):
        system[:, k, :, k] += H[i]
        right[:, k] += g[:, i] + H[i] @ point_sites[0][:, i]
    for c, kernel in enumerate(kernels):
        system[c, :, c] += np.linalg.inv(kernel(Z, Z))
    expected = np.linalg.solve(system.reshape(24, 24), right.ravel()).reshape(3, 8)
    assert_near(prior.posterior((precision, linear)).mean, expected, 1e-8)


@pytest.mark.parametrize(
    ("likelihood", "bound", "share", "noise"),
    [(*case, noise) for i, case in enumerate(CASES) for noise in (None, (0.4, "of each row")[i % 2])],
)
def test_equals_the_sparse_code_with_an_inducing_point_at_each_row(likelihood, bound, share, noise, tuned):
    """With white noise, too, the same for all rows or not; and four rows are there twice, with labels of any class."""
    tuned(jitter=1e-13)
    Z, y = labelled(20, seed=1, n_classes=3)
    X, y = np.vstack([Z, Z[:4]]), np.append(y, y[4:8])
    y = y if likelihood in MULTI_CLASS else y > 0
    random = np.random.default_rng(2)
    new, weight = random.normal(size=(12, 2)), random.uniform(0.3, 2.0, 24)
    white = {None: [], 0.4: [WhiteKernel(0.4)], "of each row": [WhiteKernel(0.2) * DotProduct(0.5)]}[noise]
    model = classifier(sum(white, start=SMOOTH), likelihood=likelihood, bound=bound, share=share, tol=1e-8)
    model.fit(X, y, sample_weight=weight)
    sparse = clone(model).set_params(inducing_points=Z).fit(X, y, sample_weight=weight)
    assert isinstance(model.posterior_, internals.FullPosterior)
    assert isinstance(sparse.posterior_, internals.SparsePosterior)
    assert (model.jitter_, sparse.jitter_) == (0.0, 1e-13)
    assert model.elbo_ == pytest.approx(sparse.elbo_, rel=1e-8)
    assert_near(model.predict_proba(new), sparse.predict_proba(new), 1e-6)
    for mine, theirs in zip(model.predict_latent(new, True), sparse.predict_latent(new, True), strict=True):
        assert mine.shape == theirs.shape
        assert_near(mine, theirs, 1e-6)
    assert model.posterior_.kl == pytest.approx(sparse.posterior_.kl, rel=1e-6)
    assert model.elbo(X, y) == pytest.approx(sparse.elbo(X, y), rel=1e-6)
    if record_of(likelihood, bound).has_label_noise:
        assert model.label_noise_ == pytest.approx(sparse.label_noise_, rel=1e-6)
    np.testing.assert_allclose(np.diagonal(model.predict_latent(new, True)[1]).T, model.predict_latent(new)[1])


@pytest.mark.parametrize(("tol", "max_iter"), [(1e-13, 500), (1e-3, 500), (1e-13, 2), (1e-13, 0)])
@pytest.mark.parametrize(("variance", "failures"), [(0.3, 3), (1e4, 3), (1e4, 1)])
@pytest.mark.parametrize(
    "record",
    [record for record in RECORDS if record.has_quadratics and record.is_bound],
    ids=lambda record: record.bound,
)
def test_compiled_steps_are_the_steps_with_a_history(record, variance, failures, tol, max_iter, tuned):
    """Rows may be repeated and have weights and noise; under a large variance unit steps fail, and after so many
    failures those of another bound are tried."""
    tuned(failures=failures)
    random = np.random.default_rng(1)
    Z, y = labelled(12, n_classes=2)
    places = np.r_[np.arange(12), 0, 3, 3]
    labels = np.r_[2.0 * y - 1.0, -1.0, 1.0, 1.0]
    rows = training(Z[places], labels, random.uniform(0.5, 3.0, 15))
    prior = full_prior(Z, [ConstantKernel(variance) * RBF(0.8) + WhiteKernel(0.3)])
    site = record.at(np.array([0.1])).site()
    start = prior.posterior((random.uniform(0.0, 0.3, (1, 12)), random.normal(size=(1, 12))))
    ascend_once = partial(internals.coordinate_ascent, rows, start, site, tol=tol, max_iter=max_iter)
    ascents = [ascend_once(history=kept) for kept in (None, internals.History())]
    assert len({(ascent.n_iter, ascent.converged) for ascent in ascents}) == 1
    compiled, stepped = (ascent.point for ascent in ascents)
    assert_near([compiled.elbo, compiled.log_likelihood], [stepped.elbo, stepped.log_likelihood], 1e-9)
    parts = [[*p.q.eta, *p.q.mean_pair, p.q.variance, *p.target, p.q.kl] for p in (compiled, stepped)]
    assert_all_near(*parts, 1e-8)


@pytest.mark.parametrize(
    ("kernel", "noise"), [(SMOOTH, 0.0), (ConstantKernel(30.0) * RBF(0.4), 0.0), (SMOOTH, 0.3)], ids=str
)
def test_polya_gamma_is_gibbs_and_mackays_bound_at_its_maximum(kernel, noise):
    """Differences of its values are all that the maximisation uses; appendix A.5 says where it ends."""
    X, classes = labelled(16, seed=3, n_classes=2)
    y, K = 2.0 * classes - 1.0, kernel(X)
    with_noise = kernel + WhiteKernel(noise, "fixed") if noise else kernel
    model = classifier(with_noise, bound="polya-gamma", tol=1e-14).fit(X, classes)
    start = np.random.default_rng(0).uniform(0.3, 3.0, len(y))
    found = minimize(
        lambda c: -gibbs_mackay(c, K, y, noise=noise)[0], start, method="L-BFGS-B", jac="3-point",
        bounds=[(1e-3, None)] * len(y), options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000, "maxfun": 10**6},
    )  # fmt: skip
    second_moment = model.posterior_.mean[0] ** 2 + model.posterior_.variance[0] + noise
    order = [np.flatnonzero(np.all(row == X, axis=1)).item() for row in model.inducing_points_]
    assert model.elbo_ == pytest.approx(-found.fun, rel=1e-7)
    np.testing.assert_allclose(found.x[order], np.sqrt(second_moment), rtol=1e-4)
    # And anywhere else it is lower.
    for scale in (0.9, 1.1):
        assert gibbs_mackay(scale * found.x, K, y, noise=noise)[0] < model.elbo_


@settings(max_examples=25, phases=[Phase.generate])
@given(
    tree=st.integers(1, 3).flatmap(lambda d: st.tuples(kernel_trees(d), st.just(d))),
    seed=seeds,
    n=st.integers(1, 12),
    n_latents=st.sampled_from([1, 2]),
)
def test_gradient_of_any_tree_is_scikit_learns(tree, seed, n, n_latents):
    """tr((alpha alpha^T - M) dK) / 2 - lambda . d(noise) / 2, summed over the latent functions, at whatever q; and at
    repeated rows. The covariance of the rows with themselves, taken for other rows, is K without noise."""
    kernel, d = tree
    random = np.random.default_rng(seed)
    Z = 0.5 * points_apart(random, n, d)
    Z[n // 2] = Z[0]
    shape = n_latents, n
    prior = full_prior(Z, [kernel])
    precision = random.uniform(-1.0, 2.0, shape)
    precision[precision < 0.0] *= 0.9 / np.trace(prior.K)
    q = prior.posterior((precision, random.normal(size=shape)))
    sites = internals.statistics.FixedSites(precision, q.linear)
    by_theta, _ = q.gradient(training(Z, np.ones(n), n_latents=n_latents), sites, q.eta)
    G = sum(np.outer(a, a) - f.H.T @ f.H + f.N.T @ f.N for a, f in zip(q.alpha, q.factors, strict=True)) / 2
    by_noise = -0.5 * np.sum(precision, axis=0)
    expected = []
    if len(by_theta):
        derivatives = kernel(np.vstack([Z, Z]), eval_gradient=True)[1]
        smooth = derivatives[:n, n:]
        noise = np.einsum("kkt->kt", derivatives[:n, :n] - smooth)
        expected = np.einsum("kl,klt->t", G, smooth) + by_noise @ noise
    size = np.sum(np.abs(G) * magnitude(kernel, Z, Z)) + np.abs(by_noise) @ kernel.diag(Z)
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-12 * size)


@cases([*(case for case in CASES if case[0] == "softmax"), ("logistic-softmax", "polya-gamma", "none")])
def test_gradient_by_the_kernel_parameters_of_several_latent_functions(likelihood, bound, share):
    """Of max_q F; to 1e-5 of its size: the inner solves end about 1e-6 standard deviations from the optimum."""
    X, classes = labelled(10, 4, 3, 2)
    rows = training(X, classes.astype(float), np.random.default_rng(4).uniform(0.3, 2.0, 10), 3)
    prior = full_prior(X, THREE_KERNELS if share == "none" else [NOISY])
    site = record_of(likelihood, bound).at(0.05).site(3)
    point = ascend(rows, internals.starting_posterior(rows, None, prior, site), site)
    by_theta, by_Z = point.q.gradient(rows, point.sites, point.target)
    assert by_Z.shape == prior.Z.shape
    assert not np.any(by_Z)

    def F(theta):
        return ascend(rows, internals.starting_posterior(rows, point.q, rebuilt(prior, theta), site), site).elbo

    theta = thetas(prior)
    assert F(theta) == pytest.approx(point.elbo, rel=1e-9)
    tolerance = 1e-5 * max(1.0, np.abs(by_theta).max())
    np.testing.assert_allclose(by_theta, differences(F, theta, 2e-3), rtol=0.0, atol=tolerance)
