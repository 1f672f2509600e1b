"""The command line: ``xgpc demo``, ``fit``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import argparse
import codecs
import csv
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, NoReturn

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..catalogue import SYSTEMS
from ..classifier import GPClassifier
from ..files import check_replaceable, check_writable, is_special, replacing
from ..learning.schemes import SCHEMES
from ..likelihoods import LIKELIHOODS, resolve
from ..metrics import scores
from . import demo
from .report import Rows, aligned, class_shares, model_kernel_rows, score_rows
from .tables import Table, are_measurements, encode_labels, listed, name_of, of_numbers, plain, read_table
from .training import TrainingRows, training_rows

EXIT_OK, EXIT_BAD_INPUT = 0, 2
# What a shell reports for a program that a signal ended: 128 + SIGINT, 128 + SIGPIPE.
EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 130, 141
BOUNDS = ("auto", *dict.fromkeys(bound for likelihood in LIKELIHOODS.values() for bound in likelihood.bounds))
OPTIMIZERS = (*SCHEMES, "none")
SHARES = ("auto", "kernel", "none")
# The linear one is of another estimator.
SYSTEM_NAMES = tuple(name for name in SYSTEMS if name != "linear-BSVM")
# Options of 'xgpc fit' that a system may set; None stands for one that was not given.
SYSTEM_OPTIONS = ("likelihood", "bound", "share", "optimizer", "batch_size", "n_inducing", "n_neighbors")
# NumPy's random states take no larger seeds.
LARGEST_SEED = 2**32 - 1
PICTURE_FORMATS = ("png", "pdf", "svg")
# Rows that are turned into text at a time.
WRITTEN_ROWS = 10_000

EXAMPLE = """\
example:
  xgpc demo
  xgpc fit train.csv --target diagnosis --model model.npz
  xgpc predict model.npz new.csv --output predictions.csv
  xgpc evaluate model.npz test.csv --target diagnosis

Data are CSV files (comma, semicolon or tab; UTF-8) with a header line, also compressed
(.gz) or from standard input (-), or Parquet files (.parquet, needs pyarrow). Features are
numbers; the target has two classes or more, given as text or whole numbers. Rows to fit
may be more than fit into memory.
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are like all others here: one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see '{self.prog} --help'")


def _integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """Argument type: an integer in a range."""
    allowed = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"

    def convert(text: str) -> int:
        try:
            value = int(plain(text))
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"must be {allowed}; got {text!r}")
        return value

    return convert


def _auto_or_from(least: int) -> Callable[[str], int | str]:
    """ "auto", or an integer of at least so much."""

    def convert(text: str) -> int | str:
        return text if text == "auto" else _integer(least)(text)

    return convert


def _jobs(text: str) -> int:
    try:
        value = int(plain(text))
    except ValueError:
        value = 0
    if value == 0:
        raise argparse.ArgumentTypeError(f"must be a number of threads, or -1 for all cores; got {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(plain(text))
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds; got {text!r}")
    return value


def _likelihood_names(multi_class: bool) -> str:
    return ", ".join(name for name, likelihood in LIKELIHOODS.items() if likelihood.multi_class == multi_class)


def _add_demo(commands: Any) -> None:
    command = commands.add_parser("demo", help="fit a classifier to real data, report on it and draw it")
    command.add_argument(
        "--output", default="xgpc-demo.png", metavar="FILE", help="picture, png, pdf or svg (default: %(default)s)"
    )
    command.add_argument(
        "--seed", type=_integer(0, LARGEST_SEED), default=0, metavar="N", help="of the split and the fit (default: 0)"
    )
    command.set_defaults(run=_demo)


def _add_fit(commands: Any) -> None:
    command = commands.add_parser("fit", help="fit a classifier to a CSV or Parquet file and save it")
    command.add_argument("data", help="CSV file with a header line, or Parquet file; -: CSV from standard input")
    command.add_argument(
        "--target", required=True, metavar="COLUMN", help="column of the classes; the others are features"
    )
    command.add_argument("--model", required=True, metavar="FILE.npz", help="where to save the model")
    command.add_argument(
        "--inducing",
        dest="n_inducing",
        type=_auto_or_from(1),
        metavar="M",
        help="number of inducing points (default: auto, from 32 to 2048, while more of them raise the bound)",
    )
    command.add_argument(
        "--neighbors",
        dest="n_neighbors",
        type=_auto_or_from(0),
        metavar="K",
        help="near rows that a prediction also looks at; 0: none, and the model holds no training rows (default: auto, "
        "24 where they predict better)",
    )
    command.add_argument(
        "--system",
        choices=SYSTEM_NAMES,
        metavar="NAME",
        help="start from the options of a paper's system, which those given override: " + ", ".join(SYSTEM_NAMES),
    )
    command.add_argument(
        "--likelihood",
        choices=tuple(LIKELIHOODS),
        metavar="NAME",
        help=f"for two classes: {_likelihood_names(False)}; for any number: {_likelihood_names(True)} "
        "(default: logit, which means softmax for more than two classes)",
    )
    command.add_argument(
        "--bound",
        choices=BOUNDS,
        metavar="NAME",
        help=f"bound on the evidence: {', '.join(BOUNDS)}; auto, the default, is the first that the likelihood has",
    )
    command.add_argument(
        "--share",
        choices=SHARES,
        help="kernel: several classes share one, with its inducing points; none: each has its own (default: auto)",
    )
    command.add_argument("--batch-size", type=_integer(1), metavar="S", help="rows of a mini-batch (default: all rows)")
    command.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        help="how the kernel's parameters are learned; the bound taylor takes alternate (default: profile)",
    )
    _add_effort(command)
    command.set_defaults(run=_fit)


def _add_effort(command: Any) -> None:
    """How long a fit goes on, and on how many threads."""
    command.add_argument(
        "--max-iter", type=_integer(1), default=200, metavar="N", help="most iterations (default: 200)"
    )
    command.add_argument(
        "--max-time",
        type=_seconds,
        metavar="SECONDS",
        help="when to end with the best so far, such as 60 (default: as long as it takes)",
    )
    command.add_argument(
        "--seed", type=_integer(0, LARGEST_SEED), default=0, metavar="N", help="of the sampling in the fit (default: 0)"
    )
    command.add_argument("--jobs", type=_jobs, default=-1, metavar="N", help="threads; -1, the default: all cores")


def _add_predict(commands: Any) -> None:
    command = commands.add_parser("predict", help="predict the rows of a CSV or Parquet file, as CSV")
    command.add_argument("model", metavar="MODEL.npz", help="model that 'xgpc fit' saved")
    command.add_argument("data", help="CSV or Parquet file with the model's features; other columns are ignored")
    command.add_argument("--output", metavar="FILE", help="where to write (default: standard output)")
    command.set_defaults(run=_predict)


def _add_evaluate(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="compare predictions with the classes in a CSV or Parquet file")
    command.add_argument("model", metavar="MODEL.npz", help="model that 'xgpc fit' saved")
    command.add_argument("data", help="CSV or Parquet file with the model's features and the classes")
    command.add_argument("--target", required=True, metavar="COLUMN", help="column of the classes")
    command.set_defaults(run=_evaluate)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="xgpc",
        description="Fast Gaussian process classification.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"xgpc {version('xgpc')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_demo, _add_fit, _add_predict, _add_evaluate):
        add(commands)
    return parser


def _check_output(path: str, inputs: Sequence[str] = (), check: Callable[[str], None] = check_writable) -> None:
    """Refuse, before any work is done, an output that could not be written or that would replace an input."""
    for given in inputs:
        if os.path.exists(path) and os.path.exists(given) and os.path.samefile(path, given):
            raise ValueError(f"the output {path!r} is also an input, which it would replace; give it another name.")
    with _writing(path):
        check(path)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Turn an OSError into a message about ``path``."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write {path!r}: {error.strerror or error}; give the name of a file in a directory that exists, "
            "has free space and may be written to."
        ) from None


@contextmanager
def _output(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` at the end; a device or a pipe is written to."""
    with _writing(path), open(path, "wb") if is_special(path) else replacing(path) as file:
        yield file


@contextmanager
def _text_output(path: str | None) -> Iterator[Any]:
    """A file for CSV, or standard output for None."""
    if path is None:
        if sys.stdout is None:
            raise ValueError("standard output is closed; use --output FILE.")
        yield sys.stdout
        return
    with _output(path) as file:
        yield codecs.getwriter("utf-8")(file)


def _print(text: str) -> None:
    """Print, with escapes such as \\xf6 for characters that standard output has no code for."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _check_encoding(names: Sequence[object]) -> None:
    """Refuse names that standard output has no code for: escapes in a table of data would be other names."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        "".join(map(str, names)).encode(encoding)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"standard output is {encoding}, which has no {error.object[error.start]!r}; use --output FILE, which is "
            "UTF-8, or set PYTHONIOENCODING=utf-8."
        ) from None


def _demo(arguments: argparse.Namespace) -> None:
    picture_format = Path(arguments.output).suffix.lstrip(".").lower()
    if picture_format not in PICTURE_FORMATS:
        raise ValueError(f"the picture {arguments.output!r} must end in one of {listed(PICTURE_FORMATS)}, after a dot.")
    _check_output(arguments.output)
    result = demo.run(arguments.seed)
    _print(result.report())
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("No picture without matplotlib: pip install 'xgpc[plot]'")
        return
    with _output(arguments.output) as file:
        result.draw(file, picture_format)
    _print(f"Picture: {arguments.output}")


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
    given = {name: getattr(arguments, name) for name in SYSTEM_OPTIONS}
    options.update((name, value) for name, value in given.items() if value is not None)
    if options.get("optimizer") == "none":
        options["optimizer"] = None
    return options


def _fit(arguments: argparse.Namespace) -> None:
    _check_output(arguments.model, [arguments.data], check_replaceable)
    with training_rows(arguments.data, arguments.target, Path(arguments.model).absolute().parent) as rows:
        _check_classes(rows, arguments.target)
        model = GPClassifier(
            **_options(arguments),
            max_iter=arguments.max_iter,
            max_time=arguments.max_time,
            n_jobs=arguments.jobs,
            random_state=arguments.seed,
        )
        start = perf_counter()
        rows.fit(model)
        seconds = perf_counter() - start
    # The names belong to the model, so that the columns of other files can be found by name.
    model.feature_names_in_ = np.array(rows.features, dtype=object)
    with _writing(arguments.model):
        model.save(arguments.model)
    _print(aligned(_fit_rows(model, rows, seconds, arguments.model)))


def _fit_rows(model: GPClassifier, rows: TrainingRows, seconds: float, path: str) -> Rows:
    """The report of a fit."""
    classes = rows.classes
    likelihood, bound = resolve(model.likelihood, model.bound, len(classes))
    Z = model.inducing_points_
    return [
        ("rows", str(rows.n_rows)),
        ("features", str(len(rows.features))),
        ("classes", class_shares(classes, rows.counts)),
        ("likelihood", f"{likelihood.name}, bound {bound}"),
        *([("label noise", f"{model.label_noise_:.3g}")] if hasattr(model, "label_noise_") else []),
        *model_kernel_rows(model.kernel_, classes, rows.features, rows.spread),
        ("inducing points", str(len(Z)) if Z.ndim == 2 else f"{Z.shape[1]} for each class"),
        *([("neighbours", f"{model.n_neighbors_}; the model holds the training rows")] if model.n_neighbors_ else []),
        ("bound (ELBO)", f"{model.elbo_:.2f} nats, {model.elbo_ / rows.n_rows:.4f} per row"),
        ("fit", f"{seconds:.2f} s"),
        ("model", path),
    ]


def _load(path: str) -> tuple[GPClassifier, list[str] | None]:
    """A model, and the names of its features, if it has them.

    The arrays that it is then given have their columns in the order of the names, but no names. scikit-learn would warn
    of that; without the attribute it has no reason to.
    """
    try:
        model = of_numbers(GPClassifier.load(path))
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
    table = read_table(data, target=target, features=names)
    if len(table.features) != model.n_features_in_:
        raise ValueError(
            f"{name_of(data)!r} has {len(table.features)} feature columns, but the model {model_path!r} was fitted to "
            f"{model.n_features_in_}, without names; give exactly those, in the same order."
        )
    return model, table


def _predict(arguments: argparse.Namespace) -> None:
    if arguments.output is not None:
        _check_output(arguments.output, [arguments.model, arguments.data])
    model, table = _features(arguments.model, arguments.data, None)
    if arguments.output is None:
        _check_encoding(model.classes_.tolist())
    probability = model.predict_proba(table.X)
    mean, variance = model.predict_latent(table.X)
    predicted = model.classes_[np.argmax(probability, axis=1)]
    names = [f"probability_{name}" for name in model.classes_]
    latents = [""] if mean.ndim == 1 else [f"_{name}" for name in model.classes_]
    names += [f"latent_{moment}{latent}" for moment in ("mean", "variance") for latent in latents]
    with _text_output(arguments.output) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["prediction", *names])
        for start in range(0, len(predicted), WRITTEN_ROWS):
            part = slice(start, start + WRITTEN_ROWS)
            numbers = np.column_stack([probability[part], mean[part], variance[part]]).tolist()
            writer.writerows([label, *row] for label, row in zip(predicted[part].tolist(), numbers, strict=True))


def _evaluate(arguments: argparse.Namespace) -> None:
    model, table = _features(arguments.model, arguments.data, arguments.target)
    code = encode_labels(table, arguments.target, model.classes_)
    found = scores(code, model.predict_log_proba(table.X))
    _print(aligned([("rows", str(len(code))), *score_rows(found, len(model.classes_))]))


def _say(kind: str, message: object) -> None:
    """One line on standard error."""
    print(f"xgpc: {kind}: {' '.join(str(message).split())}", file=sys.stderr)


def _abandon_stdout() -> None:
    """Let the interpreter's last flush of standard output, which failed once, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _run(argv: Sequence[str] | None) -> int:
    """Parse and run a command, then show its warnings, each once."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit:
        # After --help or --version; errors of the parser are ValueErrors.
        return EXIT_OK
    with warnings.catch_warnings(record=True) as caught:
        # Others, of deprecation and the like, are for those who call from Python.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message="n_neighbors=", category=UserWarning)
        arguments.run(arguments)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        _say("warning", message)
    return EXIT_OK


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
        the reader of standard output has gone.
    """
    try:
        status = _run(argv)
        # Here rather than at the interpreter's end, where a failure could not be handled.
        print(end="", flush=True)
        return status
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
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
