"""What a user's own file is read by: the form of the run's own data, or a table that names its columns."""

from collections.abc import Sequence
from pathlib import Path

from heedful.data.conll import ConllSource
from heedful.data.lines import TextFile
from heedful.data.squad import SquadSource
from heedful.data.tables import JsonlSource, TsvSource, records_of
from heedful.errors import DataError

COMMAS = {"separator": ",", "quotes": True}
"""How most programs write tables."""

OwnTable = TsvSource | JsonlSource | ConllSource | SquadSource
"""What a user's own file can be read by."""


def own_table(path: Path, columns: Sequence[str], like: object = None) -> OwnTable:
    """A user's file with the columns under their own names: JSON lines, or fields with a header.

    Args:
        path: of the file.
        columns: that are wanted.
        like: where it is a `TsvSource`, fields are read as it reads them: by the names of such a header if
            there is one, else by its own; unless they stand under such a header between tabs, or between
            commas, with quotes. Where it is a `ConllSource` or `SquadSource`, so is the file.
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
    found = next((form for form in forms if _heads(path, form, columns)), own)
    if found is None:
        names = " and ".join(columns)
        raise DataError(
            f"{path}:1: a table begins with a line of names, {names} among them, with tabs or commas between "
            "them; or give JSON lines (.jsonl)"
        )
    return found


def _heads(path: Path, like: TsvSource, columns: Sequence[str]) -> bool:
    """Whether the first line of a file names the columns."""
    try:
        _, first = next(records_of(TextFile(path, path.name), like))
    except DataError:
        if not like.quotes:
            raise
        return False  # perhaps a quote is text there
    return set(columns) <= set(first)
