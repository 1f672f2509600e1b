"""The commands that read files: ``xgpc fit``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
from pyarrow.dataset import Dataset

from ..catalogue import SYSTEMS
from ..classifier import GPClassifier
from ..config import PARAMETERS
from ..data.table import note_of_index
from ..files import is_special
from ..metrics import scores
from ..report import report
from ..rows.columnar import check_names, from_arrow, in_order
from ..summary import aligned, score_rows, sentences, summary_rows
from .arguments import MODEL_ENDING
from .output import check_output, output, say, writing
from .tables import batches, index_columns, is_parquet, opened, places_named, write_rows

# Bytes of features up to which the rows are read into memory; a fit reads more of them many times, in batches.
IN_MEMORY = 2**30


def fit(arguments: argparse.Namespace) -> None:
    """Fit a classifier to the rows of a file and save it."""
    check_output(arguments.model, [arguments.data], may_be_special=False)
    if not arguments.model.lower().endswith(MODEL_ENDING):
        raise ValueError(f"the model {arguments.model!r} must end in {MODEL_ENDING}.")
    options = {name: value for name, value in vars(arguments).items() if name in PARAMETERS and value is not None}
    # The options that were given override those of the system.
    model = GPClassifier(**{**SYSTEMS.get(arguments.system, {}), **options})
    if arguments.optimizer == "none":
        model.optimizer = None
    target, categorical = arguments.target, arguments.categorical_features or []
    start = perf_counter()
    with opened(arguments.data, dict.fromkeys(categorical, True), target) as rows:
        check_names(rows.schema, [target, *arguments.drop, *categorical])
        index = [name for name in index_columns(rows) if name not in (target, *categorical, *arguments.drop)]
        features = [name for name in rows.schema.names if name not in (target, *arguments.drop, *index)]
        if wrong := [name for name in categorical if name not in features]:
            raise ValueError(f"--categorical names {wrong}, which --drop or --target leaves out.")
        if index:
            say("note", note_of_index(index))
        check_names(rows.schema, [*features, target])
        with places_named(rows):
            _fit(model, rows, features, target, categorical)
    seconds = perf_counter() - start
    with writing(arguments.model):
        model.save(arguments.model)
    results = [("read and fit", f"{seconds:.2f} s"), ("model", arguments.model)]
    print(aligned([*summary_rows(model), *results]) + sentences("Decisions", model.decisions_))


def _fit(model: GPClassifier, rows: Dataset, features: list[str], target: str, categorical: list[str]) -> None:
    """Fit the model to rows in memory or, if they are too many, in batches."""
    n_bytes = rows.count_rows() * len(features) * np.dtype(np.float64).itemsize
    if n_bytes > IN_MEMORY:
        model.fit_batches(from_arrow(rows, target=target, columns=features))
        return
    # Without the notes of pandas, which would take a feature for an index.
    table = rows.to_table([*features, target], **in_order()).replace_schema_metadata()
    if not len(table):
        raise ValueError("The data have columns, but no rows to fit.")
    y = table[target]
    if len(y.unique()) == len(y) > 2:
        raise ValueError(f"column {target!r}: {len(y)} different values in {len(y)} rows are no classes; name another.")
    # The columns' types say which are categorical: names would not let other columns be text.
    model.categorical_features = "from_dtype"
    for name in categorical:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].dictionary_encode())
    model.fit(table.select(features), y)


def _load(path: str) -> GPClassifier:
    try:
        return GPClassifier.load(path)
    except (OSError, ValueError) as error:
        reason = f"cannot read the model {path!r}: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise ValueError(f"{reason} Give a file that 'xgpc fit' saved.") from None


def _features(model: GPClassifier) -> dict[str, bool]:
    """The columns of a model by name, and whether they are text; empty for a model without names."""
    columns = zip_longest(getattr(model, "feature_names_in_", ()), model._encoding.columns)
    # In a column that was empty in the training rows, any text is an unknown level.
    return {
        name: column is not None and (column.has_text or (column.is_categorical and not column.levels))
        for name, column in columns
    }


def predict(arguments: argparse.Namespace) -> None:
    """Write predictions for the rows of a file."""
    if arguments.output is not None:
        check_output(arguments.output, [arguments.model, arguments.data])
        ending = Path(arguments.output.lower().removesuffix(".gz")).suffix
        if ending not in ("", ".csv") and not is_parquet(arguments.output) and not is_special(arguments.output):
            raise ValueError(f"the output {arguments.output!r} must end in .csv, .csv.gz, .parquet, or have no ending.")
    model = _load(arguments.model)
    kept = list(dict.fromkeys(arguments.keep))
    is_text = dict.fromkeys(kept, True) | _features(model)
    with opened(arguments.data, is_text) as rows:
        features = list(_features(model)) or rows.schema.names
        check_names(rows.schema, [*features, *kept])
        write_rows(arguments.output, _predictions(model, rows, features, kept))


def _predictions(model: GPClassifier, rows: Dataset, features: list[str], kept: list[str]) -> Iterator[pa.RecordBatch]:
    """Record batches of kept columns, predicted classes, probabilities and latent moments."""
    kind, n_rows = pa.array(model.classes_.tolist()).type, 0
    for batch in batches(rows, features, kept):
        X = batch.select(features)
        with places_named(rows, n_rows):
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
        n_rows += len(X)


def evaluate(arguments: argparse.Namespace) -> None:
    """Print scores of predictions for the rows of a file; with ``--html`` also write a page about them."""
    if arguments.html is not None:
        check_output(arguments.html, [arguments.model, arguments.data])
    model, target = _load(arguments.model), arguments.target
    is_text = {target: isinstance(model.classes_[0], str)} | _features(model)
    labels, log_p, first_batch = [], [], None
    with opened(arguments.data, is_text, target) as rows:
        features = list(_features(model)) or [name for name in rows.schema.names if name != target]
        check_names(rows.schema, [*features, target])
        for batch in batches(rows, [*features, target]):
            labels += batch[target].to_pylist()
            X = batch.select(features)
            first_batch = X if first_batch is None else first_batch
            with places_named(rows, len(labels) - len(X)):
                log_p.append(model.predict_log_proba(X))
    if not labels:
        raise ValueError(f"{arguments.data!r} has no rows: there are no predictions to compare.")
    log_probability = np.concatenate(log_p)
    result = scores(labels, log_probability, model.classes_)
    print(aligned([("rows", str(len(labels))), *score_rows(result, len(model.classes_))]))
    if arguments.html is not None:
        with output(arguments.html) as file:
            file.write(report(model, first_batch, log_probability, labels, {}).encode())
