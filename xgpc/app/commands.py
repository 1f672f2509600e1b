"""The commands that read files: ``xgpc fit``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from reprlib import repr as short
from time import perf_counter

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ..catalogue import SYSTEMS
from ..classifier import GPClassifier
from ..config import PARAMETERS
from ..data.encoding import of_table
from ..data.table import note_of_index
from ..files import check_replaceable, is_special
from ..metrics import scores
from ..rows.columnar import index_in, is_number
from ..summary import aligned, sentences, summary_rows
from .arguments import MODEL_ENDING
from .output import check_output, say, score_rows, writing
from .tables import Rows, is_parquet, opened, refuse, write_rows

# Bytes of features up to which the rows are read into memory; a fit reads more of them many times, in batches.
IN_MEMORY = 2**30


def fit(arguments: argparse.Namespace) -> None:
    """Fit a classifier to the rows of a file and save it."""
    check_output(arguments.model, [arguments.data], check_replaceable)
    if not arguments.model.lower().endswith(MODEL_ENDING):
        raise ValueError(f"the model {arguments.model!r} must end in {MODEL_ENDING}.")
    given = {name: one for name, one in vars(arguments).items() if name in PARAMETERS and one is not None}
    # The options that were given override those of the system.
    model = GPClassifier(**{**SYSTEMS.get(arguments.system, {}), **given})
    if arguments.optimizer == "none":
        model.optimizer = None
    with opened(arguments.data, arguments.target) as rows:
        rows.check_names([*arguments.drop, *arguments.categorical])
        index = [name for name in index_in(rows.schema) if name not in arguments.categorical]
        others = [arguments.target, *arguments.drop, *index]
        features = [name for name in rows.schema.names if name not in others]
        if not features:
            raise ValueError(f"{rows.name!r} has no features besides {short(others)}: add columns.")
        if index := [name for name in index if name not in arguments.drop]:
            say("note", f"{rows.name!r}: {note_of_index(index)}")
        start = perf_counter()
        _fit(model, rows, features, arguments.categorical)
        seconds = perf_counter() - start
    with writing(arguments.model):
        model.save(arguments.model)
    made = [("read and fit", f"{seconds:.2f} s"), ("model", arguments.model)]
    print(aligned([*summary_rows(model), *made]) + sentences("Decisions", model.decisions_))


def _fit(model: GPClassifier, rows: Rows, features: list[str], categorical: list[str]) -> None:
    """Fit the model to rows in memory or, if they are too many, in batches."""
    kept, labels, n_bytes = [], [], 0
    for X, y in rows.batches(features, dict.fromkeys(categorical, pa.string())):
        kept.append(X)
        labels.append(np.array(y.to_pylist()))
        n_bytes += X.nbytes
        if n_bytes > IN_MEMORY:
            break
    else:
        table, y = pa.Table.from_batches(kept), np.concatenate(labels)
        if len(set(y.tolist())) == len(y) > 2:
            what = f"{len(y)} different values in {len(y)} rows are no classes; name another column."
            raise ValueError(f"{rows.name!r}, column {rows.target!r}: {what}")
        for name in {*categorical}.intersection(features):
            table = table.set_column(features.index(name), name, table[name].dictionary_encode())
        # Without the notes of pandas, which would take a feature for an index.
        model.fit(table.replace_schema_metadata(), y)
        return
    of_levels = [one.name for one in X.schema if one.name in categorical or not is_number(one.type)]
    if of_levels:
        raise ValueError(
            f"{rows.name!r}: the rows take more than {IN_MEMORY / 2**20:g} MiB and are read in batches, whose features "
            f"must be numbers; {short(of_levels)} are not: leave them out (--drop), or take fewer rows."
        )
    model.fit_batches(lambda: ((X, np.array(y.to_pylist())) for X, y in rows.batches(features, {}, may_miss=False)))


def _load(path: str) -> GPClassifier:
    try:
        return GPClassifier.load(path)
    except (OSError, ValueError) as error:
        what = f"cannot read the model {path!r}: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise ValueError(f"{what} Give a file that 'xgpc fit' saved.") from None


def _features(model: GPClassifier, rows: Rows) -> tuple[list[str], dict[str, pa.DataType]]:
    """The columns of a model in a file, by name or, without names, all but the target; and their Arrow types."""
    names = list(getattr(model, "feature_names_in_", ())) or [name for name in rows.schema.names if name != rows.target]
    rows.check_names(names)
    if rows.target in names:
        raise ValueError(f"the column {rows.target!r} is a feature of the model; name the column of the classes.")
    table = of_table(model.encoding_)
    types = {}
    for name, column in zip_longest(names, [] if table is None else table.columns):
        has_text = column is not None and any(isinstance(level, str) for level in column.levels)
        types[name] = pa.string() if has_text else pa.float64()
    return names, types


def predict(arguments: argparse.Namespace) -> None:
    """Write predictions for the rows of a file."""
    if arguments.output is not None:
        check_output(arguments.output, [arguments.model, arguments.data])
        ending = Path(arguments.output.lower().removesuffix(".gz")).suffix
        if ending not in ("", ".csv") and not is_parquet(arguments.output) and not is_special(arguments.output):
            raise ValueError(f"the output {arguments.output!r} must end in .csv, .csv.gz, .parquet, or have no ending.")
    model = _load(arguments.model)
    with opened(arguments.data) as rows:
        rows.check_names(arguments.keep)
        write_rows(arguments.output, _predictions(model, rows, list(dict.fromkeys(arguments.keep))))


def _predictions(model: GPClassifier, rows: Rows, kept: list[str]) -> Iterator[pa.RecordBatch]:
    """Record batches of kept columns, predicted classes, probabilities and latent moments."""
    kind = pa.array(model.classes_.tolist()).type
    features, types = _features(model, rows)
    types = dict.fromkeys(kept, pa.string()) | types
    for batch, _ in rows.batches(list(dict.fromkeys([*features, *kept])), types):
        X = batch.select(features)
        with rows.named():
            probability = model.predict_proba(X)
            mean, variance = model.predict_latent(X)
        predicted = model.classes_[np.argmax(probability, axis=1)].tolist()
        latents = [""] if mean.ndim == 1 else [f"_{name}" for name in model.classes_]
        names = ["prediction", *(f"probability_{name}" for name in model.classes_)]
        names += [f"latent_{moment}{latent}" for moment in ("mean", "variance") for latent in latents]
        if taken := [name for name in kept if name in names]:
            raise ValueError(f"the column {taken[0]!r} cannot be kept: the predictions have a column of this name.")
        numbers = np.column_stack([probability, mean, variance])
        columns = [*batch.select(kept), pa.array(predicted, kind), *map(pa.array, numbers.T)]
        yield pa.RecordBatch.from_arrays(columns, [*kept, *names])


def evaluate(arguments: argparse.Namespace) -> None:
    """Print scores of predictions for the rows of a file."""
    model = _load(arguments.model)
    # Numbers are compared as numbers: a file may have 1 where the training rows had 1.0.
    classes = pa.array(model.classes_.tolist(), pa.float64() if model.classes_.dtype.kind in "iuf" else None)
    codes, log_p, n_rows = [], [], 0
    with opened(arguments.data, arguments.target) as rows:
        features, types = _features(model, rows)
        for X, y in rows.batches(features, {**types, arguments.target: classes.type}):
            with rows.named():
                unknown = f"not one of the model's classes {short(classes.to_pylist())}"
                try:
                    found = compute.index_in(y.cast(classes.type), classes)
                except pa.ArrowException as error:
                    raise ValueError(f"column {arguments.target!r}: {unknown}: {error}.") from None
                refuse(found.is_null(), n_rows, arguments.target, unknown)
                log_p.append(model.predict_log_proba(X))
            codes.append(found.to_numpy())
            n_rows += len(y)
    result = scores(np.concatenate(codes), np.concatenate(log_p))
    print(aligned([("rows", str(n_rows)), *score_rows(result, len(classes))]))
