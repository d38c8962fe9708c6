"""Rows and files that a training leaves out: by its settings, their names, or labels that are only there."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from heedful.data.findings import counted
from heedful.data.folders import unread_files
from heedful.data.image_files import unread_note
from heedful.data.lines import LocatedRow, Location, Row
from heedful.data.report import DataReport
from heedful.data.splitting import TRAIN, PartSource
from heedful.errors import DataError, quoted
from heedful.recipes.schema import Recipe
from heedful.runs.required_files import sources_of
from heedful.tasks.base import Task
from heedful.tasks.inputs.words import TAGS

N_SHOWN = 5
"""Number of labels in a note."""


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


class UnseenLabels:
    """Leave out validation rows with labels that do not occur in the training rows.

    ``data.split`` selects rows by their content, so the only row of a label may be in the validation data.

    Args:
        task: the task, with the labels of the training rows.
        report: counts the rows that are left out.
    """

    def __init__(self, task: Task, report: DataReport) -> None:
        self.task, self.report = task, report
        self.name = "tag" if TAGS in task.columns.required else "label"
        self.counts: Counter[str] = Counter()
        self.first: Location | None = None
        self.n_rows = self.n_left_out = 0

    def without(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
        """Yield the rows whose labels all occur in the training rows.

        Raises:
            DataError: there are rows, but none of this kind.
        """
        for row in rows:
            self.n_rows += 1
            if not (unseen := self.task.unseen_labels(row)):
                yield row
                continue
            self.first = self.first or row.location
            self.n_left_out += 1
            self.counts.update(dict.fromkeys(unseen, 1))
            self.report.rows += 1
            self.report.drop(f"{self.name} not in the training rows", row.location)
        if self.n_rows and self.n_left_out == self.n_rows:
            raise DataError(
                f"no rows left: the {self.n_rows:,} that data.split took have {self.name}s that do not occur "
                f"in the training rows: {self._shown()}; if the {self.name}s are in another column, name "
                f"it, else {self._remedy()}"
            )

    def notes(self) -> Iterator[str]:
        """Yield a note about the rows that were left out, if any, for the log."""
        if self.n_left_out:
            yield (
                f"data.valid: {counted(self.n_left_out, self.n_rows)} rows of data.split are left out, since "
                f"they have {self.name}s that do not occur in the training rows: {self._shown()}; "
                f"{self._remedy()}"
            )

    def _shown(self) -> str:
        labels = ", ".join(map(quoted, islice(self.counts, N_SHOWN)))
        more = f" and {len(self.counts) - N_SHOWN:,} more" if len(self.counts) > N_SHOWN else ""
        return f"{labels}{more} (first at {self.first})"

    def _remedy(self) -> str:
        return f"add rows with these {self.name}s, change data.split, or give validation data in data.valid"
