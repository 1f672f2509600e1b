"""Fits that have to end: by ``max_time``, with clocks of our own, and by interrupts."""

import math
import signal
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly
from support.reference import iris, moons

from xgpc import GPClassifier
from xgpc.rows.clock import Clock

TICK = 1.0


class Readings:
    """Each reading is a tick later; at some of them there are interrupts."""

    def __init__(self, tick=TICK, interrupts=()):
        self.tick, self.interrupts, self.readings = tick, interrupts, 0

    def __call__(self):
        self.readings += 1
        if self.readings in self.interrupts:
            signal.raise_signal(signal.SIGINT)
        return self.readings * self.tick


class Ticking(GPClassifier):
    """With a clock of its own, that each fit reads from 1 on; ``max_time`` counts readings."""

    clock = None

    def _clock(self):
        return Clock(math.inf if self.max_time is None else self.max_time * TICK, self.clock)


SMALL = {"random_state": 0, "n_inducing": 6, "max_iter": 12}
KINDS = {
    # What 60 rows teach is then no worse for all of them than the start.
    "profile in stages": (moons, {"subset_sizes": [60, 150], "length_scale_prior": None}),
    "growth": (moons, {"n_inducing": "auto"}),
    "growth alone": (partial(moons, 300), {"n_inducing": "auto", "kernel": 2.0 * RBF(0.3), "optimizer": None}),
    "restarts": (moons, {"n_restarts_optimizer": 2}),
    "neighbours": (moons, {"n_neighbors": 4}),
    "additive noise": (moons, {"likelihood": "step"}),
    "alternate": (moons, {"bound": "polya-gamma", "optimizer": "alternate"}),
    "joint": (moons, {"bound": "polya-gamma", "optimizer": "joint"}),
    "taylor": (moons, {"bound": "taylor", "optimizer": "alternate"}),
    "adam": (moons, {"optimizer": "adam", "max_iter": 3}),
    "adam on mini-batches": (moons, {"optimizer": "adam", "batch_size": 20, "max_iter": 3}),
    "stochastic": (moons, {"optimizer": "stochastic", "batch_size": 20, "max_iter": 3}),
    "mini-batches": (moons, {"optimizer": None, "batch_size": 20}),
    "posterior": (moons, {"optimizer": None, "tol": 0.0}),
    "full": (moons, {"inducing_points": "all"}),
    "classes": (iris, {"share": "auto", "n_neighbors": 0}),
    "augmented classes": (iris, {"likelihood": "logistic-softmax", "optimizer": None}),
}


def fitted(kind, max_time, interrupts=(), **params):
    """A model with its readings of the clock, and the warnings of its fit."""
    data, own = KINDS[kind]
    model = Ticking(**{**SMALL, **own, "max_time": max_time, **params})
    model.clock = Readings(interrupts=interrupts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*data())
    return model, caught


def check_complete(model, X, y):
    """The posterior is that of the hyperparameters and of all rows, as a fit of its own makes it or better."""
    assert model.elbo_ == pytest.approx(model.elbo(X, y), rel=1e-9)
    assert np.all(np.isfinite(model.predict_log_proba(X)))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.all(model.predict_proba(X).std(axis=0) > 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_wherever_time_runs_out_there_is_a_complete_fit(kind):
    X, y = KINDS[kind][0]()
    whole, _ = fitted(kind, None)
    at_start, _ = fitted(kind, 1)
    bounds = [at_start.elbo_]
    check_complete(at_start, X, y)
    for share_of_time in (0.1, 0.3, 0.6, 0.9):
        model, caught = fitted(kind, int(share_of_time * whole.clock.readings))
        check_complete(model, X, y)
        bounds.append(model.elbo_)
        if kind == "augmented classes" and model.converged_:
            # Its time is for finding where to start.
            continue
        assert not model.converged_
        (message,) = [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]
        assert message.startswith("max_time=")
        assert "left no time for" in message
        start = "There was no time left for "
        cuts = [text.removeprefix(start)[:-1] for text in model.decisions_ if text.startswith(start)]
        assert cuts
        assert all(cut in message for cut in cuts)
    # Steps on mini-batches are noisy, and the Taylor expansion is no bound.
    if "batches" not in kind and kind != "taylor":
        assert min(bounds) >= at_start.elbo_ - 1e-9 * abs(at_start.elbo_)


@pytest.mark.parametrize("kind", ["profile in stages", "neighbours", "classes"])
def test_time_that_suffices_changes_no_bit(kind):
    data, own = KINDS[kind]
    X, y = data()
    free = quietly(GPClassifier(**{**SMALL, **own}), X, y)
    model, _ = fitted(kind, None)
    assert model.elbo_ == free.elbo_
    np.testing.assert_array_equal(model.predict_proba(X), free.predict_proba(X))


def test_a_budget_that_is_over_keeps_the_given_kernel_with_a_posterior():
    kernel = 2.0 * RBF(0.5)
    X, y = moons()
    model, _ = fitted("profile in stages", 1, kernel=kernel)
    assert model.kernel_ == kernel
    reference = quietly(GPClassifier(kernel, **{**SMALL, "optimizer": None, "max_iter": 1}), X, y)
    # Better than the prior, and that in one pass.
    assert len(y) * np.log(0.5) < model.elbo_ <= reference.elbo_


@pytest.mark.parametrize("kind", ["profile in stages", "neighbours", "classes", "mini-batches", "full", "joint"])
def test_an_interrupt_keeps_the_best_so_far(kind):
    X, y = KINDS[kind][0]()
    whole, _ = fitted(kind, None)
    before = signal.getsignal(signal.SIGINT)
    for part in (0.2, 0.7):
        at = int(part * whole.clock.readings)
        model, caught = fitted(kind, None, [at], keep_on_interrupt=True)
        assert signal.getsignal(signal.SIGINT) is before
        check_complete(model, X, y)
        assert not model.converged_
        assert any(str(one.message).startswith("an interrupt left no time for") for one in caught)


def test_a_second_interrupt_ends_the_fit_and_leaves_the_estimator():
    X, y = moons()

    def interrupt_again(state):
        if model.clock.readings >= 30:
            signal.raise_signal(signal.SIGINT)

    # Nobody reads the clock after the first one.
    model = Ticking(**SMALL, keep_on_interrupt=True, callback=interrupt_again)
    model.clock = Readings(interrupts=(30,))
    before, handler = dict(vars(model)), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert vars(model) == before
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_interrupt_is_none_of_ours_by_default():
    X, y = moons()
    model = Ticking(**SMALL, max_time=1e9)
    model.clock = Readings(interrupts=(30,))
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert vars(model) == before
