"""Groups and splitters decide the choices of a fit, and reach it through scikit-learn's pipelines and searches."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, TimeSeriesSplit, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.support.fits import quietly
from tests.support.internals import Scores
from xgpc import GPClassifier


def subjects(n_subjects, n_rows, seed=0):
    """Rows of subjects: a feature that matters, and two traits that tell the subjects apart but mean nothing."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_subjects), n_rows)
    effect, traits = 3.0 * rng.normal(size=n_subjects), rng.uniform(size=(n_subjects, 2))
    X = np.column_stack([rng.normal(size=len(groups)), traits[groups]])
    y = (X[:, 0] + effect[groups] + 0.5 * rng.normal(size=len(groups)) > 0.0).astype(int)
    return X, y, groups


def test_points_that_remember_subjects_are_not_added():
    """The bound rises with points for the subjects, whose effects say nothing about others."""
    X, y, groups = subjects(100, 10)
    model = GPClassifier(n_neighbors=0, random_state=0)
    blind, told = quietly(clone(model), X, y), quietly(model, X, y, groups=groups)
    assert len(told.inducing_points_) < len(blind.inducing_points_)
    assert any("1000 held-out rows" in words and "not taken" in words for words in told.decisions_)
    new, labels, _ = subjects(200, 5, seed=1)
    scores = [np.mean(np.log(one.predict_proba(new)[np.arange(1000), labels])) for one in (told, blind)]
    assert scores[0] > scores[1]


def test_names_of_groups_do_not_matter():
    X, y, groups = subjects(30, 10)
    names = np.array([f"subject {number}" for number in np.random.default_rng(1).permutation(30)])
    model = GPClassifier(n_neighbors=4, n_inducing=8, max_iter=5, random_state=0)
    numbered, named = (quietly(clone(model), X, y, groups=one) for one in (groups, names[groups]))
    assert np.array_equal(numbered.predict_proba(X), named.predict_proba(X))
    assert numbered.query_score_ == named.query_score_


@pytest.mark.parametrize("n_neighbors", [0, 4])
def test_splitter_is_asked_about_choices_with_and_without_neighbours(n_neighbors):
    """Every split that a choice uses comes from the splitter: it has later rows, or groups, on the other side."""
    X, y, groups = subjects(100, 10)
    order = np.random.default_rng(0).permutation(len(y))
    X, y, groups = X[order], y[order], groups[order]
    asked = []

    class InTime(TimeSeriesSplit):
        def split(self, X, y=None, groups=None):
            found = list(super().split(X, y, groups))
            asked.append((groups, found))
            return iter(found)

    class ByGroup(GroupKFold):
        def split(self, X, y=None, groups=None):
            found = list(super().split(X, y, groups))
            asked.append((groups, found))
            return iter(found)

    for splitter in (InTime(3), ByGroup(3)):
        asked.clear()
        model = GPClassifier(n_neighbors=n_neighbors, query_split=splitter, max_iter=20, random_state=0)
        given = None if isinstance(splitter, InTime) else groups
        quietly(model, X, y, groups=given)
        assert asked
        for labels, splits in asked:
            for support, held_out in splits:
                if labels is None:
                    assert support.max() < held_out.min()
                else:
                    assert not np.intersect1d(labels[support], labels[held_out]).size
        assert any("rows kept apart" in words for words in model.decisions_)


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


# Groups through pipelines and searches.


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


X, Y, GROUPS = subjects(20, 10)


def small():
    return GPClassifier(n_inducing=6, n_neighbors=4, max_iter=3, random_state=0)


def scaled(groups):
    """The fit that a pipeline with a scaler should make."""
    return quietly(small(), StandardScaler().fit_transform(X), Y, groups=groups)


def assert_has_groups(model):
    assert model.query_score_ == scaled(GROUPS).query_score_
    assert model.query_score_ != scaled(None).query_score_


def test_pipeline_passes_groups_by_the_name_of_the_step():
    model = quietly(make_pipeline(StandardScaler(), small()), X, Y, gpclassifier__groups=GROUPS)
    assert_has_groups(model[-1])


@pytest.mark.usefixtures("routing")
def test_pipeline_routes_groups_that_are_requested():
    model = make_pipeline(StandardScaler(), small().set_fit_request(groups=True))
    assert_has_groups(quietly(model, X, Y, groups=GROUPS)[-1])


@pytest.mark.usefixtures("routing")
def test_search_routes_groups_to_the_splitter_and_to_the_fit():
    model = make_pipeline(StandardScaler(), small().set_fit_request(groups=True))
    search = GridSearchCV(model, {"gpclassifier__n_neighbors": [4]}, cv=GroupKFold(2))
    assert_has_groups(quietly(search, X, Y, groups=GROUPS).best_estimator_[-1])


@pytest.mark.usefixtures("routing")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_cross_validation_routes_the_groups_of_each_fold():
    model = small().set_fit_request(groups=True)
    options = {"cv": GroupKFold(2), "params": {"groups": GROUPS}}
    found = cross_validate(model, X, Y, **options, return_estimator=True, return_indices=True)
    for one, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        alone = quietly(small(), X[rows], Y[rows], groups=GROUPS[rows])
        assert one.query_score_ == alone.query_score_


@pytest.mark.usefixtures("routing")
def test_groups_that_are_not_requested_are_an_error():
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="groups"):
        make_pipeline(StandardScaler(), small()).fit(X, Y, groups=GROUPS)
