"""Calibration error, scores and pictures."""

import copy
import io

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from xgpc import GPClassifier
from xgpc.metrics import expected_calibration_error, scores
from xgpc.plotting import decision_contours, reliability_diagram

FEATURES = ["mean radius", "mean texture", "mean perimeter"]


@pytest.fixture(scope="module")
def data():
    """Three features (n, 3) and the names of the classes."""
    bunch = load_breast_cancer()
    return bunch.data[:200, :3], bunch.target_names[bunch.target[:200]]


@pytest.fixture(scope="module")
def model(data):
    return GPClassifier(n_inducing=12, random_state=3).fit(*data)


def test_expected_calibration_error_by_hand():
    # Confidence 0.9 0.9 | 0.8 | 0.7 | 0.95, of which the third and fourth are wrong:
    # (|2 - 1.8| + |0 - 0.8| + |0 - 0.7| + |1 - 0.95|) / 5.
    assert expected_calibration_error([1, 0, 0, 1, 1], [0.9, 0.1, 0.8, 0.3, 0.95]) == pytest.approx(0.35)
    # In one bin, errors of opposite signs cancel: |3 - 4.25| / 5.
    assert expected_calibration_error([1, 0, 0, 1, 1], [0.9, 0.1, 0.8, 0.3, 0.95], n_bins=1) == pytest.approx(0.25)
    assert expected_calibration_error([True, False], [1.0, 0.0]) == 0.0
    assert expected_calibration_error([0, 1], [1.0, 0.0]) == 1.0


@pytest.mark.parametrize(
    ("y", "p", "n_bins"),
    [([0, 1], [0.5], 10), ([], [], 10), ([0, 2], [0.5, 0.5], 10), ([0, 1], [0.5, 1.1], 10), ([0, 1], [0.5, np.nan], 10),
     ([[0, 1]], [[0.5, 0.5]], 10), ([0, 1], [0.5, 0.5], 0)],
)  # fmt: skip
def test_expected_calibration_error_refuses_bad_input(y, p, n_bins):
    with pytest.raises(ValueError, match="must be"):
        expected_calibration_error(y, p, n_bins)


def test_scores_of_several_classes_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [0.9, 0.1, 0.0]])
    y = [0, 2, 2, 0]
    # Two of confidence 0.7, of which one is right; 0.4 and 0.9, both right.
    assert expected_calibration_error(y, p) == pytest.approx((abs(1.0 - 1.4) + 0.6 + 0.1) / 4.0)
    with np.errstate(divide="ignore"):
        result = scores(y, np.log(p))
    assert result["error"] == 0.25
    assert result["brier"] == pytest.approx(np.mean([0.14, 0.04 + 0.49 + 0.81, 0.09 + 0.09 + 0.36, 0.02]))
    assert result["nll"] == pytest.approx(-np.mean(np.log([0.7, 0.1, 0.4, 0.9])))
    assert np.isnan(result["auc"])


def test_scores_do_not_depend_on_the_order_of_the_classes_and_agree_with_those_of_two():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 2.0, 3.0], 200)
    y = np.array([rng.choice(3, p=row) for row in p])
    result = scores(y, np.log(p))
    assert result["auc"] == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), abs=1e-12)
    assert scores(2 - y, np.log(p[:, ::-1])) == pytest.approx(result)
    two = p[:, :2] / p[:, :2].sum(axis=1, keepdims=True)
    assert expected_calibration_error(y > 0, two) == pytest.approx(expected_calibration_error(y > 0, two[:, 1]))


def test_area_under_curve_where_probabilities_round_to_one():
    # The probability of class 0 rounds to 1 in every row; its log odds are 100, 45, 40 and 50.
    others = np.array([[-100.0, -700.0], [-45.0, -600.0], [-40.0, -800.0], [-900.0, -50.0]])
    log_p = np.column_stack([-np.exp(others).sum(axis=1), others])
    first = roc_auc_score([1, 1, 0, 0], [100.0, 45.0, 40.0, 50.0])
    second = roc_auc_score([0, 0, 1, 0], others[:, 0])
    assert scores([0, 0, 1, 2], log_p)["auc"] == pytest.approx((first + second + 1.0) / 3.0)


@pytest.mark.parametrize(
    ("y", "p"),
    [([0, 3], np.full((2, 3), 1 / 3)), ([0], np.full((2, 3), 1 / 3)), ([0, 0.5], np.full((2, 3), 1 / 3)),
     ([0, 1], np.full((2, 3), 0.5)), ([0], [[1.5, -0.5, 0.0]]), ([0], [[np.nan, 0.5, 0.5]]), ([], np.empty((0, 3)))],
)  # fmt: skip
def test_scores_of_several_classes_refuse_bad_input(y, p):
    with pytest.raises(ValueError, match="must be"):
        expected_calibration_error(y, p)


def test_reliability_diagram_draws_the_bins():
    y, p = [0, 1, 0, 1, 1, 1], [0.01, 0.05, 0.33, 0.95, 0.97, 1.0]
    ax = reliability_diagram(y, p)
    points = ax.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points, [[0.03, 0.5], [0.33, 0.0], [0.97333333, 1.0]])
    labels = [text.get_text() for text in ax.child_axes[0].texts]
    assert labels == ["2", "", "", "1", "", "", "", "", "", "3"]
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    ax.figure.savefig(io.BytesIO())
    assert reliability_diagram(y, p, ax=ax) is ax


def test_decision_contours_draw_data_boundary_and_inducing_points(data, model):
    X, names = data
    model = copy.copy(model)
    model.feature_names_in_ = np.array(FEATURES, dtype=object)
    ax = decision_contours(model, X, names, features=(2, 0))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["benign", "malignant", "Inducing points"]
    drawn = {c.get_label(): np.asarray(c.get_offsets()) for c in ax.collections if not c.get_label().startswith("_")}
    np.testing.assert_array_equal(drawn["benign"], X[names == "benign"][:, [2, 0]])
    np.testing.assert_array_equal(drawn["Inducing points"], model.inducing_points_[:, [2, 0]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == (FEATURES[2], FEATURES[0])
    assert model.feature_names_in_.tolist() == FEATURES
    ax.figure.savefig(io.BytesIO())
