"""A part of the rows of a source: some left out at its beginning, and no more than so many."""

from collections.abc import Iterator
from itertools import chain, groupby, islice
from typing import ClassVar, TypeVar

from pydantic import NonNegativeInt, PositiveInt

from heedful.config import Config
from heedful.data.lines import LocatedRow, Row
from heedful.errors import DataError

T = TypeVar("T")


class Ranged(Config):
    """What every source can be told.

    Args:
        skip: leave out this many rows, from the first on.
        limit: give at most this many rows, after those.
    """

    together: ClassVar[str | None] = None
    """A column: neighbours that hold the same thing there are counted as one, and are never parted."""

    skip: NonNegativeInt = 0
    limit: PositiveInt | None = None


def ranged(rows: Iterator[LocatedRow[Row]], config: Ranged) -> Iterator[LocatedRow[Row]]:
    """The rows that ``config`` leaves.

    Raises:
        DataError: ``skip`` leaves none, though there were some.
    """
    column = config.together
    if column is None:
        return _part(rows, config, "rows")
    same = (list(rows) for _, rows in groupby(rows, lambda row: row.row[column]))
    return chain.from_iterable(_part(same, config, f"{column}s"))


def _part(parts: Iterator[T], config: Ranged, unit: str) -> Iterator[T]:
    return islice(_after(parts, config.skip, unit) if config.skip else parts, config.limit)


def _after(parts: Iterator[T], n: int, unit: str) -> Iterator[T]:
    skipped = sum(1 for _ in islice(parts, n))
    first = next(parts, None)
    if first is None and skipped:
        raise DataError(f"skip: {n} leaves nothing: there are {skipped:,} {unit}")
    if first is not None:
        yield first
    yield from parts
