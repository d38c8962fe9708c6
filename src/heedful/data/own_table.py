"""Choose the source for a user's file: the format of the run's own data, or a table with a header."""

from collections.abc import Sequence
from pathlib import Path

from heedful.data.conll import ConllSource
from heedful.data.lines import TextFile
from heedful.data.squad import SquadSource
from heedful.data.tables import JsonlSource, TsvSource, records_of
from heedful.errors import DataError

COMMAS = {"separator": ",", "quotes": True}
"""The CSV format of most programs."""

OwnTable = TsvSource | JsonlSource | ConllSource | SquadSource
"""The sources that can read a user's file."""


def own_table(path: Path, columns: Sequence[str], like: object = None) -> OwnTable:
    """Return the source for a user's file: JSON lines, or a table whose header names the columns.

    Args:
        path: the file.
        columns: the required columns.
        like: the source of the run's data. If it is a `ConllSource` or `SquadSource`, the file has the same
            format. If it is a `TsvSource`, these are tried in order: its separator with a header that names
            the columns; tabs, then commas with quotes, with such a header; its own format.
    """
    where, named = str(path.resolve()), {column: column for column in columns}
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return JsonlSource(paths=where, columns=named)
    if isinstance(like, ConllSource | SquadSource):
        return like.model_copy(update={"paths": where, "skip": 0, "limit": None})
    tabs = TsvSource(paths=where, columns={**named}, header=True)
    forms = [tabs, tabs.model_copy(update=COMMAS)]
    own = None
    if isinstance(like, TsvSource):
        own = like.model_copy(update={"paths": where, "skip": 0, "limit": None})
        forms = [own.model_copy(update={"columns": named, "header": True}), *forms]
    if not path.is_file():
        return forms[0]
    found = next((form for form in forms if _has_header(path, form, columns)), own)
    if found is None:
        names = " and ".join(columns)
        raise DataError(
            f"{path}:1: expected a header with the columns {names}, separated by tabs or commas; "
            "add one, or use JSON lines (.jsonl)"
        )
    return found


def _has_header(path: Path, like: TsvSource, columns: Sequence[str]) -> bool:
    """Whether the first line of a file names the columns."""
    try:
        _, first = next(records_of(TextFile(path, path.name), like))
    except DataError:
        if not like.quotes:
            raise
        return False  # a quote may be text in this file
    return set(columns) <= set(first)
