"""``GPClassifier`` as a model of AutoGluon: what its predictors hand over, and what they get."""

import logging
import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("autogluon.tabular")
import pandas as pd
from autogluon.core.searcher.local_random_searcher import LocalRandomSearcher
from autogluon.core.utils.exceptions import TimeLimitExceeded
from autogluon.tabular import TabularPredictor
from autogluon.tabular.registry import ag_model_registry
from autogluon.tabular.testing import FitHelper

from xgpc import GPClassifier
from xgpc.autogluon import XGPCModel, search_space

# Of AutoGluon itself.
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore::DeprecationWarning"),
              pytest.mark.filterwarnings("ignore::FutureWarning"),
              pytest.mark.filterwarnings("ignore::ResourceWarning")]  # fmt: skip
SMALL = {"n_inducing": 16, "n_neighbors": 0}
SEQUENTIAL = {"fold_fitting_strategy": "sequential_local", "model_random_seed": 5, "vary_seed_across_folds": True}
BAG = {"num_bag_folds": 3, "num_bag_sets": 1, "ag_args_ensemble": SEQUENTIAL}
NAMES = {2: ["no", "yes"], 3: ["blue", "green", "red"]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """AutoGluon writes into the folder that it is started in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(n, n_classes=2, seed=0):
    """Numbers, some of them missing, a category that matters and one with many levels; labels in "label"."""
    rng = np.random.default_rng(seed)
    a, b, town = rng.normal(size=n), rng.normal(size=n), rng.choice(["Bonn", "Jena", "Kiel"], n)
    score = a + np.sin(2.0 * b) + 1.5 * (town == "Kiel") + 0.3 * rng.normal(size=n)
    codes = np.digitize(score, np.linspace(-0.5, 1.5, n_classes + 1)[1:-1])
    frame = pd.DataFrame({"a": a, "b": b, "town": town, "whole": rng.integers(0, 9, n), "flag": rng.random(n) < 0.5})
    frame.loc[::7, "b"] = np.nan
    frame.loc[::11, "town"] = None
    return frame.assign(label=np.array(NAMES[n_classes])[codes])


def fitted(data, folder, model=XGPCModel, params=SMALL, init=(), **options):
    """A predictor whose only models are of xgpc."""
    predictor = TabularPredictor("label", path=str(folder / "predictor"), verbosity=0, **dict(init))
    return predictor.fit(
        data, hyperparameters={model: dict(params)}, fit_weighted_ensemble=False, raise_on_model_failure=True, **options
    )


def gaussian_process(predictor, name=None):
    """The fitted classifier of a model; of a bag, that of its first fold."""
    model = predictor._trainer.load_model(name or predictor.model_names()[0])
    return (model.load_child(model.models[0]) if hasattr(model, "models") else model).model


def rows(n=200, n_classes=2):
    """Rows as a model gets them, with codes of classes."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return X, pd.Series(np.digitize(X["a"] + 0.3 * rng.normal(size=n), [0.0, 0.8][: n_classes - 1]))


def model_of(folder, n_classes=2, **params):
    problem_type = "binary" if n_classes == 2 else "multiclass"
    return XGPCModel(path=str(folder), name="XGPC", problem_type=problem_type, hyperparameters={**SMALL, **params})


def test_autogluons_own_checks_of_a_model_pass(monkeypatch):
    """They raise an error if one fails, and fit data sets of each type of problem that the model supports."""
    fit, fitted_types = XGPCModel._fit, set()

    def noted(self, *args, **kwargs):
        fit(self, *args, **kwargs)
        fitted_types.add(self.problem_type)

    monkeypatch.setattr(XGPCModel, "_fit", noted)
    FitHelper.verify_model(XGPCModel, {}, bag=True, refit_full=True, extra_metrics=True)
    assert fitted_types == {"binary", "multiclass"}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_those_of_a_classifier_of_these_rows(n_classes, folder):
    data, held_out = table(300, n_classes), table(100, n_classes, seed=1)
    predictor = fitted(data, folder, tuning_data=held_out, num_cpus=1)
    model = gaussian_process(predictor)
    assert model.n_jobs == 1
    assert model.n_samples_seen_ == 300
    assert len(model.inducing_points_) == SMALL["n_inducing"]
    new = table(50, n_classes, seed=2)
    p = predictor.predict_proba(new)
    assert sorted(p.columns) == NAMES[n_classes]
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    X, X_new = (predictor.transform_features(frame) for frame in (data, new))
    expected = GPClassifier(**SMALL, random_state=0).fit(X, data["label"])
    # AutoGluon keeps float32.
    np.testing.assert_allclose(p[expected.classes_], expected.predict_proba(X_new), atol=1e-6)
    assert np.mean(predictor.predict(new) == new["label"]) > 0.6


def test_bags_are_saved_loaded_and_fitted_again_to_all_rows(folder):
    ag_model_registry.add(XGPCModel)
    try:
        predictor = fitted(table(300, 3), folder, "XGPC", **BAG, time_limit=3000)
    finally:
        ag_model_registry.remove(XGPCModel)
    (name,) = predictor.model_names()
    assert name == "XGPC_BAG_L1"
    new = table(60, 3, seed=2)
    # Levels and missing numbers that no training row has.
    new.loc[0, "town"], new.loc[1, "a"] = "Ulm", np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        p = predictor.predict_proba(new)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    pd.testing.assert_frame_equal(TabularPredictor.load(predictor.path).predict_proba(new), p)

    bag = predictor._trainer.load_model(name)
    folds = [bag.load_child(one).model for one in bag.models]
    assert [fold.n_samples_seen_ for fold in folds] == [200, 200, 200]
    assert [fold.random_state for fold in folds] == [5, 6, 7]
    limits = [fold.max_time for fold in folds]
    assert all(0.0 < limit < 3000 for limit in limits)
    full = gaussian_process(predictor, predictor.refit_full()[name])
    assert full.n_samples_seen_ == 300
    assert full.max_time == pytest.approx(np.mean(limits))


def test_a_column_may_have_many_levels(folder):
    X, y = rows(1200)
    # 300 levels: 200 of a single row, the others frequent.
    codes = np.concatenate([np.arange(100)] * 10 + [np.arange(300, 500)])
    X["code"] = pd.Categorical([f"level {code}" for code in codes])
    model = model_of(folder, optimizer=None, n_inducing=8).fit(X=X, y=y)
    expected = GPClassifier(**{**SMALL, "optimizer": None, "n_inducing": 8}, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X)[:, 1], atol=1e-6)


def test_weights_count(folder):
    X, y = rows()
    weight = pd.Series(np.random.default_rng(2).uniform(0.0, 3.0, len(y)))
    model = model_of(folder).fit(X=X, y=y, sample_weight=weight)
    expected = GPClassifier(**SMALL, random_state=0).fit(X, y, weight)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X)[:, 1], atol=1e-6)


def test_rows_may_lack_a_class(folder):
    X, y = rows(n_classes=3)
    some = y != 1
    p = model_of(folder, 3).fit(X=X[some], y=y[some], num_classes=3).predict_proba(X)
    assert p.shape == (len(y), 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    assert np.all(p[:, 1].mean() < p[:, [0, 2]].mean(axis=0))


def test_a_fit_without_time_is_refused_and_one_with_little_is_complete(folder, caplog):
    X, y = rows(1000, 3)
    with pytest.raises(TimeLimitExceeded):
        model_of(folder, 3).fit(X=X, y=y, time_limit=0.0)
    with caplog.at_level(logging.DEBUG, "autogluon"), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_of(folder, 3, max_time=1e-3).fit(X=X, y=y, time_limit=1000.0)
    assert model.model.max_time == 1e-3
    assert any("left no time for" in record.getMessage() for record in caplog.records)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-6)
    assert 900.0 > model_of(folder).fit(X=X, y=(y > 0).astype(int), time_limit=900.0).model.max_time > 0.0


@pytest.mark.parametrize(("params", "message"), [({"n_inducing": "many"}, "n_inducing must be .* got 'many'"),
                                                 ({"n_trees": 100}, "Invalid parameter 'n_trees'")])  # fmt: skip
def test_wrong_hyperparameters_are_named(params, message, folder):
    with pytest.raises(ValueError, match=message):
        fitted(table(100), folder, params=params)


def test_the_estimate_of_memory_grows_with_all_that_takes_memory():
    def estimate(n=1000, d=4, classes=2, X=None, **params):
        X = pd.DataFrame(np.zeros((n, d))) if X is None else X
        types = {"problem_type": "binary" if classes == 2 else "multiclass", "num_classes": classes}
        return XGPCModel.estimate_memory_usage_static(X=X, hyperparameters=params, **types)

    assert isinstance(estimate(), int)
    larger = [estimate(n=100_000), estimate(d=2000), estimate(classes=10), estimate(n_inducing=900),
              estimate(n_neighbors=500)]  # fmt: skip
    assert min(larger) > estimate()
    assert estimate(n_inducing=900, classes=10) > estimate(n_inducing=900)
    # Of few rows there are no more inducing points than rows.
    assert estimate(n=100, n_inducing=2000) == estimate(n=100, n_inducing=100)
    words = pd.DataFrame({"code": pd.Categorical([f"level {i % 200}" for i in range(1000)])})
    assert estimate(X=words) > estimate(X=pd.DataFrame({"code": np.arange(1000.0)}))


def test_the_search_space_has_200_configurations_that_can_be_fitted():
    searcher = LocalRandomSearcher(search_space=search_space(), random_seed=0)
    configurations = [searcher.get_config() for _ in range(200)]
    assert len({pickle.dumps(one) for one in configurations}) == 200
    for number, params in enumerate(configurations[:12]):
        X, y = rows(80, 2 + number % 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = GPClassifier(random_state=0, max_time=0.2).set_params(**params).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
    defaults = GPClassifier().get_params()
    assert all(configurations[0][name] == defaults[name] for name in search_space() if name != "length_scale_prior")


def test_hyperparameters_can_be_tuned(folder):
    options = {"num_trials": 3, "scheduler": "local", "searcher": "random"}
    predictor = fitted(table(150), folder, params={"n_neighbors": 0}, hyperparameter_tune_kwargs=options)
    models = [gaussian_process(predictor, name) for name in predictor.model_names()]
    assert len({model.length_scale_prior for model in models}) == 3
    assert {model.n_neighbors for model in models} == {0}
