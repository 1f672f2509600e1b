"""The arguments of the command line."""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from typing import NoReturn, get_args

from ..catalogue import SYSTEMS
from ..likelihoods import LIKELIHOODS, MULTI_CLASS
from ..names import OptimizerName

# The ending of files of models.
MODEL_ENDING = ".npz"

EXAMPLE = f"""\
example:
  xgpc demo
  xgpc fit train.csv --target diagnosis --model model{MODEL_ENDING}
  xgpc predict model{MODEL_ENDING} new.csv --output predictions.csv
  xgpc evaluate model{MODEL_ENDING} test.csv --target diagnosis

Data are CSV files (comma, semicolon or tab; UTF-8) with a header line, also compressed
(.gz) or from standard input (-), or Parquet files (.parquet); both need pyarrow, the extra
'app'. Features are numbers, truth values, or text, whose values are levels; empty cells, NA
and NaN are missing. The target has two classes or more, given as text or whole numbers. Rows
to fit may be more than fit into memory, if all features are numbers.
"""

# Adds an option that names columns, and can be repeated.
add_columns = partial(argparse.ArgumentParser.add_argument, nargs="+", action="extend", default=[], metavar="COLUMN")


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises ValueError, so that its errors are one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see '{self.prog} --help'")


def parser() -> argparse.ArgumentParser:
    """The parser of ``xgpc``; ``command`` of its result is the name of the command."""
    arguments = _Parser(
        prog="xgpc",
        description="Fast Gaussian process classification.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--version", action="version", version=f"xgpc {version('xgpc')}")
    commands = arguments.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    demo = commands.add_parser("demo", help="fit a classifier to real data, next to two others, and write a page")
    demo.add_argument("--html", default="xgpc-demo.html", metavar="FILE", help="page to write, for a browser")
    demo.add_argument("--seed", type=int, default=0, metavar="N", help="of the splits and the fits (default: 0)")
    in_python = "Weights and groups of rows, and ordered classes, need Python: GPClassifier.fit, GPOrdinalClassifier."
    fit = commands.add_parser("fit", help="fit a classifier to a CSV or Parquet file and save it", epilog=in_python)
    predict = commands.add_parser("predict", help="predict the rows of a CSV or Parquet file")
    evaluate = commands.add_parser("evaluate", help="compare predictions with the classes in a CSV or Parquet file")
    for command in (predict, evaluate):
        command.add_argument("model", metavar=f"MODEL{MODEL_ENDING}", help="model that 'xgpc fit' saved")
    for command in (fit, predict, evaluate):
        command.add_argument("data", help="CSV file with a header line, or Parquet file; -: CSV from standard input")
    for command in (fit, evaluate):
        command.add_argument("--target", required=True, metavar="COLUMN", help="column of the classes")
    page = "also write a page, for a browser, on how good the predictions are and what they depend on"
    evaluate.add_argument("--html", metavar="FILE", help=page)
    formats = "CSV (.csv), compressed CSV (.csv.gz) or Parquet (.parquet); default: CSV to standard output"
    predict.add_argument("--output", metavar="FILE", help=f"where to write: {formats}")
    add_columns(predict, "--keep", help="columns to write before the predictions, such as numbers of the rows")
    _add_options(fit)
    return arguments


def auto_or_integer(text: str) -> str | int:
    """The value of an option that is "auto" or a whole number."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'auto'") from None


def _add_options(fit: argparse.ArgumentParser) -> None:
    """Add the options of ``xgpc fit``; None stands for the default of ``GPClassifier``."""
    add = fit.add_argument
    add("--model", required=True, metavar=f"FILE{MODEL_ENDING}", help="where to save the model")
    add_columns(fit, "--drop", help="columns that are no features, such as numbers of the rows")
    categorical = "columns of names that look like numbers, such as postcodes"
    add_columns(fit, "--categorical", dest="categorical_features", default=None, help=categorical)
    number = partial(add, type=auto_or_integer, metavar="N")
    number("--inducing", dest="n_inducing", help="number of inducing points (default: auto, up to 256)")
    near = "near rows that a prediction also looks at; 0: none, and the model holds no training rows (default: auto)"
    number("--neighbors", dest="n_neighbors", help=near)
    # The linear system is another estimator.
    systems = [name for name in SYSTEMS if name != "linear-BSVM"]
    add("--system", choices=systems, help="start from the options of a paper's system; others override them")
    two_class = ", ".join(name for name in LIKELIHOODS if name not in MULTI_CLASS)
    classes = f"for two classes: {two_class}; the others: for any number (default: logit, for more classes softmax)"
    add("--likelihood", choices=list(LIKELIHOODS), help=classes)
    bounds = dict.fromkeys(bound for bounds in LIKELIHOODS.values() for bound in bounds)
    add("--bound", choices=["auto", *bounds], help="bound on the evidence (default: auto, the likelihood's first)")
    share = "kernel: classes share one, with its inducing points; none: each has its own (default: auto)"
    add("--share", choices=("auto", "kernel", "none"), help=share)
    add("--batch-size", type=int, metavar="N", help="rows of a mini-batch (default: all rows)")
    learning = "how the kernel's parameters are learned; the bound taylor takes alternate (default: profile)"
    add("--optimizer", choices=(*get_args(OptimizerName), "none"), help=learning)
    add("--verbose", action="count", help="tell on standard error how the fit goes, and what it decides")
    add("--max-iter", type=int, metavar="N", help="most iterations (default: 200)")
    add("--max-time", type=float, metavar="SECONDS", help="when to end with the best so far (default: never)")
    add("--seed", dest="random_state", type=int, default=0, metavar="N", help="of the sampling in the fit (default: 0)")
    add("--jobs", dest="n_jobs", type=int, default=-1, metavar="N", help="threads (default: -1, all cores)")
