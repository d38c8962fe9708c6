"""Rows of several sources, side by side."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from heedful.data.lines import LocatedRow, Row
from heedful.errors import DataError


def put_beside(sources: Sequence[tuple[str, Iterator[LocatedRow[Row]]]]) -> Iterator[LocatedRow[Row]]:
    """One row for each row of all sources, with the columns of all, located by the first one.

    Args:
        sources: what messages call each, and its rows.

    Raises:
        DataError: two sources have a column of the same name, or they have not as many rows.
    """
    names, streams = [name for name, _ in sources], [rows for _, rows in sources]
    for number, parts in enumerate(zip_longest(*streams), start=1):
        if None in parts:
            ended = parts.index(None)
            raise DataError(
                f"the sources that stand beside each other have not as many rows: "
                f"number {ended + 1} ({names[ended]}) ends after {number - 1:,}"
            )
        row: Row = {}
        for part in parts:
            if twice := row.keys() & part.row.keys():
                raise DataError(f"{part.where}: the column {min(twice)!r} stands in another source too")
            row |= part.row
        yield LocatedRow(row, parts[0].where)
