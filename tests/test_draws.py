"""Draws of latent functions: moments, kernels' spectra, paths; what scikit-learn's classifier has by other names."""

import tracemalloc

import numpy as np
import pytest
from sklearn.feature_selection import SelectFromModel
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)
from support.fits import quietly

from xgpc import GPClassifier

KERNELS = {
    "matern-1/2": Matern(0.8, nu=0.5),
    "matern-5/2": ConstantKernel(1.5) * Matern(0.9, nu=2.5),
    "matern-inf": Matern([0.7, 1.2], nu=np.inf),
    "rational quadratic": RationalQuadratic(0.9, 0.7),
    "sum": ConstantKernel(0.5) + ConstantKernel(1.3) * RBF([0.7, 1.2]) + Matern(0.4, nu=1.5),
    "product": RBF([0.7, 1.2]) * RationalQuadratic(0.9, 0.7) * Matern(2.0, nu=0.5),
    "power": Exponentiation(RBF(1.0) + ConstantKernel(0.3), 2),
}
LEVEL = 5.0


def assert_moments(sample, mean, covariance):
    """Of draws (n, n_draws): within five standard errors of a normal distribution's estimates, in every entry."""
    n_draws = sample.shape[1]
    variance = np.diag(covariance)
    assert np.all(np.abs(sample.mean(axis=1) - mean) <= LEVEL * np.sqrt(variance / n_draws) + 1e-9)
    errors = np.sqrt((np.outer(variance, variance) + covariance**2) / n_draws)
    assert np.all(np.abs(np.cov(sample) - covariance) <= LEVEL * errors + 1e-9)


def problem(n=120, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.sin(2.0 * X[:, 0] + np.linspace(0.0, 6.0, n_classes + 1)[:n_classes, None]) + X[:, 1] / 2
    return X, np.argmax(f + 0.3 * rng.normal(size=f.shape), axis=0)


def fit(n_classes=2, kernel=None, **options):
    kernel = ConstantKernel(2.0) * RBF([0.8, 1.1]) if kernel is None else kernel
    options = {"n_inducing": 8, "n_neighbors": 0, "optimizer": None, "random_state": 0, **options}
    return quietly(GPClassifier(kernel, **options), *problem(n_classes=n_classes))


@pytest.mark.parametrize("method", ["exact", "pathwise"])
@pytest.mark.parametrize(
    ("n_classes", "options"),
    [
        pytest.param(2, {}, id="two classes"),
        pytest.param(2, {"kernel": ConstantKernel(2.0) * Matern(0.9, nu=1.5) + WhiteKernel(0.3)}, id="noise"),
        pytest.param(3, {}, id="a kernel for all"),
        *(pytest.param(2, {"kernel": kernel}, id=name) for name, kernel in KERNELS.items()),
        pytest.param(3, {"share": "none", "likelihood": "logistic-softmax"}, id="kernels for each"),
    ],
)
def test_draws_have_the_mean_and_covariance_of_predict_latent(method, n_classes, options, monkeypatch):
    monkeypatch.setattr("xgpc.approximations.draws.N_COSINES", 64)
    model = fit(n_classes, **options)
    # Far away the prior is left; two rows are equal.
    X = np.random.default_rng(2).normal(size=(6, 2))
    X[4], X[5] = 9.0, X[0]
    n_draws = 4000
    sample = model.sample_latent(X, n_draws, random_state=3, method=method)
    mean, covariance = model.predict_latent(X, return_cov=True)
    latents = () if n_classes == 2 else (n_classes,)
    assert sample.shape == (6, *latents, n_draws)
    for c in np.ndindex(latents):
        assert_moments(sample[(slice(None), *c)], mean[(..., *c)], covariance[(..., *c)])
    if n_classes > 2:
        across = np.corrcoef(sample[0])
        assert np.all(np.abs(across - np.eye(3)) <= LEVEL / np.sqrt(n_draws) + 1e-12)


@pytest.mark.parametrize("options", [{"inducing_points": "all"}, {"n_neighbors": 4}], ids=["full", "neighbours"])
def test_draws_of_full_processes_and_with_neighbours_are_exact(options, monkeypatch):
    model = fit(**options)
    X = np.random.default_rng(2).normal(size=(5, 2))
    monkeypatch.setattr("xgpc.predict.EXACT_ROWS", 1)
    sample = model.sample_latent(X, 4000, random_state=3)
    assert_moments(sample, *model.predict_latent(X, return_cov=True))
    with pytest.raises(ValueError, match="is for inducing points: not for neighbours"):
        model.sample_latent(X, method="pathwise")


def test_the_default_is_exact_for_few_rows_and_pathwise_for_many(monkeypatch):
    model, (X, _) = fit(), problem()
    by_name = {name: model.sample_latent(X, 2, random_state=5, method=name) for name in ("exact", "pathwise")}
    np.testing.assert_array_equal(model.sample_latent(X, 2, random_state=5), by_name["exact"])
    monkeypatch.setattr("xgpc.predict.EXACT_ROWS", len(X) - 1)
    np.testing.assert_array_equal(model.sample_latent(X, 2, random_state=5), by_name["pathwise"])
    # Where there are no paths, it stays exact.
    linear = fit(kernel=ConstantKernel(1.0) * RBF(1.0) + DotProduct())
    expected = linear.sample_latent(X, 2, random_state=5, method="exact")
    np.testing.assert_array_equal(linear.sample_latent(X, 2, random_state=5), expected)
    with pytest.raises(ValueError, match="is for sums and products of RBF, Matern and RationalQuadratic; the kernel"):
        linear.sample_latent(X, method="pathwise")


def test_draws_do_not_depend_on_threads_and_paths_not_on_the_other_rows():
    model, X = fit(), np.random.default_rng(0).normal(size=(3000, 2))
    # The last group of draws is smaller.
    sample = model.sample_latent(X, 18, random_state=1, method="pathwise")
    parallel = model.set_params(n_jobs=2).sample_latent(X, 18, random_state=1, method="pathwise")
    np.testing.assert_array_equal(sample, parallel)
    part = model.sample_latent(X[1500:1600], 18, random_state=1, method="pathwise")
    np.testing.assert_allclose(part, sample[1500:1600], rtol=1e-9, atol=1e-9)
    single = model.sample_latent(X[:5].astype(np.float32), 18, random_state=1, method="pathwise")
    np.testing.assert_allclose(single, sample[:5], atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"n_samples": 0}, "n_samples must be a positive integer; got 0"), ({"n_samples": 2.0}, "positive integer"),
     ({"method": "fourier"}, r"method must be one of \['auto', 'exact', 'pathwise'\]; got 'fourier'"),
     ({"random_state": "seed"}, "seed")],
)  # fmt: skip
def test_bad_requests_of_draws_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        fit().sample_latent(problem()[0], **given)


@pytest.mark.parametrize(
    ("n_classes", "options"),
    [(2, {}), (3, {}), (2, {"inducing_points": "all"}), (3, {"inducing_points": "all"}), (2, {"n_neighbors": 6})],
)
def test_a_covariance_of_many_rows_is_refused_before_it_takes_the_memory(n_classes, options, monkeypatch):
    model, X = fit(n_classes, **options), np.random.default_rng(0).normal(size=(700, 2))
    q = model.posterior_ or model.posterior_
    q.covariance(X[:2])
    tracemalloc.start()
    model.predict_latent(X, return_cov=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * q.covariance_bytes(700) <= peak <= 1.1 * q.covariance_bytes(700)
    monkeypatch.setattr("xgpc.predict.MOST_COVARIANCE_BYTES", q.covariance_bytes(699))
    assert model.predict_latent(X[:699], return_cov=True)[1].shape[0] == 699
    for call in (lambda: model.predict_latent(X, return_cov=True), lambda: model.sample_latent(X, method="exact")):
        with pytest.raises(ValueError, match=r"joint covariance of 700 rows would need .* GB.* Give fewer rows"):
            call()


def test_nine_thousand_rows_are_too_many_for_a_joint_covariance():
    model = fit()
    with pytest.raises(ValueError, match=r"9000 rows would need 3\.2\d GB; at most 3 GB"):
        model.predict_latent(np.zeros((9000, 2)), return_cov=True)


# Names of scikit-learn's classifier.


def test_latent_mean_and_variance_and_the_evidence_have_the_names_of_scikit_learn():
    model, (X, y) = fit(), problem()
    for ours, theirs in zip(model.predict_latent(X), model.latent_mean_and_variance(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert theirs.shape == (len(X),)
    assert model.log_marginal_likelihood_value_ == model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-9)
    assert not hasattr(GPClassifier(), "log_marginal_likelihood_value_")


def test_importances_are_inverse_length_scales_times_standard_deviations():
    X, y = problem()
    X = X * [1.0, 50.0]
    model = GPClassifier(RBF([0.5, 20.0]), n_inducing=8, n_neighbors=0, optimizer=None).fit(X, y)
    expected = X.std(axis=0) / [0.5, 20.0]
    np.testing.assert_allclose(model.feature_spread_, X.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-12)
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = GPClassifier(RBF([0.5, 20.0]), n_inducing=8, n_neighbors=0, optimizer=None).fit(X, y, weight)
    repeated = np.repeat(X, weight, axis=0)
    np.testing.assert_allclose(weighted.feature_spread_, repeated.std(axis=0), rtol=1e-10)


def test_importances_are_slopes_of_draws_from_the_prior():
    kernel = ConstantKernel(3.0) * RBF([0.5, 2.0]) + ConstantKernel(0.7) * RBF(1.0) * RBF([4.0, 0.3])
    found = fit(kernel=kernel).feature_importances_ / problem()[0].std(axis=0)
    h, origin = 1e-4, np.array([[0.2, -0.1]])
    slopes = [(kernel(origin) - kernel(origin, origin + h * e)) * 2.0 / h**2 for e in np.eye(2)]
    np.testing.assert_allclose(found / found.sum(), np.sqrt(slopes).ravel() / np.sqrt(slopes).sum(), rtol=1e-4)


def test_select_from_model_keeps_the_features_that_matter(tmp_path):
    X, _ = problem(300)
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.0
    noise = np.random.default_rng(5).normal(size=(300, 3))
    constant = np.full((300, 1), 3.0)
    rows = np.hstack([noise[:, :2], X, noise[:, 2:], constant])
    selector = SelectFromModel(GPClassifier(n_inducing=30, n_neighbors=0, random_state=0)).fit(rows, y)
    assert selector.get_support().tolist() == [False, False, True, True, False, False]
    importances = selector.estimator_.feature_importances_
    assert importances.sum() == pytest.approx(1.0)
    assert importances[-1] == 0.0
    selector.estimator_.save(tmp_path / "model.npz")
    loaded = GPClassifier.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.feature_importances_, importances)


def test_importances_of_kernels_for_each_class_are_the_average():
    model = fit(3, kernel=None, share="none", optimizer="profile", max_iter=5)
    each = [model.feature_spread_ / kernel.k2.length_scale for kernel in model.kernel_]
    expected = np.mean([values / values.sum() for values in each], axis=0)
    np.testing.assert_allclose(model.feature_importances_, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(RBF(1.0), "it has one length scale for all"), (DotProduct() + RBF([1.0, 1.0]), "a factor without length scales")],
)
def test_kernels_without_length_scales_for_each_feature_have_no_importances(kernel, reason):
    model = fit(kernel=kernel)
    assert not hasattr(model, "feature_importances_")
    with pytest.raises(AttributeError, match=f"has no feature_importances_: .*{reason}"):
        _ = model.feature_importances_


def test_importances_of_a_table_are_those_of_its_columns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    level, number = rng.integers(3, size=120), rng.normal(size=120)
    number[::5] = np.nan
    table = pandas.DataFrame({"level": pandas.Categorical.from_codes(level, ["a", "b", "c"]), "number": number})
    options = {"n_inducing": 8, "n_neighbors": 0, "optimizer": None, "random_state": 0}
    model = quietly(GPClassifier(**options), table, level == 1)
    each = np.array([model.encoding_.groups.index, model.encoding_.column_of_matrix])
    # Two columns; the second has an indicator, whose length scale is the third.
    np.testing.assert_array_equal(each, [[0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 1, 1]])
    slopes = model.feature_spread_ / model.kernel_.k2.length_scale
    expected = np.sqrt([np.sum(slopes[each[1] == j] ** 2) for j in range(2)])
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-12)
