"""Join the columns of several sources row by row."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from heedful.data.lines import LocatedRow, Row
from heedful.errors import DataError


def put_beside(sources: Sequence[tuple[str, Iterator[LocatedRow[Row]]]]) -> Iterator[LocatedRow[Row]]:
    """Join row n of all sources into one row with all their columns, located by the first source.

    Args:
        sources: the name of each source for messages, and its rows.

    Raises:
        DataError: if two sources have a column of the same name, or different numbers of rows.
    """
    names, streams = [name for name, _ in sources], [rows for _, rows in sources]
    for number, parts in enumerate(zip_longest(*streams), start=1):
        if None in parts:
            ended = parts.index(None)
            raise DataError(
                "sources joined by kind=beside must have the same number of rows: "
                f"source {ended + 1} ({names[ended]}) ends after {number - 1:,}"
            )
        row: Row = {}
        for part in parts:
            if duplicates := row.keys() & part.row.keys():
                raise DataError(f"{part.where}: column {min(duplicates)!r} is also in another source")
            row |= part.row
        yield LocatedRow(row, parts[0].where)
