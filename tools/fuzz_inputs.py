"""What tools/fuzz.py begins with and how it changes it: files of models, files of rows, tables and kernels."""

import copy
import io
import json
from pathlib import Path

import atheris
import numpy as np
import pandas as pd
import pyarrow as pa
from golden_models import models
from pyarrow import parquet
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, RationalQuadratic, WhiteKernel

from xgpc import GPClassifier, GPOrdinalClassifier, GPPreference
from xgpc.kernels import AxisMatern

SHORT = {"n_inducing": 4, "max_iter": 3, "max_time": 2.0, "random_state": 0}
JUNK = (None, True, -1, 0, 7, 1e-300, 1e300, 10**400, np.nan, np.inf, "", "x", [], [[]], {}, {"type": "RBF"}, [1, "a"])
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-320, 1e-9, 1e9, -9999.0, 1e30, -1e139, 1e150, 1e308, np.nan, np.inf)
CELLS = (*NUMBERS, None, "", "a", "b", "1.5", "nan", True, 2**70, np.datetime64("2020-01-01"), pd.NA, (1,), b"a", 1j)
TYPES = (pa.float64(), pa.float32(), pa.float16(), pa.int8(), pa.uint64(), pa.bool_(), pa.string(), pa.large_string(),
         pa.binary(), pa.null(), pa.date32(), pa.timestamp("ns"), pa.decimal128(9, 2), pa.list_(pa.int64()),
         pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int64())]))  # fmt: skip


def picker(take):
    """A function that picks one of some values by the bytes of the input."""
    return lambda values: take.PickValueInList(list(values))


def random_seeds():
    for i in range(20):
        yield np.random.default_rng(i).bytes(600)


def row_seeds():
    """Files of rows. The file ``fitted.npz`` is a model of such rows."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    found = pd.DataFrame({"a": X[:, 0].round(2), "b": np.where(X[:, 1] > 0, "u", "v"), "y": X[:, 0] > 0})
    GPClassifier(n_neighbors=0, **SHORT).fit(found[["a", "b"]], found["y"]).save("fitted.npz")
    parquet.write_table(pa.Table.from_pandas(found.head(4)), made := io.BytesIO(), compression="none")
    text = found.to_csv(index=False)
    yield from (text.encode(), text.replace(",", ";").encode(), b'a,b,y\n"1,5",NA,no\n2e3,,yes\n', made.getvalue())


def model_seeds():
    """Files of small models of every kind."""
    X = np.random.default_rng(0).normal(size=(16, 2))
    y, three = X[:, 0] > 0.0, (X[:, 0] > 0.0).astype(int) + (X[:, 1] > 0.5)
    table = pd.DataFrame({"a": np.exp(9.0 * X[:, 0]), "b": np.where(y, "x", "y"), "c": np.where(three, np.nan, 7.0)})
    fits = [model.fit(rows, labels) for model, rows, labels in models().values()]
    fits += [GPClassifier(n_neighbors=k, **SHORT).fit(table, y) for k in (0, 3)]
    for one in (*fits, GPOrdinalClassifier(**SHORT).fit(X, three), GPPreference(n_inducing=4).fit(X, X[::-1])):
        one.save("model.npz")
        yield Path("model.npz").read_bytes()


def own_rows(model):
    """Rows such as a model's training rows."""
    columns = () if model.encoding_ is None else model.encoding_.columns
    cells = [[*one.levels, "other", None] if one.fill is None else [0.5, -3.0, None, *one.levels] for one in columns]
    cells = cells or [[0.0, 1.0, -2.5e3]] * model.n_features_in_
    rows = [[column[i % len(column)] for column in cells] for i in range(5)]
    names = getattr(model, "feature_names_in_", model._columns.labels)
    return rows if names is None and not columns else pd.DataFrame(rows, columns=names)


def places(value, path=()):
    """The paths of all values of a header."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*path, key)
        yield from places(part, (*path, key))


def change_header(header, random):
    paths = list(places(header))
    *way, last = paths[random.integers(len(paths))]
    place = header
    for key in way:
        place = place[key]
    if isinstance(place[last], float) and random.random() < 0.7:
        place[last] *= 10.0 ** random.normal(0.0, 10.0)
    elif random.random() < 0.9:
        place[last] = copy.deepcopy(JUNK[random.integers(len(JUNK))])
    else:
        del place[last]


def change_array(arrays, random):
    def one_of(values):
        return values[random.integers(len(values))]

    def other_cell():
        made = array.copy()
        if made.size:
            first, old = made.flat[0], made.flat[i := random.integers(made.size)]
            made.flat[i] = np.asarray(one_of([one_of(NUMBERS), first, old, -old if made.dtype.kind == "f" else old]))
        return made

    def other_shape():
        return one_of([array[None], array.T, array.ravel(), array[:0], array[..., :1], np.repeat(array, 2, axis=0)])

    name = one_of(sorted(arrays))
    array = arrays[name]
    with np.errstate(all="ignore"):
        changes = [
            lambda: array.astype(one_of(["f4", ">f8", "i8", "b1", "U8", "c16"])),
            lambda: one_of([*arrays.values()]),
        ]
        changes += [lambda: array * 10.0 ** random.normal(0.0, 20.0), other_shape, *[other_cell] * 5]
        arrays[name] = one_of(changes)()


def changed_model(data, most, seed):
    """A model's file with other values, shapes or types; its bytes are changed if it is none, and now and then."""
    random = np.random.default_rng(seed)
    try:
        with np.load(io.BytesIO(data)) as archive:
            arrays = dict(archive)
        header = json.loads(arrays.pop("header").tobytes())
        for _ in range(random.integers(1, 4)):
            change_header(header, random) if random.random() < 0.4 else change_array(arrays, random)
        if random.random() < 0.05:
            del arrays[min(arrays)]
            header["arrays"] = sorted(arrays)
        np.savez(made := io.BytesIO(), header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    except Exception:
        return atheris.Mutate(data, most)
    content = made.getvalue()
    return content if random.random() < 0.95 and len(content) <= most else atheris.Mutate(data, most)


def columns(take, n):
    """Names and columns of n cells, each with cells of a few kinds."""
    pick = picker(take)
    for name in "abcd"[: take.ConsumeIntInRange(1, 4)]:
        pool = [pick(CELLS) for _ in range(take.ConsumeIntInRange(1, 6))]
        size = float(f"{take.ConsumeIntInRange(-9, 9)}e{take.ConsumeIntInRange(-160, 150)}")
        pool += [size, float(take.ConsumeIntInRange(-9, 9)), take.ConsumeUnicodeNoSurrogates(3)]
        pool = pool[: take.ConsumeIntInRange(1, len(pool))] if take.ConsumeBool() else pool[-3:-1]
        yield name, [pick(pool) for _ in range(n)]


def kernels(pick):
    """Kernels with parameters of all sizes."""
    length, variance = pick([1.0, 1e-5, 1e5, 0.3]), pick([1.0, 1e-5, 1e5, 1e-200, 1e12])
    leaves = [RBF, *(lambda scale, nu=nu: Matern(scale, nu=nu) for nu in (0.5, 1.5, 2.5)), RationalQuadratic,
              DotProduct, *(lambda scale, nu=nu: AxisMatern(scale, nu=nu) for nu in (0.5, 1.5))]  # fmt: skip
    one, two = pick(leaves)(length), pick(leaves)(1.0)
    return [one, variance * one, one * two, one + variance * two, variance * one + WhiteKernel(pick([1e-5, 1.0]))]
