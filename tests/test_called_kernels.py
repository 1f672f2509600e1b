"""Kernels that are not compiled: Sphere, Tanimoto, scikit-learn's others and users' own."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ExpSineSquared, Matern, PairwiseKernel, WhiteKernel
from sklearn.model_selection import cross_val_score
from support.dense import assert_is_a_kernel_of_scikit_learn, compiled, differences, row_differences
from support.fits import clone_of, fit, kept, quietly, refuses
from support.internals import KernelSpec
from support.latents import Problem
from support.reference import additive

from xgpc import GPClassifier
from xgpc.explain import shapley_values
from xgpc.kernels import ActiveDims, AxisMatern, Precomputed, Sphere, Tanimoto
from xgpc.onnx import to_onnx


class Own(RBF):
    """A user's kernel, which is no compiled RBF for having been made from it."""


class Flat(RBF):
    def __call__(self, X, Y=None, eval_gradient=False):
        return np.ones(len(X))


class Wrong(RBF):
    """Its variances or its covariances are as ``change`` makes them."""

    def diag(self, X):
        return Wrong.change(super().diag(X))

    def __call__(self, X, Y=None, eval_gradient=False):
        return super().__call__(X, Y) + Wrong.sign * np.sign(X[:, None, 0] - (X if Y is None else Y)[:, 0])


class Plain(RBF):
    def __call__(self, X, Y=None):
        return super().__call__(X, Y)


class Unknown(RBF):
    """It has no covariances for all but few rows, where inducing points are not."""

    factor = np.nan

    def __call__(self, X, Y=None, eval_gradient=False):
        return super().__call__(X, Y, eval_gradient) * (Unknown.factor if len(X) > 12 else 1.0)


class Failing(RBF):
    calls_left = 0

    def spend(self):
        Failing.calls_left -= 1
        if Failing.calls_left < 0:
            raise ZeroDivisionError("no more calls")

    def __call__(self, X, Y=None, eval_gradient=False):
        self.spend()
        return super().__call__(X, Y, eval_gradient)

    def diag(self, X):
        self.spend()
        return super().diag(X)


def places(n, seed=0):
    """Latitudes and longitudes of places all over a sphere, near the poles and the date line, too."""
    rng = np.random.default_rng(seed)
    return np.column_stack([np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, n))), rng.uniform(-180.0, 180.0, n)])


def test_sphere_has_the_chords_of_great_circles():
    """Of angles by the haversine formula."""
    X, Z = places(60), places(20, seed=1)
    (a, b), (c, e) = np.deg2rad(X.T)[..., None], np.deg2rad(Z.T)[:, None]
    h = np.sin((a - c) / 2.0) ** 2 + np.cos(a) * np.cos(c) * np.sin((b - e) / 2.0) ** 2
    chord = 2.0 * np.minimum(np.sqrt(h), 1.0)
    np.testing.assert_allclose(Sphere(RBF(0.4))(X, Z), np.exp(-0.5 * (chord / 0.4) ** 2), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(Sphere(Matern(0.4, nu=0.5))(X, Z), np.exp(-chord / 0.4), rtol=1e-7)
    whole_turns = X + np.array([0.0, 360.0])
    np.testing.assert_allclose(Sphere(RBF(0.4))(whole_turns, Z), Sphere(RBF(0.4))(X, Z), rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(Sphere(Matern(5.0, nu=0.5))(X)).min() > 0.0


def test_tanimoto_is_min_over_max():
    rng = np.random.default_rng(0)
    for X in (rng.integers(0, 2, (30, 12)), rng.poisson(1.0, (30, 12)), rng.uniform(size=(30, 12))):
        X[3] = 0
        Z = X[:7]
        K = np.array([[np.minimum(x, z).sum() / max(np.maximum(x, z).sum(), 1e-300) for z in Z] for x in X])
        K[3, 3] = 1.0
        np.testing.assert_allclose(Tanimoto()(X, Z), K, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(Tanimoto()(csr_array(X), csr_array(Z)), K, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(np.diag(Tanimoto()(X)), Tanimoto().diag(X))
        assert np.linalg.eigvalsh(Tanimoto()(X)).min() > -1e-12


@pytest.mark.parametrize("kernel", [Sphere(RBF(0.5)), 2.0 * Sphere(Matern(0.5)) + WhiteKernel(0.1), 2.0 * Tanimoto()])
def test_they_are_kernels_of_scikit_learn(kernel):
    assert_is_a_kernel_of_scikit_learn(kernel, np.abs(places(9)))


X, Y = additive(150)
CALLED = {
    "no gradient": Plain(1.2),
    "own": 2.0 * Own([0.7, 1.5]) + WhiteKernel(0.2),
    "periodic": 2.0 * ActiveDims(ExpSineSquared(1.3, 2.5), [0]) * Own(1.2),
    "pairwise": PairwiseKernel(gamma=0.7, metric="laplacian"),
    "a fraction as exponent": (0.5 + RBF(1.3)) ** 1.5,
    "a smoothness": Matern(1.3, nu=1.8),
}


@pytest.mark.parametrize("kernel", CALLED.values(), ids=CALLED)
def test_values_and_gradients(kernel):
    problem = Problem(kernel=kernel, n=20, m=4)
    X, Z, spec = problem.X, problem.prior.Z, problem.prior.spec
    core, latent = spec.at(Z), np.diag(kernel(X, X))
    np.testing.assert_allclose(core.cross(X), kernel(X, Z), rtol=1e-12)
    np.testing.assert_allclose(clone_of(core).cross(X), core.cross(X), rtol=0.0)
    parts, both = core.parts_of_diagonal(X), kernel.diag(X)
    np.testing.assert_allclose(parts[1], 0.2 if "White" in str(kernel) else 0.0, atol=1e-14)
    np.testing.assert_allclose([parts[0], sum(parts), core.diagonals(X)], [latent, both, both], rtol=1e-12)
    _, (by_theta, _) = problem.profiled_bound(kernel.theta, Z)
    expected = differences(lambda theta: problem.profiled_bound(theta, Z)[0], kernel.theta, 2e-3)
    np.testing.assert_allclose(by_theta, expected, rtol=0.0, atol=1e-5 * max(1.0, np.abs(by_theta).max()))


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({}, 1e-8), ({"inducing_points": "all"}, 1e-8), ({"likelihood": "softmax"}, 1e-8), ({"optimizer": "adam"}, 1e-3)],
)
def test_a_users_rbf_has_the_fit_of_the_compiled_one(options, tolerance):
    """With fixed inducing points. Steps of Adam take rounding errors of 1e-14 in the rows to 1e-4."""
    y = Y + (X[:, 0] > 1.0) if "likelihood" in options else Y
    fixed = {"inducing_points": X[:12], "n_neighbors": 0, "max_iter": 5, "random_state": 0, "learn_inducing": False}
    kernels = [2.0 * kind([1.0, 1.0]) + WhiteKernel(0.1) for kind in (Own, RBF)]
    fits = [quietly(GPClassifier(kernel, **fixed | options), X, y) for kernel in kernels]
    own, compiled_one = (model.predict_proba(X) for model in fits)
    np.testing.assert_allclose(own, compiled_one, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(fits[0].kernel_.theta, fits[1].kernel_.theta, rtol=0.0, atol=10.0 * tolerance)
    by_rows = [model.predict_latent(X[:6], return_grad=True)[2:] for model in fits]
    for found, expected in zip(*by_rows, strict=True):
        # Differences by the rows have errors of 1e-12, which the inverse of K multiplies.
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=max(1e-5, 10.0 * tolerance))
    assert sum("Own is no compiled kernel" in text for text in fits[0].decisions_) == 1
    assert not any("compiled" in text for text in fits[1].decisions_)


@pytest.mark.parametrize(
    ("kernel", "make"),
    [
        (2.0 * Sphere(RBF(0.5)), lambda rng: places(200, rng)),
        (2.0 * Tanimoto(), lambda rng: rng.poisson(1.0, (200, 6)).astype(float)),
        (2.0 * ExpSineSquared(1.0, 3.0) * RBF(50.0), lambda rng: rng.normal(0, 9, (200, 1))),
    ],
    ids=["sphere", "tanimoto", "periodic"],
)
def test_fits_and_files(kernel, make, tmp_path):
    X, T = (make(np.random.default_rng(seed)) for seed in (0, 1))
    draw = compiled(kernel, X[:20]).cross(np.vstack([X, T])) @ np.random.default_rng(3).normal(size=20)
    y, labels = np.split((draw > np.median(draw)).astype(int), 2)
    model = quietly(GPClassifier(kernel, n_inducing=20, max_iter=8, random_state=0), X, y)
    assert model.score(T, labels) > 0.75
    assert model.n_neighbors_ == 0
    kept(model, tmp_path, T)
    assert model.summary()


def test_places_among_columns_of_a_table():
    X, rng = places(200), np.random.default_rng(1)
    table = pd.DataFrame({"kind": rng.choice(["a", "b"], 200), "latitude": X[:, 0], "longitude": X[:, 1]})
    y = ((X[:, 0] > 0.0) ^ (table["kind"] == "a")).astype(int)
    where = ActiveDims(Sphere(RBF()), ["latitude", "longitude"])
    kernel = 2.0 * where * ActiveDims(RBF(), ["kind"])
    model = fit(table, y, kernel, categorical_features=["kind"], n_inducing=20, max_iter=5)
    assert model.score(table, y) > 0.85
    names = list(model.encoding_.matrix_names)
    Z = model.inducing_points_
    kinds = [j for j, name in enumerate(names) if name.startswith("kind=")]
    assert model.kernel_.get_params()["k1__k2__columns"] == [1, 2]
    variance, scale, other = np.exp(model.kernel_.theta)
    both = [names.index("latitude"), names.index("longitude")]
    expected = variance * Sphere(RBF(scale))(Z[:, both]) * RBF(other)(Z[:, kinds])
    np.testing.assert_allclose(model.posterior_.prior.core.cross(Z), expected, rtol=1e-9)


class CalledLaplace(AxisMatern):
    """Called, because it is a class of its own."""


def tanimoto_slopes(x, z):
    """Derivatives (d,) of sum min / sum max by numbers that differ from those of z."""
    low, high = np.minimum(x, z).sum(), np.maximum(x, z).sum()
    return np.where(x < z, 1.0 / high, -low / high**2)


@pytest.mark.parametrize(
    ("kernel", "slopes"),
    [
        (CalledLaplace(1.3), lambda x, z: -np.sign(x - z) / 1.3 * np.exp(-np.sum(np.abs(x - z)) / 1.3)),
        (Tanimoto(), tanimoto_slopes),
    ],
    ids=["laplace", "tanimoto"],
)
def test_gradients_near_a_kink_are_exact_or_nan(kernel, slopes):
    """The steps of the differences, 1e-5 long, straddle a kink at any offset, and find it."""
    z = np.array([0.7, 1.9, 1.1])
    core = KernelSpec(kernel, 3).at(z[None])
    for offset in np.linspace(-4e-5, 4e-5, 97):
        x = np.array([1.0, 1.9 + offset, 0.6])
        gradient, expected = core.row_gradients(x[None], np.ones((1, 1, 1)))[0, 0], slopes(x, z)
        np.testing.assert_allclose(gradient[[0, 2]], expected[[0, 2]], atol=1e-9)
        assert np.isnan(gradient[1]) if abs(offset) < 2.99e-5 else gradient[1] == pytest.approx(expected[1], abs=1e-9)


def test_smooth_kernels_with_short_length_scales_have_gradients_everywhere():
    X, Z = additive(5)[0], additive(4, seed=1)[0]
    for points in (Z, X, X + 0.02):
        G = np.ones((1, len(points), 5))
        found, expected = (KernelSpec(kind(0.02), 2).at(points).row_gradients(X, G) for kind in (Own, RBF))
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_gradients_at_a_pole_and_of_counts():
    """Over a pole latitude goes on; counts at 0 cannot be less."""
    X, y = places(80), np.arange(80) % 2
    options = {"optimizer": None, "n_inducing": 10, "random_state": 0}
    model = quietly(GPClassifier(2.0 * Sphere(RBF(0.7)), **options), X, y)
    by_x = model.predict_latent(np.array([[90.0, 10.0], [-90.0, 70.0]]), return_grad=True)[2:]
    over = np.array([[90.0 - 1e-3, 190.0], [-90.0 + 1e-3, 250.0]])
    before = np.array([[90.0 - 1e-3, 10.0], [-90.0 + 1e-3, 70.0]])
    for found, beyond, here in zip(by_x, model.predict_latent(over), model.predict_latent(before), strict=True):
        np.testing.assert_allclose(found[:, 0], (beyond - here) / [2e-3, -2e-3], rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(found[:, 1], 0.0, atol=1e-8)
    counts = np.random.default_rng(0).poisson(1.0, (80, 6)).astype(float)
    model = quietly(GPClassifier(2.0 * Tanimoto(), **options), counts, y)
    refuses(r"Gradients by x .* they need numbers above 0", model.predict_latent, counts[:4], return_grad=True)
    at = np.random.default_rng(1).uniform(0.2, 3.8, (4, 6))
    expected = row_differences(lambda rows: model.predict_latent(rows)[0], at)
    np.testing.assert_allclose(model.predict_latent(at, return_grad=True)[2], expected, atol=1e-6)


def test_a_known_period_goes_on_where_no_rows_are():
    """ExpSineSquared, scikit-learn's periodic kernel, of one of two columns."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0.0, 9.0, 200), rng.normal(size=200)])
    y = (np.sin(2.0 * np.pi * X[:, 0] / 3.0) > 0.0).astype(int)
    periodic = ActiveDims(ExpSineSquared(1.0, 3.0, periodicity_bounds="fixed"), [0])
    model = quietly(GPClassifier(4.0 * periodic, n_inducing=30, max_iter=10, random_state=0), X, y)
    later = X + np.array([300.0, 0.0])
    np.testing.assert_allclose(model.predict_proba(later), model.predict_proba(X), atol=1e-8)
    assert model.score(later, y) > 0.9
    assert model.kernel_.get_params()["k2__kernel__periodicity"] == 3.0
    near = GPClassifier(4.0 * periodic, n_neighbors=5)
    refuses(r"n_neighbors=5 .* fall with the distance, but ExpSineSquared repeats", near.fit, X, y)


def test_sparse_rows_of_sets():
    X = (np.random.default_rng(0).uniform(size=(120, 10)) < 0.3).astype(float)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    options = {"n_inducing": 15, "max_iter": 5, "n_neighbors": 0}
    dense, few = (fit(rows, y, 4.0 * Tanimoto(), **options) for rows in (X, csr_array(X)))
    assert dense.score(X, y) > 0.85
    np.testing.assert_allclose(few.predict_proba(csr_array(X)), dense.predict_proba(X), rtol=0.0, atol=1e-6)


def gram(seed, n=150):
    """Covariances of n rows and of 40 new rows with these, labels, and all rows."""
    (X, y), kernel = additive(n + 40, seed), RBF(0.8)
    return kernel(X[:n]), kernel(X[n:], X[:n]), y[:n], X


@pytest.mark.parametrize("options", [{"n_inducing": 150}, {"n_inducing": 20}, {"inducing_points": "all"}], ids=str)
def test_a_precomputed_matrix_is_the_kernel_that_made_it(options):
    """Covariances among new rows, in further columns, make joint predictions."""
    K, new, y, X = gram(0)
    called = quietly(GPClassifier(3.0 * Precomputed(), optimizer=None, random_state=0, **options), K, y)
    points = options.get("inducing_points", X[np.argmax(called.inducing_points_, axis=1)])
    direct = quietly(GPClassifier(3.0 * RBF(0.8), inducing_points=points, optimizer=None, n_neighbors=0), X[:150], y)
    np.testing.assert_allclose(called.elbo_, direct.elbo_, rtol=1e-6)
    np.testing.assert_allclose(called.predict_proba(new), direct.predict_proba(X[150:]), atol=1e-5)
    # New rows, two that equal training rows, and one twice.
    X, new = np.vstack([X[150:], X[7:9], X[155:156]]), np.vstack([new, K[7:9], new[5:6]])
    joint = np.hstack([new, RBF(0.8)(X)])
    moments, expected = called.predict_latent(joint, return_cov=True), direct.predict_latent(X, return_cov=True)
    for moment, of_rows in zip(moments, expected, strict=True):
        np.testing.assert_allclose(moment, of_rows, atol=1e-6)
    draws = called.sample_latent(joint, 5, random_state=0)
    assert draws.shape == (43, 5)
    np.testing.assert_allclose(draws[5], draws[42], atol=1e-3)
    refuses("The joint covariance of r new rows needs r further columns", called.predict_latent, new[:40], True)


def test_the_name_precomputed_learns_a_variance_and_is_kept(tmp_path):
    K, new, y, _ = gram(1)
    model = quietly(GPClassifier("precomputed", random_state=0), K, y)
    assert type(model.kernel_.k2) is Precomputed
    assert model.kernel_.k1.constant_value != 2.0
    # No row is an average: each inducing point is a row of the matrix.
    assert all(np.any(np.all(point == K, axis=1)) for point in model.inducing_points_)
    for power in (0.5, 2.0):
        kernel = power * model.kernel_.k1.constant_value * Precomputed()
        other = quietly(GPClassifier(kernel, inducing_points=model.inducing_points_, optimizer=None), K, y)
        assert other.elbo_ < model.elbo_
    assert kept(model, tmp_path, new).kernel == "precomputed"


def test_a_warm_start_with_another_matrix_starts_anew():
    (K, new, y, _), (other, _, labels, _) = gram(1), gram(4)
    model = quietly(GPClassifier("precomputed", warm_start=True, random_state=0), other, labels)
    again = quietly(model, K, y).predict_proba(new)
    np.testing.assert_array_equal(again, quietly(GPClassifier("precomputed", random_state=0), K, y).predict_proba(new))


def test_searches_take_rows_and_columns_of_a_precomputed_matrix():
    K, _, y, _ = gram(2)
    assert np.all(cross_val_score(GPClassifier("precomputed", random_state=0), K, y, cv=3) > 0.8)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_precomputed_kernel_refuses():
    K, new, y, _ = gram(3)
    model = GPClassifier("precomputed", max_iter=2)
    refuses(r"ones on its diagonal.*np\.outer\(np\.diag.*largest value is 2", model.fit, 2.0 * K, y)
    refuses("ones on its diagonal", model.fit, K[:, :20], y)
    refuses("needs a symmetric matrix", model.fit, K - 0.5 * np.triu(K, 1), y)
    quietly(model, K, y)
    refuses("X has 100 features, but GPClassifier is expecting 150", model.predict, new[:, :100])
    refuses(r"between -1 and 1; got one of size .* new rows by the roots", model.predict, 50.0 * new)
    refuses(r"kernel must be .* object, 'precomputed' or None; got 'rbf'", GPClassifier("rbf").fit, K, y)


def test_what_kernels_refuse():
    X, y = additive(40, d=3)
    refuses(r"Sphere needs two columns.*got 3 columns.*ActiveDims\(Sphere", GPClassifier(Sphere(RBF())).fit, X, y)
    refuses(r"latitude from -90 to 90.*the first up to 91", Sphere(RBF()), [[91.0, 0.0]])
    refuses("finite longitude", Sphere(RBF()), [[0.0, np.inf]])
    negative = "Tanimoto needs numbers that are not negative"
    for bad in (X, np.where(X > 1.0, np.nan, np.abs(X))):
        refuses(negative, Tanimoto(), bad)
    refuses(negative, GPClassifier(Tanimoto()).fit, X, y)
    several, flat = (GPClassifier(one, inducing_points=X[:5]) for one in (CompoundKernel([RBF(), RBF(2.0)]), Flat()))
    refuses("is several kernels side by side", several.fit, X, y)
    refuses(r"must return the covariances, .* shape \(5, 5\); it returned an array of shape \(5,\)", flat.fit, X, y)
    for Wrong.change, Wrong.sign, message in (
        (
            lambda variances: variances[1:],
            0.0,
            r"diag of Wrong.* must return the variances.* shape \(40,\); .* \(39,\)",
        ),
        (np.negative, 0.0, "returned -1; no variance is negative"),
        (np.positive, 0.3, "must be symmetric"),
        (np.positive, 0.3j, "real numbers of shape .* complex128"),
    ):
        for options in ({"inducing_points": X[:5]}, {"inducing_points": "all"}):
            refuses(message, GPClassifier(Wrong(), optimizer=None, **options).fit, X, y)
    with np.errstate(all="ignore"):
        refuses(r"must have positive and finite parameters", KernelSpec, Own(-1.0), 3)


def test_a_kernel_that_fails_within_a_fit_or_prediction_ends_it(monkeypatch):
    unknown = GPClassifier(Unknown(), inducing_points=X[:5], n_neighbors=0)
    for factor, message in (
        (np.nan, r"The kernel Unknown\(.* returned NaN; it must return"),
        (np.inf, r"bound is nan: .*Unknown.* has no finite values\."),
    ):
        monkeypatch.setattr(Unknown, "factor", factor)
        refuses(message, unknown.fit, X, Y)
    where = places(40)
    model = quietly(GPClassifier(Sphere(RBF()), optimizer=None, n_inducing=5), where, np.arange(40) % 2)
    where[7, 0] = 95.0
    refuses(r"latitude from -90 to 90 .* the first up to 95", model.predict_proba, where)


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam"}, {"optimizer": "alternate", "bound": "polya-gamma"}])
@pytest.mark.parametrize("n_calls", [4, 12, 40])
def test_the_error_of_a_kernel_comes_out_once_and_whole(options, n_calls, capfd):
    """From calls in the core, too: of values, of gradients, and in other threads."""
    X, y = additive(2000)
    kernel = Failing()
    model = GPClassifier(kernel, inducing_points=X[:5], n_jobs=2, max_iter=40, tol=1e-12, random_state=0, **options)
    Failing.calls_left = n_calls
    with pytest.raises(ZeroDivisionError, match="no more calls") as caught:
        quietly(model, X, y)
    assert caught.traceback[-1].name == "spend"
    assert capfd.readouterr() == ("", "")
    Failing.calls_left = 10**9
    quietly(model.set_params(optimizer=None), X, y)
    for call in (model.predict_proba, lambda rows: model.predict_latent(rows, return_cov=True), model.sample_latent):
        Failing.calls_left = 1
        refuses("no more calls", call, X[:300], error=ZeroDivisionError)
    assert capfd.readouterr() == ("", "")


def test_what_needs_compiled_kernels_says_so(tmp_path):
    model = quietly(GPClassifier(Own(), n_inducing=8, max_iter=2, random_state=0), X, Y)
    refuses(r"Files hold kernels of .*is a Own\. pickle keeps", model.save, tmp_path / "model.npz")
    np.testing.assert_array_equal(clone_of(model).predict_proba(X), model.predict_proba(X))
    refuses(r"is for compiled kernels; Own is no compiled kernel\. pickle keeps", model.to_arrays)
    for function, given in ((to_onnx, (model,)), (shapley_values, (model, X))):
        refuses("Own is no compiled kernel", function, *given)
    refuses("is for compiled kernels", model.sample_latent, X, method="pathwise")
    assert model.sample_latent(X[:4], 3, random_state=0).shape == (4, 3)
    reason = "not compiled, because Own is no compiled kernel"
    refuses(reason, getattr, model, "feature_importances_", error=AttributeError)
    refuses("n_neighbors=5 is for compiled kernels; Own", GPClassifier(Own(), n_neighbors=5).fit, X, Y)
