"""Fits with neighbours: what they keep, and what they do not depend on."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.model_selection import PredefinedSplit, TimeSeriesSplit
from support import fits
from support.fits import clone_of, failed_checks, losses, quietly, reloaded, warnings_of
from support.local import predicted
from support.reference import checkerboard, moons

import xgpc
from xgpc import GPClassifier

ROWS, LABELS = moons(300)
FRESH, _ = moons(80, seed=1)
fit = partial(fits.fit, n_inducing=16)


def small(X=ROWS, y=LABELS, **params):
    return fit(X, y, **{"n_inducing": 8, "n_neighbors": 10, **params})


@pytest.fixture(scope="module")
def fitted():
    return small()


def bits(model, X=FRESH):
    parts = [model.predict_proba(X), *model.predict_latent(X), *model.predict_latent(X, return_cov=True)]
    return [part.tobytes() for part in parts], str(model.kernel_), model.held_out_score_


def test_a_fit_has_neighbours(fitted):
    local = fitted.posterior_
    assert fitted.n_neighbors_ == local.n_neighbors == 10
    assert np.array_equal(local.X, ROWS)
    assert str(local.prior.spec.kernel) == str(fitted.kernel_)
    mean, variance = local.marginals(FRESH)
    assert np.array_equal([mean, variance], fitted.predict_latent(FRESH))
    score, error = fitted.held_out_score_
    assert -np.log(2.0) < score < 0.0
    assert error > 0.0
    assert fitted.score(FRESH, moons(80, seed=1)[1]) > 0.9


def test_given_rows_stay_the_users():
    """They can be written to, and what is written does not change the model."""
    X = ROWS.copy()
    model = small(X)
    before = bits(model)
    X[:] = 0.0
    assert bits(clone_of(model)) == bits(model) == before
    with pytest.raises(ValueError, match="read-only"):
        model.posterior_.X[0] = 0.0


def test_any_number_of_threads_gives_the_same_bits():
    """In several blocks of rows, with rows at equal distances."""
    rng = np.random.default_rng(0)
    X = np.round(2.0 * rng.normal(size=(2500, 6)))
    y = (np.sin(X[:, 0]) + X[:, 1] + rng.normal(size=2500) > 0.0).astype(int)
    one, two = (small(X, y, n_jobs=n_jobs, max_iter=3) for n_jobs in (1, 2))
    assert one.n_neighbors_ == 10
    assert bits(one, X[:200]) == bits(two, X[:200])
    for n_jobs in (2, 3):
        one.set_params(n_jobs=n_jobs)
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))


def test_files_with_rows_in_half_the_space(fitted, tmp_path):
    """Nearly the same; test_model_files has those of the same bits."""
    for dtype, name in ((None, "whole.npz"), ("float32", "half.npz")):
        fitted.save(tmp_path / name, dtype)
    whole, half = (np.load(tmp_path / name)["rows"].nbytes for name in ("whole.npz", "half.npz"))
    assert half == whole / 2
    loaded = GPClassifier.load(tmp_path / "half.npz")
    assert loaded.n_neighbors_ == 10
    assert loaded.posterior_.X.dtype == np.float32
    assert_allclose(loaded.predict_proba(FRESH), fitted.predict_proba(FRESH), atol=1e-4)


@pytest.mark.parametrize("size", [1e38, 1e39])
def test_rows_that_single_precision_cannot_hold(size, tmp_path):
    """What a file could not be read back from is not written."""
    model = small(ROWS * size / np.max(np.abs(ROWS)), kernel=C(4.0) * RBF(0.5 * size), optimizer=None, max_iter=2)
    model.save(tmp_path / "whole.npz")
    if size < 1e39:
        model.save(tmp_path / "half.npz", "float32")
        assert GPClassifier.load(tmp_path / "half.npz").n_neighbors_ == 10
        return
    with pytest.raises(ValueError, match=r"rows_dtype='float32' has no values of size 1e\+39; leave rows_dtype=None"):
        model.save(tmp_path / "half.npz", "float32")
    assert not (tmp_path / "half.npz").exists()


def test_the_bound_is_found_when_it_is_asked_for(tmp_path):
    X, y = np.vstack([ROWS, ROWS[:50]]), np.concatenate([LABELS, LABELS[:50]])
    model = small(X, y, mean=0.5)
    before = reloaded(model, tmp_path)
    params = {"optimizer": None, "inducing_points": model.inducing_points_, "n_neighbors": 0, "mean": 0.5}
    assert_allclose(model.elbo_, quietly(GPClassifier(model.kernel_, **params, tol=1e-9), X, y).elbo_, rtol=1e-4)
    assert_allclose(model.elbo(X, y), model.elbo_, rtol=1e-9)
    assert model.bound_gap() == 0.0
    assert clone_of(model).elbo_ == reloaded(model, tmp_path).elbo_ == model.elbo_
    assert_allclose(before.elbo_, model.elbo_, rtol=1e-9)


def test_rows_without_weight_are_not_there():
    weight = np.random.default_rng(0).integers(0, 3, 300).astype(float)
    kept = weight > 0.0
    groups = np.arange(300) // 5
    model = small(sample_weight=weight, groups=groups, max_iter=3)
    alone = small(ROWS[kept], LABELS[kept], sample_weight=weight[kept], groups=groups[kept], max_iter=3)
    assert bits(model) == bits(alone)
    assert len(model.posterior_.X) == kept.sum()
    assert bits(small(sample_weight=np.ones(300), max_iter=3)) == bits(small(max_iter=3))


def test_a_warm_start_without_neighbours_goes_on_from_what_was_learned_with_them():
    params = {"n_neighbors": 0, "optimizer": None}
    model = quietly(small(warm_start=True).set_params(**params), ROWS, LABELS)
    cold = fit(ROWS, LABELS, kernel=model.kernel_, inducing_points=model.inducing_points_, **params)
    assert model.n_neighbors_ == 0
    assert model.elbo_ == pytest.approx(cold.elbo_, rel=1e-4)


@pytest.mark.parametrize("length_scale", [1e-200, 1e200])
def test_length_scales_whose_squares_overflow(length_scale):
    """Nothing is near, or all rows are the same: fresh rows are as likely as by the prior."""
    log_proba = small(kernel=C(1.0) * RBF(length_scale), optimizer=None).predict_log_proba(FRESH)
    assert np.all(np.isfinite(log_proba))
    assert_allclose(log_proba, np.log(0.5), atol=0.05)


class TwoClasses(GPClassifier):
    """With a number of neighbours there can be no other."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def test_scikit_learns_own_checks():
    # Weights are repeated rows in the limit of many neighbours only; the refusal of more classes names what is allowed.
    others = {"check_sample_weight_equivalence_on_dense_data", "check_classifier_not_supporting_multiclass"}
    # Neighbours are not looked for among sparse rows.
    others |= {"check_estimator_sparse_tag", "check_sample_weight_equivalence_on_sparse_data"}
    assert failed_checks(TwoClasses(n_neighbors=5, max_iter=1)) == others


def test_many_neighbours_are_warned_of_their_cost(tuned):
    tuned(many_neighbors=20)
    X, y = moons(40)
    params = {"max_iter": 1, "optimizer": None}
    cost = r"n_neighbors=100: .*cube of the number of neighbours, here 40, .* 40 rows"
    with pytest.warns(UserWarning, match=cost) as caught:
        assert fit(X, y, n_neighbors=100, **params).n_neighbors_ == 40
    assert [one.filename.rpartition("/")[2] for one in caught] == ["fits.py"]
    # Tens are not many, and of few rows there are no more.
    assert fit(X, y, n_neighbors=20, **params).n_neighbors_ == 20
    assert fit(X[:20], y[:20], n_neighbors=100, **params).n_neighbors_ == 20


@pytest.mark.parametrize("random_state", range(3))
def test_labels_that_change_many_times_are_seen(random_state):
    model = fit(*checkerboard(2500, 0, 8, 0.05), n_inducing="auto", random_state=random_state)
    assert model.n_neighbors_ == 24
    assert losses(model, *checkerboard(2000, 1, 8, 0.05)).mean() < 0.4


def test_many_rows_with_a_given_kernel_have_the_neighbours_asked_for():
    X, y = moons(2200)
    options = {"kernel": C(4.0) * RBF(0.5), "optimizer": None, "n_neighbors": 10, "random_state": 0}
    model = GPClassifier(**options).fit(X, y)
    assert (model.n_neighbors_, model.kernel_) == (10, options["kernel"])
    again = GPClassifier(**options, inducing_points=model.inducing_points_).fit(X, y)
    assert_allclose(again.predict_proba(X[:50]), model.predict_proba(X[:50]), atol=1e-3)


def test_variances_have_the_factor():
    X, y = moons(60)
    model = fit(X, y, kernel=4.0 * RBF(0.5), optimizer=None, n_neighbors=10)
    posterior, T = model.posterior_, X[:7] + 0.1
    assert posterior.variance_scale == 1.0
    (mean, variance), covariance = posterior.marginals(T), posterior.covariance(T)
    object.__setattr__(posterior, "variance_scale", 0.3)
    assert np.array_equal(posterior.marginals(T)[0], mean)
    assert_allclose(posterior.marginals(T)[1], 0.3 * variance, rtol=1e-14)
    assert_allclose(posterior.covariance(T), 0.3 * covariance, rtol=1e-14)
    assert_allclose(model.predict_latent(T)[1], 0.3 * variance, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_rows", [1, 7, 9, 1100])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions_of_any_number_of_rows_follow_from_their_neighbourhoods(dtype, n_rows, n_classes):
    """Those of a row alone, of less and more rows than a register holds, of several parts; with any strides."""
    y = LABELS if n_classes == 2 else (ROWS[:, 0] > 0.0).astype(int) + LABELS
    q = small(y=y, kernel=4.0 * RBF([0.5, 0.8]), optimizer=None).posterior_
    assert q.n_neighbors == 10
    T = np.random.default_rng(0).normal(size=(n_rows, 4)).astype(dtype)[:, ::2]
    mean, variance = predicted(q.at(T), q)
    found = np.reshape(q.marginals(T), (2, -1, n_rows))
    assert_allclose(found[0], mean, rtol=1e-9, atol=1e-10)
    assert_allclose(found[1], q.variance_scale * variance, rtol=1e-9)


@pytest.mark.parametrize("n_neighbors", ["auto", 24])
def test_sites_that_go_on_leave_what_is_learned_without(n_neighbors, monkeypatch):
    X, y = checkerboard(2100, 0, 8, 0.05)
    expected = fit(X, y, kernel=C(2.0) * RBF([0.1, 0.1]), n_neighbors=0)
    converged = xgpc.inference.sweeps.converged_sites

    def never(*args):
        return converged(*args)._replace(converged=False)

    monkeypatch.setattr("xgpc.learning.all_rows.converged_sites", never)
    model = GPClassifier(C(2.0) * RBF([0.1, 0.1]), n_inducing=16, n_neighbors=n_neighbors, random_state=0)
    # It is no surprise to who did not ask for neighbours.
    said = [text for text in warnings_of(model, X, y) if "did not converge" in text]
    assert len(said) == (n_neighbors != "auto")
    # What it advises is of use there.
    assert all("Bound its variance" in one and "raise max_iter" not in one for one in said)
    assert "did not converge" in [value for value in model.history_["decision"] if value][-1]
    assert model.n_neighbors_ == 0
    # Learned from other random parts of the rows.
    assert_allclose(model.elbo_, expected.elbo_, rtol=0.02)


def test_with_a_splitter_held_out_rows_are_predicted_from_the_other_rows_alone():
    """Rows in the order of time: the nearest rows of a held-out row are held out, too, and must not take its places."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 12.0, (240, 1)), axis=0)
    y = (np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=240) > 0.0).astype(int)
    given = {"kernel": C(4.0) * RBF(0.7), "optimizer": None, "inducing_points": X[::60], "n_neighbors": 8}
    split, (others, held_out) = TimeSeriesSplit(12), list(TimeSeriesSplit(12).split(X))[-1]
    whole = fit(X, y, held_out_split=split, **given)
    alone, sparse = (fit(X[others], y[others], **given | {"n_neighbors": k}) for k in (8, 0))
    expected, of_sparse = (-losses(model, X[held_out], y[held_out]).mean() for model in (alone, sparse))
    # Sweeps end within .003 nats.
    assert whole.held_out_score_[0] == pytest.approx(expected, abs=5e-3)
    assert abs(of_sparse - expected) > 0.02


def test_features_whose_distances_underflow_count_as_constant():
    model = small(ROWS * 1e-295)
    assert_allclose(model.predict_proba(FRESH * 1e-295)[:, 1], np.mean(model.classes_[1] == LABELS), atol=0.02)


@pytest.mark.parametrize("splitter", [TimeSeriesSplit(5, gap=30), PredefinedSplit(np.arange(210) // 70)], ids=str)
def test_a_splitter_of_all_rows_need_not_divide_fewer(splitter):
    assert fit(*moons(210), n_neighbors=5, held_out_split=splitter, max_iter=3).held_out_score_ is not None
