"""Data source for the corpora that are included in the package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, field_validator

from heedful.data.corpora import open_corpus, require_corpus
from heedful.data.lines import LocatedRow, Location, Row
from heedful.data.range import Ranged
from heedful.errors import DataError, RequestError, nearest


class BuiltInSource(Ranged):
    """A corpus that is included in the package: no download, always the same.

    Args:
        name: the corpus, a key of `heedful.data.corpora.CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of a generated corpus; published scores refer to 0.
        columns: maps each column to one of the corpus: ``{text: source}`` takes one side of a translation
            corpus. Empty: all columns of the corpus under their own names.
    """

    kind: Literal["built-in"] = "built-in"
    name: str
    split: Literal["train", "valid", "test"]
    seed: NonNegativeInt = 0
    columns: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _exists(cls, name: str) -> str:
        try:
            require_corpus(name)
        except RequestError as error:
            raise ValueError(str(error)) from None
        return name


def open_built_in(config: BuiltInSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the rows, located by row number.

    Raises:
        DataError: if the corpus has no such column.
        RequestError: if there is no such corpus.
    """
    label = f"{config.name}/{config.split}"
    rows = open_corpus(config.name, config.split, seed=config.seed)
    return (
        LocatedRow(_select(row, config.columns, label), Location(label, n)) for n, row in enumerate(rows, 1)
    )


def _select(row: Row, columns: dict[str, str], label: str) -> Row:
    for column in columns.values():
        if column not in row:
            raise DataError(f"{label}: no column {column!r}{nearest(column, row)}")
    return {name: row[column] for name, column in columns.items()} if columns else row
