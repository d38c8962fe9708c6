"""Check the first row of each data set of a recipe, and the files, before the slow parts of a training.

A column that does not exist in the validation data, files that are not aligned, or an image that is missing
are found at once, and not after the tokenizer is trained.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from heedful.data.delimited import TsvSource
from heedful.data.image_paths import no_such_image
from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, expand
from heedful.data.splitting import TRAIN, DataSource, PartSource
from heedful.data.text import FilesSource, TextSource
from heedful.errors import DataError
from heedful.recipes.schema import Recipe
from heedful.runs.prepare import rows_of
from heedful.runs.required_files import NOT_FILES, errors_named, sources_of
from heedful.tasks.registry import task_for


def check_first_rows(recipe: Recipe) -> None:
    """Read one row of each data set of files, with the columns that the task needs.

    Also count the lines of aligned files, and check that the files of images exist, if a missing one would
    stop the training. Data sets that are read from pipes are left alone: they can be read only once.

    Raises:
        DataError: a data set cannot be used; the message begins with its key.
    """
    for key, source in sources_of(recipe.data).items():
        if isinstance(source, PartSource):
            if source.part != TRAIN:
                continue
            source = source.source  # once and whole: telling the parts apart reads every image
        if source.kind not in NOT_FILES and not _reads_pipes(source, recipe.folder):
            with errors_named(key):
                _check(recipe, source, training=key == "data.train")


def _check(recipe: Recipe, source: DataSource, *, training: bool) -> None:
    rows = rows_of(recipe, source, training=training)
    first = next(rows, None)
    if first is None:
        has_header = isinstance(source, TsvSource) and source.header
        lacking = "no text" if isinstance(source, TextSource) else "no rows"
        raise DataError(
            f"{', '.join(_paths(source))}: has {'a header, but no rows' if has_header else lacking}"
        )
    _require_aligned(source, recipe.folder)
    columns = task_for(recipe).columns.images
    if columns and getattr(getattr(recipe.data, "filter", None), "unreadable", "error") == "error":
        _require_images(chain([first], rows), columns)


def _require_aligned(source: DataSource, root: Path) -> None:
    """Count the lines of the files that are read to their ends."""
    if source.limit is not None:
        return
    for part in getattr(source, "sources", ()):
        _require_aligned(part, root)
    if isinstance(source, FilesSource):
        source.require_aligned(root)


def _require_images(rows: Iterator[LocatedRow], columns: tuple[str, ...]) -> None:
    for row in rows:
        for column in columns:
            image = row.row.get(column)
            if (
                isinstance(image, LazyImage)
                and isinstance(image.content, Path)
                and not image.content.exists()
            ):
                raise DataError(f"{row.location}: {no_such_image(image.name)}")


def _paths(source: object) -> Iterator[str]:
    """Yield the paths of files that a source reads."""
    given = source.columns.values() if isinstance(source, FilesSource) else [getattr(source, "paths", [])]
    for paths in given:
        yield from [paths] if isinstance(paths, str) else paths
    for part in getattr(source, "sources", ()):
        yield from _paths(part)


def _reads_pipes(source: DataSource, root: Path) -> bool:
    return any((root / expand(path)).is_fifo() for path in _paths(source))
