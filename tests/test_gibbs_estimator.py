"""The sampler as an estimator: conventions and faults."""

import pickle
import warnings

import numpy as np
import pytest
from polyagamma import random_polyagamma
from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.utils.estimator_checks import check_estimator
from support.gibbs import DATA, GRID, short_chains, small
from support.reference import moons

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier

# The estimator.


def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        # Raised by scikit-learn where its array-API switch is off; the check says nothing of this estimator.
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(small(RBF(1.0), n_samples=4, thin=1, n_proposals=2), on_fail=None)
    assert [result["check_name"] for result in results if result["status"] not in ("passed", "skipped")] == []
    assert [r["check_name"] for r in results if r["status"] == "skipped"] in ([], ["check_array_api_input"])


@pytest.mark.parametrize("Z", ["all", GRID], ids=["all", "inducing points"])
@short_chains
def test_without_a_kernel_it_is_learned_as_by_a_classifier(Z):
    X, y = DATA
    model = small(None, inducing_points=Z).fit(X, y)
    reference = GPClassifier(inducing_points=Z, learn_inducing=False, random_state=0).fit(X, y)
    assert model.kernel_ == reference.kernel_
    assert np.array_equal(model.inducing_points_, reference.inducing_points_)
    fixed = small(model.kernel_, inducing_points=Z).fit(X, y)
    assert fixed.kernel_ == model.kernel_
    for ours, theirs in zip(fixed._whitening.rows(GRID), model._whitening.rows(GRID), strict=True):
        assert np.array_equal(ours, theirs)


@short_chains
def test_a_fitted_sampler_pickles():
    X, y = DATA
    model = small().fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(GRID), model.predict_proba(GRID))
    assert np.array_equal(again.predict_latent(GRID), model.predict_latent(GRID))


# Faults.

FAULTS = {
    "three classes": ({}, {"y": np.arange(40) % 3}, "two classes|binary classification"),
    "one class": ({}, {"y": np.ones(40)}, "rows of two classes"),
    "NaN": ({}, {"X": np.where(np.arange(80).reshape(40, 2) == 7, np.nan, DATA[0])}, "NaN"),
    "huge": ({}, {"X": 1e200 * DATA[0]}, "scale the features"),
    "lengths": ({}, {"y": DATA[1][:-1]}, "inconsistent"),
    "k-means": ({"inducing_points": "kmeans"}, {}, "'all' or a numeric array \\(m, d\\); got 'kmeans'"),
    "shape": ({"inducing_points": np.ones((3, 5))}, {}, "inducing_points"),
    "n_jobs": ({"n_jobs": 0}, {}, "n_jobs"),
    "kernel": ({"kernel": "rbf"}, {}, "kernel must be a scikit-learn kernel"),
}
FAULTS |= {
    f"{name}={value}": (
        {name: value},
        {},
        f"{name} must be (an integer of at least|an integer that is not negative|a positive integer)",
    )
    for name, least in (("n_samples", 4), ("thin", 1), ("n_warmup", 0), ("n_chains", 1), ("n_proposals", 0))
    for value in (least - 1, float(least), True, None, "2")
}


@pytest.mark.parametrize("fault", FAULTS)
@short_chains
def test_faults_are_named_and_leave_the_estimator_as_it_was(fault):
    parameters, data, message = FAULTS[fault]
    X, y = DATA
    model = small().fit(X[:, :1], y)
    model.set_params(**parameters)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(**({"X": X, "y": y} | data))
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@short_chains
def test_a_chain_that_fails_leaves_the_estimator_as_it_was(monkeypatch):
    X, y = DATA
    model = small().fit(X[:, :1], y)
    before = dict(vars(model))

    def fail(c, rng):
        raise KeyboardInterrupt

    monkeypatch.setattr("xgpc.gibbs.classifier._polya_gamma_sampler", lambda: fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:20], y[:20])
    assert all(vars(model)[name] is value for name, value in before.items())


def test_chains_that_disagree_warn_where_fit_was_called(monkeypatch):
    X, y = DATA
    monkeypatch.setattr("xgpc.gibbs.classifier.LARGEST_R_HAT", np.inf)
    agreeing = small().fit(X, y)
    monkeypatch.setattr("xgpc.gibbs.classifier.LARGEST_R_HAT", 0.5)
    message = rf"R-hat is {agreeing.r_hat_:.4g}, above 0\.5: the chains disagree.* n_samples=20 or thin=10; .* n_warmup"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        model = small().fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]
    assert np.array_equal(model.samples_, agreeing.samples_)


def test_an_interrupt_ends_all_chains(monkeypatch):
    """After one chain fails, the others stop at their next sweep, of the million that they have before them."""
    X, y = moons(30)
    sweeps, honest = [], random_polyagamma

    def draw(*given, **named):
        sweeps.append(None)
        if len(sweeps) == 20:
            raise KeyboardInterrupt
        return honest(*given, **named)

    monkeypatch.setattr("polyagamma.random_polyagamma", draw)
    model = GibbsClassifier(RBF(1.0), n_samples=1_000_000, thin=1, n_proposals=0, n_jobs=2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(sweeps) < 1000
    assert not hasattr(model, "classes_")
