"""A part of the rows of a source: some left out at its beginning, and no more than so many."""

from collections.abc import Iterator
from itertools import islice

from pydantic import NonNegativeInt, PositiveInt

from heedful.config import Config
from heedful.data.lines import Located, Row
from heedful.errors import DataError


class Ranged(Config):
    """What every source can be told.

    Args:
        skip: leave out this many rows, from the first on.
        limit: give at most this many rows, after those.
    """

    skip: NonNegativeInt = 0
    limit: PositiveInt | None = None


def ranged(rows: Iterator[Located[Row]], config: Ranged) -> Iterator[Located[Row]]:
    """The rows that ``config`` leaves.

    Raises:
        DataError: ``skip`` leaves none, though there were some.
    """
    if not config.skip:
        return islice(rows, config.limit)
    return islice(_after(rows, config.skip), config.limit)


def _after(rows: Iterator[Located[Row]], n: int) -> Iterator[Located[Row]]:
    skipped = sum(1 for _ in islice(rows, n))
    first = next(rows, None)
    if first is None and skipped:
        raise DataError(f"skip: {n} leaves nothing: there are {skipped:,} rows")
    if first is not None:
        yield first
    yield from rows
