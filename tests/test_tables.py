"""Tables with levels, truth values and missing numbers, from pandas, polars and Arrow."""

from datetime import date
from functools import cache, partial

import numpy as np
import polars
import pyarrow
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from support.dense import compiled
from support.fits import assert_same_bits, clone_of, quietly, refuses, reloaded
from support.frames import fitted, small

from xgpc import GPClassifier

pd = pytest.importorskip("pandas")

N, NAMES = 120, ["town", "member", "age", "pay"]
# Rows, columns and diagonals of a board of nine places.
LINES = [slice(*line) for line in [(0, 3), (3, 6), (6, 9), *((i, 9, 3) for i in range(3)), (0, 9, 4), (2, 7, 2)]]


def values(seed=0, n=N):
    """Columns as lists: text, truth values, numbers, with None where one is missing; and labels."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["Ulm", "Bonn", "Jena", "Kiel"], n)
    member, age, pay = rng.random(n) < 0.4, rng.integers(18, 80, n), rng.normal(size=n)
    score = (town == "Ulm") * 2.0 + (town == "Jena") * member * 3.0 + pay - 1.5
    y = (score + 0.5 * rng.normal(size=n) > 0.0).astype(int)
    town, age = town.astype(object), age.astype(float).astype(object)
    town[rng.choice(n, n // 10, replace=False)] = age[rng.choice(n, n // 8, replace=False)] = None
    return {name: column.tolist() for name, column in zip(NAMES, (town, member, age, pay), strict=True)}, y


def frame(seed=0, n=N):
    columns, y = values(seed, n)
    return pd.DataFrame(columns).astype({"age": float}), y


def as_libraries_have_it(columns):
    """The same table as each library, and each of its types, has it."""
    plain = pd.DataFrame(columns)
    yield "pandas objects", plain.astype(object)
    yield "pandas", plain
    yield "pandas categories", plain.astype({"town": "category", "age": "Float64", "member": "boolean"})
    yield "pandas nullable", plain.convert_dtypes()
    yield "pandas of arrow", plain.convert_dtypes(dtype_backend="pyarrow")
    yield "polars", polars.DataFrame(columns)
    wide = polars.col("member", "age").cast(getattr(polars, "Int128", polars.Int64))
    yield "polars wide integers", polars.DataFrame(columns).with_columns(wide)
    yield "polars categories", polars.DataFrame(columns, schema_overrides={"town": polars.Categorical})
    kind = polars.Enum(["Kiel", "Ulm", "Jena", "Bonn", "Rom"])
    yield "polars enumeration", polars.DataFrame(columns, schema_overrides={"town": kind})
    table = pyarrow.table(columns)
    yield "arrow", table
    yield "arrow dictionary", table.set_column(0, "town", table["town"].dictionary_encode())
    yield "arrow batch", table.combine_chunks().to_batches()[0]


def test_tables_of_all_libraries_give_the_same_bits():
    (columns, y), (new, _) = values(), values(1)
    others = dict(as_libraries_have_it(new))
    expected = fitted(pd.DataFrame(columns), y).predict_proba(pd.DataFrame(new))
    for name, table in as_libraries_have_it(columns):
        model = fitted(table, y)
        assert np.array_equal(model.predict_proba(others[name]), expected), name
        assert model.feature_names_in_.tolist() == NAMES, name
        assert model.n_features_in_ == 4


def test_numbers_without_gaps_are_as_they_were():
    """A table of numbers alone is what the array of them is, bit for bit."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    for rows in (X, X.astype(np.float32)):
        expected = fitted(rows, y).predict_proba(rows)
        arrow = pyarrow.table({f"c{j}": rows[:, j] for j in range(3)})
        for table in (pd.DataFrame(rows), polars.DataFrame(rows), arrow):
            other = fitted(table, y)
            assert other.encoding_ is None
            assert other.inducing_points_.shape[1] == 3
            assert np.array_equal(other.predict_proba(table), expected)


def by_definition(table, scales, variance, fill):
    """The kernel of rows of a table by its definition: levels at a distance of 0 or 1."""
    n = len(table)
    squares = np.zeros((n, n))
    for name, scale in scales.items():
        column = table[name.removeprefix("missingindicator_")]
        if name == "town":
            code = column.fillna("none").to_numpy()
            squares += (code[:, None] != code) / scale**2
        else:
            x = column.isna() if name.startswith("missing") else column.fillna(fill.get(name))
            squares += (np.subtract.outer(*[x.to_numpy(dtype=float)] * 2) / scale) ** 2
    return variance * np.exp(-0.5 * squares)


def test_the_kernel_of_encoded_rows_is_that_of_the_levels():
    table, y = frame()
    kernel = ConstantKernel(1.7) * RBF([0.8, 1.3, 20.0, 0.9, 1.1])
    model = fitted(table, y, kernel=kernel, optimizer=None)
    names = model.encoding_.length_scale_names
    assert names == ("town", "member", "age", "pay", "missingindicator_age")
    rows = model.encoding_.encode(table)
    scales = dict(zip(names, kernel.k2.length_scale, strict=True))
    expected = by_definition(table, scales, 1.7, {"age": table["age"].mean()})
    np.testing.assert_allclose(compiled(kernel, rows, model.encoding_.groups).cross(rows), expected, rtol=1e-12)
    assert model.kernel_ == kernel


def test_levels_that_are_not_known_are_as_different_from_all():
    table, y = frame()
    encoding = fitted(table, y).encoding_
    known = table.drop_duplicates("town").assign(member=False, age=30.0, pay=0.0)
    assert len(known) == 5
    new = known.iloc[:1].assign(town="Rom")
    np.testing.assert_allclose(np.sum((encoding.encode(known) - encoding.encode(new)) ** 2, axis=1), 1.0, rtol=1e-15)
    # To miss a value where no training row did is another such level.
    whole = table.dropna(subset="town")
    encoding = fitted(whole, y[whole.index]).encoding_
    rows = encoding.encode(known)
    np.testing.assert_allclose(np.sum((rows[:, None] - rows) ** 2, axis=2), 1.0 - np.eye(5), atol=1e-15)


def test_a_kernel_has_one_length_scale_or_one_for_each_column_of_the_table_or_of_the_matrix():
    table, y = frame()
    assert fitted(table, y, kernel=RBF(1.0)).kernel_.length_scale > 0.0
    for size in (5, 10):
        assert len(fitted(table, y, kernel=RBF(np.ones(size))).kernel_.length_scale) == size
    what = r"has 4 length scales but X has 5 features \(town, member, age, pay, missingindicator_age\).*10, one per col"
    refuses(what, small(kernel=RBF(np.ones(4))).fit, table, y)
    model = fitted(table, y)
    assert len(model.kernel_.k2.length_scale) == 10
    assert model.inducing_points_.shape == (12, len(model.encoding_.matrix_names))


def test_names_and_order_of_levels_do_not_matter():
    """With given points and all rows in one block nothing but the order of sums changes."""
    table, y = frame()
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0, 20.0, 1.0, 1.0])
    other = table.assign(town=table["town"].map({"Ulm": "b", "Bonn": "d", "Jena": "a", "Kiel": "c"}))
    models = []
    for X in (table, other):
        points = fitted(X, y, kernel=kernel, optimizer=None).encoding_.encode(X.iloc[:15])
        models.append(fitted(X, y, kernel=kernel, inducing_points=points, max_iter=20))
    np.testing.assert_allclose(models[0].kernel_.theta, models[1].kernel_.theta, rtol=1e-5)
    np.testing.assert_allclose(models[0].predict_proba(table), models[1].predict_proba(other), rtol=1e-6)
    # Categories that no row has, and their order, change nothing at all.
    again = table.astype({"town": pd.CategoricalDtype(["Rom", "Ulm", "Kiel", "Jena", "Bonn"])})
    assert np.array_equal(fitted(again, y).predict_proba(again), fitted(table, y).predict_proba(table))


def test_columns_of_arrays_can_be_categorical():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 60), rng.normal(size=60)])
    y = (np.isin(X[:, 0], [1, 3]) ^ (X[:, 1] > 0.5)).astype(int)
    expected = fitted(X, y, categorical_features=[0]).predict_proba(X)
    as_text = np.column_stack([X[:, 0].astype(int).astype(str).astype(object), X[:, 1].astype(object)])
    for given, chosen in ((X, [True, False]), (as_text, np.array([0])), (X.tolist(), (0,))):
        model = fitted(given, y, categorical_features=chosen)
        assert np.array_equal(model.predict_proba(given), expected)
        assert not hasattr(model, "feature_names_in_")
    named = pd.DataFrame(X, columns=["kind", "size"])
    assert np.array_equal(fitted(named, y, categorical_features=["kind"]).predict_proba(named), expected)
    assert fitted(named, y).encoding_ is None
    coded = named.astype({"kind": "category"})
    assert np.array_equal(fitted(coded, y).predict_proba(coded), expected)
    assert fitted(coded, y, categorical_features=None).encoding_ is None
    # A missing level is a level, of arrays too.
    X[:7, 0] = np.nan
    assert fitted(X, y, categorical_features=[0]).encoding_.columns[0].has_missing


def test_tables_to_predict_must_have_the_columns():
    table, y = frame()
    model = fitted(table, y)
    refuses("feature names should match", model.predict, table[["member", "town", "age", "pay"]])
    refuses("feature names should match", model.predict, table.drop(columns="pay"))
    refuses("Rename the columns", model.predict, table.set_axis(["town", "town", "age", "pay"], axis=1))
    with pytest.raises(ValueError, match=r"The column 'town' has numbers, such as 3.*fitted to text, such as 'Bonn'"):
        model.predict(table.assign(town=3))
    # Rows alone, and columns without names, by their positions.
    alone = [model.predict_proba(table.iloc[[i]])[0] for i in range(5)]
    np.testing.assert_allclose(alone, model.predict_proba(table.iloc[:5]), rtol=1e-12)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert np.array_equal(model.predict_proba(table.to_numpy(dtype=object)), model.predict_proba(table))


def test_everything_a_model_does_takes_tables(tmp_path):
    table, y = frame()
    new, _ = frame(1)
    model = fitted(table, y)
    assert model.elbo(table, y) == pytest.approx(model.elbo_, rel=1e-9)
    mean, variance = model.predict_latent(new)
    joint, covariance = model.predict_latent(new, return_cov=True)
    np.testing.assert_allclose(joint, mean)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-6)
    for other in (reloaded(model, tmp_path), clone_of(model)):
        assert_same_bits(model, other, new, ("encoding_", "feature_names_in_", "kernel_"))
    batches = list(model.predict_proba_batches([new.iloc[:50], new.iloc[:0], (new.iloc[50:], None)]))
    np.testing.assert_allclose(np.concatenate(batches), model.predict_proba(new), rtol=1e-12)
    assert batches[1].shape == (0, 2)


def test_values_that_many_rows_have_are_levels_too():
    n = 60
    gain = np.where(np.arange(n) % 5 == 0, 7.0, np.where(np.arange(n) % 5 == 1, 3.0, 0.0))
    gain[:3] = 100.0, 50.0, np.nan
    table = pd.DataFrame({"gain": gain, "age": np.arange(float(n)), "half": np.arange(n) % 2, "town": ["a", "b"] * 30})
    encoding = fitted(table, np.arange(n) % 2).encoding_
    assert encoding.columns[0].levels == (0.0, 3.0, 7.0)
    assert [column.levels for column in encoding.columns[1:3]] == [(), ()]
    assert encoding.length_scale_names[4:] == ("missingindicator_gain", "repeated_gain")
    assert encoding.matrix_names[-4:] == ("gain=0", "gain=3", "gain=7", "gain=unknown")
    rows = encoding.encode(table.iloc[[1, 2, 3, 5, 6]])[:, -4:]
    np.testing.assert_array_equal(rows, np.sqrt(0.5) * np.eye(4)[[3, 3, 0, 2, 1]])
    # Of few rows there are none.
    assert fitted(table[::3], np.arange(20) % 2).encoding_.columns[0].levels == ()


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")])
@pytest.mark.parametrize("options", [{}, {"categorical_features": ["gain"]}])
def test_numbers_are_the_same_levels_in_single_precision(dtypes, options, tmp_path):
    gain = np.array([0.0, 0.0, 0.0, 0.1, 7.7] * 20)
    table = pd.DataFrame({"gain": gain, "age": [np.nan, *np.sin(range(99))]})
    given, other = map(table.astype, dtypes)
    model = fitted(given, gain == 7.7, **options)
    for one in (model, reloaded(model, tmp_path)):
        np.testing.assert_allclose(one.encoding_.encode(other), one.encoding_.encode(given), rtol=1e-6)
        np.testing.assert_allclose(one.predict_proba(other), one.predict_proba(given), rtol=1e-5)


@pytest.mark.parametrize("kind", ["int64", "uint64", "Int64", object])
def test_integers_that_would_be_rounded_are_no_levels(kind):
    keys, y = pd.Series(2**60 + np.arange(60) % 4, name="key"), np.arange(60) % 2
    table = keys.astype(kind).to_frame()
    model, message = small(categorical_features=["key"]), r"'key' is categorical, and has numbers of size 2\*\*53"
    refuses(message, model.fit, table, y)
    quietly(model, table.astype("category"), y)
    assert model.score(table.astype("category"), y) == 1.0
    refuses(message, model.predict, table)
    assert np.all(np.isfinite(fitted(table, y).predict_proba(table)))
    # To predict, such a number is a level that is not known.
    codes = pd.DataFrame({"key": np.arange(60) % 3})
    of_codes = fitted(codes, y, categorical_features=["key"]).predict_proba(codes + 1e17)
    assert np.ptp(of_codes, axis=0).max() == 0.0


Y = np.arange(6) % 2
ARROW = pyarrow.table([pyarrow.array(np.ones(6))] * 2, names=["x", "x"])
TWICE = pd.DataFrame(np.ones((6, 2)), columns=["x", "x"])
NEITHER = "neither numbers nor text"
REFUSED = [
    (polars.DataFrame({"x": [date(2024, 1, 1)] * 6}), "dates or durations"),
    (pyarrow.table({"x": [date(2024, 1, 1)] * 6}), "dates or durations"),
    (polars.DataFrame({"x": [[1, 2]] * 6}), NEITHER),
    (polars.DataFrame({"x": [b"1"] * 6}), NEITHER),
    (pd.DataFrame({"x": [None, *[b"1"] * 5]}), "of type bytes; make text"),
    (pd.DataFrame({"x": pd.cut(np.arange(6.0), 2)}), rf"'x' .* {NEITHER}, of type Interval; .*astype\(str\)"),
    (pd.DataFrame({"x": pd.Categorical([pd.Timestamp(0)] * 6)}), NEITHER),
    (pd.DataFrame({"x": ["a", 1] * 3}), "'x' has both text and numbers; make them all one or the other"),
    (pd.DataFrame({"x": [np.inf, None, 1, 2, 3, 4]}), "has a value of infinity, of 'x' in row 0; leave out such rows"),
    (pd.DataFrame({"x": [np.inf, *[None] * 5]}), "X has a value of infinity, of 'x' in row 0"),
    (ARROW, r"unique column names, got:\n- 'x' 2 times"),
    (TWICE, r"'x' 2 times\s+Rename the columns, or leave some out"),
    (polars.LazyFrame({"x": [1.0] * 6}), r"LazyFrame of polars.*its collect\(\) makes"),
    (pd.DataFrame({"x": np.empty(0)}), "X has 0 rows and 1 columns"),
    (pd.DataFrame(index=range(6)), "X has 6 rows and 0 columns"),
    (np.array([["a"]] * 6), r"X has text.*OneHotEncoder"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED)
def test_tables_that_cannot_be_used_are_refused(table, message):
    refuses(message, small().fit, table, Y[: 0 if "0 rows" in message else 6])


def test_an_error_counts_rows_of_weight_zero():
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0, 5.0, np.inf], "level": list("ababab")})
    refuses("infinity, of 'x' in row 5", small().fit, table, Y, sample_weight=[0.0, 0.0, 1.0, 1.0, 1.0, 1.0])


def test_rare_levels_count_as_one_where_there_are_more_than_255():
    rng = np.random.default_rng(0)
    # Four frequent levels decide the class; the other 281 have 300 of the 700 rows.
    town = np.concatenate([rng.choice(["a", "b", "c", "d"], 400), [f"rare {min(i, 280)}" for i in range(300)]])
    y = np.where(np.isin(town, ["a", "b"]), 1, 0)
    y[400:] = rng.random(300) < 0.3
    table = pd.DataFrame({"town": town, "x": rng.normal(size=700)})
    assert table["town"].nunique() > 255
    model = fitted(table, y)
    (levels,) = (one.levels for one in model.encoding_.columns if one.is_categorical)
    assert len(levels) <= 255
    assert {"a", "b", "c", "d"} <= set(levels)
    assert min(table["town"].value_counts()[list(levels)]) >= 2
    rest = np.count_nonzero(~table["town"].isin(levels))
    assert any(f"{rest} of 700 rows have levels of the column 'town'" in text for text in model.decisions_)
    rare = next(level for level in table["town"] if level not in levels)
    p = model.predict_proba(pd.DataFrame({"town": ["a", "c", rare, "never seen"], "x": np.zeros(4)}))[:, 1]
    assert p[2] == p[3]
    assert p[1] < 0.1 < p[2] < 0.5 < 0.9 < p[0]


def test_a_column_that_names_the_rows_does_no_harm():
    table, y = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 300)}), np.arange(300) >= 150
    named = table.assign(name=[f"row {i}" for i in range(300)])
    without, beside = (fitted(one, y).predict_proba(one)[:, 1] for one in (table, named))
    assert np.mean(np.abs(beside - without)) < 0.02
    assert np.mean((beside > 0.5) == y) > 0.98


def with_cells(cells, first=0):
    """A table whose column of numbers is text, with these cells from a row on."""
    table, y = frame()
    table["pay"] = [f"{pay:.2f}" for pay in table["pay"]]
    table.loc[first : first + len(cells) - 1, "pay"] = cells
    return table, y


@pytest.mark.parametrize("names", [["age", "pay"], ["town", "pay"], ["pay"]], ids=" and ".join)
@pytest.mark.parametrize("kind", ["text", "both", "arrow", "array"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_the_cell_that_is_no_number_is_named_with_its_row(names, kind):
    """Not the first cell of a column that the typing error made text."""
    (table, y), (typed, _) = frame(), with_cells(["13o4"], first=7)
    model = fitted(table[names], y, optimizer=None)
    if kind == "both":
        typed = table.astype({"pay": object})
        typed.loc[7, "pay"] = "13o4"
    rows = pyarrow.Table.from_pandas(typed[names]) if kind == "arrow" else typed[names]
    rows = rows.to_numpy(dtype=object) if kind == "array" else rows
    refuses(r"[Rr]ow 7 has the text '13o4'|'13o4', of 'pay' in row 7\. Correct it", model.predict, rows)


def test_a_fit_names_the_cell_that_is_no_number():
    (numbers, y), table = frame(), with_cells(["n/a?"])[0][["pay"]]
    with pytest.raises(ValueError, match="'pay' must have numbers, but row 0 has the text 'n/a"):
        small(categorical_features=None).fit(table.assign(age=np.nan), y)
    with pytest.raises(ValueError, match=r"'n/a\?', of feature 1 in row 0\. Correct it; make numbers of it"):
        small().fit(table.assign(age=1.0)[["age", "pay"]].to_numpy(), y)
    with pytest.raises(ValueError, match=r"both text and numbers; .* Row 5 has the text '1,5'"):
        small().fit(numbers[["pay"]].astype(object).replace(numbers["pay"][5], "1,5"), y)


DOUBTFUL = {
    "a typing error": (["13o4"], "'13o4'"),
    "a decimal comma": (["1,5"], "'1,5'.*decimal=','"),
    "decimal commas": ([f"-{i},{i}" for i in range(N - 3)], "'-0,0'.*decimal=','"),
}


@pytest.mark.parametrize(("cells", "message"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_column_that_a_few_cells_made_text_is_warned_of(cells, message):
    table, y = with_cells(cells, first=3)
    doubt = f"'pay' has numbers in nearly all rows, but row 3 has the text {message}.*categorical"
    with pytest.warns(UserWarning, match=doubt):
        fitted(table, y)
    refuses(doubt, small().fit_batches, [(table[["pay"]], y)])
    # What is said to have levels has them, as have names, also with numbers among them, and codes.
    fitted(table.astype({"pay": "category"}), y)
    fitted(table.drop(columns=["town", "age"]), y, categorical_features=["pay"])
    fitted(with_cells(["unknown"] * 20)[0], y)
    fitted(with_cells([])[0], y)


NO_TABLES = ([1.0, 2.0], None, "down", np.zeros((2, 2, 2)), pd.Series([1.0, 2.0]), {"a": [1.0]}, iter([1.0]))


@pytest.mark.parametrize("value", NO_TABLES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("names", [["age", "pay"], ["town", "age"]], ids=["numbers and gaps", "levels"])
def test_what_is_no_table_is_refused_in_one_way(names, value):
    table, y = frame()
    model = fitted(table[names], y, optimizer=None)
    refuses(rf"Expected 2D array, or a table; got a {type(value).__name__}\b", model.predict, value)


def letters(n=150, n_columns=4, seed=0):
    """Columns of four levels, with a number: the first column's "A" tells, and the number a little; and labels."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f"pos{j}": rng.choice(list("ACGT"), n) for j in range(n_columns)})
    table["size"] = rng.normal(size=n)
    score = np.where(table["pos0"] == "A", 2.0, -1.0) + table["size"]
    return table, (score + 0.5 * rng.normal(size=n) > 0.0).astype(int)


fitted_letters = partial(fitted, n_inducing=20, max_iter=30)


def test_the_kernel_starts_where_that_of_a_length_scale_for_each_column_does():
    table, y = letters()
    model = fitted_letters(table, y, optimizer=None)
    groups, scales = model.encoding_.groups, model.kernel_.k2.length_scale
    first = np.unique(groups.index, return_index=True)[1]
    rows = model.encoding_.encode(table)
    own, shared = (compiled(k, rows, groups) for k in (model.kernel_, model.kernel_.k1 * RBF(scales[first])))
    np.testing.assert_allclose(own.cross(rows), shared.cross(rows), rtol=1e-12)


def test_length_scales_tell_levels_that_matter_from_those_that_do_not():
    table, y = letters(400)
    model = fitted_letters(table, y)
    names, kernel = model.encoding_.matrix_names, model.kernel_.k2
    low, high = (kernel.length_scale_bounds * (1.0 + np.array([-1e-9, 1e-9]))).T
    assert np.all((low <= kernel.length_scale) & (kernel.length_scale <= high))
    scales = dict(zip(names, kernel.length_scale, strict=True))
    longest = dict(zip(names, high, strict=True))
    assert scales["pos0=A"] < 0.7 * min(scales[f"pos0={letter}"] for letter in "CGT")
    # What tells nothing is held where it is no longer than three times its start.
    others = [name for name in names if name.startswith(("pos1", "pos2", "pos3")) and "unknown" not in name]
    assert np.mean([scales[name] > 0.99 * longest[name] for name in others]) > 0.5


def test_the_order_of_columns_does_not_matter():
    table, y = letters(80)
    other = table[["size", "pos2", "pos0", "pos3", "pos1"]]
    models = [fitted(X, y, inducing_points="all", max_iter=100, tol=1e-6) for X in (table, other)]
    assert models[0].elbo_ == pytest.approx(models[1].elbo_, abs=1e-3)
    np.testing.assert_allclose(models[0].predict_proba(table), models[1].predict_proba(other), atol=1e-3)


@cache
def ends_of_games(board="b" * 9, player="x"):
    """The boards that games of tic-tac-toe from this one on end with; b is blank."""
    if "b" not in board or any(board[line] in ("xxx", "ooo") for line in LINES):
        return {board}
    boards = [board[:place] + player + board[place + 1 :] for place in range(9) if board[place] == "b"]
    return set().union(*(ends_of_games(later, "xo"[player == "x"]) for later in boards))


def test_the_default_kernel_learns_a_rule_of_many_columns_as_well_as_one_without_bounds():
    boards = np.random.default_rng(0).permutation(sorted(ends_of_games())).tolist()
    y = np.array([any(board[line] == "xxx" for line in LINES) for board in boards])
    table, kernels = pd.DataFrame(map(list, boards), dtype="category"), (None, ConstantKernel() * RBF(np.ones(9)))
    models = [quietly(GPClassifier(kernel, random_state=0), table[:640], y[:640]) for kernel in kernels]
    loss, loss_without = (log_loss(y[640:], model.predict_proba(table[640:])) for model in models)
    assert loss < loss_without


@pytest.mark.parametrize("is_rule", [True, False])
def test_default_fit_has_neighbours_where_combinations_of_levels_decide(is_rule):
    rng = np.random.default_rng(0)
    cells, effects = rng.integers(0, 2, (15, 15)), rng.normal(size=(2, 15))
    codes = rng.integers(0, 15, (2400, 2))
    additive = effects[0][codes[:, 0]] + effects[1][codes[:, 1]] > 0
    truth = np.where(is_rule, cells[codes[:, 0], codes[:, 1]], additive)
    y = truth ^ (rng.random(2400) < 0.05)
    X = pd.DataFrame({name: [f"{name}{code}" for code in codes[:, j]] for j, name in enumerate("ab")}, dtype="category")
    # Learning without neighbours needs many iterations where single levels tell nothing.
    options = {"n_inducing": 32, "max_iter": 1000, "random_state": 0}
    model = GPClassifier(**options).fit(X[:2000], y[:2000])
    alone = GPClassifier(n_neighbors=0, **options).fit(X[:2000], y[:2000])
    probabilities = model.predict_proba(X), alone.predict_proba(X), np.where(truth, 0.95, 0.05)
    loss, loss_alone, lowest = (log_loss(y[2000:], p[2000:]) for p in probabilities)
    assert loss < lowest + 0.02
    assert model.n_neighbors_ > 0 if is_rule else loss < loss_alone
