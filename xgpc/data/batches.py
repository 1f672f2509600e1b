"""Sources of batches: whatever can be read from the beginning, and errors that name the batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from copy import deepcopy
from typing import TypeVar

from ..names import MatrixLike
from ..rows.columnar import ArrowRows, NumpyRows
from .checks import BadRow

T = TypeVar("T")

HOW_TO_READ_AGAIN = (
    "A fit reads the rows many times. Give a function that returns a new iterator each time it is called, such as "
    "lambda: batches_of('rows.csv'), a list of batches, an object whose __iter__ begins anew, or one of "
    "xgpc.rows.from_parquet, from_arrow and from_npy"
)


def reading(source: object, again: bool = True) -> Callable[[], Iterator[object]]:
    """Return a function that reads a source of batches from the beginning each time it is called.

    Parameters
    ----------
    source : a function without arguments that returns an iterator, an iterable, or an object with ``__len__`` and
        ``__getitem__``
    again : whether it must be possible to read it more than once

    Raises
    ------
    ValueError
        If it is no such source, or an iterator, which can be read only once, where that is not enough.
    """
    pair = source[:2] if isinstance(source, tuple | list) and len(source) in (2, 3) else ()
    if again and [len(getattr(part, "shape", ())) for part in pair] in ([2, 1], [2, 2]):
        raise ValueError(
            "A source is a sequence of batches, each of them a tuple; got arrays, which seem to be X and y of one "
            "batch. Write fit_batches([(X, y)]), or fit(X, y)."
        )
    first, kind = _iterator(source), type(source).__name__
    if first is None and not callable(source):
        how = HOW_TO_READ_AGAIN if again else "Of rows in memory make a list of one batch, [X], or call predict_proba"
        raise ValueError(f"A source of batches must be a function or an iterable; got a {kind}. {how}.")
    if again and first is source:
        raise ValueError(f"The source is a {kind}, which can be read only once. {HOW_TO_READ_AGAIN}.")

    def read() -> Iterator[object]:
        begun = source() if first is None and callable(source) else source
        iterator = _iterator(begun)
        if iterator is None:
            kind = type(begun).__name__
            raise ValueError(f"The source's function must return an iterator of batches; it returned a {kind}.")
        return iterator

    return read


def _iterator(source: object) -> Iterator[object] | None:
    """Return an iterator over a source; None if there is none, or if the items are no batches (tables and arrays)."""
    if isinstance(source, str | bytes | dict) or hasattr(source, "columns") or hasattr(source, "shape"):
        return None
    if not hasattr(source, "__iter__") and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[i] for i in range(len(source)))
    return iter(source) if hasattr(source, "__iter__") else None


def checked_batches(
    source: object, read: Callable[[], Iterator[MatrixLike]], check: Callable[[MatrixLike], T]
) -> Generator[T, None, None]:
    """Yield ``check(batch)`` for each batch that ``read`` gives of a source.

    A note of every error names the batch, counted from 0, and the file: an iterator over files has a ``place``, the
    name of the last batch's file and the number of its first row there.
    """
    # Another source may fill the memory of one batch with the next, which is read while the first is in use.
    is_kept = isinstance(source, list | tuple | ArrowRows | NumpyRows)
    batches, number = read(), 0
    try:
        for batch in batches:
            yield check(batch if is_kept else deepcopy(batch))
            # The next batch is read while nobody holds the last one.
            del batch
            number += 1
    except Exception as error:
        name, first = getattr(batches, "place", (None, 0))
        rows = f"row {first + error.row}" if isinstance(error, BadRow) else f"rows from {first} on"
        where = "" if name is None else f"{rows} of {name!r}, "
        error.add_note(f"({where}batch {number} of the source, counted from 0)")
        raise
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()
