"""Notes on the rows and files that a training leaves out by its settings or by their names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.data.folders import unread_files
from heedful.data.image_files import unread_note
from heedful.data.splitting import TRAIN, PartSource
from heedful.recipes.schema import Recipe
from heedful.runs.required_files import sources_of


def left_out(recipe: Recipe) -> Iterator[str]:
    """Yield a note for each source of which rows are skipped, or whose folder has files that are not read."""
    for key, source in sources_of(recipe.data).items():
        if isinstance(source, PartSource):
            if source.part != TRAIN:
                continue
            source = source.source
        for part in _each(source):
            unit = f"{part.group_column or 'row'}s"
            if part.skip:
                yield f"{key}: skip leaves out the first {part.skip:,} {unit} of {part.kind}"
            if part.limit is not None:
                yield f"{key}: limit reads at most {part.limit:,} {unit} of {part.kind}"
        yield from (f"{key}: {note}" for note in unread(source, recipe.folder))


def unread(source: Any, folder: Path) -> Iterator[str]:
    """Yield a note for each folder of images of a source that has files which are not read.

    Args:
        source: the source, or a part of one.
        folder: the folder that relative paths are resolved against.
    """
    for part in _each(source.source if isinstance(source, PartSource) else source):
        if note := unread_note(unread_files(part, folder)):
            yield note


def _each(source: Any) -> Iterator[Any]:
    """Yield a source, and those that it combines."""
    yield source
    for part in getattr(source, "sources", ()):
        yield from _each(part)
