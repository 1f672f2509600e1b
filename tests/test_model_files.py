"""Model files that are damaged or made to harm: each is refused, or predicts the same bits."""

import copy
import io
import json
import math
import os
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support.frames import named
from support.reference import moons

from xgpc import GPClassifier
from xgpc.archive import CHUNK, Archive
from xgpc.kernels.spec import KERNELS

X, TWO = moons(24)
THREE = TWO + (X[:, 0] > 1.0)
SHORT = {"max_iter": 3, "random_state": 0}
MODELS = {
    "sparse": (
        GPClassifier(ConstantKernel(2.0) * RBF([1.0, 2.0]) + WhiteKernel(0.1, "fixed"), n_inducing=5, **SHORT),
        np.array(["no", "yes"], dtype=object)[TWO],
    ),
    "several classes": (GPClassifier(n_inducing=4, class_weight={0: 1.0, 1: 2.0, 2: 3.0}, **SHORT), THREE),
    "one kernel each": (GPClassifier(n_inducing=4, share="none", **SHORT), THREE),
    "full": (GPClassifier(RBF() ** 2, inducing_points="all", **SHORT), TWO.astype(bool)),
    "corrected": (GPClassifier(inducing_points=X[:4], bound="polya-gamma", **SHORT), TWO),
    "neighbours": (GPClassifier(n_neighbors=5, n_inducing=4, **SHORT), TWO),
    "mixed": (GPClassifier(precision="mixed", n_inducing=4, **SHORT), TWO),
    "noisy": (GPClassifier(likelihood="multinomial-step", n_inducing=4, learning_rate=(2.0, 0.7), **SHORT), THREE),
}
FLIPPED = 900
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The bytes of every model's file."""
    folder = tmp_path_factory.mktemp("models")
    contents = {}
    for name, (model, y) in MODELS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(named(X) if name == "several classes" else X, y).save(folder / "model.npz")
        contents[name] = (folder / "model.npz").read_bytes()
    return contents


def load(tmp_path, content):
    (tmp_path / "model.npz").write_bytes(content)
    return GPClassifier.load(tmp_path / "model.npz")


def rows(model):
    return named(X, model.feature_names_in_) if hasattr(model, "feature_names_in_") else X


def bits(model):
    """All that a model says, as bytes."""
    corrected = [model.predict_proba(X, corrected=True)] if model.bound == "polya-gamma" else []
    columns = sorted(model.history_.items())
    T = rows(model)
    said = [model.predict_proba(T), *model.predict_latent(T), model.predict(T).astype(str), *corrected]
    settings = (
        model.kernel_,
        None if model.n_neighbors_ else model.elbo_,
        model.n_iter_,
        model.converged_,
        model.classes_.tolist(),
    )
    arrays = [array.tobytes() for array in (*said, *(column for _, column in columns))]
    return arrays, repr(settings), model.__repr__(N_CHAR_MAX=10**6)


def read(content):
    """Header and arrays of a file."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    return json.loads(str(arrays.pop("header"))), arrays


def write(header, arrays):
    buffer = io.BytesIO()
    text = header if isinstance(header, str) else json.dumps(header)
    np.savez(buffer, header=text, **arrays)
    return buffer.getvalue()


def assert_refused(tmp_path, content, reason=""):
    """ValueError, without memory beyond the file's size."""
    (tmp_path / "model.npz").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"is not a model saved by GPClassifier\.save: .*{reason}"):
            GPClassifier.load(tmp_path / "model.npz")
        assert tracemalloc.get_traced_memory()[1] < len(content) + 100 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_files_are_read_as_they_were_written(files, tmp_path):
    for name, content in files.items():
        model = load(tmp_path, content)
        assert bits(model) == bits(MODELS[name][0])
        assert isinstance(model.inducing_points, str | np.ndarray)
        model.save(tmp_path / "again.npz")
        assert bits(GPClassifier.load(tmp_path / "again.npz")) == bits(model)


@pytest.mark.parametrize("name", MODELS)
def test_flipped_bytes_are_refused_or_do_no_harm(files, tmp_path, name):
    content, rng = files[name], np.random.default_rng(len(name))
    expected = bits(MODELS[name][0])
    # Half of them in what is no number of an array: there no checksum helps.
    numbers = np.zeros(len(content), dtype=bool)
    for info in zipfile.ZipFile(io.BytesIO(content)).infolist():
        numbers[info.header_offset + 180 : info.header_offset + 180 + info.file_size - 128] = True
    frames = np.flatnonzero(~numbers)
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
    # Times of day in the archive and the like do not matter.
    assert refused > 0.6 * FLIPPED / len(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_truncated_files_are_refused(files, tmp_path, name):
    content = files[name]
    for size in np.linspace(0, len(content) - 1, 60).astype(int):
        with pytest.raises(ValueError, match="is not a model saved by"):
            load(tmp_path, content[:size])


def test_files_without_later_parameters_have_their_defaults(files, tmp_path):
    header, arrays = read(files["sparse"])
    for name in ("max_time", "keep_on_interrupt"):
        del header["parameters"][name]
    model = load(tmp_path, write(header, arrays))
    assert model.max_time is None
    assert model.keep_on_interrupt is False
    assert model.checkpoint is None


JUNK = (None, True, -1, 0, 7, 1e300, 10**400, math.nan, math.inf, "", "x", [], [[]], {}, {"type": "RBF"}, [1, "a"])


def paths(value, path=()):
    """Every place in a header."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


@pytest.mark.parametrize("name", MODELS)
def test_any_field_may_be_junk(files, tmp_path, name):
    """It is refused, or harmless: probabilities are numbers that sum to one."""
    header, arrays = read(files[name])
    # Each kind of junk in turn, from another one for each model.
    first = 3 * list(MODELS).index(name)
    for i, path in enumerate(list(paths(header))[1:], first):
        for junk in (i % len(JUNK), "removed"):
            changed = copy.deepcopy(header)
            place = changed
            for key in path[:-1]:
                place = place[key]
            if isinstance(junk, str) and junk == "removed":
                del place[path[-1]]
            else:
                place[path[-1]] = JUNK[junk]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    model = load(tmp_path, write(changed, arrays))
                    # Of a kernel of huge variance there is an error that names the row.
                    probabilities = model.predict_proba(rows(model))
            except ValueError:
                continue
            np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-9)
            assert set(model.predict(rows(model))) <= set(model.classes_)
            assert model.n_neighbors_ or math.isfinite(model.elbo_)


BAD_FIELDS = {
    "exponent": ("full", ["kernels", 0, "exponent"], 10**9, "multiplies out"),
    "exponent of the start kernel": ("full", ["parameters", "kernel", "exponent"], [], "exponent"),
    "unknown kernel": ("full", ["kernels", 0, "type"], "CompoundKernel", ""),
    "negative length scale": ("several classes", ["kernels", 0, "k2", "length_scale"], [-1.0, 1.0], "positive"),
    "no number of length scales": ("several classes", ["kernels", 0, "k2", "length_scale"], [1.0] * 3, "length"),
    "unknown bound": ("sparse", ["resolved"], ["logit", "lower"], "likelihood and bound"),
    "bound that is none": ("sparse", ["resolved"], ["logit", "auto"], "likelihood and bound"),
    "likelihood of two classes": ("several classes", ["resolved"], ["probit", "exact"], "do not fit"),
    "likelihood of more latent functions": ("sparse", ["resolved"], ["softmax", "exact"], "do not fit"),
    "label noise 7": ("noisy", ["label_noise"], 7, "label_noise"),
    "label noise 0": ("noisy", ["label_noise"], 0.0, "label_noise"),
    "label noise of guessing": ("noisy", ["label_noise"], 0.667, "label_noise"),
    "no label noise": ("noisy", ["label_noise"], None, "label_noise"),
    "label noise where there is none": ("sparse", ["label_noise"], 0.1, "label_noise"),
    "bound gap where there is none": ("noisy", ["bound_gap"], 0.1, "bound_gap"),
    "infinite bound": ("sparse", ["elbo"], math.inf, "elbo"),
    "text for the bound": ("sparse", ["elbo"], "-1", "elbo"),
    "no iterations": ("sparse", ["n_iter"], 0, "n_iter"),
    "text for truth": ("sparse", ["converged"], "yes", "converged"),
    "other format": ("sparse", ["format"], 3, "its format is 3, this version reads 7"),
    "too few kernels": ("one kernel each", ["kernels"], [], "kernels"),
    "unknown parameter": ("sparse", ["parameters", "colour"], "red", "parameters"),
    "random state": ("sparse", ["parameters", "random_state"], -1, "random_state"),
    "class weight": ("sparse", ["parameters", "class_weight"], [["no", -1.0]], "class_weight"),
    "tolerance": ("sparse", ["parameters", "tol"], -1.0, "tol must be"),
    "optimizer": ("sparse", ["parameters", "optimizer"], "sgd", "optimizer must be"),
    "unknown precision": ("mixed", ["precision"], "half", "precision"),
    "precision of a full process": ("full", ["precision"], "mixed", "precision"),
    "full with batches": ("full", ["parameters", "batch_size"], 10, "full Gaussian process"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_FIELDS)
def test_crafted_headers_are_refused(files, tmp_path, kind):
    name, path, value, reason = BAD_FIELDS[kind]
    header, arrays = read(files[name])
    place = header
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert_refused(tmp_path, write(header, arrays), reason)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(files, tmp_path, name, number):
    header, arrays = read(files[name])
    floats = [key for key, a in arrays.items() if a.dtype == np.float64 and not key.startswith("history_")]
    assert {"Z", "eta", "h"} <= set(floats)
    for key in floats:
        damaged = arrays[key].copy()
        damaged.flat[-1] = number
        assert_refused(tmp_path, write(header, arrays | {key: damaged}), key)


BAD_ARRAYS = {
    "unknown": ("sparse", {"extra": np.zeros(3)}, "its arrays are"),
    "large and unknown": ("sparse", {"extra": np.zeros(12 * MEGABYTE)}, "its arrays are"),
    "large": ("sparse", {"h": np.zeros(12 * MEGABYTE)}, "do not fit"),
    "correction of an exact bound": ("sparse", {"correction_linear": np.zeros(5)}, "its arrays are"),
    "reversed classes": ("several classes", {"classes": np.array([2, 1, 0])}, "order of classes"),
    "equal classes": ("several classes", {"classes": np.array([0, 1, 1])}, "order of classes"),
    "NaN as a class": ("several classes", {"classes": np.array([0.0, 1.0, np.nan])}, "classes"),
    "infinite class": ("several classes", {"classes": np.array([0.0, 1.0, np.inf])}, "classes"),
    "one class": ("sparse", {"classes": np.array(["no"])}, "do not fit"),
    "table of classes": ("sparse", {"classes": np.array([["no", "yes"]])}, "do not fit"),
    "numbers for names": ("sparse", {"classes": np.array([0, 1])}, "do not fit"),
    "complex": ("sparse", {"h": np.zeros(5, dtype=complex)}, "no array of numbers"),
    "records": ("sparse", {"h": np.zeros(5, dtype=[("a", float)])}, "no array of numbers"),
    "objects": ("sparse", {"h": np.array([None] * 5)}, ""),
    "single precision": ("sparse", {"h": np.zeros(5, dtype=np.float32)}, "do not fit"),
    "no rows": ("sparse", {"Z": np.zeros((0, 2)), "eta": np.zeros((0, 0)), "h": np.zeros(0)}, "do not fit"),
    "features without names": ("several classes", {"feature_names": np.array(["a"])}, "do not fit"),
    "numbers of features": ("several classes", {"feature_names": np.array([1, 2])}, "do not fit"),
    "more names": ("sparse", {"feature_names": np.array(["a", "b"])}, "its arrays are"),
    "more history": ("sparse", {"history_more": np.zeros(1)}, "its arrays are"),
    "history of other rows": ("sparse", {"history_elbo": np.zeros(1)}, "do not fit"),
    "history of three axes": ("sparse", {"history_elbo": np.zeros((1, 1, 1))}, "do not fit"),
    "not positive definite": ("sparse", {"eta": -np.eye(5)}, "positive definite"),
    "negative covariance": ("neighbours", {"local_V": -np.eye(4)[None]}, "local_V"),
    "covariance that is not symmetric": ("neighbours", {"local_V": np.triu(np.ones((1, 4, 4)))}, "local_V"),
    "mean that overflows": ("sparse", {"h": np.full(5, 1e300)}, "finite"),
    "too many": ("sparse", {f"history_{i}": np.zeros(1) for i in range(60)}, "members"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_crafted_arrays_are_refused(files, tmp_path, kind):
    name, changed, reason = BAD_ARRAYS[kind]
    header, arrays = read(files[name])
    assert_refused(tmp_path, write(header, arrays | changed), reason)


@pytest.mark.parametrize(
    "missing", ["Z", "eta", "h", "classes", "correction_linear", "inducing_points", "history_elbo"]
)
def test_missing_arrays_are_named(files, tmp_path, missing):
    header, arrays = read(files["corrected"])
    del arrays[missing]
    assert_refused(tmp_path, write(header, arrays), "its arrays are|do not fit")


def test_large_arrays_that_do_not_belong_are_not_read(files, tmp_path, monkeypatch):
    header, arrays = read(files["sparse"])
    (tmp_path / "model.npz").write_bytes(write(header, arrays | {"h": np.zeros(2 * MEGABYTE)}))
    names, original = [], Archive.__getitem__
    monkeypatch.setattr(Archive, "__getitem__", lambda self, name: (names.append(name), original(self, name))[1])
    with pytest.raises(ValueError, match="do not fit"):
        GPClassifier.load(tmp_path / "model.npz")
    assert names == ["header"]


DEEP = '{"type": "Exponentiation", "exponent": 1, "kernel": '
BAD_HEADERS = {
    "text": "hello",
    "list": "[]",
    "number": "1" * 10_000,
    "long": '{"format": 4, "x": "' + "a" * 2**24 + '"}',
    "lists": "[" + "[]," * 600_000 + "[]]",
    "nested": "[" * 10**6,
    "nested kernels": DEEP * 900 + "1" + "}" * 900,
}


@pytest.mark.parametrize("kind", BAD_HEADERS)
def test_headers_that_are_none_are_refused(files, tmp_path, kind):
    header, arrays = read(files["sparse"])
    assert_refused(tmp_path, write(BAD_HEADERS[kind], arrays))
    if kind == "nested kernels":
        header["kernels"] = [0]
        text = json.dumps(header).replace('"kernels": [0]', f'"kernels": [{BAD_HEADERS[kind]}]')
        assert_refused(tmp_path, write(text, arrays))


def test_a_tree_of_many_kernels_is_refused_before_it_is_built(files, tmp_path, monkeypatch):
    header, arrays = read(files["noisy"])
    tree = leaf = {"type": "RBF", "length_scale": 1.0, "length_scale_bounds": "fixed"}
    for _ in range(8):
        tree = {"type": "Sum", "k1": tree, "k2": tree}
    built = []
    monkeypatch.setitem(KERNELS, "RBF", lambda **parameters: built.append(1) or RBF(**parameters))
    header["kernels"] = [tree]
    assert_refused(tmp_path, write(header, arrays), "composed of more than 256 kernels")
    assert built == []
    header["kernels"] = [leaf]
    assert np.all(np.isfinite(load(tmp_path, write(header, arrays)).predict_proba(X)))
    assert len(built) == 1


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
        return [(name, archive.read(name)) for name in archive.namelist()]


def npy(shape, dtype="<f8", data=b"", version=b"\x01\x00"):
    """An array's bytes with any header."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def test_archives_that_savez_does_not_write_are_refused(files, tmp_path):
    members = members_of(files["sparse"])
    load(tmp_path, archive_of(members))
    assert_refused(tmp_path, archive_of(members, zipfile.ZIP_DEFLATED), "compressed or encrypted")
    assert_refused(tmp_path, archive_of([*members, members[0]]), "there twice")
    assert_refused(tmp_path, archive_of([*members, ("notes.txt", b"")]), "no array")
    assert_refused(tmp_path, archive_of([("a/" * 50 + f"{i}.npy", b"") for i in range(3000)]), "directory is too long")
    assert_refused(tmp_path, archive_of([(f"{i}.npy", b"") for i in range(65)]), "65 members")


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (npy((10**12,)), "not as long as its shape says"),
        (npy((10**100,)), "not as long as its shape says"),
        (npy((10**400,)), ""),
        (npy((2**62, 2**62)), "not as long as its shape says"),
        (npy((-1,)), "no array of numbers"),
        (npy((5,), "|O", b"." * 40), "no array of numbers"),
        (npy((5,), "<U0"), "no array of numbers"),
        (npy((5,), "<f8", b"\0" * 41), "not as long as its shape says"),
        (npy((5,), "<f8", b"\0" * 40, b"\x02\x00"), "unknown version"),
        (npy("[5]", "<f8", b"\0" * 40), ""),
        (npy("(" * 100, "<f8"), ""),
        (npy("-" * 5000 + "1"), ""),
        (npy("5", [("a", "<f8")] * 30), ""),
        (b"", ""),
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(files, tmp_path, array, reason):
    members = dict(members_of(files["sparse"]))
    assert_refused(tmp_path, archive_of((members | {"h.npy": array}).items()), reason)


def test_text_and_truth_that_there_is_not_is_refused(files, tmp_path):
    members = dict(members_of(files["sparse"]))
    no_character = npy((2,), "<U1", struct.pack("<II", 65, 0x110000))
    assert_refused(tmp_path, archive_of((members | {"classes.npy": no_character}).items()))
    members = dict(members_of(files["full"]))
    assert_refused(
        tmp_path, archive_of((members | {"classes.npy": npy((2,), "|b1", b"\0\2")}).items()), "neither 0 nor"
    )


@pytest.mark.parametrize("size", [2**31, 2**32 - 2])
def test_a_directory_that_claims_more_than_the_file_has_is_refused(files, tmp_path, size):
    content = bytearray(files["sparse"])
    entry = content.index(b"PK\x01\x02")
    # Compressed and uncompressed size of the first member.
    content[entry + 20 : entry + 28] = struct.pack("<II", size, size)
    assert_refused(tmp_path, bytes(content), "longer than the file")


def test_an_encrypted_member_is_refused(files, tmp_path):
    content = bytearray(files["sparse"])
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert_refused(tmp_path, bytes(content), "compressed or encrypted")


def test_arrays_are_read_in_chunks_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "large": rng.normal(size=(3, CHUNK // 8 + 5)), "fortran": np.asfortranarray(rng.normal(size=(4, 3))),
        "empty": np.zeros((0, 3)), "text": np.array(["é", "long text"]), "scalar": np.array("a"),
        "truth": np.array([True, False]), "order": np.arange(3, dtype=">f8"), "small": np.arange(3, dtype=np.int8),
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **arrays)
    with open(tmp_path / "a.npz", "rb") as file:
        archive = Archive(file)
        assert list(archive) == list(arrays)
        assert len(archive) == len(arrays)
        for name, array in arrays.items():
            assert archive.members[name].shape == array.shape
            assert archive[name].dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(archive[name], array)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"tol": -1.0}, "tol must be"),
        ({"classes_": np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")}, "Only labels"),
        ({"classes_": np.array([0, "a"], dtype=object)}, "Only labels"),
        ({"kernel": RBF(np.ones(3))}, "3 length scales but X has 2"),
        ({"inducing_points": np.ones((3, 5))}, r"got \(3, 5\)"),
    ],
)
def test_what_could_not_be_read_is_not_written(files, tmp_path, change, match):
    model = copy.copy(MODELS["sparse"][0])
    vars(model).update(change)
    with pytest.raises(ValueError, match=match):
        model.save(tmp_path / "model.npz")
    assert os.listdir(tmp_path) == []


def test_a_header_that_is_too_long_is_not_written(files, tmp_path, monkeypatch):
    monkeypatch.setattr("xgpc.io.MAX_VALUES", 10)
    with pytest.raises(ValueError, match="at most 10 values"):
        MODELS["sparse"][0].save(tmp_path / "model.npz")
    assert os.listdir(tmp_path) == []
