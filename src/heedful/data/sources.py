"""Data sources: one configuration and one function for each kind."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from heedful.data.beside import put_beside
from heedful.data.builtin import BuiltInSource, open_built_in
from heedful.data.captioned_folder import CaptionedFolderSource, open_captioned_folder
from heedful.data.conll import ConllSource, open_conll
from heedful.data.files import FilesSource, open_files
from heedful.data.folder import FolderSource, open_folder
from heedful.data.hub import DatasetsSource, open_datasets
from heedful.data.idx import IdxSource, open_idx
from heedful.data.lines import LocatedRow, Location, Row
from heedful.data.range import Ranged, ranged
from heedful.data.squad import SquadSource, open_squad
from heedful.data.tables import JsonlSource, TsvSource, open_jsonl, open_tsv
from heedful.data.text import TextSource, open_text

__all__ = [
    "BesideSource",
    "BuiltInSource",
    "CaptionedFolderSource",
    "ChainSource",
    "ConllSource",
    "DatasetsSource",
    "FilesSource",
    "FolderSource",
    "IdxSource",
    "JsonlSource",
    "LocatedRow",
    "Location",
    "Row",
    "SourceConfig",
    "SquadSource",
    "TextSource",
    "TsvSource",
    "kept_lists",
    "open_source",
]

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
)


class BesideSource(Ranged):
    """Join row n of every source into one row, for columns that are in different files.

    Args:
        sources: the sources, each with its own columns.
    """

    kind: Literal["beside"] = "beside"
    sources: list[Annotated[_OneSource, Field(discriminator="kind")]] = Field(min_length=2)


def open_beside(config: BesideSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the joined rows of the sources, located by the first source.

    Raises:
        DataError: if two sources have a column of the same name, or different numbers of rows.
    """
    return put_beside([(source.kind, open_source(source, root)) for source in config.sources])


class ChainSource(Ranged):
    """Concatenate the rows of several sources, to train on several corpora.

    Args:
        sources: the sources, each with the columns of the task and its own ``skip`` and ``limit``.
    """

    kind: Literal["chain"] = "chain"
    sources: list[Annotated[_OneSource | BesideSource, Field(discriminator="kind")]] = Field(min_length=2)


def open_chain(config: ChainSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the rows of the sources in order; missing files of any source are reported at once."""
    return chain.from_iterable([open_source(source, root) for source in config.sources])


SourceConfig = Annotated[_OneSource | BesideSource | ChainSource, Field(discriminator="kind")]

OPENERS: dict[str, Callable[[Any, Path], Iterator[LocatedRow[Row]]]] = {
    "files": open_files,
    "text": open_text,
    "tsv": open_tsv,
    "jsonl": open_jsonl,
    "conll": open_conll,
    "squad": open_squad,
    "datasets": open_datasets,
    "built-in": open_built_in,
    "idx": open_idx,
    "folder": open_folder,
    "captioned-folder": open_captioned_folder,
    "beside": open_beside,
    "chain": open_chain,
}


def kept_lists(config: Any) -> Iterator[str]:
    """Yield the columns of a source, or of its sources, whose lists are kept as lists (`JsonlSource`)."""
    yield from getattr(config, "lists", ())
    for source in getattr(config, "sources", ()):
        yield from kept_lists(source)


def open_source(config: Ranged, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the rows of a source.

    Args:
        config: one of `SourceConfig`; its ``kind`` selects the function.
        root: the folder that relative paths are resolved against, that of the recipe.

    Raises:
        DataError: if a file is missing (at once), or its content is not as configured (when reached).
    """
    rows = OPENERS[config.kind](config, root)  # type: ignore[attr-defined]
    return ranged(rows, config)
