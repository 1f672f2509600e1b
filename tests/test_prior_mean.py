"""The prior mean: a shift of the latent functions that sites, links, predictions and files share."""

import numpy as np
import onnxruntime
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.fits import clone_of, quietly, refuses, reloaded
from support.latents import RECORDS, cases, every
from support.online import CASES, FIRST, FLOWERS, KERNEL, KINDS, SECOND, X, model, rows_for, y
from support.reference import divergence
from support.sites import build, evaluate, evaluate_one

from xgpc import GPClassifier
from xgpc.likelihoods import MULTI_CLASS, record_of
from xgpc.onnx import to_onnx

# Farther than any length scale of the kernel.
FAR = np.array([[1e4, -1e4], [-1e4, 1e4]])


def mean_for(likelihood):
    return [0.7, -0.4, 0.2] if likelihood in MULTI_CLASS else -0.8


@every(RECORDS)
def test_a_shifted_site_is_the_site_of_shifted_means(record):
    """ell and lambda are those at m + mu, and r = d ell / d m + lambda m with the mean of the distance."""
    rng = np.random.default_rng(0)
    n, C = 70, 4 if record.is_multi_class else 1
    m, v, mu = rng.normal(size=(C, n)), rng.uniform(0.1, 4.0, (C, n)), rng.normal(size=C)
    labels = rng.integers(0, 4, n).astype(float) if C > 1 else rng.choice([-1.0, 1.0], n)
    weight = rng.uniform(0.5, 2.0, n)
    plain = record.site(C)
    ell, precision, linear = evaluate(plain, m + mu[:, None], v, labels, weight)
    shifted = clone_of(plain.with_prior_mean(mu))
    np.testing.assert_equal([shifted.prior_mean, shifted.with_parameter(0.1).prior_mean], [mu, mu])
    *found, by_mean = evaluate(shifted, m, v, labels, weight)
    np.testing.assert_equal(found, [ell, precision])
    np.testing.assert_allclose(by_mean, linear - precision * mu[:, None], rtol=1e-13, atol=1e-13)
    assert plain.with_prior_mean(np.zeros(C)) is plain


@pytest.mark.parametrize("inducing_points", ["all", "rows"])
@pytest.mark.parametrize("name", ["logit", "probit"])
def test_a_fit_is_that_of_a_dense_process_with_this_mean(name, inducing_points):
    """Natural gradients of a whole process f ~ N(mu, K), of which nothing is centred."""
    mu, rows, labels = -1.3, X[:25], 2.0 * y[:25] - 1.0
    K = KERNEL(rows) + 1e-10 * np.eye(25)
    K_inverse = np.linalg.inv(K)
    m, S = np.full(25, mu), K
    for _ in range(60):
        ell, precision, linear = evaluate_one(build(name, "exact", 2), m, np.diag(S), labels)
        S = np.linalg.inv(K_inverse + np.diag(precision))
        m = S @ (linear + K_inverse @ np.full(25, mu))
    points = rows if inducing_points == "rows" else "all"
    options = {"optimizer": None, "inducing_points": points, "tol": 1e-12, "max_iter": 300, "n_neighbors": 0}
    fitted = GPClassifier(KERNEL, likelihood=name, mean=mu, **options).fit(rows, y[:25])
    # The points' jitter.
    tol = 1e-5 if inducing_points == "all" else 2e-4
    cross = KERNEL(X[25:40], rows) @ K_inverse
    expected = mu + cross @ (m - mu)
    variance = KERNEL.diag(X[25:40]) - np.sum(cross @ (K - S) * cross, axis=1)
    np.testing.assert_allclose(fitted.predict_latent(X[25:40]), (expected, variance), rtol=tol, atol=tol)
    assert fitted.elbo_ == pytest.approx(np.sum(ell) - divergence(m, S, mu, K), abs=10 * tol)
    assert fitted.elbo(rows, y[:25]) == pytest.approx(fitted.elbo_, abs=1e-7)


BINARY = [(likelihood, "exact", k) for likelihood in ("logit", "probit") for k in (0, 6)]


@pytest.mark.parametrize(("likelihood", "bound", "k"), [*BINARY, ("logit", "polya-gamma", 0)])
def test_the_other_labels_have_the_other_mean(likelihood, bound, k):
    """f and -f: all that is learned is the same, whichever class is called the first."""
    options = {"likelihood": likelihood, "bound": bound, "n_neighbors": k, "max_iter": 8, "random_state": 0}
    one = quietly(GPClassifier(mean=0.9, n_inducing=10, **options), X, y)
    other = quietly(GPClassifier(mean=-0.9, n_inducing=10, **options), X, 1 - y)
    assert other.elbo_ == pytest.approx(one.elbo_, rel=1e-6)
    np.testing.assert_allclose(other.kernel_.theta, one.kernel_.theta, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other.predict_proba(X)[:, ::-1], one.predict_proba(X), atol=1e-5)
    if one._evidence.correction is not None:
        corrected = one.predict_latent(X, corrected=True)[0]
        np.testing.assert_allclose(other.predict_latent(X, corrected=True)[0], -corrected, atol=1e-4)
        assert other.bound_gap() == pytest.approx(one.bound_gap(), rel=1e-5)


@pytest.mark.parametrize("k", [0, 8])
def test_what_adds_to_all_classes_changes_nothing(k):
    options = {"kernel": KERNEL, "optimizer": None, "inducing_points": FLOWERS[:12], "n_neighbors": k, "tol": 1e-9}
    one = GPClassifier(mean=[0.5, -0.5, 0.2], **options).fit(FLOWERS, KINDS)
    other = GPClassifier(mean=[2.5, 1.5, 2.2], **options).fit(FLOWERS, KINDS)
    assert other.elbo_ == pytest.approx(one.elbo_, abs=1e-6)
    # Sweeps with neighbours have a tolerance of their own.
    np.testing.assert_allclose(other.predict_proba(FLOWERS), one.predict_proba(FLOWERS), atol=1e-2 if k else 1e-6)
    assert np.any(one.predict_proba(FLOWERS) != GPClassifier(**options).fit(FLOWERS, KINDS).predict_proba(FLOWERS))


def base_rate_fit(likelihood, bound, share, **params):
    rows, labels = rows_for(likelihood)
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(rows)) * (1.0 + 2.0 * (labels == 1))
    given = {"likelihood": likelihood, "bound": bound, "share": share, "n_inducing": 8, "max_iter": 4, **params}
    fitted = quietly(GPClassifier(mean="base-rate", random_state=0, **given), rows, labels, sample_weight=weight)
    return fitted, np.bincount(labels, weight) / np.sum(weight)


@cases(case for case in CASES if not record_of(*case[:2]).has_wrong_labels)
def test_far_away_the_base_rate_is_predicted(likelihood, bound, share):
    fitted, rate = base_rate_fit(likelihood, bound, share, optimizer=("alternate" if bound == "taylor" else "profile"))
    np.testing.assert_allclose(fitted.predict_proba(FAR), [rate, rate], atol=1e-6)


POSTERIORS = {
    "full": {"inducing_points": "all"},
    "mini-batches": {"optimizer": "adam", "batch_size": 40},
    "stochastic": {"optimizer": "stochastic", "batch_size": 40},
    "noise": {"kernel": ConstantKernel(3.0) * RBF() + WhiteKernel(0.5), "optimizer": None},
}
NEAR = {"n_neighbors": 6, "kernel": ConstantKernel(2.0) * RBF()}
POSTERIORS |= {f"neighbours {name}": NEAR | {"likelihood": name} for name in ("logit", "probit", "softmax")}


@pytest.mark.parametrize("kind", POSTERIORS)
def test_far_away_the_base_rate_is_predicted_by_every_posterior(kind):
    params = {"likelihood": "logit", "bound": "exact", "share": "auto", **POSTERIORS[kind]}
    fitted, rate = base_rate_fit(**params)
    assert fitted.n_neighbors_ == params.get("n_neighbors", 0)
    np.testing.assert_allclose(fitted.predict_proba(FAR), [rate, rate], atol=1e-5)


@cases(CASES)
def test_the_mean_is_kept_by_files_copies_and_later_batches(tmp_path, likelihood, bound, share):
    rows, labels = rows_for(likelihood)
    mean = mean_for(likelihood)
    one = model(likelihood, bound, share=share, mean=mean)
    assert clone(one).mean is mean or clone(one).mean == mean
    fitted = clone(one).partial_fit(rows[FIRST], labels[FIRST])
    np.testing.assert_array_equal(fitted.mean_, mean)
    loaded = reloaded(fitted, tmp_path)
    assert loaded.get_params()["mean"] == mean
    for other in (loaded, clone_of(fitted)):
        np.testing.assert_array_equal(other.predict_proba(rows), fitted.predict_proba(rows))
    both = [each.partial_fit(rows[SECOND], labels[SECOND]) for each in (fitted, loaded)]
    np.testing.assert_array_equal(both[0].predict_proba(rows), both[1].predict_proba(rows))
    # A stream that forgets all is a fit of its last batch.
    forgets = clone(one).partial_fit(rows[FIRST], labels[FIRST])
    forgets.partial_fit(rows[SECOND], labels[SECOND], forgetting_factor=0.0)
    anew = one.fit(rows[SECOND], labels[SECOND])
    np.testing.assert_allclose(forgets.predict_proba(rows), anew.predict_proba(rows), atol=1e-6)
    far = np.asarray(fitted.predict_latent(FAR)[0])
    np.testing.assert_allclose(far, np.broadcast_to(mean, far.shape), atol=1e-9)


# What is no mean at all, test_input has.
BAD = {
    r"or 'base-rate' for likelihood 'logit' and 2 classes; got \[0.1": {"mean": [0.1, 0.2]},
    r"list of 2 numbers in the order of classes_.*; got 1\.0": {"mean": 1.0, "likelihood": "softmax"},
    r"list of 2 numbers in the order of classes_.*; got \[": {"mean": [1.0, 2.0, 3.0], "likelihood": "softmax"},
    "wrong labels are part of every prediction": {"mean": "base-rate", "likelihood": "step"},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_means(message):
    refuses(message, GPClassifier(**BAD[message]).fit, X, y)


def test_the_correction_takes_the_mean_of_the_latent_function():
    """mean + sum_i C_i t_i with t_i = m_i v_i Var(omega_i), m_i the mean of f, not of its distance (appendix A.6)."""
    fitted = model("logit", "polya-gamma", mean=-1.5, inducing_points="all").fit(X[:30], y[:30])
    mean, covariance = fitted.predict_latent(X[:40], return_cov=True)
    m, v = mean[:30], np.diag(covariance)[:30]
    c = np.sqrt(m**2 + v)
    spread = (np.tanh(c / 2) / c - 0.5 / np.cosh(c / 2) ** 2) / (2 * c**2)
    expected = mean + covariance[:, :30] @ (m * v * spread)
    np.testing.assert_allclose(fitted.predict_latent(X[:40], corrected=True)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(("likelihood", "share"), [("logit", "kernel"), ("softmax", "none")])
def test_onnx_models_have_the_mean(likelihood, share):
    rows, labels = rows_for(likelihood)
    fitted = model(likelihood, "exact", share=share, mean=mean_for(likelihood)).fit(rows, labels)
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.concatenate([rows, FAR])
    (proba,) = session.run(["probabilities"], {"X": rows})
    np.testing.assert_allclose(proba, fitted.predict_proba(rows), atol=1e-5)
