"""What a cluster provides: rows in partitions, and functions that its workers apply to each of these."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

from ..status import noted

Result = TypeVar("Result")


@runtime_checkable
class Partitions(Protocol):
    """Batches of training rows that need not be in this process.

    They are as for ``GPClassifier.fit_batches``, and may have no rows. Functions are pure and at module level: a worker
    that dies changes no result, as another one applies them again. Arguments can be pickled.
    """

    def __len__(self) -> int: ...

    def run(
        self, function: Callable[..., Result], common: object, each: Sequence[object]
    ) -> Generator[Result, None, None]:
        """``function(batch, common, each[i])`` of each partition i, in order; errors name it by ``in_partition``."""


def in_partition(number: int) -> AbstractContextManager[None]:
    """Add a note with the partition's number to an error."""
    return noted(f"(partition {number} of the rows, counted from 0)")
