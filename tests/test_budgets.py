"""Fits that end early, by ``max_time``, interrupts and callbacks; what callbacks are told, which changes nothing."""

import itertools
import math
import signal
import threading
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from support.fits import clone_of, quietly, refuses, reloaded, warnings_of, without_warnings
from support.reference import iris, moons

from xgpc import GPClassifier
from xgpc.rows.clock import Clock


class Readings:
    """Each reading of the clock is one later; at some of them there are interrupts."""

    def __init__(self, interrupts=()):
        self.interrupts, self.readings = interrupts, 0

    def __call__(self):
        self.readings += 1
        if self.readings in self.interrupts:
            signal.raise_signal(signal.SIGINT)
        return float(self.readings)


class Ticking(GPClassifier):
    """With a clock of its own, that each fit reads from 1 on; ``max_time`` counts readings."""

    clock = None

    def _clock(self):
        return Clock(math.inf if self.max_time is None else float(self.max_time), self.clock)


class Spy:
    """A callback that counts its calls, and does something at one of them."""

    def __init__(self, number=math.inf, act=None):
        self.number, self.act, self.calls = number, act, 0

    def __call__(self, state):
        self.calls += 1
        return self.act() if self.calls == self.number else None


SMALL = {"random_state": 0, "n_inducing": 6, "max_iter": 12}
KINDS = {
    "growth": (moons, {"n_inducing": "auto"}),
    "growth alone": (partial(moons, 300), {"n_inducing": "auto", "kernel": 2.0 * RBF(0.3), "optimizer": None}),
    "restarts": (moons, {"n_restarts_optimizer": 2}),
    "neighbours": (moons, {"n_neighbors": 4}),
    "alternate": (moons, {"bound": "polya-gamma", "optimizer": "alternate"}),
    "adam on mini-batches": (moons, {"optimizer": "adam", "batch_size": 20, "max_iter": 3}),
    "stochastic": (moons, {"optimizer": "stochastic", "batch_size": 20, "max_iter": 3}),
    "mini-batches": (moons, {"optimizer": None, "batch_size": 20}),
    "full": (moons, {"inducing_points": "all"}),
    "classes": (iris, {"share": "auto", "n_neighbors": 0}),
}
TIMED = KINDS | {
    # What 60 rows teach is then no worse for all of them than the start.
    "profile in stages": (moons, {"subset_sizes": [60, 150], "length_scale_prior": None}),
    "additive noise": (moons, {"likelihood": "step"}),
    "joint": (moons, {"bound": "polya-gamma", "optimizer": "joint"}),
    "taylor": (moons, {"bound": "taylor", "optimizer": "alternate"}),
    "adam": (moons, {"optimizer": "adam", "max_iter": 3}),
    "posterior": (moons, {"optimizer": None, "tol": 0.0}),
    "augmented classes": (iris, {"likelihood": "logistic-softmax", "optimizer": None}),
}


def fitted(kind, max_time=None, interrupts=(), **params):
    """A model with its readings of the clock, and the warnings of its fit."""
    data, own = TIMED[kind]
    model = Ticking(**{**SMALL, **own, "max_time": max_time, **params})
    model.clock = Readings(interrupts)
    return model, warnings_of(model, *data())


def check_complete(model, X, y):
    """The posterior is that of the hyperparameters and of all rows, as a fit of its own makes it or better."""
    assert model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-9)
    assert np.all(np.isfinite(model.predict_log_proba(X)))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.all(model.predict_proba(X).std(axis=0) > 0.0)


def cuts_of(model):
    start = "There was no time left for "
    return [text.removeprefix(start)[:-1] for text in model.decisions_ if text.startswith(start)]


@pytest.mark.parametrize("kind", TIMED)
def test_wherever_time_runs_out_there_is_a_complete_fit(kind):
    X, y = TIMED[kind][0]()
    whole, _ = fitted(kind)
    at_start, _ = fitted(kind, 1)
    bounds = [at_start.elbo_]
    check_complete(at_start, X, y)
    for share_of_time in (0.1, 0.3, 0.6, 0.9):
        model, messages = fitted(kind, int(share_of_time * whole.clock.readings))
        check_complete(model, X, y)
        bounds.append(model.elbo_)
        if kind == "augmented classes" and model.converged_:
            # Its time is for finding where to start.
            continue
        assert not model.converged_
        (message,) = messages
        assert message.startswith("max_time=")
        assert "left no time for" in message
        assert cuts_of(model)
        assert all(cut in message for cut in cuts_of(model))
    # Steps on mini-batches are noisy, and the Taylor expansion is no bound.
    if "batches" not in kind and kind != "taylor":
        assert min(bounds) >= at_start.elbo_ - 1e-9 * abs(at_start.elbo_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_that_returns_true_ends_a_fit_with_a_complete_posterior(kind):
    whole, _ = fitted(kind, callback=Spy())
    for share_of_calls in (0.0, 0.3, 0.7, 0.95):
        spy = Spy(1 + int(share_of_calls * (whole.callback.calls - 1)), lambda: np.True_)
        model, messages = fitted(kind, callback=spy, n_jobs=2)
        assert spy.calls >= spy.number
        check_complete(model, *KINDS[kind][0]())
        cuts = cuts_of(model)
        assert any("the callback left no time for" in text for text in messages) == bool(cuts)
        assert bool(cuts) or model.elbo_ == whole.elbo_
        assert not (cuts and model.converged_)


@pytest.mark.parametrize("kind", ["profile in stages", "neighbours", "classes", "mini-batches", "full", "joint"])
def test_an_interrupt_keeps_the_best_so_far(kind):
    whole, _ = fitted(kind)
    before = signal.getsignal(signal.SIGINT)
    for part in (0.2, 0.7):
        model, messages = fitted(kind, None, [int(part * whole.clock.readings)], keep_on_interrupt=True)
        assert signal.getsignal(signal.SIGINT) is before
        check_complete(model, *TIMED[kind][0]())
        assert not model.converged_
        assert any(message.startswith("an interrupt left no time for") for message in messages)


def bits(model):
    history = {name: column.tobytes() for name, column in model.history_.items() if name != "seconds"}
    arrays = [array.tobytes() for array in model.posterior_.to_arrays().values()]
    return arrays, str(model.kernel_), model.elbo_, model.held_out_score_, model.n_iter_, model.converged_, history


@pytest.mark.parametrize("kind", ["profile in stages", "neighbours", "classes"])
def test_time_that_suffices_changes_no_bit(kind):
    data, own = TIMED[kind]
    assert bits(fitted(kind)[0]) == bits(quietly(GPClassifier(**{**SMALL, **own}), *data()))


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_the_same_bits_with_and_without_a_callback(kind):
    states, (data, own) = [], KINDS[kind]
    plain = quietly(GPClassifier(**SMALL | own), *data())
    told = quietly(GPClassifier(**SMALL | own, callback=states.append, verbose=1, n_jobs=2), *data())
    assert bits(plain) == bits(told)
    seconds = [state.seconds for state in states]
    assert all(0.0 <= earlier <= later for earlier, later in itertools.pairwise(seconds))
    stages = ("checking", "reading", "start", "learning", "neighbours", "posterior", "done")
    assert all(state.seconds_left == math.inf and state.stage in stages for state in states)
    assert states[0].stage == "checking"
    elbo = None if told.n_neighbors_ else told.elbo_
    assert [states[-1].stage, states[-1].elbo, states[-1].n_rows] == ["done", elbo, len(data()[0])]
    assert states[-1].n_inducing == told.posterior_.prior.n_inducing
    assert [state.stage for state in states].count("done") == 1


def test_a_budget_that_is_over_keeps_the_given_kernel_with_a_posterior():
    kernel = 2.0 * RBF(0.5)
    X, y = moons()
    model, _ = fitted("profile in stages", 1, kernel=kernel)
    assert model.kernel_ == kernel
    reference = quietly(GPClassifier(kernel, **{**SMALL, "optimizer": None, "max_iter": 1}), X, y)
    # Better than the prior, and that in one pass.
    assert len(y) * np.log(0.5) < model.elbo_ <= reference.elbo_


def test_a_second_interrupt_ends_the_fit_and_leaves_the_estimator():
    def interrupt_again(state):
        if model.clock.readings >= 30:
            signal.raise_signal(signal.SIGINT)

    # Nobody reads the clock after the first one.
    model = Ticking(**SMALL, keep_on_interrupt=True, callback=interrupt_again)
    model.clock, handler = Readings((30,)), signal.getsignal(signal.SIGINT)
    refuses(None, model.fit, *moons(), error=KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("kind", ["growth", "neighbours", "mini-batches"])
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), RuntimeError("mine")], ids=repr)
def test_what_a_callback_raises_leaves_the_estimator_as_it_was(kind, error):
    model, _ = fitted(kind, callback=Spy(), n_jobs=2)
    n_calls, fail = model.callback.calls, Mock(side_effect=error)
    for share_of_calls in (0.0, 0.2, 0.4, 0.6, 0.8, 0.99):
        model.set_params(callback=Spy(1 + int(share_of_calls * (n_calls - 1)), fail))
        assert without_warnings(refuses, None, model.fit, *KINDS[kind][0](), error=type(error)) is error
        assert model.callback.calls == model.callback.number


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
    message = "^the callback left no time for more iterations of the posterior of all rows. "
    with pytest.warns(ConvergenceWarning, match=message):
        told.partial_fit(X[:100], y[:100])
    assert np.all(np.isfinite(told.predict_log_proba(X)))


def test_copies_clones_and_files_of_models_with_callbacks(tmp_path):
    lock = threading.Lock()  # What it has to do with cannot be copied.
    states = []

    def callback(state):
        with lock:
            states.append(state)

    model = quietly(GPClassifier(**SMALL, optimizer=None, batch_size=20, callback=callback), *moons())
    assert model.get_params()["callback"] is callback
    assert clone(model).callback is callback
    again = clone_of(model)
    assert again.callback is None
    assert bits(again) == bits(model)
    assert model.callback is callback
    assert reloaded(model, tmp_path).callback is None
    # A second fit of a fitted model has it, too.
    states.clear()
    quietly(model, *moons())
    assert states
