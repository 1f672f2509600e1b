"""The arguments of the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import NoReturn

from ..catalogue import SYSTEMS
from ..learning.schemes import SCHEMES
from ..likelihoods import LIKELIHOODS
from .columns import plain

BOUNDS = ("auto", *dict.fromkeys(bound for likelihood in LIKELIHOODS.values() for bound in likelihood.bounds))
OPTIMIZERS = (*SCHEMES, "none")
SHARES = ("auto", "kernel", "none")
# The linear one is of another estimator.
SYSTEM_NAMES = tuple(name for name in SYSTEMS if name != "linear-BSVM")
# NumPy's random states take no larger seeds.
LARGEST_SEED = 2**32 - 1

EXAMPLE = """\
example:
  xgpc demo
  xgpc fit train.csv --target diagnosis --model model.npz
  xgpc predict model.npz new.csv --output predictions.csv
  xgpc evaluate model.npz test.csv --target diagnosis

Data are CSV files (comma, semicolon or tab; UTF-8) with a header line, also compressed
(.gz) or from standard input (-), or Parquet files (.parquet, needs pyarrow). Features are
numbers, truth values, or text, whose values are levels; empty cells, and NA or NaN for
numbers, are missing. The target has two classes or more, given as text or whole numbers.
Rows to fit may be more than fit into memory, if all features are numbers.
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


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--output", default="xgpc-demo.png", metavar="FILE", help="picture, png, pdf or svg (default: %(default)s)"
    )
    command.add_argument(
        "--seed", type=_integer(0, LARGEST_SEED), default=0, metavar="N", help="of the split and the fit (default: 0)"
    )


def _add_fit(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", help="CSV file with a header line, or Parquet file; -: CSV from standard input")
    command.add_argument(
        "--target", required=True, metavar="COLUMN", help="column of the classes; the others are features"
    )
    command.add_argument("--model", required=True, metavar="FILE.npz", help="where to save the model")
    command.add_argument(
        "--drop",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns that are no features, such as numbers of the rows",
    )
    command.add_argument(
        "--categorical",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns whose cells are names, such as postcodes, though they look like numbers; columns of text are so "
        "by themselves",
    )
    command.add_argument(
        "--inducing",
        dest="n_inducing",
        type=_auto_or_from(1),
        metavar="M",
        help="number of inducing points (default: auto, up to 2048, while more of them raise the bound)",
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
    command.add_argument(
        "--verbose", action="store_true", help="tell on standard error how the fit goes, and what it decides"
    )
    _add_effort(command)


def _add_effort(command: argparse.ArgumentParser) -> None:
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


def _add_predict(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL.npz", help="model that 'xgpc fit' saved")
    command.add_argument("data", help="CSV or Parquet file with the model's features; other columns are ignored")
    command.add_argument(
        "--output",
        metavar="FILE",
        help="where to write: CSV (.csv), compressed if the name ends in .gz, or a Parquet file (.parquet); other "
        "endings are refused (default: CSV to standard output)",
    )


def _add_evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL.npz", help="model that 'xgpc fit' saved")
    command.add_argument("data", help="CSV or Parquet file with the model's features and the classes")
    command.add_argument("--target", required=True, metavar="COLUMN", help="column of the classes")


# Commands: what they do, and what adds their arguments.
COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "demo": ("fit a classifier to real data, next to two others, and draw it", _add_demo),
    "fit": ("fit a classifier to a CSV or Parquet file and save it", _add_fit),
    "predict": ("predict the rows of a CSV or Parquet file", _add_predict),
    "evaluate": ("compare predictions with the classes in a CSV or Parquet file", _add_evaluate),
}


def parser(runs: Mapping[str, Callable[[argparse.Namespace], None]]) -> argparse.ArgumentParser:
    """Of ``xgpc``; ``run`` of what it parses is that of the command's name."""
    found = _Parser(
        prog="xgpc",
        description="Fast Gaussian process classification.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--version", action="version", version=f"xgpc {version('xgpc')}")
    subparsers = found.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (what, add) in COMMANDS.items():
        command = subparsers.add_parser(name, help=what)
        add(command)
        command.set_defaults(run=runs[name])
    return found
