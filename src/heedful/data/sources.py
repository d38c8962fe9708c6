"""All data sources, those that combine others, and the source for a user's own file."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, NonNegativeInt, field_validator

from heedful.data.annotated import ConllSource, IdxSource, SquadSource
from heedful.data.corpora import open_corpus, require_corpus
from heedful.data.delimited import TsvSource
from heedful.data.folders import CaptionedFolderSource, FolderSource, SegmentedFolderSource
from heedful.data.functions import PythonSource
from heedful.data.hub import DatasetsSource
from heedful.data.json_lines import JsonlSource
from heedful.data.lines import LocatedRow, Location, Row, Rows, Source
from heedful.data.memory import MemorySource
from heedful.data.text import FilesSource, TextSource
from heedful.data.tmx import TmxSource
from heedful.errors import DataError, RequestError, nearest

T = TypeVar("T")


class BuiltInSource(Source):
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

    def open(self, root: Path) -> Rows:
        """Yield the rows, located by row number."""
        label = f"{self.name}/{self.split}"
        rows = open_corpus(self.name, self.split, seed=self.seed)
        return (LocatedRow(self._select(row, label), Location(label, n)) for n, row in enumerate(rows, 1))

    def _select(self, row: Row, label: str) -> Row:
        for column in self.columns.values():
            if column not in row:
                raise DataError(f"{label}: no column {column!r}{nearest(column, row)}")
        return {name: row[column] for name, column in self.columns.items()} if self.columns else row


_OneSource = (
    FilesSource
    | TextSource
    | TsvSource
    | JsonlSource
    | ConllSource
    | SquadSource
    | DatasetsSource
    | BuiltInSource
    | IdxSource
    | FolderSource
    | CaptionedFolderSource
    | SegmentedFolderSource
    | MemorySource
    | PythonSource
    | TmxSource
)


class BesideSource(Source):
    """Join row n of every source into one row, for columns that are in different files.

    Args:
        sources: the sources, each with its own columns.
    """

    kind: Literal["beside"] = "beside"
    sources: list[Annotated[_OneSource, Field(discriminator="kind")]] = Field(min_length=2)

    def open(self, root: Path) -> Rows:
        """Yield the joined rows of the sources, located by the first source."""
        return self._joined([open_source(source, root) for source in self.sources])

    def _joined(self, sources: Sequence[Rows]) -> Rows:
        for number, parts in enumerate(zip_longest(*sources), start=1):
            if None in parts:
                exhausted = parts.index(None)
                raise DataError(
                    "sources joined by kind=beside must have the same number of rows: "
                    f"source {exhausted + 1} ({self.sources[exhausted].kind}) ends after {number - 1:,}"
                )
            row: Row = {}
            for part in parts:
                if duplicates := row.keys() & part.row.keys():
                    raise DataError(f"{part.location}: column {min(duplicates)!r} is also in another source")
                row |= part.row
            yield LocatedRow(row, parts[0].location)


class ChainSource(Source):
    """Concatenate the rows of several sources, to train on several corpora.

    Args:
        sources: the sources, each with the columns of the task and its own ``skip`` and ``limit``.
    """

    kind: Literal["chain"] = "chain"
    sources: list[Annotated[_OneSource | BesideSource, Field(discriminator="kind")]] = Field(min_length=2)

    def open(self, root: Path) -> Rows:
        """Yield the rows of the sources in order; missing files of any source are reported at once."""
        return chain.from_iterable([open_source(source, root) for source in self.sources])

    def open_whole(self, root: Path) -> Rows:
        """Yield the rows of the sources with the fields of their records."""
        return chain.from_iterable([open_source(source, root, whole=True) for source in self.sources])


SourceConfig = Annotated[_OneSource | BesideSource | ChainSource, Field(discriminator="kind")]


def list_columns(config: object) -> Iterator[str]:
    """Yield the columns of a source, or of its sources, whose lists are kept as lists (`JsonlSource`)."""
    yield from getattr(config, "lists", ())
    yield from getattr(config, "fixed_lists", ())
    for source in getattr(config, "sources", ()):
        yield from list_columns(source)


def open_source(config: Source, root: Path, *, whole: bool = False) -> Rows:
    """Yield the rows of a source, from ``skip`` on, at most ``limit``.

    Args:
        config: one of `SourceConfig`.
        root: the folder that relative paths are resolved against, that of the recipe.
        whole: whether rows have the fields of their records (`Source.open_whole`).

    Raises:
        DataError: if a file is missing (at once), its content is not as configured, or ``skip`` skips all
            rows (when reached).
    """
    rows, column = config.open_whole(root) if whole else config.open(root), config.group_column
    groups: Iterator[tuple[LocatedRow[Row], ...]]
    if column is None:
        groups = ((row,) for row in rows)
    else:
        groups = (tuple(group) for _, group in groupby(rows, lambda row: row.row[column]))
    return chain.from_iterable(islice(_after_skipped(groups, config), config.limit))


def _after_skipped(groups: Iterator[T], config: Source) -> Iterator[T]:
    n_skipped = sum(1 for _ in islice(groups, config.skip))
    is_empty = True
    for group in groups:
        is_empty = False
        yield group
    if is_empty and n_skipped:
        unit = f"{config.group_column or 'row'}s"
        raise DataError(f"skip: {config.skip} leaves no rows: there are only {n_skipped:,} {unit}")
