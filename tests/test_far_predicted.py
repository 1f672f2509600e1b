"""Values far from all others, of four features or more: a regression on the others predicts them, everywhere alike."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier
from xgpc.onnx import to_onnx

CODE = -9999.0


def clean(n, seed):
    """Moons, noisy copies of both features, and a feature of noise."""
    X, y = moons(n, seed)
    random = np.random.default_rng(seed)
    return np.column_stack([X, X + 0.1 * random.normal(size=X.shape), random.normal(size=n)]), y


def coded(rows, seed=0):
    far = np.random.default_rng([1, seed]).uniform(size=rows.shape) < 0.02
    return np.where(far, CODE, rows), far


CLEAN, Y = clean(240, 0)
X, FAR = coded(CLEAN)
OTHERS, LABELS = clean(600, 1)
CODED, FAR_OTHERS = coded(OTHERS, 1)
# Fewest features that predict each other, most, and the ridge: so many rows in which features are uncorrelated.
FEATURES, UNCORRELATED_ROWS = (4, 1000), 10.0


def model(**options):
    return GPClassifier(**{"n_inducing": 15, "n_neighbors": 0, "max_iter": 15, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return quietly(model(), X, Y)


def encoding_of(rows, weight=None):
    """What a fit makes of rows."""
    return quietly(
        model(kernel=RBF(1.0), n_inducing=1, optimizer=None, max_iter=1),
        rows,
        np.arange(len(rows)) % 2,
        sample_weight=weight,
    ).encoding_


def predictions(rows, far, weight, others, far_others):
    """Rows with far values at ridge regressions on the others, by the normal equations of standardised features."""
    mean = np.array([np.average(x[~f], weights=weight[~f]) for x, f in zip(rows.T, far.T, strict=True)])
    Z = np.where(far, 0.0, rows - mean)
    scale = np.sqrt(np.average(Z**2, axis=0, weights=weight))
    Z, at_mean = Z / scale, np.where(far_others, 0.0, others - mean) / scale
    found = others.copy()
    for j in range(rows.shape[1]):
        rest = np.arange(rows.shape[1]) != j
        A, w = Z[:, rest], weight[:, None]
        slopes = np.linalg.solve(A.T @ (w * A) + UNCORRELATED_ROWS * np.eye(A.shape[1]), A.T @ (weight * Z[:, j]))
        found[far_others[:, j], j] = (mean[j] + scale[j] * (at_mean[:, rest] @ slopes))[far_others[:, j]]
    return found


@pytest.mark.parametrize("is_weighted", [False, True])
def test_far_values_are_ridge_regressions_on_the_others(is_weighted):
    weight = np.random.default_rng(2).integers(1, 4, len(X)).astype(np.float64)
    found = encoding_of(X, weight if is_weighted else None)
    assert [one.feature for one in found.limits] == [0, 1, 2, 3, 4]
    weight = weight if is_weighted else np.ones(len(X))
    np.testing.assert_allclose(found.encode(CODED), predictions(X, FAR, weight, CODED, FAR_OTHERS), rtol=1e-7)


def test_weights_equal_repeats():
    repeats = np.random.default_rng(3).integers(1, 4, len(X))
    weighted, repeated = encoding_of(X, repeats.astype(np.float64)), encoding_of(np.repeat(X, repeats, axis=0))
    np.testing.assert_allclose(weighted.encode(CODED), repeated.encode(CODED), rtol=1e-7)


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_units_of_features_do_not_matter(factor):
    units = np.array([1.0, factor, 1.0, 1.0, 1.0])
    shift = np.array([0.0, 0.0, 5.0, 0.0, 0.0])
    moved = encoding_of(X * units + shift).encode(CODED * units + shift)
    np.testing.assert_allclose(moved, encoding_of(X).encode(CODED) * units + shift, rtol=1e-6)


def test_a_function_of_other_features_is_found_again_but_for_constant_ones():
    rows = np.column_stack([CLEAN[:, 0] + 2.0 * CLEAN[:, 1] - 3.0, CLEAN, np.full(len(X), 0.1)])
    broken = rows.copy()
    broken[::40, 0] = CODE
    found = encoding_of(broken)
    (one,) = found.limits
    assert one.slopes[0] == one.slopes[-1] == 0.0
    np.testing.assert_allclose(found.encode(broken), rows, atol=0.3)
    other = broken[:1] + np.eye(rows.shape[1])[-1:]
    assert found.encode(other)[0, 0] == found.encode(broken[:1])[0, 0]


def test_predictions_stay_within_limits_and_do_not_depend_on_other_rows_or_layout():
    found = encoding_of(X)
    rows = np.vstack([CODED, 30.0 * CODED, np.full((1, 5), CODE), np.full((1, 5), 1e9)])
    moved = found.encode(rows)
    np.testing.assert_array_equal(moved, np.vstack([found.encode(row[None]) for row in rows]))
    np.testing.assert_array_equal(moved, found.encode(np.asfortranarray(rows)))
    for one in found.limits:
        assert not np.any(one.is_far(moved))
    np.testing.assert_array_equal(found.encode(moved), moved)
    assert found.encode(rows.astype(np.float32)).dtype == np.float32


def test_codes_cost_no_more_than_means_of_cells_that_are_known_to_be_wrong(fitted):
    mean = np.mean(CLEAN, axis=0, where=~FAR)
    oracle = quietly(model(feature_transform=None), np.where(FAR, mean, X), Y)
    loss = log_loss(LABELS, oracle.predict_proba(np.where(FAR_OTHERS, mean, CODED)))
    assert log_loss(LABELS, fitted.predict_proba(CODED)) < loss + 0.01


def test_a_fit_is_that_of_the_encoded_rows(fitted):
    encode = fitted.encoding_.encode
    off = quietly(model(feature_transform=None), encode(X), Y)
    assert off.elbo_ == fitted.elbo_
    np.testing.assert_array_equal(off.predict_proba(encode(CODED)), fitted.predict_proba(CODED))
    np.testing.assert_array_equal(fitted.predict_proba(csr_matrix(CODED)), fitted.predict_proba(CODED))
    batches = np.vstack(list(fitted.predict_proba_batches([CODED[:50], CODED[50:]])))
    np.testing.assert_allclose(batches, fitted.predict_proba(CODED), rtol=1e-12)
    (told,) = [text for text in fitted.decisions_ if "a wide gap separates" in text]
    assert "are predicted from the other features" in told


def test_onnx_models_predict_alike(fitted):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.vstack([CODED, np.full((1, 5), CODE), 10.0 * CODED[:50]])
    np.testing.assert_allclose(session.run(["probabilities"], {"X": rows})[0], fitted.predict_proba(rows), atol=1e-5)


def test_columns_of_tables_predict_each_other():
    frame = pytest.importorskip("pandas").DataFrame(X[:, :3], columns=list("xyz"))
    frame["level"] = np.where(Y, "a", "b")
    frame.loc[::7, "y"] = np.nan
    found = quietly(model(), frame, Y)
    (one, *_) = found.encoding_.limits
    assert len(one.slopes) == len(found.encoding_.matrix_names)
    np.testing.assert_allclose(
        found.encoding_.encode(frame)[FAR[:, 0] & ~FAR[:, 2], 0], X[FAR[:, 0] & ~FAR[:, 2], 2], atol=0.7
    )
