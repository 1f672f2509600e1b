"""Draws of latent functions: moments, kernels' spectra, paths; what scikit-learn's classifier has by other names."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern, RationalQuadratic
from sklearn.gaussian_process.kernels import WhiteKernel as White
from support.dense import labelled
from support.fits import peak_bytes, quietly, refuses
from support.internals import covariance_bytes

from xgpc import GPClassifier
from xgpc.kernels import ActiveDims, AxisMatern

X, Y = labelled(120, n_classes=2)
KERNELS = {
    "matern-1/2": Matern(0.8, nu=0.5), "matern-5/2": ConstantKernel(1.5) * Matern(0.9, nu=2.5),
    "matern-inf": Matern([0.7, 1.2], nu=np.inf), "rational quadratic": RationalQuadratic(0.9, 0.7),
    "sum": ConstantKernel(0.5) + ConstantKernel(1.3) * RBF([0.7, 1.2]) + Matern(0.4, nu=1.5),
    "product": RBF([0.7, 1.2]) * RationalQuadratic(0.9, 0.7) * Matern(2.0, nu=0.5),
    "axis-1/2": ConstantKernel(1.5) * AxisMatern([1.2, 2.0]),
    "axis-3/2 and a sum": ConstantKernel(1.5) * AxisMatern(1.5, nu=1.5) + AxisMatern(1.0) * RBF(2.0),
    "power": (RBF(1.0) + ConstantKernel(0.3)) ** 2, "linear": ConstantKernel(0.6) * DotProduct(0.8),
    "linear in one feature, and a sum": RBF(0.9) + ActiveDims(DotProduct(0.3), [1]),
    "polynomial": ConstantKernel(0.2) * DotProduct(1.1) ** 2,
    "linear trend times waves": DotProduct(0.5) * RBF([0.7, 1.2]),
    "periodic": ActiveDims(ExpSineSquared(0.7, 2.5), [0]) * RBF([4.0, 1.0]),
    "periodic and a sum": ActiveDims(ExpSineSquared(1.5, 0.9), [1]) + ConstantKernel(0.5),
}  # fmt: skip
LEVEL = 5.0
SMOOTH = 2.0 * RBF([0.8, 1.1])


def assert_moments(sample, mean, covariance):
    """Of draws (n, n_draws): within five standard errors of a normal distribution's estimates, in every entry."""
    n_draws = sample.shape[1]
    variance = np.diag(covariance)
    assert np.all(np.abs(sample.mean(axis=1) - mean) <= LEVEL * np.sqrt(variance / n_draws) + 1e-9)
    errors = np.sqrt((np.outer(variance, variance) + covariance**2) / n_draws)
    assert np.all(np.abs(np.cov(sample) - covariance) <= LEVEL * errors + 1e-9)


def fit(n_classes=2, kernel=SMOOTH, **options):
    options = {"n_inducing": 8, "n_neighbors": 0, "optimizer": None, "random_state": 0, **options}
    return quietly(GPClassifier(kernel, **options), *labelled(120, n_classes=n_classes))


DRAWN = {
    "two classes": (2, {}),
    "noise": (2, {"kernel": ConstantKernel(2.0) * Matern(0.9, nu=1.5) + White(0.3)}),
    "a kernel for all": (3, {}),
    **{name: (2, {"kernel": kernel}) for name, kernel in KERNELS.items()},
    "kernels for each": (3, {"share": "none", "likelihood": "logistic-softmax"}),
    "full": (2, {"inducing_points": "all"}),
    "full, of several": (3, {"inducing_points": "all", "kernel": KERNELS["linear trend times waves"]}),
    "full, with negative precisions": (
        2, {"inducing_points": "all", "likelihood": "step", "label_noise": 0.1, "kernel": RBF() + White(0.2)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", ["exact", "pathwise"])
@pytest.mark.parametrize("kind", DRAWN)
def test_draws_have_the_mean_and_covariance_of_predict_latent(method, kind, tuned):
    tuned(cosines=64)
    n_classes, options = DRAWN[kind]
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
        assert np.all(np.abs(np.corrcoef(sample[0]) - np.eye(3)) <= LEVEL / np.sqrt(n_draws) + 1e-12)


def test_draws_with_neighbours_are_exact(tuned):
    model = fit(n_neighbors=4)
    X = np.random.default_rng(2).normal(size=(5, 2))
    tuned(exact_draws=1)
    assert_moments(model.sample_latent(X, 4000, random_state=3), *model.predict_latent(X, return_cov=True))
    refuses(r"is not for models with neighbours \(n_neighbors_ above 0\)", model.sample_latent, X, method="pathwise")


def test_draws_do_not_depend_on_threads_and_paths_not_on_the_other_rows():
    model, X = fit(), np.random.default_rng(0).normal(size=(3000, 2))
    # The last group of draws is smaller.
    options = {"n_samples": 18, "random_state": 1, "method": "pathwise"}
    sample = model.sample_latent(X, **options)
    np.testing.assert_array_equal(sample, model.set_params(n_jobs=2).sample_latent(X, **options))
    np.testing.assert_allclose(model.sample_latent(X[1500:1600], **options), sample[1500:1600], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.sample_latent(X[:5].astype(np.float32), **options), sample[:5], atol=1e-4)


@pytest.mark.parametrize(
    ("n_classes", "options"),
    [(2, {}), (3, {}), (2, {"inducing_points": "all"}), (3, {"inducing_points": "all"}), (2, {"n_neighbors": 6})],
)
def test_a_covariance_of_many_rows_is_refused_before_it_takes_the_memory(n_classes, options, tuned):
    model, X = fit(n_classes, **options), np.random.default_rng(0).normal(size=(700, 2))
    q = model.posterior_
    q.covariance(X[:2])
    peak, _ = peak_bytes(model.predict_latent, X, True)
    assert 0.5 * covariance_bytes(q, 700) <= peak <= 1.1 * covariance_bytes(q, 700)
    tuned(covariance_bytes=covariance_bytes(q, 699))
    assert model.predict_latent(X[:699], return_cov=True)[1].shape[0] == 699
    for call in (lambda: model.predict_latent(X, return_cov=True), lambda: model.sample_latent(X, method="exact")):
        refuses(r"joint covariance of 700 rows would need .* GB.* Give fewer rows", call)


def test_latent_mean_and_variance_and_the_evidence_have_the_names_of_scikit_learn():
    model = fit()
    np.testing.assert_equal(model.latent_mean_and_variance(X), model.predict_latent(X))
    assert np.shape(model.latent_mean_and_variance(X)) == (2, len(X))
    assert model.log_marginal_likelihood_value_ == model.elbo_ == pytest.approx(model.elbo(X, Y), rel=1e-9)
    assert not hasattr(GPClassifier(), "log_marginal_likelihood_value_")


def test_importances_are_inverse_length_scales_times_standard_deviations():
    rows = X * [1.0, 50.0]
    model = GPClassifier(RBF([0.5, 20.0]), n_inducing=8, n_neighbors=0, optimizer=None).fit(rows, Y)
    expected = rows.std(axis=0) / [0.5, 20.0]
    np.testing.assert_allclose(model.feature_spread_, rows.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-12)
    weight = np.random.default_rng(0).integers(0, 3, len(rows))
    spread = model.fit(rows, Y, weight).feature_spread_
    np.testing.assert_allclose(spread, np.repeat(rows, weight, axis=0).std(axis=0), rtol=1e-10)


def test_importances_are_slopes_of_draws_from_the_prior():
    kernel = ConstantKernel(3.0) * RBF([0.5, 2.0]) + ConstantKernel(0.7) * RBF(1.0) * RBF([4.0, 0.3])
    found = fit(kernel=kernel).feature_importances_ / X.std(axis=0)
    h, origin = 1e-4, np.array([[0.2, -0.1]])
    slopes = [(kernel(origin) - kernel(origin, origin + h * e)) * 2.0 / h**2 for e in np.eye(2)]
    np.testing.assert_allclose(found / found.sum(), np.sqrt(slopes).ravel() / np.sqrt(slopes).sum(), rtol=1e-4)


def test_importances_of_a_table_are_those_of_its_columns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    level, number = rng.integers(3, size=120), rng.normal(size=120)
    number[::5] = np.nan
    table = pandas.DataFrame({"level": pandas.Categorical.from_codes(level, ["a", "b", "c"]), "number": number})
    model = quietly(GPClassifier(n_inducing=8, n_neighbors=0, optimizer=None, random_state=0), table, level == 1)
    each = np.array([model.encoding_.groups.index, model.encoding_.features_of(0)])
    # Two columns; the second has an indicator, whose length scale is the third.
    np.testing.assert_array_equal(each, [[0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 1, 1]])
    slopes = model.feature_spread_ / model.kernel_.k2.length_scale
    expected = np.sqrt([np.sum(slopes[each[1] == j] ** 2) for j in range(2)])
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-12)
