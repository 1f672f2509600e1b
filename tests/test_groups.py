"""Groups and splitters decide the choices of a fit, and reach it through scikit-learn's pipelines and searches."""

from functools import partial

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, TimeSeriesSplit, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.fits import quietly, refuses
from support.internals import Scores
from support.splitters import recording

from xgpc import GPClassifier


def subjects():
    """Rows of subjects: a feature that matters, and two traits that tell the subjects apart but mean nothing."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(20), 10)
    effect, traits = 3.0 * rng.normal(size=20), rng.uniform(size=(20, 2))
    X = np.column_stack([rng.normal(size=len(groups)), traits[groups]])
    y = (X[:, 0] + effect[groups] + 0.5 * rng.normal(size=len(groups)) > 0.0).astype(int)
    return X, y, groups


X, Y, GROUPS = subjects()
small = partial(GPClassifier, n_inducing=6, n_neighbors=4, max_iter=3, random_state=0)


def test_names_of_groups_do_not_matter():
    names = np.array([f"subject {number}" for number in np.random.default_rng(1).permutation(20)])
    numbered, named = (quietly(small(), X, Y, groups=groups) for groups in (GROUPS, names[GROUPS]))
    assert np.array_equal(numbered.predict_proba(X), named.predict_proba(X))
    assert numbered.held_out_score_ == named.held_out_score_


def test_a_single_held_out_group_decides_without_a_standard_error():
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (2000, 2))
    y = np.sin(6.0 * np.hypot(*X.T)) > 0.0
    model = quietly(GPClassifier(n_inducing=16, random_state=0), X, y, groups=np.arange(2000) % 4)
    assert model.n_neighbors_ > 0


def steps():
    """Rules on single features, for which the bound prefers AxisMatern, and rows of 60 groups."""
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(60), 10))
    X = rng.normal(size=(len(groups), 6))
    return X, ((X[:, :5] > [0.5, 0.0, -0.5, 0.2, 0.0]) @ [1, -1, 1, -1, 1] > 0.5).astype(int), groups


@pytest.mark.parametrize("is_in_time", [False, True])
def test_rows_kept_apart_confirm_the_kernel(is_in_time):
    """The splitter divides the rows though nothing else is decided by held-out rows, here without neighbours."""
    X, y, groups = steps()
    splitter, calls = recording(TimeSeriesSplit(3) if is_in_time else GroupKFold(3))
    model = GPClassifier(n_inducing=20, n_neighbors=0, held_out_split=splitter, max_iter=15, random_state=0)
    quietly(model, X, y, groups=None if is_in_time else groups)
    ((_, _, given, splits),) = calls
    held_out = [rows for _, rows in splits]
    confirmed = [words for words in model.decisions_ if "AxisMatern in place" in words]
    assert len(confirmed) == 1
    assert f" {sum(map(len, held_out))} held-out rows" in confirmed[0]
    for support, rows in splits:
        assert support.max() < rows.min() if is_in_time else not np.intersect1d(given[support], given[rows]).size


def test_without_groups_and_splitter_rows_are_left_out_one_at_a_time():
    X, y, groups = steps()
    model = GPClassifier(n_inducing=20, n_neighbors=0, max_iter=15, random_state=0)
    blind, told = quietly(clone(model), X, y), quietly(clone(model), X, y, groups=groups)
    for rows, expected in (("held-out rows", [False, True]), ("rows left out in turn", [True, False])):
        assert [any(f"600 {rows}" in words for words in model.decisions_) for model in (blind, told)] == expected


def test_error_of_a_difference_counts_groups():
    """Equal rows of a group know as much as one."""
    values = np.random.default_rng(0).normal(size=20)
    each = Scores(values, np.ones(20))
    groups = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 7))
    repeated = Scores(values[groups], np.ones(140), groups)
    assert each.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(20))
    assert repeated.error == pytest.approx(each.error)
    assert (repeated - Scores(np.zeros(140), np.ones(140))).error == pytest.approx(each.error)
    assert np.isnan(Scores(values, np.ones(20), np.zeros(20)).error)


def assert_has_groups(model):
    """It is the fit that a pipeline with a scaler should make."""
    rows = StandardScaler().fit_transform(X)
    told, blind = (quietly(small(), rows, Y, groups=groups).held_out_score_ for groups in (GROUPS, None))
    assert model.held_out_score_ == told != blind


def test_pipeline_passes_groups_by_the_name_of_the_step():
    assert_has_groups(quietly(make_pipeline(StandardScaler(), small()), X, Y, gpclassifier__groups=GROUPS)[-1])


@sklearn.config_context(enable_metadata_routing=True)
def test_pipeline_and_search_route_groups_to_the_splitter_and_to_the_fit():
    model = make_pipeline(StandardScaler(), small().set_fit_request(groups=True))
    assert_has_groups(quietly(model, X, Y, groups=GROUPS)[-1])
    search = GridSearchCV(model, {"gpclassifier__n_neighbors": [4]}, cv=GroupKFold(2))
    assert_has_groups(quietly(search, X, Y, groups=GROUPS).best_estimator_[-1])


@sklearn.config_context(enable_metadata_routing=True)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_cross_validation_routes_the_groups_of_each_fold():
    model = small().set_fit_request(groups=True)
    options = {"cv": GroupKFold(2), "params": {"groups": GROUPS}}
    found = cross_validate(model, X, Y, **options, return_estimator=True, return_indices=True)
    for one, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        assert one.held_out_score_ == quietly(small(), X[rows], Y[rows], groups=GROUPS[rows]).held_out_score_


@sklearn.config_context(enable_metadata_routing=True)
def test_groups_that_are_not_requested_are_an_error():
    model = make_pipeline(StandardScaler(), small())
    refuses("groups", model.fit, X, Y, groups=GROUPS, error=sklearn.exceptions.UnsetMetadataPassedError)
