"""Training rows that are read in batches: the fit that they make, whatever the batches, and what can go wrong."""

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF
from support.batches import OPTIONS, N, assert_same_fit, problem
from support.fits import peak_bytes, refuses, without_warnings
from support.frames import named
from support.threads import threads_at_work

from xgpc import GPClassifier

X, Y, _ = problem()
SIZE = 1500
model = partial(GPClassifier, **OPTIONS)


def cut(arrays, size):
    """A function that gives the batches of so many rows."""
    return lambda: (tuple(array[i : i + size] for array in arrays) for i in range(0, len(arrays[0]), size))


FEW = {
    "float32": {"n_neighbors": 0},
    "weights": {"n_neighbors": 0, "class_weight": "balanced"},
    "names": {"n_neighbors": 0},
    "neighbours": {"n_neighbors": 3},
    "mini-batches": {"n_neighbors": 0, "batch_size": 200},
    "learned": {"n_neighbors": 0, "kernel": None, "max_iter": 3, "inducing_points": "kmeans", "optimizer": "profile"},
}


@pytest.mark.parametrize("kind", FEW)
def test_few_rows_make_the_fit_of_arrays(kind):
    X, y, weight = problem(2500)
    X = X.astype(np.float32) if kind == "float32" else X
    y = np.array(["no", "yes"])[y] if kind == "names" else y
    rows = (X, y, weight)[: 3 if kind == "weights" else 2]
    in_memory = without_warnings(model(**FEW[kind]).fit, *rows)
    for size in (60, 5000):
        assert_same_fit(without_warnings(model(**FEW[kind]).fit_batches, cut(rows, size)), in_memory, X[:50])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("in_memory", [False, True])
def test_neighbours_are_searched_among_the_rows_that_a_model_may_keep(tuned, n_classes, in_memory):
    """The model is that of a fit to these rows alone, which have the classes in proportion."""
    tuned(learned_rows=400)
    X, y, weight = problem(n_classes=n_classes)
    # All rows count.
    weight += 0.5
    given = model(n_neighbors=5, max_rows_in_model=800)
    given = given.fit(X, y, weight) if in_memory else given.fit_batches(cut((X, y, weight), 700))
    kept = given.posterior_
    assert len(kept.X) == 800
    numbers = [np.flatnonzero(np.all(row == X, axis=1))[0] for row in kept.X]
    np.testing.assert_array_equal(kept.weight, weight[numbers])
    shares, of_all = (np.bincount(labels) / len(labels) for labels in (y[numbers], y))
    np.testing.assert_allclose(shares, of_all, atol=2.0 / 800)
    of_these = model(n_neighbors=5).fit(X[numbers], y[numbers], weight[numbers])
    # Sweeps begin elsewhere, and end within their tolerance.
    np.testing.assert_allclose(given.predict_proba(X[:200]), of_these.predict_proba(X[:200]), atol=1e-3)
    assert any("among 800 of 6000 rows" in text for text in given.decisions_) or not in_memory
    assert given.n_samples_seen_ == N


def test_a_source_of_more_rows_than_are_learned_from_has_the_neighbours_of_a_fit(tuned):
    tuned(learned_rows=1000)
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(3000, 2))
    y = (np.sin(4.0 * X[:, 0]) * np.cos(4.0 * X[:, 1]) > 0.2 * rng.normal(size=3000)).astype(int)
    in_memory = GPClassifier(random_state=0).fit(X, y)
    assert in_memory.n_neighbors_
    assert_same_fit(GPClassifier(random_state=0).fit_batches(cut((X, y), 700)), in_memory, X[:50])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_fit_does_not_depend_on_batches_or_threads(small_subset, n_classes):
    rows = problem(n_classes=n_classes)
    slices = [slice(0, 0), slice(0, 5), slice(5, 2000), slice(2000, 2000), slice(2000, N)]
    uneven = [tuple(array[part] for array in rows) for part in slices]
    sources = [(cut(rows, size), 1) for size in (1000, 97, N)] + [(uneven, n_jobs) for n_jobs in (2, 5)]
    fits = [
        without_warnings(model(optimizer="profile", max_iter=3, n_jobs=n_jobs).fit_batches, source)
        for source, n_jobs in sources
    ]
    for fit in fits[1:]:
        assert_same_fit(fit, fits[0], rows[0][:50])


@pytest.mark.parametrize(
    "options",
    [{"likelihood": "svm"}, {"bound": "polya-gamma"}, {"likelihood": "softmax", "share": "none"}],
    ids=["svm", "logit, polya-gamma", "softmax, own kernels"],
)
def test_the_posterior_of_a_stream_is_that_of_its_rows_in_memory(small_subset, options):
    """Both ascents end where no step gains anything: the bound tells no more of the posterior than its square root."""
    X, y, weight = problem(n_classes=3 if "share" in options else 2)
    options = {**options, "tol": 0.0, "max_iter": 400}
    streamed = without_warnings(model(**options).fit_batches, cut((X, y, weight), 1000))
    in_memory = without_warnings(model(**options, n_neighbors=0).fit, X, y, weight)
    np.testing.assert_allclose(streamed.elbo_, in_memory.elbo_, rtol=1e-10)
    np.testing.assert_allclose(streamed.predict_proba(X[:200]), in_memory.predict_proba(X[:200]), atol=1e-6)
    if "bound" in options:
        assert streamed.bound_gap() == pytest.approx(in_memory.bound_gap(), rel=1e-6)
        one, other = (fit.predict_latent(X[:50], corrected=True) for fit in (streamed, in_memory))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_row_of_weight_zero_is_none(small_subset):
    X, y, weight = problem()
    weight[2000:4500] = 0.0
    X[2000:4500] = 9.0
    keep = weight > 0.0
    one = without_warnings(model(tol=0.0).fit_batches, cut((X, y, weight), 1000))
    other = without_warnings(model(tol=0.0, n_neighbors=0).fit, X[keep], y[keep], weight[keep])
    assert one.elbo_ == pytest.approx(other.elbo_, rel=1e-10)


def test_names_of_features_are_kept(small_subset):
    frame = named(X)
    for n in (N, 500):
        fitted = without_warnings(model().fit_batches, cut((frame[:n], Y[:n]), 400))
        assert fitted.feature_names_in_.tolist() == ["a", "b"]
        assert fitted.predict(frame[:5]).shape == (5,)
        without_warnings(fitted.fit_batches, cut((X[:n], Y[:n]), 400))
        assert not hasattr(fitted, "feature_names_in_")
        assert fitted.n_features_in_ == 2


def test_columns_whose_names_are_no_text_keep_their_order(small_subset):
    frame = pd.DataFrame(X, columns=[0, 1])
    swapped = frame[[1, 0]]
    fitted = without_warnings(model().fit_batches, cut((frame, Y), 400))
    refuses(r"has the columns \['1', '0'\]; the model was fitted to \['0', '1'\]", fitted.predict, swapped)
    refuses("Give the same ones in the same order", model().fit_batches, [(frame, Y), (swapped, Y)])
    for batches in ([(frame, Y), (X, Y)], [(X, Y), (frame, Y)]):
        without_warnings(model().fit_batches, batches)


def with_value(value):
    place = (np.arange(1000)[:, None] == 17) & [False, True]
    return lambda X, y, w: (np.where(place, value, X), y, w)


FAULTS = {
    "missing": (with_value(np.nan), r"X has 1 missing number \(NaN\): 1 in feature 1\. Put in"),
    "infinite": (with_value(-np.inf), "X has a value of infinity, of feature 1 in row 17"),
    "huge": (with_value(1e200), r"X has a value of size 1e\+200, of feature 1 in row 17"),
    "columns": (lambda X, y, w: (X[:, :1], y, w), "has 1 features, .*; the first batch has 2 features"),
    "dimensions": (lambda X, y, w: (X[:, 0], y, w), "2D array"),
    "words": (lambda X, y, w: (X.astype(str).astype(object) + "x", y, w), "could not convert"),
    "names": (lambda X, y, w: (named(X), y, w), r"has 2 features, .*'a'.*; the first .* 2 features, \['feature 0'"),
    "labels": (lambda X, y, w: (X, y[:5], w), "inconsistent numbers of samples: 1000 rows and 5 labels"),
    "missing label": (
        lambda X, y, w: (X, np.where(np.arange(1000) == 8, np.nan, y), w),
        "y has 1 missing labels, the first in row 8",
    ),
    "measurements": (lambda X, y, w: (X, y + 0.5, w), "Unknown label type: row 0 of y has the label .*measurement"),
    "kind of labels": (lambda X, y, w: (X, y.astype(str), w), "labels that are text"),
    "unknown label": (lambda X, y, w: (X, np.where(np.arange(1000) == 9, 7, y), w), r"y has labels \[7\] .*\[0, 1\]"),
    "negative weight": (lambda X, y, w: (X, y, np.where(np.arange(1000) == 4, -1.0, w)), "Row 4 .*sample_weight -1"),
    "weights": (lambda X, y, w: (X, y, w[:3]), "sample_weight must be a real number for each"),
    "parts": (lambda X, y, w: (X,), r"must be a tuple \(X, y\)"),
    "no tuple": (lambda X, y, w: X, r"must be a tuple \(X, y\)"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_bad_batch_is_named_and_nothing_changes(small_subset, kind):
    change, message = FAULTS[kind]
    batches = list(cut(problem(), 1000)())
    batches[3] = change(*batches[3])
    classes = [0, 1] if kind == "unknown label" else None
    error = refuses(message, model().fit_batches, batches, classes, error=(ValueError, TypeError))
    assert error.__notes__ == ["(batch 3 of the source, counted from 0)"]
    assert not threads_at_work()


@pytest.mark.parametrize("at_reading", [1, 2, 3])
@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_what_a_source_raises_in_any_reading_is_passed_on(small_subset, tuned, at_reading, kind):
    error, readings = kind("the disk is gone"), itertools.count(1)
    tuned(parallel_work=0.0)
    rows = problem()

    def source():
        batches = cut(rows, 1000)()
        if next(readings) < at_reading:
            yield from batches
            return
        yield from itertools.islice(batches, 2)
        raise error

    fitted = without_warnings(model(n_jobs=2).fit, *(array[:300] for array in rows[:2]))
    assert refuses(None, fitted.fit_batches, source, error=kind) is error
    if kind is OSError:
        assert error.__notes__ == ["(batch 2 of the source, counted from 0)"]
    assert not threads_at_work()


@pytest.mark.parametrize("stage", ["reading", "posterior"])
def test_a_failure_of_the_caller_ends_the_reader(small_subset, stage):
    def interrupt(state):
        if state.stage == stage and state.n_rows > SIZE:
            raise KeyboardInterrupt

    error = refuses(None, model(callback=interrupt).fit_batches, cut((X, Y), 1000), error=KeyboardInterrupt)
    # The traceback, which has the frames of the pass, is still there.
    assert error.__traceback__ is not None
    assert not threads_at_work()


@pytest.mark.parametrize("change", [-1, 1, 1500])
def test_a_source_that_changes_is_an_error(small_subset, change):
    X, y, _ = problem(N + 2000)
    sizes = itertools.chain([N], itertools.repeat(N + change))

    def source():
        n = next(sizes)
        return cut((X[:n], y[:n]), 1000)()

    refuses("had 6000 rows when it was first read, and", model().fit_batches, source)
    assert not threads_at_work()


def used_up(arrays):
    once = cut(arrays, 1000)()
    return lambda: once


def changing(arrays):
    """The second reading has a label more."""
    readings = itertools.count()
    return lambda: cut((arrays[0], arrays[1] + min(next(readings), 1)), 1000)()


SOURCES = {
    "a generator": (lambda arrays: cut(arrays, 100)(), None, r"generator, which can be read only once.*lambda"),
    "a function of one iterator": (used_up, None, r"and 0 later.*returns a new iterator"),
    "labels that come later": (changing, None, r"labels \[2\] that are not in .* must give the same rows"),
    "a path": (lambda arrays: "rows.csv", None, "must be a function or an iterable"),
    "a matrix": (lambda arrays: arrays[0], None, "must be a function or an iterable"),
    "a function of a number": (lambda arrays: lambda: 3, None, "must return an iterator"),
    "no batches": (lambda arrays: [], None, "has no rows"),
    "empty batches": (lambda arrays: [([], [])], None, "has no rows"),
    "one class": (lambda arrays: cut((arrays[0], np.zeros(N)), 1000), None, r"two classes; .* 1 class"),
    "a class that no row has": (lambda arrays: [arrays], [0, 1, 2], r"No row has .*\[2\]"),
    "a class twice": (lambda arrays: [arrays], [0, 0], "two or more"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_no_source_of_rows_is_refused(small_subset, kind):
    source, classes, message = SOURCES[kind]
    refuses(message, model().fit_batches, source(problem()[:2]), classes)
    assert not threads_at_work()


@pytest.mark.parametrize(
    "options",
    [{"inducing_points": "all"}, {"batch_size": 100}, {"batch_size": 10**6, "optimizer": "joint"}],
    ids=["all points", "batch_size", "joint"],
)
def test_what_is_for_rows_in_memory(small_subset, options):
    read = []

    def source():
        for batch in cut((X, Y), 100)():
            read.append(len(batch[0]))
            yield batch

    refuses("more than 1500 rows", model(**{"kernel": None, "optimizer": "profile", **options}).fit_batches, source)
    # As soon as that is known.
    assert sum(read) < N
    assert not threads_at_work()


def test_memory_does_not_grow_with_the_rows(tuned):
    tuned(kept_rows=2000)
    X = np.random.default_rng(0).normal(size=(500, 40))
    y = (X[:, 0] > 0.0).astype(int)

    def peak(repetitions):
        fitted = model(kernel=RBF(6.0), inducing_points=X[:5], max_iter=2)
        return peak_bytes(fitted.fit_batches, lambda: ((X.copy(), y) for _ in range(repetitions)))[0]

    few, many = peak(40), peak(120)
    # A hundredth of the further rows, and what the interpreter itself takes now and then.
    assert many < few + 0.01 * 80 * X.nbytes + 2**17


PART = 700


class Frame:
    """A table of which X is a view, as those of other libraries may be."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values


WRAPPED = {"array": lambda X: X, "frame": lambda X: pd.DataFrame(X, copy=False), "own type": Frame}


def reusing(arrays, wrap):
    """A function that gives the batches one after the other in the same memory, and clears it at the end."""

    def read():
        memory = [np.empty_like(array[:PART]) for array in arrays]
        for start in range(0, N, PART):
            part = slice(start, min(start + PART, N))
            n = part.stop - part.start
            for place, array in zip(memory, arrays, strict=True):
                place[:n] = array[part]
            yield wrap(memory[0][:n]), *(place[:n] for place in memory[1:])
        for place in memory:
            place[:] = 0

    return read


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("last_rows", [SIZE, N])
def test_memory_that_is_used_again_makes_the_bits_of_batches_that_stay(kind, last_rows, tuned):
    """Whether all rows are kept, or each pass reads them; and of predictions."""
    tuned(kept_rows=last_rows)
    arrays, fitted = problem(), model(n_neighbors=0, n_jobs=2)
    table = pd.DataFrame(arrays[0]) if kind == "frame" else arrays[0]
    found = []
    for source, rows in (
        (cut((table, *arrays[1:]), PART), cut((table,), PART)),
        (reusing(arrays, WRAPPED[kind]), reusing(arrays[:1], WRAPPED[kind])),
    ):
        without_warnings(fitted.fit_batches, source)
        said = fitted.predict_proba_batches(lambda rows=rows: (part for (part,) in rows()))
        found.append((fitted.elbo_, np.vstack(list(said)).tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["arrays", "with labels", "iterator", "names"])
def test_predictions_of_batches(kind):
    X, y = problem(700)[:2]
    given = named(X) if kind == "names" else X
    fitted = model(n_neighbors=0).fit(given, y)
    parts = [slice(0, 300), slice(300, 300), slice(300, 700)]
    source = [(given[part], y[part]) if kind == "with labels" else given[part] for part in parts]
    found = list(fitted.predict_proba_batches(iter(source) if kind == "iterator" else source))
    assert [len(probability) for probability in found] == [300, 0, 400]
    # A row's last bit may depend on where its block ends: the tiles' last rows do not fill a vector.
    for part, probability in zip(parts[::2], found[::2], strict=True):
        np.testing.assert_array_equal(probability, fitted.predict_proba(given[part]))
    np.testing.assert_allclose(np.vstack(found), fitted.predict_proba(given), rtol=1e-13)


def test_predictions_name_a_bad_batch_and_end_the_reader():
    X, y = problem(700)[:2]
    for given, bad, message in (
        (named(X), named(X)[["b", "a"]], "feature names should match"),
        (X, X[:, :1], "X has 1 features, .* expecting 2"),
        (X, np.full((3, 2), np.nan), r"X has 6 missing numbers \(NaN\): 3 in feature 0"),
    ):
        fitted = model(n_neighbors=0).fit(given, y)
        found = fitted.predict_proba_batches([given[:5], bad])
        assert next(found).shape == (5, 2)
        assert refuses(message, next, found).__notes__ == ["(batch 1 of the source, counted from 0)"]
        assert not threads_at_work()
    refuses("must be a function or an iterable", fitted.predict_proba_batches, X)
    found = fitted.predict_proba_batches(lambda: (X for _ in range(100)))
    next(found)
    found.close()
    assert not threads_at_work()
