"""Labels, sources and parameters that cannot be what is meant: one rule and one message, wherever they are given."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from support.reference import moons

from xgpc import GPClassifier

X, CODES = moons(60)
LARGE = 2**60


def model(**options):
    return GPClassifier(RBF(0.5), n_inducing=5, optimizer=None, random_state=0, **options)


def halves(*labels):
    return [(X[:30], labels[0]), (X[30:], labels[-1])]


KINDS = {
    "bytes": np.array([b"a", b"b"])[CODES],
    "objects": np.array([1, 2], dtype=object)[CODES],
    "a mixture": np.array([1, "a"], dtype=object)[CODES],
    "bytes as objects": np.array([b"a", b"b"], dtype=object)[CODES],
    "complex numbers": 1j * CODES,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [10, 1000])
def test_labels_of_other_kinds_are_refused_for_any_number_of_rows(monkeypatch, kind, size):
    monkeypatch.setattr("xgpc.learning.stages.LAST_ROWS", size)
    y, message = KINDS[kind], r"Labels must be text|y is an array of objects|Complex data"
    for fit in (
        lambda one: one.fit(X, y),
        lambda one: one.partial_fit(X, y),
        lambda one: one.fit_batches(halves(y[:30], y[30:])),
    ):
        one = model()
        before = dict(vars(one))
        with pytest.raises(ValueError, match=message):
            fit(one)
        assert vars(one) == before


LARGE_LABELS = LARGE + CODES


@pytest.mark.parametrize("later", [CODES[30:].astype(float), LARGE_LABELS[30:].astype(float)])
def test_large_integers_beside_floats_are_refused(later):
    with pytest.raises(ValueError, match=r"integers as large as 11529215046068469\d\d .*rounded"):
        model().fit_batches(halves(LARGE_LABELS[:30], later))
    with pytest.raises(ValueError, match="rounded"):
        model().partial_fit(X, LARGE_LABELS, classes=[LARGE, LARGE + 1, 1.5])


def test_large_integers_by_themselves_are_labels():
    fitted = model().fit_batches(halves(LARGE_LABELS[:30], LARGE_LABELS[30:]))
    assert fitted.classes_.tolist() == [LARGE, LARGE + 1]
    mixed = model().fit_batches(halves(CODES[:30], CODES[30:].astype(float)))
    assert mixed.classes_.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("source", [(X, CODES), [X, CODES], (X, CODES, np.ones(60)), (X, CODES[:, None])])
def test_the_arrays_of_one_batch_are_no_source(source):
    with pytest.raises(ValueError, match=r"Write fit_batches\(\[\(X, y\)\]\)"):
        model().fit_batches(source)


@pytest.mark.parametrize("change", [{"likelihood": "probit"}, {"bound": "polya-gamma"}])
def test_a_stream_goes_on_with_its_likelihood(tmp_path, change):
    model().partial_fit(X, CODES).save(tmp_path / "model.npz")
    loaded = GPClassifier.load(tmp_path / "model.npz")
    loaded.partial_fit(X, CODES)
    with pytest.raises(ValueError, match="posterior of likelihood 'logit' with bound 'exact'"):
        loaded.set_params(**change).partial_fit(X, CODES)
