"""Tables as users have them, also with missing numbers: no column is refused, and what is done with it is said."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_classification
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly, refuses, reloaded, without_warnings
from support.frames import fitted, small

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.explain import shapley_values

pd = pytest.importorskip("pandas")

N = 120
X = np.random.default_rng(0).normal(size=N)
CAUCHY = np.random.default_rng(2).standard_cauchy(N)
Y = (X + 0.3 * np.random.default_rng(1).normal(size=N) > 0.0).astype(int)


def beside(column, **parameters):
    """A fit to a number that tells the class, next to a column."""
    return fitted(pd.DataFrame({"x": X, "c": column}), Y, **parameters)


def said(model, text):
    return [sentence for sentence in model.decisions_ if text in sentence and sentence in model.summary()]


EMPTY = {
    "numbers": np.full(N, np.nan),
    "objects": np.full(N, None, dtype=object),
    "categories": pd.Categorical([None] * N),
    "integers": pd.array([None] * N, dtype="Int64"),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a_column_without_values_does_not_count_and_the_fit_says_so(kind, tmp_path):
    model, alone = beside(EMPTY[kind]), fitted(pd.DataFrame({"x": X}), Y)
    assert said(model, "No row has a value of the column 'c', so this column is ignored.")
    table = pd.DataFrame({"x": X})
    np.testing.assert_allclose(model.predict_proba(table.assign(c=np.nan)), alone.predict_proba(table), atol=0.05)
    # Whatever it has later.
    for one in (model, reloaded(model, tmp_path)):
        for value in (1e6, "text", None):
            found = one.predict_proba(table.assign(c=value))
            np.testing.assert_array_equal(found, model.predict_proba(table.assign(c=np.nan)))
    assert "categorical" not in model.summary()
    np.testing.assert_array_equal(shapley_values(model, table.assign(c=np.nan)).values[:, 1], 0.0)


def test_a_column_that_names_the_rows_or_has_dates_as_text_is_told_of_by_name():
    names = [f"row {i}" for i in range(N)]
    alone = "rows have a level of the column 'c' that no other row has, and that tells nothing of new rows. Leave out"
    assert said(beside(names), f"{N} of {N} {alone}")
    assert said(beside([*names[: N - 20], *["other"] * 20]), f"{N - 20} of {N} {alone}")
    days = np.datetime64("2024-01-30") + np.arange(N) % 20
    for dates in (days.astype(str), [f"{day} 10:30:00" for day in days]):
        (sentence,) = said(beside(dates), "The levels of the column 'c' are dates")
        assert f"such as '{dates[0]}'" in sentence
        assert "Turn them into numbers, such as days since a first date, or leave the column out." in sentence
    for levels in (["Ulm", "Bonn", "Jena"], ["2024-01-30", "unknown"]):
        assert not said(beside(np.resize(levels, N)), "column 'c'")


def test_a_column_can_be_without_values_in_the_rows_that_count():
    c = np.where(np.arange(N) < 60, 1.0, np.nan)
    table, weight = pd.DataFrame({"x": X, "c": c}), (np.arange(N) >= 60).astype(float)
    part, weighted = fitted(table[60:], Y[60:]), fitted(table, Y, sample_weight=weight)
    for model in (part, weighted):
        assert said(model, "No row has a value of the column 'c'")
    np.testing.assert_array_equal(part.predict_proba(table), weighted.predict_proba(table))


@pytest.mark.parametrize("column", [3.0, "a", True], ids=repr)
def test_a_column_that_is_constant_in_a_part_of_the_rows_does_not_matter(column):
    """Also where other rows have other values: at most a level's distance from what is known, if it is one."""
    whole = pd.DataFrame({"x": X, "c": [column] * 60 + [{3.0: 4.0, "a": "b", True: False}[column]] * 60})
    model, alone = fitted(whole[:60], Y[:60]), fitted(whole[["x"]][:60], Y[:60])
    np.testing.assert_allclose(model.predict_proba(whole[:60]), alone.predict_proba(whole[["x"]][:60]), atol=0.05)
    assert np.all(np.isfinite(model.predict_proba(whole)))
    shapley = shapley_values(model, whole[:60]).values
    assert np.max(np.abs(shapley[:, 1])) < 1e-9 * np.max(np.abs(shapley[:, 0]))


THIRD = np.random.default_rng(4).choice(3, N, p=[0.6, 0.3, 0.1])
ROUNDING = {
    "two values": np.where(THIRD, 0.3, 0.1 + 0.2),
    "three values": np.array([0.3, 0.1 + 0.2, np.nextafter(0.3, 0.0)])[THIRD],
    "many values": -1e9 - 1e-5 * np.clip(np.random.default_rng(5).standard_cauchy(N), -30.0, 30.0),
    "single precision": np.nextafter(np.float32(0.3), np.array([0.0, 0.3, 1.0], dtype=np.float32))[THIRD],
    "large in single precision": (1.7e9 + 128.0 * THIRD).astype(np.float32),
}


@pytest.mark.parametrize("column", ROUNDING.values(), ids=ROUNDING)
@pytest.mark.parametrize("container", ["table", "missing", "batches", "many batches"])
def test_rounding_in_a_constant_column_is_no_feature(column, container, tuned):
    x = X.astype(column.dtype)
    if container == "many batches":
        tuned(kept_rows=100)

    def model_of(column):
        model = small(n_neighbors=0)
        if "batches" in container:
            return without_warnings(model.fit_batches, [(np.column_stack([x, column]), Y)])
        # A column that misses numbers makes a matrix of the table.
        gaps = {"gap": np.where(np.arange(N) % 9, X, np.nan).astype(x.dtype)} if container == "missing" else {}
        return quietly(model, pd.DataFrame({"x": x, "c": column, **gaps}), Y)

    def predicted(model, column):
        rows = pd.DataFrame({"x": x, "c": column, "gap": X}).iloc[:, : model.n_features_in_]
        return model.predict_proba(rows if container in ("table", "missing") else rows.to_numpy(x.dtype))

    model, constant = model_of(column), model_of(np.full_like(column, column[0]))
    assert len(said(model, "count as constant, as if by rounding errors: ")) == 1
    assert not said(constant, "rounding")
    assert model.feature_spread_[1] == constant.feature_spread_[1] == 0.0
    assert model.feature_importances_[1] == 0.0
    assert not [*said(model, "heavy tails"), *said(model, "wide gap")]
    assert not any(one.levels for one in (model.encoding_.columns if container == "missing" else ()))
    expected = predicted(constant, np.full_like(column, column[0]))
    for given in (column, column * (1.0 + 1e-9)):
        np.testing.assert_allclose(predicted(model, given.astype(column.dtype)), expected, atol=0.01)


TAILS = {
    "cauchy": (CAUCHY, "heavy tails are warped"),
    "large cauchy": (1e30 * CAUCHY, "heavy tails are warped"),
    "one of 1e30": (np.where(np.arange(N) == 3, 1e30, X), "a wide gap separates from all others are moved to limits"),
}


@pytest.mark.parametrize(("column", "text"), TAILS.values(), ids=TAILS)
def test_heavy_tails_hide_nothing_and_the_fit_says_what_it_did(column, text):
    model = beside(column)
    (sentence,) = said(model, text)
    assert "'c'" in sentence
    assert "feature_transform=None leaves" in sentence
    table = pd.DataFrame({"x": X, "c": column})
    assert np.mean(model.predict(table) == Y) > 0.85
    assert np.all(np.isfinite(model.predict_proba(table.assign(c=-1e100))))


CODES = {
    "postal codes": np.random.default_rng(3).integers(10_000, 99_999, N),
    "few": np.random.default_rng(3).integers(0, 4, N),
    "truth values": np.random.default_rng(3).random(N) < 0.5,
}


@pytest.mark.parametrize("codes", CODES.values(), ids=CODES)
def test_codes_are_numbers_unless_they_are_named_categorical(codes):
    model, named = beside(codes), beside(codes, categorical_features=["c"])
    assert model.encoding_ is None
    table = pd.DataFrame({"x": X, "c": codes})
    assert named.encoding_.columns[1].levels == tuple(np.unique(codes.astype(float)))
    for one in (model, named):
        assert np.mean(one.predict(table) == Y) > 0.85
    assert "'c'" in next(line for line in named.summary().splitlines() if "categorical" in line)


@pytest.mark.parametrize("values", [X, np.where(X > 0.0, "u", "v")], ids=["numbers", "text"])
def test_names_of_two_kinds_are_refused_before_anything_is_learned(values):
    rows = pd.DataFrame({"a": X, 1: values})
    refuses("if all input features have string names", GPClassifier().fit, rows, Y, error=TypeError)


def test_columns_of_arrays_have_one_name_everywhere():
    rows = np.column_stack([np.random.default_rng(0).standard_cauchy(N), X, np.arange(N) % 3])
    model = fitted(rows, Y, categorical_features=[2])
    assert model.encoding_.length_scale_names == ("feature 0", "feature 1", "feature 2")
    assert "column 0" not in model.summary()
    assert {"feature 2=0", "feature 2=1", "feature 2=2"} < set(model.encoding_.matrix_names)
    rows[4, 1] = np.nan
    refuses("1 in feature 1", fitted, rows, Y, categorical_features=[2])


@pytest.mark.parametrize(("n", "d"), [(150, 1000), (1500, 100)], ids=["more columns than rows", "many columns"])
def test_wide_tables_give_probabilities_that_tell_more_than_the_class_shares(n, d):
    rows, y = make_classification(n, d, n_informative=4, n_redundant=0, class_sep=2.0, random_state=0)
    table = pd.DataFrame(rows, columns=[f"f{j}" for j in range(d)])
    table["f0"] = np.where(table["f0"] > 0.0, "a", "b")
    table.loc[::9, "f1"] = np.nan
    proba = fitted(table, y, max_iter=2).predict_proba(table)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert np.mean(-np.log(proba[np.arange(n), y])) < np.log(2.0)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros(4), "Expected 2D array"),
        ([["a", "b"]], "could not convert"),
        (np.full((1, 3), np.nan), "contains NaN"),
        (np.zeros((2, 3)), r"X has 3 columns; give the 4 columns of matrix_names"),
    ],
)
def test_points_to_take_back_are_checked(points, message):
    encoding = beside(np.tile(["a", "b"], N // 2)).encoding_
    assert len(encoding.matrix_names) == 4
    refuses(message, encoding.inverse, points)


def test_rows_to_encode_are_checked(tmp_path):
    rows = pd.DataFrame({"x": X, "tail": CAUCHY})
    numbered, model = rows.set_axis([0, 1], axis=1), fitted(rows, Y)
    swapped = r"X has the columns \['(tail', 'x|1', '0)'\]; the model was fitted to \[.* same order"
    for one, table in ((model, rows), (reloaded(model, tmp_path), rows), (fitted(numbered, Y), numbered)):
        encode = one.encoding_.encode
        refuses(swapped, encode, table[table.columns[::-1]])
        np.testing.assert_array_equal(encode(rows if table is numbered else numbered), encode(table))
        for n_columns in (1, 3):
            refuses(rf"X has {n_columns} columns; the model was fitted to 2", encode, np.ones((4, n_columns)))
        for value, message in ((np.nan, "1 missing number"), (np.inf, "infinity"), ("a", "could not convert")):
            refuses(message, encode, np.array([[1.0, value]], dtype=object))
        assert encode(np.ones((2, 2), dtype=int)).dtype == np.float64
    refuses(swapped, beside(np.tile(["a", "b"], N // 2)).encoding_.encode, rows[["tail", "x"]])


def test_points_to_take_back_have_the_features_of_the_array():
    encoding = fitted(np.column_stack([X, CAUCHY]), Y).encoding_
    refuses(r"X has 1 columns; give the features of the fit, 2 or more", encoding.inverse, [[1.0]])


@pytest.mark.parametrize("first", [{"feature_transform": None}, {"kernel": RBF([1.0, 1.0])}], ids=["off", "kernel"])
def test_a_warm_start_follows_a_new_setting_of_warps(first):
    table = pd.DataFrame({"x": X, "c": CAUCHY})
    model = fitted(table, Y, warm_start=True, **first)
    assert model.encoding_ is None
    quietly(model.set_params(feature_transform="auto", kernel=None), table, Y)
    assert model.encoding_.warps == fitted(table, Y).encoding_.warps != ()
    assert said(model, "this fit begins anew")


def test_the_default_baseline_of_a_table_is_a_row_that_could_be():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "town": rng.choice(["Ulm", "Bonn", "Kiel"], N, p=[0.5, 0.3, 0.2]),
        "gain": np.where(rng.random(N) < 0.7, 0.0, rng.choice([5.0, 7.0], N)),
        "age": rng.normal(50.0, 9.0, N),
        "x": X,
    })  # fmt: skip
    table.loc[::9, "age"] = np.nan
    model = fitted(table, Y)
    assert model.encoding_.length_scale_names[4:] == ("missingindicator_age", "repeated_gain")
    row = pd.DataFrame({"town": ["Ulm"], "gain": [0.0], "age": [table["age"].mean()], "x": [X.mean()]})
    found = shapley_values(model, table)
    assert found.baseline_value == pytest.approx(model.predict_latent(row)[0][0], abs=1e-9)
    np.testing.assert_allclose(found.values, shapley_values(model, table, row).values, atol=1e-9)
    # A level that the baseline has counts for nothing.
    np.testing.assert_allclose(found.values[(table["town"] == "Ulm").to_numpy(), 0], 0.0, atol=1e-12)


def assert_means_stand_in(call, gaps, means, count):
    """A call to a table with gaps says once what it does, and gives what it does of a table with means."""
    with pytest.warns(UserWarning, match=rf"{count}\. The training rows missed none there: their mean") as caught:
        found = call(gaps)
    assert len(caught) == 1
    for one, other in zip(np.atleast_1d(found), np.atleast_1d(call(means)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_missing_numbers_are_the_mean_next_to_an_indicator():
    X = pd.DataFrame({"a": [1.0, 2.0, np.nan, 6.0] * 10, "b": np.arange(40.0)})
    y, weight = np.arange(40) % 2, np.tile([1.0, 1.0, 1.0, 2.0], 10)
    model = fitted(X, y, sample_weight=weight)
    columns = [(one.name, one.fill, one.has_missing) for one in model.encoding_.columns]
    assert columns == [("a", 3.75, True), ("b", np.average(X["b"], weights=weight), False)]
    np.testing.assert_array_equal(model.encoding_.encode(X.iloc[:4]), [[1, 0, 0], [2, 1, 0], [3.75, 2, 1], [6, 3, 0]])
    assert model.encoding_.matrix_names == ("a", "b", "missingindicator_a")
    # Rows of weight 0 tell nothing.
    more = pd.concat([X, pd.DataFrame({"a": [1e6], "b": [np.nan]})])
    again = fitted(more, np.append(y, 1), sample_weight=np.append(weight, 0.0))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_numbers_that_only_rows_to_predict_miss_are_the_mean_as_if_seen():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"town": rng.choice(["Ulm", "Bonn", "Kiel"], N), "member": rng.random(N) < 0.4, "pay": X})
    y = ((table["town"] == "Ulm") * 2.0 + table["pay"] > 0.7).to_numpy()
    # The truth values and the pay of all training rows are known.
    gaps = table.assign(member=table["member"].astype("boolean"))
    gaps.loc[:2, "pay"] = np.nan
    gaps.loc[4, "member"] = pd.NA
    means = gaps.fillna({"pay": table["pay"].mean()}).assign(member=table["member"].astype(float))
    means.loc[4, "member"] = table["member"].mean()
    model = fitted(table, y)
    for call in (
        model.predict, model.predict_proba, model.predict_latent, lambda X: model.elbo(X, y), model.encoding_.encode
    ):  # fmt: skip
        assert_means_stand_in(call, gaps, means, r"4 missing numbers \(NaN\): 1 in 'member', 3 in 'pay'")


def test_arrays_must_have_all_numbers():
    X, y = np.random.default_rng(0).normal(size=(30, 12)), np.arange(30) % 2
    bad = X.copy()
    bad[3:5, 1] = bad[7, 2] = np.nan
    found = r"X has 3 missing numbers \(NaN\): 2 in feature 1, 1 in feature 2\. Put in numbers, as .*SimpleImputer"
    for given in (bad, bad.astype(np.float32), csr_array(bad), bad.tolist()):
        error = refuses(rf"{found}.* give a data frame", small().fit, given, y)
        assert "HistGradientBoosting" not in str(error)
        refuses(rf"{found} does in a pipeline\.$", BayesianLinearClassifier().fit, given, y)
    refuses(rf"{found}.*data frame", small(categorical_features=[0]).fit, bad, y)
    refuses(rf"{found}.* or give a data frame", fitted(X, y).predict, bad)
    model = fitted(pd.DataFrame(X[:, :2], columns=["a", "b"]), y)
    with pytest.warns(UserWarning, match="names"):
        refuses(r"X has 2 missing numbers \(NaN\): 2 in 'b'\. ", model.predict, bad[:, :2])
    levels = fitted(np.round(X), y, categorical_features=[0])
    refuses(r"X has 3 missing numbers .* in 'feature 1'.* give a data frame", levels.predict, bad)
    refuses(r"X has 360 missing .* 30 in feature 4 and 7 more\.", small().fit, np.full((30, 12), np.nan), y)
    assert np.all(np.isfinite(fitted(pd.DataFrame(bad), y).predict_proba(pd.DataFrame(bad))))


# Numbers of which four are missing, as each library has them.
GAPS = pd.DataFrame({"a": [np.nan, np.nan, *range(2, 6)], "b": np.arange(6.0) ** 2, "c": [0, 1, pd.NA, 3, pd.NA, 5]})
GAPS = GAPS.astype({"c": "Int64"})
OBJECTS = GAPS.astype(object).where(GAPS.notna(), None)
TABLES = {
    "pandas": lambda: GAPS,
    "objects": lambda: OBJECTS,
    "polars": lambda: pytest.importorskip("polars").from_dicts(OBJECTS.to_dict("records")),
    "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(GAPS),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_that_only_rows_to_predict_miss_in_a_table_of_numbers(table, weighted, tmp_path):
    """The model of numbers alone has no encoding, and keeps the means all the same."""
    gaps = table()
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"]), np.arange(40) % 2
    weight = rng.gamma(2.0, size=40) if weighted else None
    model = fitted(X, y, sample_weight=weight)
    assert model.encoding_ is None
    np.testing.assert_allclose(model.feature_mean_, np.average(X, axis=0, weights=weight), rtol=1e-12)
    rows = GAPS.to_numpy(float, na_value=np.nan)
    filled = pd.DataFrame(np.where(np.isnan(rows), model.feature_mean_, rows), columns=["a", "b", "c"])
    for one in (model, reloaded(model, tmp_path)):
        for call in (one.predict_proba, one.predict, one.predict_latent):
            assert_means_stand_in(call, gaps, filled, r"4 missing numbers \(NaN\): 2 in 'a', 2 in 'c'")
    with pytest.warns(UserWarning, match="names"):
        refuses("4 missing numbers", model.predict, rows)
