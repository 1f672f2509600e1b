"""Sources of batches: whatever can be read from the beginning, and errors that name the batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from copy import deepcopy
from typing import TypeVar

from ..names import MatrixLike
from ..rows.columnar import ArrowRows, NumpyRows
from ..rows.executor import closed_at_end
from .checks import BadRow

T = TypeVar("T")

HOW_TO_READ_AGAIN = (
    "A fit reads the rows many times. Give a function that returns a new iterator each time it is called, such as "
    "lambda: batches_of('rows.csv'), a list of batches, an object whose __iter__ begins anew, or one of "
    "xgpc.rows.from_parquet, from_arrow and from_npy"
)


def reading(
    source: object, check: Callable[[MatrixLike], T], again: bool = True
) -> Callable[[], Generator[T, None, None]]:
    """Return a function that reads a source from the beginning at each call, and yields ``check(batch)`` of each batch.

    Parameters
    ----------
    source : a function without arguments that returns an iterator, an iterable, or an object with ``__len__`` and
        ``__getitem__``
    check : a note of each of its errors names the batch, counted from 0, and the file, if the source's iterator has a
        ``place``: the name of the last batch's file and the number of its first row there
    again : whether it must be possible to read the source more than once

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
    # Another source may fill the memory of one batch with the next, which is read while the first is in use.
    is_kept = isinstance(source, list | tuple | ArrowRows | NumpyRows)

    def read() -> Generator[T, None, None]:
        begun = source() if first is None and callable(source) else source
        batches, number = _iterator(begun), 0
        if batches is None:
            kind = type(begun).__name__
            raise ValueError(f"The source's function must return an iterator of batches; it returned a {kind}.")
        with closed_at_end(batches):
            try:
                for batch in batches:
                    yield check(batch if is_kept else deepcopy(batch))
                    # The next batch is read while nobody holds the last one.
                    del batch
                    number += 1
            except Exception as error:
                name, row = getattr(batches, "place", (None, 0))
                rows = f"row {row + error.row}" if isinstance(error, BadRow) else f"rows from {row} on"
                where = "" if name is None else f"{rows} of {name!r}, "
                error.add_note(f"({where}batch {number} of the source, counted from 0)")
                raise

    return read


def _iterator(source: object) -> Iterator[object] | None:
    """Return an iterator over a source; None if there is none, or if the items are no batches (tables and arrays)."""
    if isinstance(source, str | bytes | dict) or hasattr(source, "columns") or hasattr(source, "shape"):
        return None
    if not hasattr(source, "__iter__") and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[i] for i in range(len(source)))
    return iter(source) if hasattr(source, "__iter__") else None
