"""ONNX models, also of pipelines: what onnxruntime computes of them is what the classifiers predict."""

import warnings
from functools import partial

import numpy as np
import onnx
import onnxruntime
import pandas
import pytest
import skl2onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from support.fits import quietly, refuses, without_warnings
from support.frames import inputs_of
from support.latents import REGISTERED
from support.posteriors import kernels
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.likelihoods import LIKELIHOODS, MULTI_CLASS, record_of
from xgpc.onnx import register, to_onnx
from xgpc.onnx.graph import Graph, Tensor
from xgpc.onnx.links import Latent, probabilities

ATOL = 1e-5
X, TWO = moons(80)
THREE = TWO + (X[:, 0] > 1.0)
# Near the training rows, and far from them.
ROWS = np.concatenate([X[::3], 4.0 * X[::3] + 1.0])
KERNELS = kernels(
    [0.7, 1.5], "ard alone", "matern 1/2", "matern 3/2", "power", "periodic", "rational quadratic", "dot product",
    "noise by dot product", "axis 1/2", "axis 3/2", "axis, sum and product", "power of a sum", "columns",
)  # fmt: skip
SMOOTH = RBF(0.7)
classifier = partial(GPClassifier, kernel=SMOOTH, n_inducing=12, optimizer=None, random_state=0)


def run_model(model, names=("label", "probabilities"), **inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(names, inputs)


def assert_predicts_as(model, rows=ROWS, dtype="float64", atol=ATOL, opset=17):
    labels, proba = run_model(to_onnx(model, dtype, opset=opset), X=rows.astype(dtype))
    expected = model.predict_proba(rows.astype(dtype))
    assert proba.dtype == dtype
    np.testing.assert_allclose(proba, expected, rtol=0.0, atol=atol)
    # Where rounding does not decide.
    clear = np.diff(np.sort(expected, axis=1)[:, -2:], axis=1)[:, 0] > atol
    assert clear.sum() > len(rows) / 3
    assert labels[clear].tolist() == model.predict(rows)[clear].tolist()


def fitted(kernel, y, **parameters):
    return quietly(classifier(kernel=kernel, **parameters), X, y)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("parameters", [{}, {"share": "none"}, {"inducing_points": "all"}], ids=str)
def test_every_kernel(name, parameters):
    y = THREE if parameters.get("share") == "none" else TWO
    assert_predicts_as(fitted(KERNELS[name], y, **parameters), atol=1e-7)


@pytest.mark.parametrize(("likelihood", "bound"), REGISTERED)
def test_every_likelihood(likelihood, bound):
    for y in (TWO, THREE) if likelihood in MULTI_CLASS else (TWO,):
        weight = {c: 1.0 + c for c in np.unique(y)}
        model = fitted(20.0 * RBF(0.7), y, likelihood=likelihood, bound=bound, max_iter=20, class_weight=weight)
        for opset in (13, 17, 20):
            assert_predicts_as(model, opset=opset)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "periodic"])
def test_neighbours(name):
    for y in (TWO, THREE):
        model = fitted(KERNELS[name], y, n_neighbors=9, max_iter=5)
        assert model.n_neighbors_ == 9
        assert_predicts_as(model, atol=1e-6)
        assert_predicts_as(model, dtype="float32")


def test_neighbours_among_equal_rows_with_other_labels():
    """Of equal rows the first are neighbours, as in the search of xgpc; and rows may have no weight in the fit."""
    twice = np.repeat(X[:20], 6, axis=0)
    y = np.arange(120) * 7 % 3
    model = GPClassifier(Matern(0.8, nu=0.5), n_neighbors=4, n_inducing=5, optimizer=None, random_state=0, max_iter=20)
    without_warnings(model.fit, twice, y, np.where(np.arange(120) % 5, 1.0, 1e-90))
    assert_predicts_as(model, np.concatenate([twice, ROWS]), atol=1e-6)


def test_neighbours_among_too_many_rows_are_refused():
    rows = np.random.default_rng(0).normal(size=(30_001, 1))
    model = GPClassifier(RBF(), n_neighbors=1, n_inducing=2, optimizer=None, random_state=0, max_iter=1)
    without_warnings(model.fit, rows, rows[:, 0] > 0.0)
    refuses(r"nearest of 30001 training rows.* 30000 at most.*n_neighbors=0", to_onnx, model)


@pytest.mark.parametrize("opset", [13, 17, 18, onnx.defs.onnx_opset_version()])
def test_operator_sets(opset):
    """By the interpreter of onnx, because the installed onnxruntime may not know the latest set."""
    for model in (fitted(SMOOTH, TWO, n_neighbors=5), fitted(SMOOTH, THREE, likelihood="multinomial-probit")):
        made = to_onnx(model, opset=opset)
        assert [(one.domain, one.version) for one in made.opset_import] == [("", opset)]
        _, proba = ReferenceEvaluator(made).run(None, {"X": ROWS})
        np.testing.assert_allclose(proba, model.predict_proba(ROWS), rtol=0.0, atol=ATOL)


def table_of(n, dtype="float64"):
    """A table with levels of text, numbers and truth values, missing ones, a repeated number and a column of none."""
    rng = np.random.default_rng(3)
    number = rng.normal(size=n).astype(dtype)
    some = rng.uniform(size=(n, 3)) < 0.2
    return pandas.DataFrame({
        "number": np.where(some[:, 0], np.nan, number).astype(dtype),
        "city": pandas.Categorical(np.where(some[:, 1], None, rng.choice(["Oslo", "Rome", "Ulm"], n))),
        "size": pandas.Categorical(np.where(some[:, 2], np.nan, rng.choice([0.5, 1.5, 20.25], n))),
        "is new": rng.uniform(size=n) < 0.5,
        "gain": rng.choice([0.0, 0.1, 0.7], n, p=[0.6, 0.2, 0.2]).astype(dtype),
        "empty": np.full(n, np.nan, dtype=dtype),
    })  # fmt: skip


@pytest.mark.parametrize("k", [0, 9])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tables(k, dtype):
    """Missing values, also in columns where the training rows missed none, and levels that these do not have."""
    # No row's ninth neighbour is as near as its tenth: of two at the same distance, rounding would choose.
    table = table_of(90, dtype)
    y = (table["city"] == "Oslo").to_numpy() + 2 * (table["number"].fillna(0.0) > 0.0).to_numpy()
    model = GPClassifier(2.0 * RBF(1.5), n_neighbors=k, n_inducing=12, optimizer=None, random_state=0).fit(table, y)
    other = table_of(40)[::-1].astype({"city": object, "size": float, "is new": float})
    other.iloc[:3, 1], other.iloc[3:6, 1], other.iloc[:4, 2], other.iloc[2:5, 4] = "Paris", None, 7.5, np.nan
    other.iloc[5, 3] = np.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has .* missing")
        expected = model.predict_proba(other)
    assert "repeated_gain" in model.encoding_.length_scale_names
    # Levels such as .1 are known in single precision, too, whether training rows or inputs have it.
    for numbers in ("float32", "float64"):
        made = to_onnx(model, numbers)
        assert [one.name for one in made.graph.input] == list(table)
        assert {node.domain for node in made.graph.node} == {"", "ai.onnx.ml"}
        labels, proba = run_model(made, **inputs_of(other, "city", numbers))
        np.testing.assert_allclose(proba, expected, rtol=0.0, atol=1e-6)
        assert labels.tolist() == model.classes_[proba.argmax(1)].tolist()


def test_levels_and_names_that_inputs_cannot_have():
    y = np.arange(20) > 9

    def model_of(**columns):
        return GPClassifier(n_inducing=3, optimizer=None, random_state=0).fit(pandas.DataFrame(columns), y)

    level = pandas.Categorical(["high", "low"] * 10)
    with pytest.raises(ValueError, match=r"can be called 'label': fit to a table with another name"):
        to_onnx(model_of(label=level, number=np.arange(20.0)))
    close = model_of(code=pandas.Categorical([16777216, 16777217] * 10), number=np.arange(20.0))
    refuses(r"Levels of the column 'code' are equal in single precision.*float64", to_onnx, close, "float32")
    assert to_onnx(close).graph.node
    both = model_of(name=pandas.Categorical(["", None] * 10), number=np.arange(20.0))
    refuses("The column 'name' has empty text as a level, and missing values", to_onnx, both)
    # Empty text is a level if the training rows had it.
    model = model_of(name=pandas.Categorical(["", "a"] * 10), number=np.arange(20.0))
    rows = pandas.DataFrame({"name": ["", "a", "b"], "number": 4.0})
    _, proba = run_model(to_onnx(model), **inputs_of(rows, "name"))
    np.testing.assert_allclose(proba, model.predict_proba(rows), rtol=0.0, atol=1e-7)


def link(record, mean, variance, delta):
    """Probabilities from latent means and variances by the graph alone."""
    graph, n_latents = Graph(17), mean.shape[1]
    latent = Latent(Tensor(graph, "mean"), Tensor(graph, "variance"), n_latents)
    graph.named(probabilities(record.at(delta), latent), "probabilities")
    given = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, ["rows", n_latents]) for n in ("mean", "variance")]
    out = helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, None)
    made = helper.make_graph(graph.nodes, "link", given, [out], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return run_model(model, ["probabilities"], mean=mean, variance=variance)[0]


@pytest.mark.parametrize(("likelihood", "bound"), REGISTERED)
def test_links_of_any_latent_values(likelihood, bound):
    """Variances of every size, in each row or in all, and none; probabilities of two classes in the tails, too."""
    record, rng = record_of(likelihood, bound), np.random.default_rng(0)
    delta = 0.03 if record.has_label_noise else np.array([0.3, 0.02]) if record.has_rates else None
    for C in (2, 3, 11) if record.is_multi_class else (1,):
        size = 10.0 ** rng.uniform(-6.0, 5.0, (60, C))
        size[::3] = size[::3, :1]
        mean = np.sqrt(1.0 + size) * rng.normal(size=size.shape) * 2.0
        variance = np.where(np.arange(60)[:, None] % 10, size, 0.0)
        log_p = record.at(delta).log_probabilities(*(a if record.is_multi_class else a[:, 0] for a in (mean, variance)))
        found = link(record, mean, variance, delta)
        np.testing.assert_allclose(found, np.exp(log_p), rtol=0.0, atol=ATOL)
        if not record.is_multi_class:
            usual = log_p > -300.0
            np.testing.assert_allclose(np.log(found[usual]), log_p[usual], rtol=1e-6, atol=1e-6)
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("shape", [(80, 2), (20, 30)], ids=["tall", "wide"])
@pytest.mark.parametrize("likelihood", ["logit", "probit", "svm"])
def test_linear_classifiers(intercept, shape, likelihood):
    rng = np.random.default_rng(0)
    A = rng.normal(size=shape)
    y = (A[:, 0] + 0.3 * rng.normal(size=shape[0]) > 0.0).astype(int)
    model = BayesianLinearClassifier(likelihood, fit_intercept=intercept, class_weight={0: 3.0, 1: 1.0}).fit(A, y)
    assert_predicts_as(model, rng.normal(size=(30, shape[1])), atol=1e-7)


def test_the_model_says_what_it_is():
    made = to_onnx(fitted(RBF(0.5), THREE))
    onnx.checker.check_model(made, full_check=True)
    assert [(one.domain, one.version) for one in made.opset_import] == [("", 17)]
    assert made.producer_name == "xgpc"
    (given,) = made.graph.input
    assert given.name == "X"
    assert [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim] == ["rows", 2]
    assert {node.domain for node in made.graph.node} == {""}
    assert "Solve" not in {node.op_type for node in made.graph.node}


def test_what_has_no_onnx_form_is_refused():
    with pytest.raises(NotFittedError):
        to_onnx(GPClassifier())
    with pytest.raises(TypeError, match=r"got Pipeline.*skl2onnx.to_onnx, after xgpc.onnx.register"):
        to_onnx(make_pipeline(StandardScaler(), GPClassifier()))
    model = fitted(RBF(0.5), TWO)
    for bad in (12, onnx.defs.onnx_opset_version() + 1, 17.0, "17", None):
        refuses(r"opset must be from 13 to \d+, the latest that the installed onnx", to_onnx, model, opset=bad)
    for bad in ("float16", np.int32, None, "single precision", ["float32"]):
        refuses(r"dtype must be one of \['float32', 'float64'\], or NumPy's type", to_onnx, model, bad)
    model.classes_ = np.array([0, "a"], dtype=object)
    labels = "Only labels that are numbers below 2.*63, booleans or strings"
    refuses(labels, to_onnx, model)
    refuses(labels, to_onnx, fitted(RBF(0.5), np.uint64(2**63) + TWO.astype(np.uint64)))


@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, "neighbours"])
def test_a_row_that_is_no_number_spoils_no_other(likelihood):
    y = THREE if likelihood in MULTI_CLASS else TWO
    model = fitted(RBF(0.5), y, **({"n_neighbors": 5} if likelihood == "neighbours" else {"likelihood": likelihood}))
    rows = np.array(ROWS[:4])
    rows[1, 0] = np.nan
    _, proba = run_model(to_onnx(model), X=rows)
    assert np.all(np.isnan(proba[1]))
    np.testing.assert_allclose(proba[[0, 2, 3]], model.predict_proba(rows[[0, 2, 3]]), rtol=0.0, atol=ATOL)


LABELS = {
    "two": TWO,
    "three": THREE,
    "names": np.array(["no", "perhaps", "yes"])[THREE],
    "booleans": TWO.astype(bool),
    "floats": TWO.astype(float),
}
TOLERANCE = {"float32": 1e-6, "float64": 1e-8}
register()


def run_pipeline(model, inputs, *given, zipmap=False, **named):
    made = skl2onnx.to_onnx(model, *given, options={"zipmap": zipmap}, **named)
    assert [one.name for one in made.graph.input] == list(inputs)
    return run_model(made, None, **inputs)


def assert_converted(model, rows, **named):
    label, proba = run_pipeline(model, {"X": rows}, rows[:1], **named)
    assert proba.dtype == rows.dtype
    np.testing.assert_allclose(proba, model.predict_proba(rows), rtol=0.0, atol=TOLERANCE[rows.dtype.name])
    assert label.tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
def test_a_pipeline(y, dtype):
    rows = X.astype(dtype)
    assert_converted(make_pipeline(StandardScaler(), classifier()).fit(rows, y), rows)


@pytest.mark.parametrize("name", LABELS)
def test_probabilities_by_label(name):
    """The default of skl2onnx, a dictionary for each row."""
    rows = X.astype(np.float32)
    model = make_pipeline(StandardScaler(), classifier()).fit(rows, LABELS[name])
    _, by_label = run_pipeline(model, {"X": rows}, rows[:1], zipmap=True)
    found = [[one[label] for label in model.classes_.tolist()] for one in by_label]
    np.testing.assert_allclose(found, model.predict_proba(rows), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_neighbours_and_operator_sets(y):
    model = make_pipeline(StandardScaler(), classifier(n_neighbors=7)).fit(X, y)
    for opset in (13, 17, 18):
        assert_converted(model, X, target_opset=opset)


def test_other_classifiers_around_and_beside():
    assert_converted(make_pipeline(StandardScaler(), BayesianLinearClassifier()).fit(X, TWO), X)
    assert_converted(GridSearchCV(classifier(), {"likelihood": ["logit", "probit"]}, cv=2).fit(X, TWO), X)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_calibration_takes_the_decision_function(y):
    assert_converted(CalibratedClassifierCV(classifier(), cv=2).fit(X, y), X)


def test_labels_by_their_position():
    model = classifier().fit(X, LABELS["names"])
    made = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False, "nocl": True})
    assert run_model(made, ["label"], X=X)[0].tolist() == model.predict_proba(X).argmax(1).tolist()


def test_features_in_several_inputs():
    types = [("first", DoubleTensorType([None, 1])), ("rest", DoubleTensorType([None, 1]))]
    model = classifier().fit(X, THREE)
    _, proba = run_pipeline(model, {"first": X[:, :1], "rest": X[:, 1:]}, initial_types=types)
    np.testing.assert_allclose(proba, model.predict_proba(X), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("tensor", [FloatTensorType, DoubleTensorType])
def test_a_table(tensor):
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "place": np.where(X[:, 1] > 0.3, "here", "there")})
    table.loc[::7, "b"], table.loc[::9, "place"] = np.nan, None
    model = make_pipeline(classifier()).fit(table, THREE)
    inputs = inputs_of(table, "place", np.float32 if tensor is FloatTensorType else np.float64)
    a, b, place = types = [(name, (StringTensorType if name == "place" else tensor)([None, 1])) for name in table]
    _, proba = run_pipeline(model, inputs, initial_types=types)
    np.testing.assert_allclose(proba, model.predict_proba(table), rtol=0.0, atol=1e-6)
    for refused, types, message in (
        (model, [a, b], "inputs have 2 columns together; the model was fitted to 3"),
        (model, [a, place, b], r"The inputs are \['a', 'place', 'b'\]; .* the order of the fit: \['a', 'b', 'place'\]"),
        (model, [a, ("b", place[1]), place], "input of the column 'b' is text; the model was fitted to numbers"),
        (classifier().fit(table[["a"]].assign(c=X[:, 1]), TWO), [("c", a[1]), a], "order of the fit: .'a', 'c'"),
        (model, [a, b, ("place", b[1])], "input of the column 'place' is numbers; the model was fitted to text"),
        (classifier().fit(X, TWO), [a, place], "An input is text; the model was fitted to numbers"),
    ):
        refuses(message, skl2onnx.to_onnx, refused, initial_types=types)


def test_columns_that_other_steps_encode():
    table = pandas.DataFrame({"a": X[:, 0], "place": np.where(X[:, 1] > 0.3, "here", "there")})
    steps = [("number", StandardScaler(), ["a"]), ("level", OneHotEncoder(), ["place"])]
    model = make_pipeline(ColumnTransformer(steps), classifier()).fit(table, THREE)
    types = [("a", DoubleTensorType([None, 1])), ("place", StringTensorType([None, 1]))]
    _, proba = run_pipeline(model, inputs_of(table, "place"), initial_types=types)
    np.testing.assert_allclose(proba, model.predict_proba(table), rtol=0.0, atol=1e-6)


def test_levels_in_the_columns_that_another_step_makes():
    rows = np.column_stack([X[:, 0], np.round(X[:, 1])])
    steps = [("number", StandardScaler(), [0]), ("level", OrdinalEncoder(), [1])]
    model = make_pipeline(ColumnTransformer(steps), classifier(categorical_features=[1])).fit(rows, THREE)
    assert_converted(model, rows)
