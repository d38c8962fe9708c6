"""Select a range of the rows of a source with ``skip`` and ``limit``."""

from collections.abc import Iterator
from itertools import chain, groupby, islice
from typing import ClassVar, TypeVar

from pydantic import NonNegativeInt, PositiveInt

from heedful.config import Config
from heedful.data.lines import LocatedRow, Row
from heedful.errors import DataError

T = TypeVar("T")


class Ranged(Config):
    """Settings of every source.

    Args:
        skip: the number of rows to skip at the beginning.
        limit: the maximum number of rows after those.
    """

    together: ClassVar[str | None] = None
    """A column: consecutive rows with the same value in it count as one and are never separated."""

    skip: NonNegativeInt = 0
    limit: PositiveInt | None = None


def ranged(rows: Iterator[LocatedRow[Row]], config: Ranged) -> Iterator[LocatedRow[Row]]:
    """Yield the rows within the range of ``config``.

    Raises:
        DataError: if ``skip`` skips all rows.
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
        raise DataError(f"skip: {n} leaves no rows: there are only {skipped:,} {unit}")
    if first is not None:
        yield first
    yield from parts
