"""Warped features: which ones, by how much, and that fits and predictions have them everywhere alike."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from support.fits import quietly, without_warnings

from xgpc import GPClassifier
from xgpc.data.encoding import Encoding
from xgpc.data.tails import Warp
from xgpc.explain import shapley_values
from xgpc.onnx import to_onnx

RANDOM = np.random.default_rng(0)
N = 1000
LIGHT = {
    "normal": RANDOM.normal(size=N),
    "uniform": RANDOM.uniform(size=N),
    "one value": np.full(N, 0.1),
    "two values": np.where(RANDOM.uniform(size=N) < 0.01, 1e6, 0.0),
    "ten scores": np.where(RANDOM.uniform(size=N) < 0.98, 0, RANDOM.integers(0, 10, N)),
    "counts": RANDOM.poisson(8.0, N),
    "normal, with codes": np.where(np.arange(N) % 50, RANDOM.normal(size=N), -9999.0),
}
HEAVY = {
    "log-normal": RANDOM.lognormal(sigma=1.5, size=N),
    "Student t": RANDOM.standard_t(2.5, N),
    "many zeros": np.where(RANDOM.uniform(size=N) < 0.7, 0.0, RANDOM.lognormal(sigma=1.5, size=N)),
    "counts": np.floor(RANDOM.lognormal(1.0, 1.5, N)),
}


def encoding_of(rows, weight=None, **options):
    """What a fit of the default kernel makes of rows."""
    options = {"n_inducing": 2, "n_neighbors": 0, "optimizer": None, "max_iter": 1, "random_state": 0, **options}
    return quietly(GPClassifier(**options), rows, np.arange(len(rows)) % 2, sample_weight=weight).encoding_


def warps_of(rows, weight=None, **options):
    encoding = encoding_of(rows, weight, **options)
    return () if encoding is None else encoding.warps


def skewed(n, seed):
    """Three independent normal features that the labels depend on smoothly, two of them observed on other scales."""
    random = np.random.default_rng(seed)
    Z = random.normal(size=(n, 3))
    y = (Z[:, 0] + np.sin(2.0 * Z[:, 1]) + 0.3 * random.normal(size=n) > 0.0).astype(int)
    return np.column_stack([np.exp(2.0 * Z[:, 0]), np.sinh(2.0 * Z[:, 1]), Z[:, 2]]), y


X, Y = skewed(300, 0)
OTHERS, LABELS = skewed(500, 1)
model = partial(GPClassifier, n_inducing=15, n_neighbors=0, max_iter=15, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return quietly(model(), X, Y)


@pytest.mark.parametrize("name", LIGHT)
def test_light_tails_and_few_values_stay(name):
    assert warps_of(LIGHT[name][:, None]) == ()


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails_are_warped_by_median_and_deviations_from_it(name):
    values = HEAVY[name]
    (found,) = warps_of(np.column_stack([LIGHT["normal"], values]))
    size = np.abs(values - np.median(values))
    deviation = 1.4826 * np.median(size)
    scale = deviation if deviation > 0.0 else np.quantile(size[size > 0.0], 0.25)
    assert found.feature == 1
    np.testing.assert_allclose([found.centre, found.scale], [np.median(values), scale], rtol=0.03, atol=0.01)


def test_the_warp_is_an_inverse_hyperbolic_sine(fitted):
    expected = OTHERS.copy()
    assert [one.feature for one in fitted.encoding_.warps] == [0, 1]
    for j, centre, scale in fitted.encoding_.warps:
        expected[:, j] = centre + scale * np.arcsinh((OTHERS[:, j] - centre) / scale)
    assert fitted.encoding_.limits == ()
    np.testing.assert_allclose(fitted.encoding_.encode(OTHERS), expected, rtol=1e-14)


def test_codes_in_heavy_tails_are_far_from_all_others_and_the_largest_values_are_not():
    values = HEAVY["log-normal"].copy()
    values[:3] = 1e5, 3e5, 7e5
    rows = np.column_stack([LIGHT["normal"], values])
    tail = encoding_of(rows)
    assert [one.feature for one in tail.warps] == [1]
    assert tail.limits == ()
    assert [one.feature for one in encoding_of(rows, feature_transform="auto", kernel=RBF([1.0, 1.0])).limits] == [1]
    rows[3:23, 1] = -9999.0
    coded = encoding_of(rows)
    (limit,) = coded.limits
    assert [one.feature for one in coded.warps] == [limit.feature] == [1]
    assert limit.low > -9999.0
    assert coded.encode(rows)[3, 1] == coded.encode(np.array([[0.0, limit.low]]))[0, 1]
    np.testing.assert_allclose([coded.warps[0].centre, coded.warps[0].scale], tail.warps[0][1:], rtol=0.1)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=30),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
)
def test_warps_are_monotone_and_can_be_taken_back(values, centre, scale):
    encoding, rows = Encoding((), "", (), (Warp(0, centre, scale),)), np.sort(values)[:, None]
    warped = encoding.transform(rows)
    assert np.all(np.diff(warped[:, 0]) >= 0.0)
    np.testing.assert_allclose(encoding.inverse(warped), rows, rtol=1e-7, atol=1e-7 * (abs(centre) + scale))


@settings(deadline=None, max_examples=12)
@given(st.sampled_from(sorted(HEAVY)), st.integers(0, 100))
def test_weights_equal_repeats(name, seed):
    rows = HEAVY[name][:, None]
    repeats = np.random.default_rng(seed).integers(1, 4, N)
    weighted, repeated = warps_of(rows, repeats.astype(np.float64)), warps_of(np.repeat(rows, repeats, axis=0))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12)


@settings(deadline=None, max_examples=12)
@given(st.sampled_from(sorted(HEAVY)), st.integers(-60, 60))
def test_warps_scale_with_the_values(name, power):
    ((j, centre, scale),) = warps_of(HEAVY[name][:, None])
    assert warps_of(2.0**power * HEAVY[name][:, None]) == (Warp(j, 2.0**power * centre, 2.0**power * scale),)


def test_a_kernel_of_the_user_and_none_leave_features(tmp_path):
    assert warps_of(X, kernel=RBF(1.0)) == warps_of(X, feature_transform=None) == ()
    assert quietly(model(), csr_matrix(X), Y).encoding_ is None
    np.save(tmp_path / "X.npy", X)
    mapped = quietly(model(), np.load(tmp_path / "X.npy", mmap_mode="r"), Y)
    assert mapped.encoding_ is None
    assert any("heavy tails stay, because X is a memory map" in text for text in mapped.decisions_)


def test_heavy_tails_cost_less_with_warps(fitted):
    raw = quietly(model(feature_transform=None), X, Y)
    by_hand = np.column_stack([np.log(X[:, 0]), np.arcsinh(X[:, 1]), X[:, 2]])
    others = np.column_stack([np.log(OTHERS[:, 0]), np.arcsinh(OTHERS[:, 1]), OTHERS[:, 2]])
    best = log_loss(LABELS, quietly(model(), by_hand, Y).predict_proba(others))
    found, lost = (log_loss(LABELS, one.predict_proba(OTHERS)) for one in (fitted, raw))
    assert found < lost - 0.05
    assert found < best + 0.05
    (told,) = [text for text in fitted.decisions_ if "heavy tails" in text]
    assert "feature 0, feature 1." in told


@pytest.mark.parametrize("options", [{}, {"n_neighbors": 5}, {"inducing_points": "all"}])
def test_a_fit_is_that_of_the_encoded_rows(options):
    found = quietly(model(**options), X, Y)
    encode = found.encoding_.encode
    off = quietly(model(feature_transform=None, **options), encode(X), Y)
    np.testing.assert_array_equal(off.predict_proba(encode(OTHERS)), found.predict_proba(OTHERS))
    np.testing.assert_array_equal(off.feature_importances_, found.feature_importances_)


def test_rows_of_other_types_are_warped_alike(fitted):
    expected = fitted.predict_proba(OTHERS)
    np.testing.assert_array_equal(fitted.predict_proba(csr_matrix(OTHERS)), expected)
    np.testing.assert_array_equal(fitted.predict_proba(np.asfortranarray(OTHERS)), expected)
    np.testing.assert_array_equal(np.vstack([fitted.predict_proba(row[None]) for row in OTHERS[:9]]), expected[:9])
    single = quietly(model(), X.astype(np.float32), Y)
    assert single.encoding_.encode(OTHERS.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.predict_proba(OTHERS.astype(np.float32)), expected, atol=0.02)
    assert fitted.elbo(X, Y) == pytest.approx(fitted.elbo_)


def test_given_inducing_points_are_in_the_units_of_the_rows():
    found = quietly(model(inducing_points=X[:20], optimizer=None), X, Y)
    np.testing.assert_array_equal(found.inducing_points_, found.encoding_.encode(X[:20]))


def test_files_keep_warps_and_refuse_others(fitted, tmp_path):
    fitted.save(tmp_path / "model.npz")
    loaded = GPClassifier.load(tmp_path / "model.npz")
    assert loaded.encoding_ == fitted.encoding_
    np.testing.assert_array_equal(loaded.predict_proba(OTHERS), fitted.predict_proba(OTHERS))
    data = fitted.encoding_.to_data()
    for wrong in (
        [[0, 1.0, 0.0]],
        [[0, 1.0, float("nan")]],
        [[1, 0.0, 1.0], [0, 0.0, 1.0]],
        [[0, 1.0]],
        [["0", 1.0, 1.0]],
    ):
        with pytest.raises(ValueError, match="not valid"):
            Encoding.from_data({**data, "warps": wrong})


def test_further_rows_and_warm_starts_keep_the_warps():
    first = quietly(model(), X, Y)
    encode, warps = first.encoding_.encode, first.encoding_.warps
    stream = without_warnings(model().partial_fit, X, Y)
    assert stream.encoding_ == first.encoding_
    off = without_warnings(model(feature_transform=None).partial_fit, encode(X), Y)
    for batch in (slice(0, 100), slice(100, 500)):
        without_warnings(stream.partial_fit, OTHERS[batch], LABELS[batch])
        without_warnings(off.partial_fit, encode(OTHERS[batch]), LABELS[batch])
    np.testing.assert_array_equal(stream.predict_proba(X), off.predict_proba(encode(X)))
    warm = quietly(first.set_params(warm_start=True), OTHERS, LABELS)
    assert warm.encoding_.warps == warps != warps_of(OTHERS)
    assert not any("begins anew" in text for text in warm.decisions_)
    # The earlier posterior is of warped rows.
    raw = quietly(warm.set_params(feature_transform=None), OTHERS, LABELS)
    assert raw.encoding_ is None
    assert any("begins anew" in text for text in raw.decisions_)
    wider = quietly(quietly(model(warm_start=True), X, Y), np.column_stack([OTHERS, OTHERS[:, 0]]), LABELS)
    assert [one.feature for one in wider.encoding_.warps] == [0, 1, 3]


def test_many_rows_in_batches_are_warped(tuned):
    tuned(kept_rows=250)
    batches = [(X[:100], Y[:100]), (X[100:], Y[100:])]
    found = without_warnings(model().fit_batches, batches)
    encode = found.encoding_.encode
    assert [one.feature for one in found.encoding_.warps] == [0, 1]
    off = without_warnings(model(feature_transform=None).fit_batches, [(encode(rows), y) for rows, y in batches])
    np.testing.assert_array_equal(off.predict_proba(encode(OTHERS)), found.predict_proba(OTHERS))


def test_onnx_models_predict_alike(fitted):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.vstack([OTHERS, 1e3 * OTHERS[:50], -OTHERS[:50]])
    np.testing.assert_allclose(session.run(["probabilities"], {"X": rows})[0], fitted.predict_proba(rows), atol=1e-5)


def test_columns_of_tables_are_warped():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"shop": np.where(X[:, 2] > 0.0, "a", "b"), "income": X[:, 0], "age": X[:, 2]})
    frame.loc[::9, "age"] = np.nan
    found = quietly(model(), frame, Y)
    (warp,) = found.encoding_.warps
    assert found.encoding_.matrix_names[warp.feature] == "income"
    assert any("'income'" in text for text in found.decisions_ if "heavy tails" in text)
    # In a table of numbers, the mean of the warped values stands for a missing one.
    numbers = frame[["income"]].assign(noise=X[:, 2])
    plain = quietly(model(), numbers, Y)
    (warp,) = plain.encoding_.warps
    with pytest.warns(UserWarning, match="mean stands for"):
        missing = plain.predict_proba(pd.DataFrame({"income": [np.nan], "noise": [0.5]}))
    mean = plain.encoding_.inverse(plain.feature_mean_[None])[0, 0]
    np.testing.assert_allclose(missing, plain.predict_proba(pd.DataFrame({"income": [mean], "noise": [0.5]})))
    assert warp.centre < mean < np.mean(numbers["income"])


def test_a_warm_start_ignores_a_kernel_that_it_is_given():
    first = quietly(model(), X, Y)
    warps = first.encoding_.warps
    again = quietly(first.set_params(warm_start=True, kernel=2.0 * RBF(np.ones(X.shape[1]))), OTHERS, LABELS)
    assert again.encoding_.warps == warps
    assert not any("begins anew" in text for text in again.decisions_)


def test_the_default_baseline_of_shapley_values_is_the_mean_of_encoded_rows(fitted):
    found = shapley_values(fitted, X[:3])
    given = shapley_values(fitted, X[:3], fitted.encoding_.inverse(fitted.feature_mean_[None])[0])
    np.testing.assert_allclose(found.values, given.values, atol=1e-9)
    total = given.baseline_value + given.values.sum(axis=1) + given.residual
    np.testing.assert_allclose(total, fitted.predict_latent(X[:3])[0], atol=1e-9)
