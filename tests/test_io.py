"""Models as files, pickles and values."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.reference import moons

from xgpc import GPClassifier


def test_saved_models_predict_the_same_bits(tmp_path):
    X, y = moons()
    for labels in (y, y.astype(bool), np.array(["no", "yes"])[y], np.array(["no", "yes"], dtype=object)[y]):
        kernel = ConstantKernel(2.0, (0.1, 1e4)) * RBF([1.0, 2.0]) + WhiteKernel(0.1, "fixed")
        weights = dict(zip(np.unique(labels).tolist(), (1.0, 2.0), strict=True))
        model = GPClassifier(kernel, n_inducing=15, learning_rate=(2.0, 0.7), class_weight=weights, random_state=3).fit(
            X, labels
        )
        model.save(tmp_path / "model.npz")
        loaded = GPClassifier.load(tmp_path / "model.npz")
        assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
        assert np.array_equal(loaded.predict(X), model.predict(X))
        assert loaded.predict(X).dtype == model.predict(X).dtype
        assert loaded.kernel_ == model.kernel_
        assert loaded.elbo_ == model.elbo_
        assert loaded.__repr__(N_CHAR_MAX=10**6) == model.__repr__(N_CHAR_MAX=10**6)
        assert loaded.class_weight == model.class_weight
        assert np.array_equal(loaded.history_["elbo"], model.history_["elbo"], equal_nan=True)
        assert loaded.fit(X, labels).classes_.tolist() == model.classes_.tolist()


def test_files_that_are_no_models_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").touch()
    for name in ("other.npz", "text.npz", "empty.npz"):
        with pytest.raises(ValueError, match="is not a model saved by"):
            GPClassifier.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        GPClassifier.load(tmp_path / "none.npz")
    with pytest.raises(NotFittedError):
        GPClassifier().save(tmp_path / "unfitted.npz")
    assert not (tmp_path / "unfitted.npz").exists()


def test_a_fitted_model_is_a_value():
    """Neither its arrays nor later parameters change what it says."""
    X, y = moons()
    model = GPClassifier(n_inducing=10, optimizer=None, random_state=0).fit(X, y)
    proba, bound = model.predict_proba(X), model.elbo(X, y)
    model.set_params(bound="polya-gamma", likelihood="other")
    model.inducing_points_ += 1.0
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), proba)
    assert model.elbo(X, y) == bound
    with pytest.raises(ValueError, match="read-only"):
        model.posterior_.h[0] = 1.0


def test_pickle_round_trip():
    X, y = moons()
    model = GPClassifier(n_inducing=10, random_state=0).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


def test_models_with_damaged_arrays_are_refused(tmp_path):
    X, y = moons(60)
    path = tmp_path / "model.npz"
    GPClassifier(n_inducing=5, optimizer=None, random_state=0).fit(X, y).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    for damage in (
        {"eta": np.eye(4)}, {"eta": -np.eye(5)}, {"h": np.zeros(3)}, {"Z": np.array(1.0)},
        {"Z": np.full((5, 2), np.nan)}, {"classes": np.arange(3)}, {"feature_names": np.array(["a"])},
        {"header": "{}"}, {"header": "["},
    ):  # fmt: skip
        np.savez(path, **(arrays | damage))
        with pytest.raises(ValueError, match="is not a model saved by"):
            GPClassifier.load(path)
