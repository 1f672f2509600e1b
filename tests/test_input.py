"""What the estimator is given: bad data and parameters are refused, odd but valid data give probabilities."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly, without_warnings
from support.reference import moons

from xgpc import GPClassifier

ROWS, LABELS = moons(40)


def replaced(value):
    X = ROWS.copy()
    X[3, 1] = value
    return X


def masked(values):
    """With the first of them masked."""
    return np.ma.array(values, mask=np.arange(np.size(values)).reshape(np.shape(values)) == 0)


BAD = {
    "nan": (replaced(np.nan), LABELS, {}, "NaN"),
    "infinity": (replaced(np.inf), LABELS, {}, "infinity"),
    "huge": (replaced(1e200), LABELS, {}, "scale the features"),
    "one class": (ROWS, np.zeros(40), {}, "1 class"),
    "regression": (ROWS, ROWS[:, 0], {}, "Unknown label type"),
    "empty": (np.empty((0, 2)), np.empty(0), {}, "minimum of 1 is required"),
    "no features": (np.empty((40, 0)), LABELS, {}, "0 feature"),
    "1-D": (ROWS[:, 0], LABELS, {}, "2D array"),
    "complex": (ROWS + 1j, LABELS, {}, "Complex data"),
    "strings": (ROWS.astype(str).astype(object) + "x", LABELS, {}, "convert string to float"),
    "lengths": (ROWS, LABELS[:-1], {}, "inconsistent numbers of samples"),
    "weights negative": (ROWS, LABELS, {"sample_weight": -np.ones(40)}, "sample_weight must not be negative"),
    "weights nan": (ROWS, LABELS, {"sample_weight": np.full(40, np.nan)}, "NaN"),
    "weights of one class": (ROWS, LABELS, {"sample_weight": LABELS}, "rows of two classes"),
    "weights huge": (ROWS, LABELS, {"sample_weight": np.full(40, 1e300)}, "Weights .* between 1e-100 and 1e"),
    "weights tiny": (ROWS, LABELS, {"sample_weight": np.full(40, 1e-310)}, "Weights .* between 1e-100 and 1e"),
    "weights strings": (ROWS, LABELS, {"sample_weight": ["a"] * 40}, "real number for each of the 40 rows.*got .'a', "),
    "weights digits": (ROWS, LABELS, {"sample_weight": np.array(["1.5"] * 40)}, "real number .*'1.5'.*cast"),
    "weights by name": (ROWS, LABELS, {"sample_weight": "balanced"}, "got 'balanced'.*class_weight takes"),
    "weights by class": (ROWS, LABELS, {"sample_weight": {0: 1.0, 1: 2.0}}, "real number .*got {0: 1.0, 1: 2.0}"),
    "weights dates": (ROWS, LABELS, {"sample_weight": np.zeros(40, "M8[D]")}, "real number .*got .*cast .*M8"),
    "weights complex": (ROWS, LABELS, {"sample_weight": np.ones(40) * 1j}, "real number .*got .*complex"),
    "weights ragged": (
        ROWS,
        LABELS,
        {"sample_weight": [[1.0], [1.0, 2.0]]},
        r"real number .*got \[\[1.0\], \[1.0, 2.0\]\]",
    ),
    "weights beyond the prior's": (ROWS, LABELS, {"sample_weight": np.full(40, 1e90)}, r"1e\+12; got .* rounded away"),
    "weights masked": (ROWS, LABELS, {"sample_weight": masked(np.ones(40))}, r"shape \(40,\) has masked values \(1\)"),
    "masked": (masked(ROWS), LABELS, {}, r"shape \(40, 2\) has masked values \(1\), .* numpy\.ma\.filled"),
    "labels masked": (ROWS, masked(LABELS), {}, r"shape \(40,\) has masked values \(1\)"),
    "groups masked": (ROWS, LABELS, {"groups": masked(np.arange(40))}, r"shape \(40,\) has masked values \(1\)"),
    "weights short": (ROWS, LABELS, {"sample_weight": np.ones(3)}, "sample_weight.shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_refused_and_leaves_the_estimator_as_it_was(case):
    X, y, extra, message = BAD[case]
    model = GPClassifier(n_inducing=10, random_state=0)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **extra)
    assert vars(model) == vars(GPClassifier(n_inducing=10, random_state=0))
    model.fit(ROWS, LABELS)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **extra)
    assert vars(model) == before


def test_prediction_refuses_other_widths_and_unfitted_models():
    model = GPClassifier(n_inducing=5, random_state=0)
    for method in ("predict", "predict_proba", "decision_function", "predict_latent", "predict_log_proba"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(ROWS)
    model.fit(ROWS, LABELS)
    for method in ("predict", "predict_proba", "decision_function", "predict_latent", "predict_log_proba"):
        with pytest.raises(ValueError, match="expecting 2 features"):
            getattr(model, method)(np.ones((4, 3)))
    with pytest.raises(ValueError, match="not in classes_"):
        model.elbo(ROWS, LABELS + 5)


ODD = {
    "more inducing points than rows": (ROWS, {"n_inducing": 1000}),
    "duplicated inducing points": (ROWS, {"inducing_points": np.repeat(ROWS[:5], 4, axis=0)}),
    "duplicated rows": (np.repeat(ROWS[:20], 2, axis=0), {}),
    "one distinct row": (np.ones((40, 2)), {}),
    "constant feature": (np.column_stack([ROWS, np.full(40, 7.0)]), {}),
    "huge scale": (1e100 * ROWS, {}),
    "tiny scale": (1e-200 * ROWS, {}),
    "mixed scales": (ROWS * [1e-8, 1e8], {}),
    "far from the origin": (ROWS + 1e8, {}),
    "one row of each class": (ROWS[np.argsort(LABELS)][[0, -1]], {}),
    "kernel of another scale": (1e9 * ROWS, {"kernel": RBF(1.0), "optimizer": None}),
    "separable": (np.column_stack([np.sort(ROWS[:, 0]) + 10 * np.arange(40), np.zeros(40)]), {}),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_but_valid_data_gives_probabilities(case):
    X, params = ODD[case]
    y = np.sort(LABELS)[[0, -1]] if len(X) == 2 else LABELS
    model = without_warnings(GPClassifier(random_state=0, **params).fit, X, y)
    proba = model.predict_proba(X)
    assert np.all(np.isfinite(proba))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(model.elbo_)
    assert len(model.inducing_points_) <= max(len(X), 20)


@pytest.mark.parametrize("part", range(3))
def test_masked_values_are_refused_wherever_rows_are_given(part):
    model = GPClassifier(n_inducing=5, n_neighbors=0, optimizer=None, random_state=0)
    given = [ROWS, LABELS, np.ones(40)]
    given[part] = masked(given[part])
    with pytest.raises(ValueError, match=r"has masked values \(1\)"):
        model.fit_batches([tuple(given)])
    with pytest.raises(ValueError, match=r"has masked values \(1\)"):
        model.partial_fit(given[0], given[1], sample_weight=given[2])
    with pytest.raises(ValueError, match=r"has masked values \(1\)"):
        GPClassifier(inducing_points=masked(ROWS[:5])).fit(ROWS, LABELS)
    model.fit(ROWS, LABELS)
    for predict in (model.predict, model.predict_proba, lambda X: list(model.predict_proba_batches([X]))):
        with pytest.raises(ValueError, match=r"has masked values \(1\)"):
            predict(masked(ROWS))


@pytest.mark.parametrize("weight", [1e-100, 1e12])
@pytest.mark.parametrize(
    "params", [{"n_neighbors": 0}, {"n_neighbors": 5}, {"inducing_points": "all"}, {"batch_size": 20}], ids=str
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_may_be_as_large_or_small_as_is_said(weight, params, n_classes):
    """Of all rows, or of some."""
    y = LABELS + (n_classes == 3) * (ROWS[:, 0] > 1.0)
    for weights in (np.full(40, weight), np.where(np.arange(40) % 3, 1.0, weight)):
        model = quietly(
            GPClassifier(n_inducing=10, max_iter=5, random_state=0, **params), ROWS, y, sample_weight=weights
        )
        assert np.all(np.isfinite(model.predict_log_proba(ROWS)))


def test_scale_of_the_features_does_not_matter():
    expected = GPClassifier(random_state=0).fit(ROWS, LABELS).predict_proba(ROWS)
    for factor in (1e100, 1e-200):
        scaled = GPClassifier(random_state=0).fit(factor * ROWS, LABELS).predict_proba(factor * ROWS)
        np.testing.assert_allclose(scaled, expected, atol=1e-4)
