"""Fits that tell a callback how they stand: what it is told, what it may do, and that it changes nothing."""

import itertools
import math
import pickle
import threading
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly, without_warnings
from support.reference import iris, moons

from xgpc import GPClassifier

STAGES = ("checking", "reading", "start", "learning", "neighbours", "posterior", "done")
SMALL = {"random_state": 0, "n_inducing": 6, "max_iter": 8}


KINDS = {
    "growth": (moons, {"n_inducing": "auto"}),
    "growth alone": (moons, {"n_inducing": "auto", "kernel": 2.0 * RBF(0.3), "optimizer": None}),
    "restarts": (moons, {"n_restarts_optimizer": 1}),
    "neighbours": (moons, {"n_neighbors": 4, "n_jobs": 2}),
    "alternate": (moons, {"bound": "polya-gamma", "optimizer": "alternate"}),
    "adam on mini-batches": (moons, {"optimizer": "adam", "batch_size": 20, "max_iter": 3}),
    "stochastic": (moons, {"optimizer": "stochastic", "batch_size": 20, "max_iter": 3}),
    "mini-batches": (moons, {"optimizer": None, "batch_size": 20}),
    "full": (moons, {"inducing_points": "all"}),
    "classes": (iris, {"share": "auto", "n_neighbors": 0}),
}


def fitted(kind, callback, **params):
    data, own = KINDS[kind]
    return quietly(GPClassifier(**{**SMALL, **own, **params}, callback=callback), *data())


def states_of(kind, **params):
    states = []
    return fitted(kind, states.append, **params), states


def bits(model):
    history = {name: column.tobytes() for name, column in model.history_.items() if name != "seconds"}
    arrays = [array.tobytes() for array in model.posterior_.to_arrays().values()]
    return arrays, str(model.kernel_), model.elbo_, model.held_out_score_, model.n_iter_, model.converged_, history


class Spy:
    """Counts its calls, and does something at one of them."""

    def __init__(self, number=math.inf, act=None):
        self.number, self.act, self.calls = number, act, 0

    def __call__(self, state):
        self.calls += 1
        return self.act() if self.calls == self.number else None


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_the_same_bits_with_and_without(kind):
    plain, (told, states) = fitted(kind, None), states_of(kind, verbose=1)
    assert bits(plain) == bits(told)
    seconds = [state.seconds for state in states]
    assert all(0.0 <= earlier <= later for earlier, later in itertools.pairwise(seconds))
    assert all(state.seconds_left == math.inf and state.stage in STAGES for state in states)
    assert states[0].stage == "checking"
    elbo = None if told.n_neighbors_ else told.elbo_
    assert [states[-1].stage, states[-1].elbo, states[-1].n_rows] == ["done", elbo, len(KINDS[kind][0]()[0])]
    assert states[-1].n_inducing == told.posterior_.prior.n_inducing
    assert [state.stage for state in states].count("done") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_true_ends_a_fit_wherever_it_is_with_a_complete_posterior(kind):
    X, y = KINDS[kind][0]()
    spy = Spy()
    whole = fitted(kind, spy)
    for share_of_calls in (0.0, 0.3, 0.7, 0.95):
        number = 1 + int(share_of_calls * (spy.calls - 1))
        model = GPClassifier(**{**SMALL, **KINDS[kind][1]}, callback=Spy(number, lambda: np.True_))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        assert model.callback.calls >= number
        assert np.all(np.isfinite(model.predict_log_proba(X)))
        assert model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-9)
        cuts = [text for text in model.decisions_ if text.startswith("There was no time")]
        said = [str(one.message) for one in caught if one.category is ConvergenceWarning]
        assert any("the callback left no time for" in text for text in said) == bool(cuts)
        assert bool(cuts) or model.elbo_ == whole.elbo_
        assert not (cuts and model.converged_)


@pytest.mark.parametrize("kind", ["growth", "neighbours", "mini-batches"])
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), RuntimeError("mine")], ids=repr)
def test_what_a_callback_raises_leaves_the_estimator_as_it_was(kind, error):
    def fail():
        raise error

    spy = Spy()
    model = fitted(kind, spy)
    n_calls = spy.calls
    for share_of_calls in (0.0, 0.2, 0.4, 0.6, 0.8, 0.99):
        model.set_params(callback=Spy(1 + int(share_of_calls * (n_calls - 1)), fail))
        before = dict(vars(model))
        with pytest.raises(type(error)) as caught:
            quietly(model, *KINDS[kind][0]())
        assert caught.value is error
        assert model.callback.calls == model.callback.number
        assert vars(model) == before


def test_a_callback_of_later_batches():
    X, y = moons(200)
    states = []
    plain = GPClassifier(**SMALL, n_neighbors=0)
    told = clone(plain).set_params(callback=states.append)
    for part in (slice(0, 100), slice(100, 200)):
        states.clear()
        for model in (plain, told):
            without_warnings(model.partial_fit, X[part], y[part])
        assert bits(plain) == bits(told)
        assert [states[0].stage, states[-1].stage] == ["checking", "done"]
        assert states[-1].elbo == told.elbo_
    told.set_params(callback=lambda state: True)
    with pytest.warns(
        ConvergenceWarning, match="^the callback left no time for more iterations of the posterior of all rows. "
    ):
        told.partial_fit(X[:100], y[:100])
    assert np.all(np.isfinite(told.predict_log_proba(X)))


def test_copies_clones_and_files_of_models_with_callbacks(tmp_path):
    lock = threading.Lock()  # What it has to do with cannot be copied.
    states = []

    def callback(state):
        with lock:
            states.append(state)

    model = fitted("mini-batches", callback)
    assert model.get_params()["callback"] is callback
    assert clone(model).callback is callback
    assert not hasattr(clone(model), "posterior_")
    again = pickle.loads(pickle.dumps(model))
    assert again.callback is None
    assert bits(again) == bits(model)
    assert model.callback is callback
    model.save(tmp_path / "model.npz")
    assert GPClassifier.load(tmp_path / "model.npz").callback is None
    # A second fit of a fitted model has it, too.
    states.clear()
    quietly(model, *moons())
    assert states
