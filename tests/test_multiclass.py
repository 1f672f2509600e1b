"""Several latent functions, with one kernel or one each: passes, gradients and steps against dense formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import internals
from support.dense import assert_all_near, assert_near
from support.fits import peak_bytes, quietly
from support.latents import CASES, NOISY, NOISY_CASES, SEVERAL, Problem, cases, marginals, seeds, symmetric
from support.training import options, sites_of, softmax_curvatures, updated

from xgpc import GPClassifier
from xgpc._natural_gradient import SCHEDULES


@cases(CASES)
@settings(max_examples=10)
@given(
    seed=seeds, n=st.integers(1, 60), m=st.integers(1, 7), d=st.integers(1, 3), weighted=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
)  # fmt: skip
def test_equals_dense_unwhitened_formulas(likelihood, bound, share, **options):
    """Marginals, KL, bound and natural parameters of the unit step, through steps as long as the precisions allow."""
    problem = Problem(likelihood, bound, share, **options)
    site, q = problem.site(), problem.arbitrary_posterior()
    models, rows = problem.dense(q), problem.training()
    for _ in range(3):
        total, P, h = updated(rows, q, site)
        mean, variance = marginals(models)
        for actual, expected in zip(sites_of(rows, q, site), (mean, variance), strict=False):
            assert_near(np.atleast_2d(actual), expected, 1e-8)
        assert q.kl == pytest.approx(sum(model.kl() for model in models), rel=1e-8, abs=1e-8)
        assert total - q.kl == pytest.approx(problem.dense_bound(site, models), rel=1e-8, abs=1e-8)
        _, precision, linear = problem.evaluate(site, mean, variance)
        rate = 1.0
        while (trial := internals.natural_step(q, (P, h), rate)) is None:
            rate *= 0.3
        whitened = []
        for model, lam, r in zip(models, precision, linear, strict=True):
            before = model.eta_1, model.eta_2
            model.eta_1, model.eta_2 = target = model.target(lam, r)
            whitened.append(model.whitened())
            model.eta_1, model.eta_2 = ((1.0 - rate) * a + rate * b for a, b in zip(before, target, strict=True))
        assert_near(P, np.tril([P for P, _ in whitened]), 1e-8)
        assert_near(h, [h for _, h in whitened], 1e-8)
        q = trial


ASCENTS = [(*case, 0.02) for case in CASES] + [(*case, None) for case in NOISY_CASES]


@pytest.mark.parametrize(("likelihood", "bound", "share", "label_noise"), ASCENTS)
def test_ascent_is_monotone_and_ends_at_a_stationary_point(likelihood, bound, share, label_noise):
    """Relative to the standard deviations and precisions of q; with additive noise some precisions are negative."""
    noisy = (likelihood, bound) in NOISY
    problem, history = Problem(likelihood, bound, share, seed=3), internals.History()
    rows = problem.training()
    end = problem.ascend(rows, label_noise=label_noise, history=history)
    q, site = end.point.q, end.point.site
    total, P, h = updated(rows, q, site)
    lam, A = np.atleast_2d(sites_of(rows, q, site)[2]), problem.whitened_rows()
    assert end.converged
    assert np.any(lam < 0.0) or not noisy
    assert_near(P, np.tril(np.eye(7) + np.einsum("ci,cij,cik->cjk", lam, A, A)), 1e-8)
    assert total - q.kl == pytest.approx(end.point.elbo, rel=1e-12)
    if bound != "taylor":  # Its updates climb to the mode, and its expectation is no bound.
        assert np.all(np.diff(history.arrays()["elbo"]) >= 0.0)
    by_mean = q.Rinv @ (h[..., None] - symmetric(P) @ q.w[..., None])
    by_precision = q.Rinv @ symmetric(P) @ np.swapaxes(q.Rinv, -1, -2) - np.eye(7)
    assert np.abs(by_mean).max() < 1e-4
    assert np.abs(by_precision).max() < 1e-4


@pytest.mark.parametrize(("likelihood", "bound"), SEVERAL)
def test_equal_kernels_give_what_one_gives(likelihood, bound):
    problem = Problem(likelihood, bound, "kernel", seed=4, weighted=True)
    results = []
    for prior in (problem.prior, internals.grouped([problem.prior] * 3)):
        problem.prior, problem.random = prior, np.random.default_rng(0)
        site, q = problem.site(), problem.arbitrary_posterior()
        rows = problem.training()
        point = internals.update(rows, q, site)
        by_theta, by_Z = q.gradient(rows, point.sites, point.target)
        gradients = by_theta.reshape(len(prior.groups), -1).sum(axis=0), by_Z.reshape(-1, *by_Z.shape[-2:]).sum(0)
        end = internals.coupled_end(rows, point) if site.record.curvature else None
        natural = *point.target, *(end.eta if end else ())
        predicted = *q.marginals(problem.X), q.covariance(problem.X)
        results.append([point.log_likelihood, *natural, *gradients, *predicted, problem.ascend(rows).point.elbo])
    assert_all_near(*results[::-1], 1e-9)


@cases([case for case in CASES if case[0] == "softmax"])
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_of_softmax_solves_the_newton_system(likelihood, bound, share, weighted, tuned):
    """(I + sum_i H_i (x) a_i a_i^T) w = sum_i (g_i + H_i m_i) (x) a_i."""
    tuned(measured_steps=internals.MEASURED._replace(cg_tol=1e-10), softmax_iterations=500)
    problem = Problem(likelihood, bound, share, seed=5, weighted=weighted)
    q, site = problem.arbitrary_posterior(), problem.site()
    rows = problem.training()
    P, h = internals.steps_from(rows, internals.update(rows, q, site))(1.0).eta
    point_sites, A = sites_of(rows, q, site), problem.whitened_rows()
    w = problem.prior.posterior((P, h)).w
    g, H = softmax_curvatures(point_sites, problem.y, 1.0 if problem.weight is None else problem.weight)
    system = np.eye(w.size) + np.einsum("ice,cij,eik->cjek", H, A, A).reshape(w.size, w.size)
    right = np.einsum("ci,cij->cj", g + np.einsum("ice,ei->ci", H, point_sites[0]), A)
    assert_near(w.ravel(), np.linalg.solve(system, right.ravel()), 1e-8)


@cases([("logit", "exact", "kernel"), *(case for case in CASES if case[:2] in SEVERAL)])
def test_neither_threads_nor_caches_change_a_bit(likelihood, bound, share, tuned):
    tuned(parallel_work=0.0)
    problem = Problem(likelihood, bound, share, n=internals.BLOCK_ROWS + 400, m=30)
    q, site, results = problem.arbitrary_posterior(), problem.site(), []
    for n_jobs, cache_bytes in ((1, 0), (1, 2**29), (2, 0), (3, 2**29)):
        rows = problem.training(n_jobs=n_jobs, cache_bytes=cache_bytes)
        assert rows.source.n_rows > internals.BLOCK_ROWS
        with rows.executor:
            point = internals.update(rows, q, site)
            for _ in range(2):
                end = internals.coupled_end(rows, point) if site.record.curvature else None
                result = [point.log_likelihood, point.value, *point.target, *(end.eta if end else ())]
                result += [*q.gradient(rows, point.sites, point.target)]
                result += [*internals.projected(rows, point.sites, problem.prior), *q.marginals(problem.X, n_jobs)]
                results.append(result)
                # Marginals and sites, too, are made again of the posterior that they are of.
                for block in rows.source.blocks():
                    block.cache = internals.Cache()
    for other in results[1:]:
        np.testing.assert_equal(other, results[0])


@cases(CASES)
def test_mini_batches_come_near_the_bound_of_all_rows(likelihood, bound, share):
    problem = Problem(likelihood, bound, share, seed=6, n=2000, apart=False)
    rows = problem.training()
    best = problem.ascend(rows, label_noise=None, tol=1e-6).point.elbo
    start, how = problem.prior.at_prior(problem.n_latents), options(0.0, 12, batch_size=50)
    point, epochs, *_ = internals.mini_batch_ascent(rows, start, problem.site(None), how)
    assert epochs == 12
    assert point.elbo == pytest.approx(best, rel=0.01)


@cases(CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_mini_batch_steps_are_equation_12(likelihood, bound, share, weighted):
    """Wenzel et al. 2018, at rate 1/2; negative precisions count as zero, with the gradient by the mean kept."""
    problem = Problem(likelihood, bound, share, seed=7, weighted=weighted)
    q, site, A = problem.arbitrary_posterior(), problem.site(), problem.whitened_rows()
    P, h = symmetric(q.P), q.h
    left_over = np.array([p.spec.kernel.diag(problem.X) for p in problem.latents()]) - np.sum(A**2, axis=2)
    rows = problem.random.permutation(60).astype(np.intp)
    source = problem.training().source
    loop = internals.MiniBatches(q, 20, source, (SCHEDULES["constant"], 0.5, 0.0))
    loop.run(q, source.sample(rows), site, internals.Executor(1))
    for batch in rows.reshape(3, 20):
        a, covariance = A[:, batch], np.linalg.inv(P)
        mean = np.einsum("cij,cjk,ck->ci", a, covariance, h)
        variance = left_over[:, batch] + np.einsum("cij,cjk,cik->ci", a, covariance, a)
        _, lam, r = problem.evaluate(site, mean, variance, batch)
        r, lam = r - np.minimum(lam, 0.0) * mean, np.maximum(lam, 0.0)
        P = 0.5 * (P + np.eye(7) + 3.0 * np.einsum("ci,cij,cik->cjk", lam, a, a))
        h = 0.5 * (h + 3.0 * np.einsum("ci,cij->cj", r, a))
    q = loop.posterior(problem.prior, loop.eta)
    assert_near(np.tril(q.P), np.tril(P), 1e-9)
    assert_near(q.h, h, 1e-9)


@pytest.mark.parametrize(
    ("n", "n_classes", "m", "share"), [(2000, 60, 10, "kernel"), (500, 30, 100, "kernel"), (500, 30, 60, "none")]
)
def test_memory_is_what_is_said(n, n_classes, m, share):
    random, y = np.random.default_rng(0), np.arange(n) % n_classes
    X = random.normal(scale=3.0, size=(n_classes, 8))[y] + random.normal(size=(n, 8))
    model = GPClassifier(n_neighbors=0, max_iter=1, n_inducing=m, share=share, random_state=0)
    quietly(model, X[:200], y[:200] % 3)
    peak, _ = peak_bytes(model.fit, X, y)
    # Separate kernels' whitened rows are a cache with a limit of its own.
    cache = 8 * n * m * (n_classes if share == "none" else 1)
    # Scores of rows that are left out: six arrays of a block's rows, besides the integral's own.
    left_out = 8 * 6 * min(n, 1152) * n_classes
    assert peak < 1.3 * (internals.fit_bytes(n, n_classes, m, share == "none") + cache + X.nbytes) + left_out + 2e6
