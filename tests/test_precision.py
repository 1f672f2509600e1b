"""Whitened rows in single precision: what is rounded, what is not, and that it follows the model wherever it goes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly
from support.latents import CASES, Problem, cases, seeds, symmetric
from support.reference import moons
from support.training import bound_gradient, in_single_precision, sites_of, updated

from xgpc import GPClassifier

EPS = float(np.finfo(np.float32).eps)
X, Y = moons(400)
THREE = Y + (X[:, 0] > 1.0)
KERNEL = ConstantKernel(4.0) * RBF([1.0, 1.0])
mixed = partial(GPClassifier, precision="mixed", n_inducing=20, n_neighbors=0, random_state=0)


@cases(CASES)
@given(seed=seeds)
@settings(max_examples=10)
def test_one_pass_differs_from_that_of_rounded_rows_by_rounding_alone(likelihood, bound, share, seed):
    """Means are those of rounded rows, in double precision; variances and statistics have a few roundings more."""
    problem = Problem(likelihood, bound, share, seed=seed, weighted=seed % 2 == 0)
    rows, site, q = problem.training(), problem.site(), in_single_precision(problem.arbitrary_posterior())
    mean, variance, precision, linear = (np.atleast_2d(values) for values in sites_of(rows, q, site))
    A = problem.whitened_rows().astype(np.float32).astype(np.float64)
    A = np.broadcast_to(A, (len(mean), *A.shape[1:]))
    m = A.shape[2]
    w, R_inverse = q.w.reshape(-1, m), q.Rinv.reshape(-1, m, m)
    # Dense solves and ours can round to neighbouring numbers: that is one more rounding.
    assert np.all(np.abs(mean - np.einsum("cnm,cm->cn", A, w)) <= EPS * np.einsum("cnm,cm->cn", np.abs(A), np.abs(w)))
    k, a = np.array([latent.spec.kernel.diag(problem.X) for latent in problem.latents()]), np.sum(A**2, axis=2)
    expected = np.maximum(k - a, 0.0) + np.sum(np.einsum("cnm,ckm->cnk", A, R_inverse) ** 2, axis=2)
    assert np.all(np.abs(variance - expected) <= 20 * EPS * (k + a))
    _, P, h = updated(rows, q, site)
    scaled = np.einsum("cn,cni,cnj->cij", np.abs(precision), np.abs(A), np.abs(A))
    expected = np.eye(m) + np.einsum("cn,cni,cnj->cij", precision, A, A)
    assert np.all(np.abs(symmetric(P.reshape(-1, m, m)) - expected) <= 20 * EPS * scaled + 1e-12)
    sums = np.einsum("cn,cnm->cm", np.abs(linear), np.abs(A))
    assert np.all(np.abs(h.reshape(-1, m) - np.einsum("cn,cnm->cm", linear, A)) <= EPS * sums)


@cases(CASES)
def test_gradients_are_those_of_double_precision_but_for_rounding(likelihood, bound, share):
    problem = Problem(likelihood, bound, share, weighted=True)
    rows, site, q = problem.training(), problem.site(), problem.arbitrary_posterior()
    single, double = (bound_gradient(rows, posterior, site) for posterior in (in_single_precision(q), q))
    for found, expected in zip(single, double, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.max(np.abs(expected)))


# The bound of additive noise is so flat at its optimum that 1e-4 nats are as much as 1e-3 of a probability.
PROBLEMS = {
    "two classes": (Y, {}, 1e-5), "three": (THREE, {}, 1e-5), "a kernel for each": (THREE, {"share": "none"}, 1e-5),
    "probit": (Y, {"likelihood": "probit"}, 1e-5), "step": (Y, {"likelihood": "step"}, 2e-3),
}  # fmt: skip


@pytest.mark.parametrize(("y", "options", "tolerance"), PROBLEMS.values(), ids=PROBLEMS)
def test_probabilities_are_near_those_of_double_precision(y, options, tolerance):
    options = options | {"optimizer": None, "kernel": KERNEL, "inducing_points": X[:20], "tol": 1e-9}
    one, other = (quietly(mixed(**options, precision=name), X, y) for name in ("mixed", "double"))
    assert 0.0 < np.max(np.abs(one.predict_proba(X) - other.predict_proba(X))) < tolerance
    assert one.elbo_ == pytest.approx(other.elbo_, abs=1e-3)


def test_full_processes_and_steps_on_mini_batches_are_of_double_precision():
    full = {"inducing_points": "all", "optimizer": None, "kernel": KERNEL}
    one, two = (quietly(mixed(**full, precision=name), X, Y) for name in ("mixed", "double"))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert one.elbo_ == two.elbo_
    steps = {"batch_size": 50, "optimizer": None, "kernel": KERNEL, "max_iter": 3}
    one, two = (quietly(mixed(**steps, precision=name), X, Y).posterior_ for name in ("mixed", "double"))
    np.testing.assert_equal((one.P, one.h), (two.P, two.h))


@pytest.mark.parametrize("y", [Y, THREE], ids=["two classes", "three"])
@pytest.mark.parametrize("share", ["kernel", "none"])
def test_a_refit_has_the_precision_that_it_is_asked_for(y, share):
    options = {"warm_start": True, "share": share, "optimizer": None, "kernel": KERNEL, "tol": 1e-9}
    model = quietly(mixed(**options), X, y)
    quietly(model.set_params(precision="double"), X, y)
    double = quietly(mixed(**options, precision="double"), X, y)
    np.testing.assert_allclose(model.predict_proba(X), double.predict_proba(X), atol=1e-5)
    assert {group.dtype for group in model.posterior_.prior.groups} == {np.float64}
    quietly(model.set_params(precision="mixed"), X, y)
    assert {group.dtype for group in model.posterior_.prior.groups} == {np.float32}
