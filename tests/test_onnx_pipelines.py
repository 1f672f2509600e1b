"""Pipelines by skl2onnx with the registered converters: they predict what the pipelines do."""

import numpy as np
import onnxruntime
import pytest
import skl2onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from support.frames import inputs_of
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.onnx import register

X, TWO = moons(80)
THREE = TWO + (X[:, 0] > 1.0)
LABELS = {
    "two": TWO,
    "three": THREE,
    "names": np.array(["no", "perhaps", "yes"])[THREE],
    "booleans": TWO.astype(bool),
    "floats": TWO.astype(float),
}
TOLERANCE = {"float32": 1e-6, "float64": 1e-8}
register()


def classifier(**parameters):
    return GPClassifier(RBF(0.7), **{"n_inducing": 12, "optimizer": None, "random_state": 0, **parameters})


def run(model, inputs, *given, zipmap=False, **named):
    made = skl2onnx.to_onnx(model, *given, options={"zipmap": zipmap}, **named)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == list(inputs)
    return session.run(None, inputs)


def assert_predicts_as(model, rows, **named):
    label, proba = run(model, {"X": rows}, rows[:1], **named)
    assert proba.dtype == rows.dtype
    np.testing.assert_allclose(proba, model.predict_proba(rows), rtol=0.0, atol=TOLERANCE[rows.dtype.name])
    assert label.tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
def test_a_pipeline(y, dtype):
    rows = X.astype(dtype)
    assert_predicts_as(make_pipeline(StandardScaler(), classifier()).fit(rows, y), rows)


@pytest.mark.parametrize("name", LABELS)
def test_probabilities_by_label(name):
    """The default of skl2onnx, a dictionary for each row."""
    rows = X.astype(np.float32)
    model = make_pipeline(StandardScaler(), classifier()).fit(rows, LABELS[name])
    _, by_label = run(model, {"X": rows}, rows[:1], zipmap=True)
    found = [[one[label] for label in model.classes_.tolist()] for one in by_label]
    np.testing.assert_allclose(found, model.predict_proba(rows), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_neighbours_and_operator_sets(y):
    model = make_pipeline(StandardScaler(), classifier(n_neighbors=7)).fit(X, y)
    for opset in (13, 17, 18):
        assert_predicts_as(model, X, target_opset=opset)


def test_other_classifiers_around_and_beside():
    assert_predicts_as(make_pipeline(StandardScaler(), BayesianLinearClassifier()).fit(X, TWO), X)
    assert_predicts_as(GridSearchCV(classifier(), {"likelihood": ["logit", "probit"]}, cv=2).fit(X, TWO), X)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_calibration_takes_the_decision_function(y):
    assert_predicts_as(CalibratedClassifierCV(classifier(), cv=2).fit(X, y), X)


def test_labels_by_their_position():
    model = classifier().fit(X, LABELS["names"])
    made = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False, "nocl": True})
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(["label"], {"X": X})[0].tolist() == model.predict_proba(X).argmax(1).tolist()


def test_features_in_several_inputs():
    types = [("first", DoubleTensorType([None, 1])), ("rest", DoubleTensorType([None, 1]))]
    model = classifier().fit(X, THREE)
    _, proba = run(model, {"first": X[:, :1], "rest": X[:, 1:]}, initial_types=types)
    np.testing.assert_allclose(proba, model.predict_proba(X), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("tensor", [FloatTensorType, DoubleTensorType])
def test_a_table(tensor):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "place": np.where(X[:, 1] > 0.3, "here", "there")})
    table.loc[::7, "b"], table.loc[::9, "place"] = np.nan, None
    model = make_pipeline(classifier()).fit(table, THREE)
    inputs = inputs_of(table, "place", np.float32 if tensor is FloatTensorType else np.float64)
    a, b, place = types = [(name, (StringTensorType if name == "place" else tensor)([None, 1])) for name in table]
    _, proba = run(model, inputs, initial_types=types)
    np.testing.assert_allclose(proba, model.predict_proba(table), rtol=0.0, atol=1e-6)
    for refused, types, message in (
        (model, [a, b], "inputs have 2 columns together; the model was fitted to 3"),
        (model, [a, place, b], "input of the column 'b' is text; the model was fitted to numbers"),
        (model, [a, b, ("place", b[1])], "input of the column 'place' is numbers; the model was fitted to text"),
        (classifier().fit(X, TWO), [a, place], "An input is text; the model was fitted to numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            skl2onnx.to_onnx(refused, initial_types=types)


def test_columns_that_other_steps_encode():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "place": np.where(X[:, 1] > 0.3, "here", "there")})
    steps = [("number", StandardScaler(), ["a"]), ("level", OneHotEncoder(), ["place"])]
    model = make_pipeline(ColumnTransformer(steps), classifier()).fit(table, THREE)
    types = [("a", DoubleTensorType([None, 1])), ("place", StringTensorType([None, 1]))]
    _, proba = run(model, inputs_of(table, "place"), initial_types=types)
    np.testing.assert_allclose(proba, model.predict_proba(table), rtol=0.0, atol=1e-6)


def test_levels_in_the_columns_that_another_step_makes():
    rows = np.column_stack([X[:, 0], np.round(X[:, 1])])
    steps = [("number", StandardScaler(), [0]), ("level", OrdinalEncoder(), [1])]
    model = make_pipeline(ColumnTransformer(steps), classifier(categorical_features=[1])).fit(rows, THREE)
    assert_predicts_as(model, rows)
