"""Displays: the numbers that they show, by hand, and that they draw."""

import io

import numpy as np
import pytest
from matplotlib.text import Text
from scipy.stats import binomtest
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from support.fits import quietly, refuses

from xgpc import GPClassifier, GPOrdinalClassifier
from xgpc.explain import shapley_values
from xgpc.metrics import expected_calibration_error, scores
from xgpc.plotting import CoverageDisplay, ImportanceDisplay, LearningDisplay, ReliabilityDisplay, ShapleyDisplay

pd = pytest.importorskip("pandas")

IRIS = load_iris(as_frame=True)
X, Y = IRIS.data, IRIS.target_names[IRIS.target]
SMALL = {"n_inducing": 10, "max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return GPClassifier(n_inducing=10, max_iter=30, tol=1e-2, random_state=0).fit(X, Y)


def equal_mass_bins(y, p, n_bins=10):
    (bins,) = ReliabilityDisplay.from_predictions(y, p, n_bins=n_bins).bins.values()
    return bins


def drawn(display):
    assert display.ax_.figure is display.figure_
    file = io.BytesIO()
    display.figure_.savefig(file, dpi=40)
    assert file.getbuffer().nbytes > 1000
    assert display._repr_png_().startswith(b"\x89PNG")
    return display


def words(texts):
    return [text.get_text() for text in texts]


def graded(n=90):
    """Two features, of which the first tells three classes in order; their numbers, and names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [-0.5, 0.7]), np.array(["low", "medium", "high"])


def test_bins_have_equal_numbers_of_rows_and_wilson_intervals():
    random = np.random.default_rng(0)
    p = random.random(1003)
    outcome = random.random(1003) < p
    bins = equal_mass_bins(outcome, p)
    assert bins.rows.sum() == 1003
    assert set(bins.rows) <= {100, 101}
    order = np.argsort(p)[: bins.rows[0]]
    assert bins.mean[0] == pytest.approx(p[order].mean())
    assert bins.frequency[0] == pytest.approx(outcome[order].mean())
    assert np.all((bins.low <= bins.frequency) & (bins.frequency <= bins.high))
    # (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4 n^2)) / (1 + z^2 / n), Wilson's formula.
    n, f, z = bins.rows, bins.frequency, 1.959963984540054
    half = z * np.sqrt(f * (1.0 - f) / n + z**2 / (4.0 * n**2))
    np.testing.assert_allclose(bins.low, (f + z**2 / (2 * n) - half) / (1 + z**2 / n), atol=1e-12)
    np.testing.assert_allclose(bins.high, (f + z**2 / (2 * n) + half) / (1 + z**2 / n), atol=1e-12)


def test_rows_of_equal_probability_stay_in_one_bin():
    p, y = [0.2] * 7 + [0.9] * 3, [0, 0, 1, 0, 0, 0, 0, 1, 1, 0]
    bins = equal_mass_bins(y, p)
    np.testing.assert_allclose(bins.mean, [0.2, 0.9])
    np.testing.assert_allclose(bins.frequency, [1 / 7, 2 / 3])
    assert bins.rows.tolist() == [7, 3]
    assert bins.low[0] == binomtest(1, 7).proportion_ci(method="wilson").low
    assert equal_mass_bins([1], [0.3]).rows.tolist() == [1]
    for n_bins in (0, 2.5):
        refuses("n_bins must be a positive integer; got ", equal_mass_bins, y, p, n_bins)
        refuses("n_bins must be a positive integer; got ", expected_calibration_error, y, p, n_bins)


@pytest.mark.parametrize("display", [ReliabilityDisplay, CoverageDisplay])
def test_a_picture_of_nothing_is_refused(display, model):
    refuses("got an empty dict", display.from_predictions, Y, {})
    refuses("got an empty dict", display.from_estimator, {}, X, Y)
    refuses("n_features must be a positive integer", ImportanceDisplay.from_estimator, model, n_features=0)
    refuses("n_features must be a positive integer", ShapleyDisplay.from_estimator, model, X[:1], n_features=0)
    refuses("X has no rows to explain", ShapleyDisplay.from_estimator, model, X[:0], label="setosa")
    refuses("ax must be None, or one .*Axes; got a str", display.from_estimator, model, X, Y, ax="right")


def test_coverage_is_the_error_among_the_most_certain(model):
    display = drawn(CoverageDisplay.from_estimator(model, X, Y))
    assert words(display.ax_.get_legend().get_texts()) == ["GPClassifier", "expected"]
    (one,) = display.coverage.values()
    assert one.error[-1] == pytest.approx(np.mean(model.predict(X) != Y))
    assert one.expected[-1] == pytest.approx(np.mean(1.0 - model.predict_proba(X).max(axis=1)))
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.5, 0.5]])
    display = drawn(CoverageDisplay.from_predictions([1, 1, 1, 0], p))
    (one,) = display.coverage.values()
    at = [int(np.argmin(np.abs(np.linspace(0.02, 1.0, 50) - share))) for share in (0.25, 0.5, 0.74, 1.0)]
    np.testing.assert_allclose(one.error[at], [1.0, 0.5, 1 / 3, 0.25])
    np.testing.assert_allclose(one.expected[at], [0.1, 0.15, 0.7 / 3, 1.2 / 4])
    assert np.all(np.diff(one.expected) >= -1e-12)


def test_learning_is_drawn_stage_by_stage():
    X = np.random.default_rng(0).normal(size=(600, 2))
    y = np.sin(3.0 * X[:, 0]) > X[:, 1]
    own = {"subset_sizes": [100, 600], "n_neighbors": 0, "length_scale_prior": None}
    model = GPClassifier(n_inducing=16, max_iter=60, tol=1e-3, random_state=0, **own)
    display = drawn(LearningDisplay.from_estimator(model.fit(X, y)))
    legend = words(display.ax_.get_legend().get_texts())
    assert legend == ["100 rows, 16 inducing points", "600 rows, 16 inducing points"]
    for line, n in zip(display.ax_.lines, (100, 600), strict=True):
        here = model.history_["n_rows"] == n
        values = model.history_["elbo"][here & np.isfinite(model.history_["elbo"])] / n
        assert line.get_ydata()[-1] == pytest.approx(values.max())
        assert np.all(np.diff(line.get_ydata()) >= 0.0)
    short = {"seconds": np.zeros(1), "elbo": np.zeros(1)}
    refuses(r"history lacks \['n_rows', 'n_inducing'\]", LearningDisplay, short)


def test_importances_are_bars_by_name_the_largest_on_top(model):
    display = drawn(ImportanceDisplay.from_estimator(model, n_features=3))
    order = np.argsort(-model.feature_importances_)[:3]
    assert words(display.ax_.get_yticklabels()) == X.columns[order[::-1]].tolist()
    widths = [bar.get_width() for bar in display.ax_.patches]
    np.testing.assert_array_equal(widths, model.feature_importances_[order[::-1]])
    assert ImportanceDisplay.from_estimator(model, names=list("abcd")).names == list("abcd")
    message = "names must be as many as importances, 4; got 2"
    refuses(message, ImportanceDisplay.from_estimator, model, names=["a", "b"])


def test_shapley_values_of_one_row_are_bars_with_intervals_the_largest_on_top(model):
    found, c = shapley_values(model, X[:1]), list(model.classes_).index("setosa")
    order = np.argsort(np.abs(found.values[0, :, c]))[-3:]
    display = drawn(ShapleyDisplay.from_estimator(model, X[:1], n_features=3))
    assert display.label == model.predict(X[:1])[0] == "setosa"
    assert words(display.ax_.get_yticklabels()) == [f"{X.columns[j]} = {X.iloc[0, j]:.4g}" for j in order]
    assert [bar.get_width() for bar in display.ax_.patches] == found.values[0, order, c].tolist()
    (intervals,) = display.ax_.collections
    half = [np.ptp(line[:, 0]) / 2 for line in intervals.get_segments()]
    np.testing.assert_allclose(half, 1.96 * found.std[0, order, c])
    other = ShapleyDisplay.from_estimator(model, X[:1], label="virginica", baseline=X[60:61])
    assert np.array_equal(other.values, shapley_values(model, X[:1], X[60:61]).values[:, :, 2])


def test_shapley_values_of_several_rows_are_points_whose_colours_are_the_order_of_the_values():
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.normal(size=80), "b": random.choice(["x", "y"], 80), "c": random.normal(size=80)})
    y = np.where(X["a"] + (X["b"] == "x") > 0.5, "yes", "no")
    X.loc[:9, "c"] = np.nan
    model = quietly(GPClassifier(**SMALL | {"max_iter": 20}, n_neighbors=0), X, y)
    display = drawn(ShapleyDisplay.from_estimator(model, X))
    found = shapley_values(model, X).values
    assert np.array_equal(display.values, found)
    assert display.label == "yes"
    labels = words(display.ax_.get_yticklabels())
    assert labels == [X.columns[j] for j in np.argsort(np.mean(np.abs(found), axis=0))]
    for place, (name, points) in enumerate(zip(labels, display.ax_.collections, strict=True)):
        x, height = points.get_offsets().T
        assert np.array_equal(x, found[:, X.columns.get_loc(name)])
        assert np.all(np.abs(height - place) <= 0.4)
        # No two points are in the same place.
        assert len(np.unique(np.column_stack([x, height]), axis=0)) == 80
    # Ranks are colours, and missing numbers have none.
    ranks = display.ax_.collections[labels.index("a")].get_array()
    assert np.array_equal(np.argsort(ranks), np.argsort(X["a"].to_numpy()))
    assert np.isnan(np.ma.filled(display.ax_.collections[labels.index("c")].get_array(), np.nan)[:10]).all()
    # Values for the other of two classes have the other sign.
    assert np.array_equal(ShapleyDisplay.from_estimator(model, X, label="no").values, -found)
    one = ShapleyDisplay.from_estimator(model, X[:1])
    assert {"c = missing", f"b = {X['b'][0]}", f"a = {X['a'][0]:.4g}"} == set(words(one.ax_.get_yticklabels()))


def test_a_picture_of_shapley_values_needs_one_class(model):
    draw = ShapleyDisplay.from_estimator
    refuses("Several rows have values for each class: give label, one of", draw, model, X)
    message = r"label must be one of \['setosa', 'versicolor', 'virginica'\] or None; got 'rose'"
    refuses(message, draw, model, X, label="rose")


def test_shapley_values_of_ordered_classes_speak_for_the_highest_or_the_lowest():
    X, grade, names = graded()
    model = quietly(GPOrdinalClassifier(**SMALL), X, names[grade], classes=names)
    # The first feature makes a level higher.
    row = [[2.0, 0.0]]
    values = shapley_values(model, row, [0.0, 0.0]).values
    assert values[0, 0] > 0.0
    for label, sign in ((None, 1.0), ("high", 1.0), ("low", -1.0)):
        display = ShapleyDisplay.from_estimator(model, row, baseline=[0.0, 0.0], label=label)
        assert display.ax_.get_xlabel().endswith(f"towards {label or 'high'}")
        assert np.array_equal(display.values, sign * values)
        assert display.label == (label or "high")
    message = r"label must be one of \['low', 'high'\] or None; got 'medium'"
    refuses(message, ShapleyDisplay.from_estimator, model, X, label="medium")


def test_words_of_pictures_of_features_with_long_names_are_within_the_picture():
    sentence = "a column whose name is a sentence with many words, as surveys have them, number "
    names = [*(f"{sentence}{j}" for j in range(3)), "one_word_that_is_longer_than_half_of_a_picture_is_wide"]
    named = X.set_axis(names, axis=1)
    model = quietly(GPClassifier(tol=1e-2, n_neighbors=0, **SMALL), named, Y == "virginica")
    displays = [ShapleyDisplay.from_estimator(model, rows, n_features=3) for rows in (named[:1], named)]
    for display in (*displays, ImportanceDisplay.from_estimator(model, n_features=3)):
        drawn(display)
        assert display.ax_.get_position().width > 0.4
        box = display.figure_.bbox
        # Numbers beyond the ends of an axis are not drawn.
        beyond = display.ax_.get_xticklabels()
        for text in (one for one in display.figure_.findobj(Text) if one.get_text() and one not in beyond):
            extent = text.get_window_extent()
            assert extent.x0 >= box.x0, text
            assert extent.x1 <= box.x1, text


def test_displays_of_ordered_classes_go_by_the_sorted_names():
    X, grade, names = graded()
    numbered = quietly(GPOrdinalClassifier(**SMALL), X, grade)
    named = quietly(GPOrdinalClassifier(**SMALL), X, names[grade], classes=names)
    shown = []
    for model, y in ((numbered, grade), (named, names[grade])):
        (coverage,) = CoverageDisplay.from_estimator(model, X, y).coverage.values()
        (bins,) = ReliabilityDisplay.from_estimator(model, X, y).bins.values()
        shown.append([coverage.error, bins.frequency])
    np.testing.assert_equal(*shown)


def test_displays_of_a_pipeline_are_those_of_its_last_step():
    pipeline = quietly(make_pipeline(PCA(3), GPClassifier(tol=1e-2, **SMALL)), X, Y)
    assert drawn(LearningDisplay.from_estimator(pipeline)).history is pipeline[-1].history_
    importance = drawn(ImportanceDisplay.from_estimator(pipeline))
    assert importance.names == ["pca0", "pca1", "pca2"]
    np.testing.assert_array_equal(importance.importances, pipeline[-1].feature_importances_)
    drawn(ReliabilityDisplay.from_estimator(pipeline, X, Y))
    drawn(CoverageDisplay.from_estimator(pipeline, X, Y))


def test_expected_calibration_error_by_hand():
    # Confidence 0.9 0.9 | 0.8 | 0.7 | 0.95, of which the third and fourth are wrong:
    # (|2 - 1.8| + |0 - 0.8| + |0 - 0.7| + |1 - 0.95|) / 5.
    assert expected_calibration_error([1, 0, 0, 1, 1], [0.9, 0.1, 0.8, 0.3, 0.95]) == pytest.approx(0.35)
    # In one bin, errors of opposite signs cancel: |3 - 4.25| / 5.
    assert expected_calibration_error([1, 0, 0, 1, 1], [0.9, 0.1, 0.8, 0.3, 0.95], n_bins=1) == pytest.approx(0.25)
    assert expected_calibration_error([True, False], [1.0, 0.0]) == 0.0
    assert expected_calibration_error([0, 1], [1.0, 0.0]) == 1.0


def test_scores_of_several_classes_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [0.9, 0.1, 0.0]])
    y = [0, 2, 2, 0]
    # Two of confidence 0.7, of which one is right; 0.4 and 0.9, both right.
    assert expected_calibration_error(y, p) == pytest.approx((abs(1.0 - 1.4) + 0.6 + 0.1) / 4.0)
    with np.errstate(divide="ignore"):
        result = scores(y, np.log(p))
    assert result["brier"] == pytest.approx(np.mean([0.14, 0.04 + 0.49 + 0.81, 0.09 + 0.09 + 0.36, 0.02]))
    assert np.isnan(result["auc"])


def test_scores_do_not_depend_on_the_order_of_the_classes_and_agree_with_those_of_two():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 2.0, 3.0], 200)
    y = np.array([rng.choice(3, p=row) for row in p])
    assert scores(2 - y, np.log(p[:, ::-1])) == pytest.approx(scores(y, np.log(p)))
    two = p[:, :2] / p[:, :2].sum(axis=1, keepdims=True)
    assert expected_calibration_error(y > 0, two) == pytest.approx(expected_calibration_error(y > 0, two[:, 1]))


def test_area_under_curve_where_probabilities_round_to_one():
    # The probability of class 0 rounds to 1 in every row; its log odds are 100, 45, 40 and 50.
    others = np.array([[-100.0, -700.0], [-45.0, -600.0], [-40.0, -800.0], [-900.0, -50.0]])
    log_p = np.column_stack([-np.exp(others).sum(axis=1), others])
    first = roc_auc_score([1, 1, 0, 0], [100.0, 45.0, 40.0, 50.0])
    second = roc_auc_score([0, 0, 1, 0], others[:, 0])
    assert scores([0, 0, 1, 2], log_p)["auc"] == pytest.approx((first + second + 1.0) / 3.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_of_a_forest_are_infinite_where_they_are_and_finite_elsewhere(n_classes):
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 2))
    grade = np.digitize(X[:, 0] + 0.4 * random.normal(size=300), [-0.4, 0.4][: n_classes - 1])
    y = np.array(["low", "high", "middle"])[grade]
    forest = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    p, y = forest.predict_proba(X[200:]), y[200:]
    codes = np.searchsorted(forest.classes_, y)
    assert np.any(p[np.arange(100), codes] == 0.0)
    found = scores(y, p, forest.classes_)
    assert found["nll"] == np.inf
    auc = roc_auc_score(y, p[:, 1]) if n_classes == 2 else roc_auc_score(y, p, multi_class="ovr")
    assert found["auc"] == pytest.approx(auc, abs=1e-12)
    brier = np.sum((p - np.eye(n_classes)[codes]) ** 2) / 100.0
    assert found["brier"] == pytest.approx(brier / 2.0 if n_classes == 2 else brier)
    assert found["error"] == np.mean(forest.predict(X[200:]) != y)
    assert found["ece"] == expected_calibration_error(codes, p)
    # Logarithms of probabilities, and positions of labels, have the same scores.
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    assert scores(codes, log_p) == scores(y, log_p, forest.classes_) == found
    # Without a row whose class had no chance the likelihood is finite.
    possible = p[np.arange(100), codes] > 0.0
    expected = log_loss(y[possible], p[possible], labels=forest.classes_)
    assert scores(y[possible], p[possible], forest.classes_)["nll"] == pytest.approx(expected)


def test_labels_are_positions_in_the_classes_in_whatever_order_these_are():
    y, classes, codes = np.array(["mild", "none", "grave", "none"]), ["none", "mild", "grave"], [1, 0, 2, 0]
    p = np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.4, 0.5, 0.1]])
    assert scores(y, p, classes) == scores(codes, p)
    assert expected_calibration_error(y, p, classes=classes) == expected_calibration_error(codes, p)
    (named,) = CoverageDisplay.from_predictions(y, p, classes=classes).coverage.values()
    (numbered,) = CoverageDisplay.from_predictions(codes, p).coverage.values()
    assert np.array_equal(named.error, numbered.error)
    for given, message in (
        ((y, p[:, :2], ["none", "mild"]), r"labels \['grave'\] that are not among the model's classes"),
        ((y, p, ["none", "mild"]), "classes must have a label for each of 3 columns"),
        ((y, p), r"of labels give classes=model.classes_"),
        ((y, p, ["none", "mild", "mild"]), "3 columns, none twice"),
        (([0, 1], [[0.2, 0.2], [0.5, 0.5]]), "rows that sum to one"),
    ):
        refuses(message, scores, *given)
    for n_classes in (1, 3):
        refuses("each of 2 columns", expected_calibration_error, ["none"], [0.2], classes=classes[:n_classes])


def test_outcomes_may_be_two_labels():
    y, p, outcome = ["no", "yes", "no", "yes"], [0.1, 0.8, 0.3, 0.6], [0, 1, 0, 1]
    display = ReliabilityDisplay.from_predictions(y, p, pos_label="yes", n_bins=2)
    assert display.ax_.get_xlabel().endswith("(Positive class: yes)")
    (bins,) = display.bins.values()
    assert np.array_equal(bins.frequency, equal_mass_bins(outcome, p, 2).frequency)
    line = next(line for line in drawn(display).ax_.lines if line.get_marker() == "s")
    assert np.array_equal(line.get_xydata(), np.column_stack([bins.mean, bins.frequency]))
    assert expected_calibration_error(y, p, classes=["no", "yes"]) == expected_calibration_error(outcome, p)
    draw = ReliabilityDisplay.from_predictions
    refuses(r"two labels; got \['Yes', 'no', 'yes'\], 'Yes'", draw, y, p, pos_label="Yes")
    refuses("or labels of which pos_label is one", draw, y, p)


@pytest.mark.parametrize(
    ("y", "p"),
    [([0, 3], np.full((2, 3), 1 / 3)), ([0], np.full((2, 3), 1 / 3)), ([0, 0.5], np.full((2, 3), 1 / 3)),
     ([0, 1], np.full((2, 3), 0.5)), ([0], [[1.5, -0.5, 0.0]]), ([0], [[np.nan, 0.5, 0.5]]), ([], np.empty((0, 3)))],
)  # fmt: skip
def test_scores_of_several_classes_refuse_bad_input(y, p):
    refuses("must be", expected_calibration_error, y, p)
