"""The corpora that come with the package, as a source."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, field_validator

from heedful.data.corpora import open_corpus, require_corpus
from heedful.data.lines import LocatedRow, Location, Row
from heedful.data.range import Ranged
from heedful.errors import DataError, RequestError, nearest


class BuiltInSource(Ranged):
    """A corpus that comes with the package: no download, always the same.

    Args:
        name: see `heedful.data.corpora.CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: which of the possible corpora; 0 is the one that published scores refer to.
        columns: for each column, the corpus's own: ``{text: source}`` takes one side of a translation.
            Empty: all of the corpus's, under their own names.
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
    """The rows, with numbers for lines.

    Raises:
        DataError: the corpus has no such column.
        RequestError: there is no such corpus.
    """
    label = f"{config.name}/{config.split}"
    rows = open_corpus(config.name, config.split, seed=config.seed)
    return (
        LocatedRow(_chosen(row, config.columns, label), Location(label, n)) for n, row in enumerate(rows, 1)
    )


def _chosen(row: Row, columns: dict[str, str], label: str) -> Row:
    for column in columns.values():
        if column not in row:
            raise DataError(f"{label}: there is no column {column!r}{nearest(column, row)}")
    return {name: row[column] for name, column in columns.items()} if columns else row
