"""What a user's own file is read by: the form of the run's own data, or a table that names its columns."""

from collections.abc import Sequence
from pathlib import Path

from heedful.data.conll import ConllSource
from heedful.data.lines import TextFile
from heedful.data.squad import SquadSource
from heedful.data.tables import JsonlSource, TsvSource, records_of

OwnTable = TsvSource | JsonlSource | ConllSource | SquadSource
"""What a user's own file can be read by."""


def own_table(path: Path, columns: Sequence[str], like: object = None) -> OwnTable:
    """A user's file with the columns under their own names: JSON lines, or fields with a header.

    Args:
        path: of the file.
        columns: that are wanted.
        like: where it is a `TsvSource`, fields are read as it reads them: by the names of such a header if
            there is one, else by its own; unless they stand under such a header between tabs. Where it is a
            `ConllSource` or `SquadSource`, so is the file.
    """
    where, named = str(path.resolve()), {column: column for column in columns}
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return JsonlSource(paths=where, columns=named)
    if isinstance(like, ConllSource | SquadSource):
        return like.model_copy(update={"paths": where, "skip": 0, "limit": None})
    plain = TsvSource(paths=where, columns={**named}, header=True)
    if isinstance(like, TsvSource) and path.is_file():
        own = like.model_copy(update={"paths": where, "skip": 0, "limit": None})
        if _heads(path, own, columns):
            return own.model_copy(update={"columns": named, "header": True})
        if not _heads(path, plain, columns):
            return own
    return plain


def _heads(path: Path, like: TsvSource, columns: Sequence[str]) -> bool:
    """Whether the first line of a file names the columns."""
    _, first = next(records_of(TextFile(path, path.name), like))
    return set(columns) <= set(first)
