"""What a cluster provides: values in partitions, and functions that its workers apply to each of these."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

Result = TypeVar("Result")


@runtime_checkable
class Partitions(Protocol):
    """Batches, each a tuple of values that need not be in this process.

    Those of training rows are as for ``GPClassifier.fit_batches``, and may have no rows. Functions are pure and at
    module level: a worker that dies changes no result, as another one applies them again. Arguments can be pickled.
    """

    def __len__(self) -> int: ...

    def run(
        self, function: Callable[..., Result], common: object, each: Sequence[object]
    ) -> Generator[Result, None, None]:
        """``function(batch, common, each[i])`` of each partition i, in order; errors name it by ``in_partition``."""

    def keep(self, function: Callable[..., Any], common: object, each: Sequence[object]) -> Self:
        """The batches with the results that ``run`` would give as further values, which stay with the workers."""

    def shared(self, function: Callable[..., Any], common: object, n: int) -> Self:
        """``n`` partitions with the same batch: the value of ``function(common)``, which each worker has once."""


@contextmanager
def in_partition(number: int) -> Iterator[None]:
    """Add a note with the partition's number to an error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"(partition {number} of the rows, counted from 0)")
        raise
