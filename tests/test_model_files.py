"""Model files that are damaged or made to harm: each is refused, or predicts the same bits."""

import copy
import io
import math
import struct
import warnings
import zipfile
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.archives import read, write
from support.fits import peak_bytes, quietly, reloaded
from support.fits import refuses as refused_with
from support.frames import named
from support.reference import moons

from xgpc import GPClassifier

X, TWO = moons(24)
THREE = TWO + (X[:, 0] > 1.0)
SHORT = {"max_iter": 3, "random_state": 0}
KERNEL = ConstantKernel(2.0, (0.1, 1e4)) * RBF([1.0, 2.0]) + WhiteKernel(0.1, "fixed")
MODELS = {
    "sparse": (
        GPClassifier(KERNEL, n_inducing=5, class_weight={"no": 1.0, "yes": 2.0}, **SHORT),
        np.array(["no", "yes"], dtype=object)[TWO],
    ),
    "several classes": (GPClassifier(n_inducing=4, class_weight={0: 1.0, 1: 2.0, 2: 3.0}, **SHORT), THREE),
    "one kernel each": (GPClassifier(n_inducing=4, share="none", **SHORT), np.array(["a", "b", "c"])[THREE]),
    "full": (GPClassifier(RBF() ** 2, inducing_points="all", **SHORT), TWO.astype(bool)),
    "corrected": (GPClassifier(inducing_points=X[:4], bound="polya-gamma", mean=0.5, **SHORT), TWO),
    "neighbours": (GPClassifier(n_neighbors=5, n_inducing=4, precision="mixed", **SHORT), TWO),
    "mixed": (GPClassifier(precision="mixed", n_inducing=4, **SHORT), TWO),
    "rates": (GPClassifier(likelihood="psychometric", guess_rate="learn", lapse_rate=0.1, n_inducing=4, **SHORT), TWO),
    "noisy": (GPClassifier(likelihood="multinomial-step", n_inducing=4, learning_rate=(2.0, 0.7), **SHORT), THREE),
}
FLIPPED = 900
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path, contents = tmp_path_factory.mktemp("models") / "model.npz", {}
    for name, (model, y) in MODELS.items():
        quietly(model, named(X) if name == "several classes" else X, y).save(path)
        contents[name] = path.read_bytes()
    return contents


def load(tmp_path, content):
    (tmp_path / "model.npz").write_bytes(content)
    return GPClassifier.load(tmp_path / "model.npz")


def rows(model):
    return named(X, model.feature_names_in_) if hasattr(model, "feature_names_in_") else X


def bits(model):
    corrected = [model.predict_proba(X, corrected=True)] if model.bound == "polya-gamma" else []
    T = rows(model)
    said = [model.predict_proba(T), *model.predict_latent(T), model.predict(T).astype(str), *corrected]
    arrays = [array.tobytes() for array in (*said, *(column for _, column in sorted(model.history_.items())))]
    elbo = None if model.n_neighbors_ else model.elbo_
    facts = model.kernel_, elbo, model.n_iter_, model.converged_, model.classes_, model.classes_.dtype, model.summary()
    return arrays, repr(facts), model.__repr__(N_CHAR_MAX=10**6)


def refuses(tmp_path, content, reason=""):
    """ValueError, without memory beyond the file's size."""
    (tmp_path / "model.npz").write_bytes(content)
    message = rf"is not a model saved by GPClassifier\.save: .*{reason}"
    peak, _ = peak_bytes(refused_with, message, GPClassifier.load, tmp_path / "model.npz")
    assert peak < len(content) + 100 * MEGABYTE


def test_files_are_read_as_they_were_written(files, tmp_path):
    for name, content in files.items():
        model = load(tmp_path, content)
        assert bits(model) == bits(MODELS[name][0])
        assert model.class_weight == MODELS[name][0].class_weight
        model.save(tmp_path / "again.npz")
        assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()
        labels = MODELS[name][1]
        assert quietly(model, rows(model), labels).classes_.tolist() == np.unique(labels).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_flipped_bytes_are_refused_or_do_no_harm(files, tmp_path, name):
    content, rng = files[name], np.random.default_rng(len(name))
    expected = bits(MODELS[name][0])
    # Half of them outside the arrays, where there is no checksum.
    is_frame = np.ones(len(content), dtype=bool)
    for info in zipfile.ZipFile(io.BytesIO(content)).infolist():
        is_frame[info.header_offset + 180 : info.header_offset + 180 + info.file_size - 128] = False
    frames = np.flatnonzero(is_frame)
    refused = 0
    for trial in range(FLIPPED // len(MODELS)):
        damaged = bytearray(content)
        for _ in range(1 + trial % 3):
            place = rng.choice(frames) if trial % 2 else rng.integers(len(content))
            damaged[place] ^= rng.integers(1, 256)
        try:
            model = load(tmp_path, bytes(damaged))
        except ValueError:
            refused += 1
            continue
        assert bits(model) == expected
    # Dates in the archive and the like do not matter.
    assert refused > 0.6 * FLIPPED / len(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_truncated_files_are_refused(files, tmp_path, name):
    for size in np.linspace(0, len(files[name]) - 1, 60).astype(int):
        refused_with("is not a model saved by", load, tmp_path, files[name][:size])


def test_files_that_are_no_models_are_refused(files, tmp_path):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    for content in ((tmp_path / "other.npz").read_bytes(), b"hello", b""):
        refuses(tmp_path, content)
    refused_with("none.npz", GPClassifier.load, tmp_path / "none.npz", error=FileNotFoundError)
    refused_with("not fitted", GPClassifier().save, tmp_path / "unfitted.npz", error=NotFittedError)
    assert not (tmp_path / "unfitted.npz").exists()


JUNK = (None, True, -1, 0, 7, 1e300, 10**400, math.nan, math.inf, "", "x", [], [[]], {}, {"type": "RBF"}, [1, "a"])


def paths(value, path=()):
    """Every place in a header."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


def changed(header, path, *values):
    """A header with another value at a place, or with none."""
    header = copy.deepcopy(header)
    place = reduce(getitem, path[:-1], header)
    if values:
        place[path[-1]] = values[0]
    else:
        del place[path[-1]]
    return header


@pytest.mark.parametrize("name", MODELS)
def test_any_field_may_be_junk(files, tmp_path, name):
    """It is refused, or harmless: probabilities are numbers that sum to one."""
    header, arrays = read(files[name])
    # Each kind of junk in turn, from another one for each model.
    first = 3 * list(MODELS).index(name)
    for i, path in enumerate(list(paths(header))[1:], first):
        for junk in ([JUNK[i % len(JUNK)]], []):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    model = load(tmp_path, write(changed(header, path, *junk), arrays))
                    # Kernels of huge variance raise an error that names the row.
                    probabilities = model.predict_proba(rows(model))
            except ValueError:
                continue
            np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-9)
            assert set(model.predict(rows(model))) <= set(model.classes_)
            assert model.n_neighbors_ or math.isfinite(model.elbo_)


BAD_FIELDS = {
    "exponent": ("full", ["kernels", 0, "exponent"], 10**9, "multiplies out"),
    "unknown kernel": ("full", ["kernels", 0, "type"], "CompoundKernel", "CompoundKernel"),
    "negative length scale": ("several classes", ["kernels", 0, "k2", "length_scale"], [-1.0, 1.0], "positive"),
    "no number of length scales": ("several classes", ["kernels", 0, "k2", "length_scale"], [1.0] * 3, "length"),
    "unknown bound": ("sparse", ["likelihood_and_bound"], ["logit", "lower"], "bound must be"),
    "bound that is none": ("sparse", ["likelihood_and_bound"], ["logit", "auto"], "likelihood_and_bound"),
    "likelihood of two classes": ("several classes", ["likelihood_and_bound"], ["probit", "exact"], "two classes"),
    "likelihood of more latent functions": ("sparse", ["likelihood_and_bound"], ["softmax", "exact"], "do not fit"),
    "text for a number": ("sparse", ["n_iter_"], "3", "its n_iter_ is not valid: '3'"),
    "text for truth": ("sparse", ["converged_"], "yes", "its converged_ is not valid: 'yes'"),
    "number for truth": ("sparse", ["full"], 0, "its full is not valid: 0"),
    "other format": ("sparse", ["format"], 3, "its format is 3, but this version reads 'xgpc model 10'"),
    "too few kernels": ("one kernel each", ["kernels"], [], r"its kernels are \[\]"),
    "a number of kernels": ("sparse", ["kernels"], 5, "its kernels are 5"),
    "a negative number of rows": ("sparse", ["n_samples_seen_"], -5, "its n_samples_seen_ must be an integer that is"),
    "a negative number of iterations": ("neighbours", ["n_iter_"], -5, "its n_iter_ must be an integer that is not"),
    "a class weight that is none": ("sparse", ["parameters", "class_weight"], "x", "class_weight must be 'balanced'"),
    "a kernel that is none": ("sparse", ["parameters", "kernel"], -1, "kernel"),
    "no means": ("sparse", ["parameters", "mean"], [], "mean must be"),
    "unknown field": ("sparse", ["colour"], "red", "its colour is not valid"),
    "unknown parameter": ("sparse", ["parameters", "colour"], "red", "colour"),
    "class weight": ("sparse", ["parameters", "class_weight"], {"no": 1.0}, "its parameters is not valid"),
    "tolerance": ("sparse", ["parameters", "tol"], -1.0, "tol must be"),
    "unknown precision": ("mixed", ["precision"], "half", "half"),
    "precision of a full process": ("full", ["precision"], "mixed", "precision"),
    "full with batches": ("full", ["parameters", "batch_size"], 10, "full Gaussian process"),
    "one number of a score": ("neighbours", ["held_out_score_"], [-0.5], ""),
    "three numbers of a score": ("neighbours", ["held_out_score_"], [-0.5, 0.1, 0.2], "held_out_score_ is not valid"),
    "a number for a score": ("neighbours", ["held_out_score_"], 0.5, ""),
    "text for a number beside rows": ("neighbours", ["n_iter_"], "many", ""),
    "too many neighbours": ("neighbours", ["neighbors"], 25, "neighbours"),
}  # fmt: skip


@pytest.fixture
def before_work(monkeypatch):
    """What can be looked at is refused before anything is computed."""
    return lambda: monkeypatch.setattr("xgpc.io.SparsePrior.build", lambda *given: pytest.fail("computed the prior"))


@pytest.mark.parametrize("kind", BAD_FIELDS)
def test_crafted_headers_are_refused(files, tmp_path, kind, before_work):
    if kind in ("a number for a score", "text for a number beside rows"):
        before_work()
    name, path, value, reason = BAD_FIELDS[kind]
    header, arrays = read(files[name])
    refuses(tmp_path, write(changed(header, path, value), arrays), reason)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -1e300])
def test_numbers_that_are_not_finite_or_too_large_are_refused(files, tmp_path, name, number):
    header, arrays = read(files[name])
    floats = [key for key, a in arrays.items() if a.dtype.kind == "f" and not key.startswith("history_")]
    assert {"Z", "mean", "feature_mean_"} <= set(floats)
    for key in floats:
        damaged = arrays[key].copy()
        damaged.flat[-1] = number
        refuses(tmp_path, write(header, arrays | {key: damaged}), key)


BAD_ARRAYS = {
    "unknown": ("sparse", {"extra": np.zeros(3)}, "its arrays are"),
    "large and unknown": ("sparse", {"extra": np.zeros(12 * MEGABYTE)}, "its arrays are"),
    "large": ("sparse", {"h": np.zeros(12 * MEGABYTE)}, "do not fit"),
    "other shapes": ("full", {"eta": np.eye(24)[None]}, "do not fit"),
    "correction of an exact bound": ("sparse", {"correction_linear": np.zeros(5)}, "its arrays are"),
    "reversed classes": ("several classes", {"classes": np.array([2, 1, 0])}, "order of its classes"),
    "equal classes": ("several classes", {"classes": np.array([0, 1, 1])}, "order of its classes"),
    "NaN as a class": ("several classes", {"classes": np.array([0.0, 1.0, np.nan])}, "classes"),
    "one class": ("sparse", {"classes": np.array(["no"])}, "class"),
    "table of classes": ("sparse", {"classes": np.array([["no"], ["yes"]])}, "do not fit"),
    "numbers for names": ("sparse", {"classes": np.array([0, 1])}, "has_objects_as_labels"),
    "label noise 0": ("noisy", {"label_noise": np.float64(0.0)}, "label_noise"),
    "label noise of guessing": ("noisy", {"label_noise": np.float64(0.667)}, "label_noise"),
    "a sum of rates": ("rates", {"guess_rate": np.float64(0.95)}, "guess_rate"),
    "a negative rate": ("rates", {"lapse_rate": np.float64(-0.1)}, "lapse_rate"),
    "no lapse rate": ("rates", {"lapse_rate": np.zeros(2)}, "do not fit"),
    "label noise where there is none": ("sparse", {"label_noise": np.float64(0.1)}, "its arrays are"),
    "complex": ("sparse", {"h": np.zeros(5, dtype=complex)}, "not of numbers"),
    "objects": ("sparse", {"h": np.array([None] * 5)}, "not of numbers"),
    "single precision": ("sparse", {"h": np.zeros((1, 5), dtype=np.float32)}, "do not fit"),
    "no rows": ("sparse", {"Z": np.zeros((1, 0, 2)), "eta": np.zeros((1, 0, 0)), "h": np.zeros((1, 0))}, ""),
    "no axes": ("sparse", {"Z": np.array(1.0)}, ""),
    "features without names": ("several classes", {"feature_names": np.array(["a"])}, "do not fit"),
    "numbers of features": ("several classes", {"feature_names": np.array([1, 2])}, "do not fit"),
    "two means": ("corrected", {"mean": np.zeros(2)}, "do not fit"),
    "not positive definite": ("sparse", {"eta": -np.eye(5)[None]}, "positive definite"),
    "negative covariance": ("neighbours", {"whitened_covariance": -np.eye(4)[None]}, "whitened_covariance"),
    "above the prior's": ("neighbours", {"whitened_covariance": 2.0 * np.eye(4)[None]}, "whitened_covariance"),
    "huge weights": ("neighbours", {"row_weights": np.full(24, 1e13)}, "'row_weights' has numbers"),
    "negative weights": ("neighbours", {"row_weights": np.full(24, -1.0)}, "'row_weights' has numbers"),
    "negative precision": ("neighbours", {"site_precision": np.full((1, 24), -1.0)}, "'site_precision' has numbers"),
    "labels of no class": ("neighbours", {"row_labels": np.zeros(24)}, ""),
    "negative counts": ("sparse", {"class_count_": np.array([-1.0, 25.0])}, "'class_count_' has numbers"),
    "no counts": ("sparse", {"class_count_": np.zeros(2)}, "class_count_ has no rows"),
    "half a class": ("several classes", {"classes": np.array([0.0, 0.5, 1.0])}, "its classes are not whole numbers"),
    "an infinite class": ("several classes", {"classes": np.array([0.0, 1.0, np.inf])}, "'classes' has numbers"),
    "no counts beside rows": ("neighbours", {"class_count_": np.zeros(2)}, ""),
    "history of no rows": ("neighbours", {"history_n_rows": np.zeros(0)}, ""),
    "history of other rows": ("sparse", {"history_elbo": np.zeros(2)}, "its history_ has a column 'elbo' of shape"),
    "history of a number": ("sparse", {"history_elbo": np.array(1.0)}, "its history_ has a column 'elbo' of shape"),
    "table in a history": ("several classes", {"history_decision": np.full((9, 2), "a")}, "has a column 'decision' of"),
    "history without rows": ("sparse", {"history_n_rows": np.full(10**3, np.nan)}, "its history_ has a column .* of"),
    "not symmetric": ("neighbours", {"whitened_covariance": np.tri(4)[None]}, "whitened_covariance"),
    "too many": ("sparse", {f"history_{i}": np.zeros(1) for i in range(60)}, "too many"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_crafted_arrays_are_refused(files, tmp_path, kind, before_work):
    if kind not in ("numbers for names", "no rows", "not positive definite"):
        before_work()
    name, others, reason = BAD_ARRAYS[kind]
    header, arrays = read(files[name])
    refuses(tmp_path, write(header, arrays | others), reason)


@pytest.mark.parametrize("name", ["sparse", "neighbours"])
def test_a_history_without_a_column_is_refused_or_does_no_harm(files, tmp_path, name):
    header, arrays = read(files[name])
    columns = [key for key in arrays if key.startswith("history_")]
    assert {"history_n_rows", "history_elbo"} <= {*columns}
    for column in columns:
        others = {key: array for key, array in arrays.items() if key != column}
        content = write({**header, "arrays": sorted(others)}, others)
        if column == "history_n_rows":
            refuses(tmp_path, content, "its history_ ")
        else:
            assert load(tmp_path, content).summary()
    n_rows = arrays["history_n_rows"].astype(float)
    for wrong in (-n_rows, np.append(n_rows[:-1], np.nan)):
        refuses(tmp_path, write(header, arrays | {"history_n_rows": wrong}), "does not say how many rows the fit had")


def test_a_covariance_of_rank_zero_can_be_explained(files, tmp_path):
    header, arrays = read(files["neighbours"])
    model = load(tmp_path, write(header, arrays | {"whitened_covariance": np.zeros((1, 4, 4))}))
    assert "neighbours" in model.summary()


def test_a_tree_of_many_kernels_is_refused(files, tmp_path):
    header, arrays = read(files["noisy"])
    tree = {"type": "RBF", "length_scale": 1.0, "length_scale_bounds": "fixed"}
    for _ in range(8):
        tree = {"type": "Sum", "k1": tree, "k2": tree}
    refuses(tmp_path, write({**header, "kernels": [tree]}, arrays), "composed of more than 256 kernels")


def archive_of(members, compression=zipfile.ZIP_STORED):
    """An archive of (name, bytes), names as given."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def members_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(shape, dtype="<f8", data=b"", version=b"\x01\x00"):
    """An array's bytes with any header."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def test_archives_that_savez_does_not_write_are_refused(files, tmp_path):
    members = members_of(files["sparse"])
    load(tmp_path, archive_of(members.items()))
    zeros = {"zeros.npy": npy((10**7,), "<f8", bytes(8 * 10**7))}
    refuses(tmp_path, archive_of((members | zeros).items(), zipfile.ZIP_DEFLATED), "longer than the file")
    refuses(tmp_path, archive_of((members | {"notes.txt": b"hello"}).items()))
    refuses(tmp_path, archive_of([("a/" * 50 + f"{i}.npy", b"") for i in range(3000)]))
    refuses(tmp_path, archive_of([(f"{i}.npy", b"") for i in range(65)]), "65 arrays")


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (npy((10**12,)), "not as long as its shape says"),
        (npy((10**100,)), "not as long as its shape says"),
        (npy((10**400,)), ""),
        (npy((2**62, 2**62)), "not as long as its shape says"),
        (npy((-1,)), "not of numbers"),
        (npy((5,), "|O", b"." * 40), "not of numbers"),
        (npy((5,), "<U0"), "not of numbers"),
        (npy((1,), f"<U{2**23}", bytes(2**25)), "not of numbers"),
        (npy((5,), "<f8", b"\0" * 41), "not as long as its shape says"),
        (npy((5,), "<f8", b"\0" * 40, b"\x02\x00"), "not of numbers"),
        (npy("[5]", "<f8", b"\0" * 40), ""),
        (npy("(" * 100, "<f8"), ""),
        (npy("-" * 5000 + "1"), ""),
        (npy("5", [("a", "<f8")] * 30), ""),
        (b"", ""),
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(files, tmp_path, array, reason):
    refuses(tmp_path, archive_of((members_of(files["sparse"]) | {"h.npy": array}).items()), reason)


# Model files of every format that a release wrote are read, and predict what they did: see tools/golden_models.py.
FOLDER, EXPECTED = Path(__file__).parent / "models", "expected_probabilities.npz"
FILES = sorted(path for path in FOLDER.glob("format_*/*.npz") if path.name != EXPECTED)
# Of probabilities, between machines: factors of covariance matrices are made anew.
ATOL = 1e-8


def test_the_present_format_has_files(files):
    assert f"format_{read(files['sparse'])[0]['format'].split()[-1]}" in {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_saved_models_are_read(path, tmp_path):
    model = GPClassifier.load(path)
    with np.load(path.parent / EXPECTED) as archive:
        X, expected = archive["rows"], archive[path.stem]
    if hasattr(model, "feature_names_in_"):
        X = named(X, model.feature_names_in_)
    found = model.predict_proba(X)
    assert ("held-out rows" if model.n_neighbors_ else "bound (ELBO)") in model.summary()
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=ATOL)
    np.testing.assert_array_equal(reloaded(model, tmp_path).predict_proba(X), found)
