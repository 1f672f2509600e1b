"""The command line: ``xgpc demo``, ``fit``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..catalogue import SYSTEMS
from ..classifier import GPClassifier
from ..config import PARAMETERS
from ..data.frames import note_of_index
from ..files import check_replaceable
from ..metrics import scores
from ..summary import aligned, sentences, summary_rows
from . import demo
from .arguments import parser
from .columns import Table, Wanted, listed
from .output import check_encoding, check_output, check_table_name, output, show, write_table, writing
from .report import score_rows
from .tables import are_measurements, encode_labels, read_table
from .training import TrainingRows, training_rows

EXIT_OK, EXIT_BAD_INPUT = 0, 2
# What a shell reports for a program that a signal ended: 128 + SIGINT, 128 + SIGPIPE, 128 + SIGTERM.
EXIT_INTERRUPTED, EXIT_BROKEN_PIPE, EXIT_TERMINATED = 130, 141, 143
PICTURE_FORMATS = ("png", "pdf", "svg")


def _demo(arguments: argparse.Namespace) -> None:
    picture_format = Path(arguments.output).suffix.lstrip(".").lower()
    if picture_format not in PICTURE_FORMATS:
        raise ValueError(f"the picture {arguments.output!r} must end in one of {listed(PICTURE_FORMATS)}, after a dot.")
    check_output(arguments.output)
    result = demo.run(arguments.seed)
    show(result.report())
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("No picture without matplotlib: pip install 'xgpc[plot]'")
        return
    with output(arguments.output) as file:
        result.draw(file, picture_format)
    show(f"Picture: {arguments.output}")


def _check_classes(rows: TrainingRows, target: str) -> None:
    """Refuse a target of one class, or one that seems to have none."""
    where, n, classes = f"{rows.path!r}, column {target!r}", rows.n_rows, rows.classes
    if len(classes) < 2:
        raise ValueError(
            f"{where}: 1 class, {listed(classes.tolist())}; the target must have two or more: name another column or "
            "select rows."
        )
    if len(classes) > 2 and (len(classes) == n or are_measurements(classes)):
        raise ValueError(
            f"{where}: {len(classes)} different values in {n} rows, {listed(classes.tolist())}, are "
            f"{'one for each row' if len(classes) == n else 'measurements'} and not classes; name another column or "
            "give the classes names."
        )


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those of the system, if one was given, and over them the options that were."""
    options = dict(SYSTEMS[arguments.system]) if arguments.system else {}
    given = {name: getattr(arguments, name) for name, one in PARAMETERS.items() if one.is_system_option}
    options.update((name, value) for name, value in given.items() if value is not None)
    if options.get("optimizer") == "none":
        options["optimizer"] = None
    return options


def _fit(arguments: argparse.Namespace) -> None:
    check_output(arguments.model, [arguments.data], check_replaceable)
    if not arguments.model.lower().endswith(".npz"):
        raise ValueError(f"the model {arguments.model!r} must end in .npz: it is a file of arrays, and no pickle.")
    wanted = Wanted(arguments.target, drop=arguments.drop, categorical=arguments.categorical)
    with training_rows(arguments.data, wanted, Path(arguments.model).absolute().parent) as rows:
        if rows.index:
            _say("note", f"{rows.path!r}: {note_of_index(rows.index)}")
        _check_classes(rows, arguments.target)
        model = GPClassifier(
            **_options(arguments),
            max_iter=arguments.max_iter,
            max_time=arguments.max_time,
            verbose=int(arguments.verbose),
            n_jobs=arguments.jobs,
            random_state=arguments.seed,
        )
        start = perf_counter()
        rows.fit(model)
        seconds = perf_counter() - start
    # The names belong to the model, so that the columns of other files can be found by name.
    model.feature_names_in_ = np.array(rows.features, dtype=object)
    with writing(arguments.model):
        model.save(arguments.model)
    # Its warnings go to standard error, as all do.
    made = [("fit", f"{seconds:.2f} s"), ("model", arguments.model)]
    show(aligned([*summary_rows(model), *made]) + sentences("Decisions", model.decisions_))


def _load(path: str) -> tuple[GPClassifier, list[str] | None]:
    """A model, and the names of its features, if it has them.

    The arrays that it is then given have their columns in the order of the names, but no names. scikit-learn would warn
    of that; without the attribute it has no reason to.
    """
    try:
        model = GPClassifier.load(path)
    except FileNotFoundError:
        raise ValueError(f"there is no model {path!r}; make one with 'xgpc fit'.") from None
    except ValueError as error:
        raise ValueError(f"{error} Give a file that 'xgpc fit' saved.") from None
    except OSError as error:
        raise ValueError(f"cannot read {path!r}: {error.strerror}; give a file that 'xgpc fit' saved.") from None
    if not hasattr(model, "feature_names_in_"):
        return model, None
    names = model.feature_names_in_.tolist()
    del model.feature_names_in_
    return model, names


def _features(model_path: str, data: str, target: str | None) -> tuple[GPClassifier, Table]:
    """A model, and a table of its features."""
    model, names = _load(model_path)
    return model, read_table(data, Wanted.by(model, names, target))


def _predict(arguments: argparse.Namespace) -> None:
    path = arguments.output
    if path is not None:
        check_output(path, [arguments.model, arguments.data])
        check_table_name(path)
    model, table = _features(arguments.model, arguments.data, None)
    if path is None:
        check_encoding(model.classes_.tolist())
    probability = model.predict_proba(table.X)
    mean, variance = model.predict_latent(table.X)
    predicted = model.classes_[np.argmax(probability, axis=1)]
    names = [f"probability_{name}" for name in model.classes_]
    latents = [""] if mean.ndim == 1 else [f"_{name}" for name in model.classes_]
    names += [f"latent_{moment}{latent}" for moment in ("mean", "variance") for latent in latents]
    write_table(path, ["prediction", *names], predicted, np.column_stack([probability, mean, variance]))


def _evaluate(arguments: argparse.Namespace) -> None:
    model, table = _features(arguments.model, arguments.data, arguments.target)
    code = encode_labels(table, arguments.target, model.classes_)
    found = scores(code, model.predict_log_proba(table.X))
    show(aligned([("rows", str(len(code))), *score_rows(found, len(model.classes_))]))


def _say(kind: str, message: object) -> None:
    """One line on standard error."""
    print(f"xgpc: {kind}: {' '.join(str(message).split())}", file=sys.stderr)


def _abandon_stdout() -> None:
    """Let the interpreter's last flush of standard output, which failed once, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


RUNS = {"demo": _demo, "fit": _fit, "predict": _predict, "evaluate": _evaluate}


def _run(argv: Sequence[str] | None) -> int:
    """Parse and run a command, then show its warnings, each once."""
    try:
        arguments = parser(RUNS).parse_args(argv)
    except SystemExit:
        # After --help or --version; errors of the parser are ValueErrors.
        return EXIT_OK
    with warnings.catch_warnings(record=True) as caught:
        # Others, of deprecation and the like, are for those who call from Python.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message="n_neighbors=|X has .* missing number", category=UserWarning)
        arguments.run(arguments)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        _say("warning", message)
    return EXIT_OK


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as an interrupt does: temporary files are removed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        Arguments; None: those of the process.

    Returns
    -------
    int
        Exit status: 0; 2 for bad input, explained in one line on standard error; 130 after an interrupt; 141 if
        the reader of standard output has gone; 143 after ``Terminated``.
    """
    try:
        status = _run(argv)
        # Here rather than at the interpreter's end, where a failure could not be handled.
        print(end="", flush=True)
        return status
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except Terminated:
        print("xgpc: terminated", file=sys.stderr)
        return EXIT_TERMINATED
    except KeyboardInterrupt:
        print("xgpc: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except MemoryError:
        _say("error", "not enough memory; use fewer inducing points (--inducing) or mini-batches (--batch-size).")
        return EXIT_BAD_INPUT
    except ValueError as error:
        _say("error", " ".join([str(error), *getattr(error, "__notes__", ())]))
        return EXIT_BAD_INPUT
    except OSError as error:
        _abandon_stdout()
        _say("error", f"cannot write standard output: {error.strerror or error}; use --output FILE.")
        return EXIT_BAD_INPUT


def command() -> int:
    """``main`` of a process of its own, which SIGTERM ends; a second one does at once."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    return main()
