"""Transformed features: values far from all others at limits, heavy tails warped, in fits and predictions alike."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from support.fits import kept, quietly, refuses, reloaded, without_warnings
from support.reference import moons

from xgpc import GPClassifier
from xgpc.data.encoding import Encoding
from xgpc.data.tails import Warp
from xgpc.explain import shapley_values
from xgpc.onnx import to_onnx

N = 1000
NONE = -np.inf, np.inf
RANDOM = np.random.default_rng(0)
CLEAN = {
    "normal": RANDOM.normal(size=N), "uniform": RANDOM.uniform(size=N), "log-normal": np.exp(RANDOM.normal(size=N)),
    "counts": RANDOM.poisson(0.3, N), "many zeros": np.maximum(RANDOM.normal(-1.0, 1.0, N), 0.0),
    "two values": np.where(RANDOM.uniform(size=N) < 0.01, 1e6, 0.0), "one value": np.full(N, -9999.0),
    "two clusters": np.where(RANDOM.uniform(size=N) < 0.1, 500.0, 0.0) + RANDOM.normal(size=N),
}  # fmt: skip
# What is far, and how much of it.
CODES = {"below": (-1e7, 0.01), "above": (1e7, 0.003), "a row": (1e9, 0.0011), "a fifth": (-1e7, 0.2)}

RANDOM = np.random.default_rng(0)
LIGHT = {name: CLEAN[name] for name in ("normal", "uniform", "one value", "two values")}
LIGHT |= {
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


def with_codes(values, code, share):
    return np.where(np.arange(len(values)) < share * len(values), code, values)


def encoding_of(rows, weight=None, **options):
    """What a fit makes of rows; one with a kernel of the user does not warp them."""
    options = {"n_inducing": 2, "n_neighbors": 0, "optimizer": None, "max_iter": 1, "random_state": 0, **options}
    return quietly(GPClassifier(**options), rows, np.arange(len(rows)) % 2, sample_weight=weight).encoding_


def limits_of(values):
    encoding = encoding_of(np.asarray(values, dtype=np.float64)[:, None], kernel=RBF())
    return (encoding.limits[0].low, encoding.limits[0].high) if encoding else NONE


def warps_of(rows, **options):
    encoding = encoding_of(rows, **options)
    return () if encoding is None else encoding.warps


def coded(n, seed, code=-9999.0):
    """Moons with a feature of noise, of which each cell in fifty is a code."""
    X, y = moons(n, seed)
    random = np.random.default_rng(seed)
    X = np.column_stack([X, random.normal(size=n)])
    return np.where(random.uniform(size=X.shape) < 0.02, code, X), y


def skewed(n, seed):
    """Three independent normal features that the labels depend on smoothly, two of them observed on other scales."""
    random = np.random.default_rng(seed)
    Z = random.normal(size=(n, 3))
    y = (Z[:, 0] + np.sin(2.0 * Z[:, 1]) + 0.3 * random.normal(size=n) > 0.0).astype(int)
    return np.column_stack([np.exp(2.0 * Z[:, 0]), np.sinh(2.0 * Z[:, 1]), Z[:, 2]]), y


def rows_of(make, n):
    """Rows and labels to fit, and others."""
    (X, y), (others, labels) = make(n, 0), make(500, 1)
    return SimpleNamespace(X=X, y=y, others=others, labels=labels)


CODED, SKEWED = rows_of(coded, 240), rows_of(skewed, 300)
X, Y, OTHERS, LABELS = vars(SKEWED).values()
model = partial(GPClassifier, n_inducing=15, n_neighbors=0, max_iter=15, random_state=0)
every_kind = pytest.mark.parametrize("rows", [CODED, SKEWED], ids=["coded", "skewed"])


@pytest.fixture(scope="module")
def limited():
    return quietly(model(), CODED.X, CODED.y)


@pytest.fixture(scope="module")
def warped():
    return quietly(model(), X, Y)


@pytest.mark.parametrize("name", CLEAN)
def test_tails_that_thin_out_stay(name):
    assert limits_of(CLEAN[name]) == NONE


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["normal", "uniform", "log-normal", "counts", "many zeros", "two clusters"])
def test_codes_are_beyond_a_limit_near_the_others(name, code):
    value, share = CODES[code]
    # At most a quarter of the values without the one that most rows have.
    share *= 0.2 if name in ("counts", "many zeros") and code == "a fifth" else 1.0
    values = with_codes(CLEAN[name], value, share)
    others = values[values != value]
    low, high = limits_of(values)
    near, far = (low, high) if value < 0.0 else (high, low)
    assert np.isinf(far)
    assert abs(near) <= np.max(np.abs(others)) + 4.0 * np.ptp(others)
    assert np.mean((others >= low) & (others <= high)) >= 0.985


@settings(max_examples=30)
@given(st.sampled_from(sorted(CLEAN)), st.sampled_from(sorted(CODES)), st.integers(-200, 200))
def test_limits_scale_and_turn_with_the_values(name, code, power):
    values = with_codes(CLEAN[name], *CODES[code])
    low, high = limits_of(values)
    assert limits_of(2.0**power * values) == (2.0**power * low, 2.0**power * high)
    assert limits_of(-values) == (-high, -low)


CODED_OR_HEAVY = {code: with_codes(CLEAN["normal"], *CODES[code]) for code in CODES} | HEAVY


@settings(max_examples=24)
@given(st.sampled_from(sorted(CODED_OR_HEAVY)), st.integers(0, 100))
def test_weights_equal_repeats(name, seed):
    rows = CODED_OR_HEAVY[name][:, None]
    repeats = np.random.default_rng(seed).integers(1, 4, N)
    weighted, repeated = encoding_of(rows, repeats.astype(np.float64)), encoding_of(np.repeat(rows, repeats, axis=0))
    assert weighted.limits == repeated.limits
    np.testing.assert_allclose(weighted.warps, repeated.warps, rtol=1e-12)


@every_kind
@pytest.mark.parametrize("options", [{}, {"n_neighbors": 5}, {"inducing_points": "all"}], ids=str)
def test_a_fit_is_that_of_the_encoded_rows(rows, options):
    found = quietly(model(**options), rows.X, rows.y)
    encode = found.encoding_.encode
    off = quietly(model(feature_transform=None, **options), encode(rows.X), rows.y)
    assert off.encoding_ is None
    assert off.elbo_ == found.elbo_
    np.testing.assert_array_equal(off.predict_proba(encode(rows.others)), found.predict_proba(rows.others))
    np.testing.assert_array_equal(off.feature_importances_, found.feature_importances_)


@every_kind
def test_rows_of_other_kinds_are_encoded_alike(rows):
    """Sparse ones, of another layout or type, alone or in batches."""
    fitted, single = quietly(model(), rows.X, rows.y), quietly(model(), rows.X.astype(np.float32), rows.y)
    near, far = rows.others, np.vstack([rows.others[:50], 1e5 * rows.others[:50], -1e5 * rows.others[:50]])
    expected, encode = fitted.predict_proba(far), fitted.encoding_.encode
    for other in (csr_matrix(far), np.asfortranarray(far)):
        np.testing.assert_array_equal(fitted.predict_proba(other), expected)
    np.testing.assert_array_equal(np.vstack([encode(row[None]) for row in far]), encode(far))
    np.testing.assert_allclose(np.vstack(list(fitted.predict_proba_batches(np.split(far, 3)))), expected)
    alone = [fitted.predict_proba(row[None])[0] for row in near[:9]]
    np.testing.assert_array_equal(fitted.predict_proba(near)[:9], alone)
    assert single.encoding_.encode(near.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.predict_proba(near.astype(np.float32)), fitted.predict_proba(near), atol=0.02)
    assert fitted.elbo(rows.X, rows.y) == pytest.approx(fitted.elbo_)


@every_kind
def test_sparse_rows_and_memory_maps_stay_as_they_are(rows, tmp_path):
    """Zeros of the former would not stay, and the latter are read where they are."""
    assert quietly(model(), csr_matrix(rows.X), rows.y).encoding_ is None
    np.save(tmp_path / "X.npy", rows.X)
    mapped = quietly(model(), np.load(tmp_path / "X.npy", mmap_mode="r"), rows.y)
    assert mapped.encoding_ is None
    said = "heavy tails stay, because X is a memory map" if rows is SKEWED else "memory map"
    for decisions in (mapped.decisions_, mapped.history_["decision"]):
        assert any(said in text for text in decisions)


@every_kind
def test_onnx_models_predict_alike(rows):
    onnxruntime, fitted = pytest.importorskip("onnxruntime"), quietly(model(), rows.X, rows.y)
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString(), providers=["CPUExecutionProvider"])
    far = np.vstack([rows.others, np.full((1, 3), -9999.0), 1e3 * rows.others[:50], -rows.others[:50]])
    np.testing.assert_allclose(session.run(["probabilities"], {"X": far})[0], fitted.predict_proba(far), atol=1e-5)


def test_a_row_far_out_spoils_no_fit():
    rows, y = moons(300)
    others, labels = moons(500, seed=1)
    clean = quietly(model(), rows, y)
    rows = np.vstack([rows, [1e8, 1e8]])
    for options in ({}, {"feature_transform": None}, {"inducing_points": "all"}):
        found = quietly(model(**options), rows, np.append(y, 0))
        assert found.score(others, labels) > clean.score(others, labels) - 0.02
        np.testing.assert_allclose(found.kernel_.k2.length_scale, clean.kernel_.k2.length_scale, rtol=1.0)
    assert clean.encoding_ is None


def test_codes_cost_no_more_than_what_they_hide(limited):
    """The mean log probability of other rows with codes is near that of a fit to values at hand-made limits."""
    others, labels = CODED.others, CODED.labels
    by_hand = quietly(model(), np.clip(CODED.X, -4.0, 4.0), CODED.y).predict_log_proba(np.clip(others, -4.0, 4.0))
    rows = np.arange(len(labels))
    assert np.mean(limited.predict_log_proba(others)[rows, labels] - by_hand[rows, labels]) > -0.02


def test_all_rows_are_predicted_at_the_limits(limited):
    rows, encode = np.vstack([CODED.X[:40], 1e5 * CODED.X[:40], -1e5 * CODED.X[:40]]), limited.encoding_.encode
    low, high = np.array([(limit.low, limit.high) for limit in limited.encoding_.limits]).T
    np.testing.assert_array_equal(encode(rows), np.clip(rows, low, high))
    np.testing.assert_array_equal(encode(encode(rows)), encode(rows))
    np.testing.assert_array_equal(limited.predict_proba(rows), limited.predict_proba(encode(rows)))


def test_a_fit_says_which_values_are_limited(limited):
    (text,) = [text for text in limited.decisions_ if "a wide gap separates" in text]
    assert "are moved to limits" in text
    assert all(f"feature {one.feature} below {one.low:.4g}" in text for one in limited.encoding_.limits)
    assert [one.feature for one in limited.encoding_.limits] == [0, 1, 2]


@pytest.mark.parametrize("name", LIGHT)
def test_light_tails_and_few_values_stay(name):
    assert warps_of(LIGHT[name][:, None]) == ()


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails_are_warped_by_median_and_deviations_from_it(name):
    values = HEAVY[name]
    (found,) = warps_of(np.column_stack([CLEAN["normal"], values]))
    size = np.abs(values - np.median(values))
    deviation = 1.4826 * np.median(size)
    scale = deviation if deviation > 0.0 else np.quantile(size[size > 0.0], 0.25)
    assert found.feature == 1
    np.testing.assert_allclose([found.centre, found.scale], [np.median(values), scale], rtol=0.03, atol=0.01)


def test_the_warp_is_an_inverse_hyperbolic_sine(warped):
    expected = OTHERS.copy()
    assert [one.feature for one in warped.encoding_.warps] == [0, 1]
    for j, centre, scale in warped.encoding_.warps:
        expected[:, j] = centre + scale * np.arcsinh((OTHERS[:, j] - centre) / scale)
    assert warped.encoding_.limits == ()
    np.testing.assert_allclose(warped.encoding_.encode(OTHERS), expected, rtol=1e-14)


def test_codes_in_heavy_tails_are_far_from_all_others_and_the_largest_values_are_not():
    values = HEAVY["log-normal"].copy()
    values[:3] = 1e5, 3e5, 7e5
    rows = np.column_stack([CLEAN["normal"], values])
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


@settings(max_examples=40)
@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=30), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_warps_are_monotone_and_can_be_taken_back(values, centre, scale):
    encoding, rows = Encoding((), "", (), (Warp(0, centre, scale),)), np.sort(values)[:, None]
    warped = encoding.transform(rows)
    assert np.all(np.diff(warped[:, 0]) >= 0.0)
    np.testing.assert_allclose(encoding.inverse(warped), rows, rtol=1e-7, atol=1e-7 * (abs(centre) + scale))


@settings(max_examples=12)
@given(st.sampled_from(sorted(HEAVY)), st.integers(-60, 60))
def test_warps_scale_with_the_values(name, power):
    ((j, centre, scale),) = warps_of(HEAVY[name][:, None])
    assert warps_of(2.0**power * HEAVY[name][:, None]) == (Warp(j, 2.0**power * centre, 2.0**power * scale),)


def test_a_kernel_of_the_user_and_none_leave_heavy_tails():
    assert warps_of(X, kernel=RBF(1.0)) == warps_of(X, feature_transform=None) == ()


def test_heavy_tails_cost_less_with_warps(warped):
    raw = quietly(model(feature_transform=None), X, Y)
    by_hand = np.column_stack([np.log(X[:, 0]), np.arcsinh(X[:, 1]), X[:, 2]])
    others = np.column_stack([np.log(OTHERS[:, 0]), np.arcsinh(OTHERS[:, 1]), OTHERS[:, 2]])
    best = log_loss(LABELS, quietly(model(), by_hand, Y).predict_proba(others))
    found, lost = (log_loss(LABELS, one.predict_proba(OTHERS)) for one in (warped, raw))
    assert found < lost - 0.05
    assert found < best + 0.05
    (told,) = [text for text in warped.decisions_ if "heavy tails" in text]
    assert "feature 0, feature 1." in told


def test_given_inducing_points_are_in_the_units_of_the_rows():
    found = quietly(model(inducing_points=X[:20], optimizer=None), X, Y)
    np.testing.assert_array_equal(found.inducing_points_, found.encoding_.encode(X[:20]))


def test_files_keep_warps_and_refuse_others(warped, tmp_path):
    assert kept(warped, tmp_path, OTHERS).encoding_ == warped.encoding_
    data = warped.encoding_.to_data()
    for wrong in ([[0, 1.0, 0.0]], [[0, 1.0, np.nan]], [[1, 0.0, 1.0], [0, 0.0, 1.0]], [[0, 1.0]], [["0", 1.0, 1.0]]):
        refuses("not valid", Encoding.from_data, {**data, "warps": wrong})


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
    # A kernel that it is given is ignored.
    for kernel in (2.0 * RBF(np.ones(3)), None):
        warm = quietly(first.set_params(warm_start=True, kernel=kernel), OTHERS, LABELS)
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


def test_columns_of_tables_are_warped(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"shop": np.where(X[:, 2] > 0.0, "a", "b"), "income": X[:, 0], "age": X[:, 2]})
    frame.loc[::9, "age"] = np.nan
    found = quietly(model(), frame, Y)
    (warp,) = found.encoding_.warps
    assert found.encoding_.matrix_names[warp.feature] == "income"
    assert any("'income'" in text for text in found.decisions_ if "heavy tails" in text)
    # The mean of the column stands for a missing number, as in a table with levels, also if it is within limits.
    numbers, rows = frame[["income"]].assign(noise=X[:, 2]), pd.DataFrame({"income": [np.nan], "noise": [0.5]})
    mean = np.average(numbers["income"], weights=Y + 1.0)
    plain = quietly(model(), numbers, Y, sample_weight=Y + 1.0)
    assert plain.encoding_.warps
    for one in (plain, reloaded(plain, tmp_path)):
        with pytest.warns(UserWarning, match="mean replaces"):
            missing = one.predict_proba(rows)
        np.testing.assert_allclose(missing, one.predict_proba(rows.fillna(mean)))


def test_the_default_baseline_of_shapley_values_is_the_mean_of_encoded_rows(warped):
    found = shapley_values(warped, X[:3])
    given = shapley_values(warped, X[:3], warped.encoding_.inverse(warped.feature_mean_[None])[0])
    np.testing.assert_allclose(found.values, given.values, atol=1e-9)
    total = given.baseline_value + given.values.sum(axis=1) + given.residual
    np.testing.assert_allclose(total, warped.predict_latent(X[:3])[0], atol=1e-9)
