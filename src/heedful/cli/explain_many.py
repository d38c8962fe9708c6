"""Several explanations of ``heedful explain``, of each input by itself: a table, a folder, or JSON lines."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from heedful.cli.answers import with_location
from heedful.cli.output import log
from heedful.errors import DataError, RequestError, WorkError
from heedful.files import check_parent, whole_file
from heedful.typing import JsonMapping

if TYPE_CHECKING:
    from heedful.data.lines import Record
    from heedful.explain.explanation import Explanation
    from heedful.tasks.prediction import TaskInput

LINES = ".jsonl"
"""Suffix of a file with an explanation in each line."""

INDEX = "index"
"""Name of the page that lists the others."""

IDS = "id"
"""Field that names the pages if no other is given, in whatever case."""

LONGEST_NAME = 100
"""Maximum characters of the name of a page."""

Inputs = Iterable[tuple["Record", "TaskInput"]]

T = TypeVar("T")


@dataclass
class ExplainedInputs(Generic[T]):
    """Explains inputs one by one; an input that cannot be explained is logged.

    Args:
        inputs: each with its record.
        explain: returns the explanation of an input, or what is written of it.
        out: what is written, for messages.
    """

    inputs: Inputs
    explain: Callable[["TaskInput"], T]
    out: Path
    n: int = 0
    failures: list[Exception] = field(default_factory=list)

    def __iter__(self) -> "Iterator[tuple[Record, T | Exception]]":
        for record, task_input in self.inputs:
            self.n += 1
            try:
                if record.error is not None:
                    raise record.error
                yield record, self.explain(task_input)
            except (DataError, RequestError) as error:
                self.failures.append(error)
                log(f"heedful: {with_location(error, record.location)}")
                yield record, error

    def check_some(self) -> None:
        """Check, before the output is complete, that an input was explained.

        Raises:
            RequestError: there is no input.
        """
        if not self.n:
            raise RequestError(f"--out {self.out}: there is no input")
        if len(self.failures) == self.n:
            raise self.failures[0]

    def finish(self) -> None:
        """Report what was written.

        Raises:
            WorkError: some inputs could not be explained; the output has the others.
        """
        log(f"wrote {self.out}")
        if self.failures:
            raise WorkError(f"{len(self.failures)} of {self.n} inputs could not be explained")


def is_folder(out: Path) -> bool:
    """Whether an output is a folder of pages: one that exists, or a name without a suffix."""
    return out.is_dir() or not out.suffix


def check_folder(out: Path) -> None:
    """Check, before any work, that pages can be written to a folder.

    Raises:
        RequestError: it is a file, its parent does not exist, or it is a run.
    """
    if out.exists() and not out.is_dir():
        raise RequestError(f"--out {out}: is a file; give a folder, or a name with a suffix")
    if (out / "run.json").exists():
        raise RequestError(f"--out {out}: is a run; choose another folder for pages")
    check_parent(out, "--out")


def write_pages(
    inputs: "ExplainedInputs[Explanation]", ids: str | None, save: "Callable[[Explanation, Path], None]"
) -> None:
    """Write a page for each input and one that lists them.

    Args:
        inputs: the inputs.
        ids: the field whose text names the page; None: `IDS` if there is one, otherwise the number.
        save: writes the page of an explanation.

    Raises:
        RequestError: an input has no such field; or as of `ExplainedInputs`.
        WorkError: as of `ExplainedInputs.finish`.
    """
    from heedful.explain.page.index import Entry, index_page

    folder, entries, used = inputs.out, list[Entry](), {INDEX}
    for record, found in inputs:
        name = _page_name(record.fields, ids, inputs.n, used)
        if isinstance(found, Exception):
            entries.append(Entry(name, None, str(found)))
        else:
            folder.mkdir(exist_ok=True)
            save(found, folder / f"{name}.html")
            entries.append(Entry(name, found))
    inputs.check_some()
    with whole_file(folder / f"{INDEX}.html") as file:
        file.write(index_page(entries))
    inputs.finish()


def write_lines(inputs: "ExplainedInputs[Explanation]") -> None:
    """Write an explanation in each line, with the fields of its input.

    Raises:
        RequestError: as of `ExplainedInputs`.
        WorkError: as of `ExplainedInputs.finish`.
    """
    from heedful.explain.json_format import json_pieces

    with whole_file(inputs.out) as file:
        for record, found in inputs:
            if not isinstance(found, Exception):
                file.writelines(json_pieces(found, record.fields))
                file.write("\n")
        inputs.check_some()
    inputs.finish()


def _page_name(fields: JsonMapping, ids: str | None, number: int, used: set[str]) -> str:
    """Return a name without a suffix that is none of those ``used``, which it joins.

    Raises:
        RequestError: there is no field ``ids``.
    """
    if ids is not None and ids not in fields:
        known = ", ".join(map(repr, fields))
        raise RequestError(f"--id {ids}: input {number} has no such field; expected one of {known}")
    key = ids or next((key for key in fields if key.casefold() == IDS), None)
    value = "" if key is None or fields[key] is None else str(fields[key])
    text = unicodedata.normalize("NFC", value[:LONGEST_NAME])
    text = re.sub(r"[^\w.-]+", "-", text)[:LONGEST_NAME].strip("-.")
    name = text or f"{number}"
    for suffix in ("", *(f"-{n}" for n in range(2, number + 2))):
        if (key := f"{name}{suffix}".casefold()) not in used:
            used.add(key)
            return f"{name}{suffix}"
    raise AssertionError("there are more names than inputs")
