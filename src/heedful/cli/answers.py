"""Answers of commands: each with the fields of its input, and the log of their notes."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from heedful.cli.output import log
from heedful.cli.tables import TableWriter
from heedful.tasks.prediction import EMPTY, EMPTY_QUESTION, HELD_BACK, Prediction
from heedful.typing import JsonMapping

if TYPE_CHECKING:
    from heedful.data.lines import Record
    from heedful.tasks.embedding import Embedding
    from heedful.tasks.task_info import Columns

Noted = TypeVar("Noted", bound="Prediction | Embedding")

FIRST = 10
"""Number of notes per sort that are logged in full."""


def located(record: "Record", answer: Noted) -> Noted:
    """Return the answer to a record; an error, or a note on an empty input, begins with the location."""
    place = record.location
    if not str(place):
        return answer
    notes = tuple(f"{place}: {note}" if _is_of_nothing(note) else note for note in answer.notes)
    error = None if answer.error is None else with_location(answer.error, place)
    return replace(answer, notes=notes, error=error)


def with_location(error: object, location: object) -> str:
    """Return the message of an error, which begins with the location of its input if that is known."""
    text, place = str(error), str(location)
    return text if text.startswith(place) else f"{place}: {text}"


def _is_of_nothing(note: str) -> bool:
    return note.startswith((EMPTY, EMPTY_QUESTION))


def table_fields(record: "Record", table: TableWriter, columns: "Columns") -> JsonMapping:
    """Return the fields of a record for a table: words as a line, as tags are, but for JSON lines."""
    from heedful.tasks.inputs.words import as_line

    words = record.row.get(columns.inputs[0])
    if table.is_jsonl or not columns.input_lists or not isinstance(words, list):
        return record.fields
    return {name: as_line(words) if value == words else value for name, value in record.fields.items()}


class NoteLog:
    """Log notes and errors of answers: the first notes of each sort in full, the others as a count.

    Errors are always logged. Unknown words and other notes are counted separately, so that many of one sort
    do not hide the other.
    """

    def __init__(self) -> None:
        self.n = self.failed = self.held_back = 0
        self._counts: Counter[str] = Counter()
        self._odd: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, answer: "Prediction | Embedding", input_text: Any, location: object = "") -> None:
        """Log the note or error of one answer.

        Args:
            answer: the answer.
            input_text: its input.
            location: where the input is; empty: unknown.
        """
        from heedful.tasks.inputs.texts import is_of_unknown_words

        self.n += 1
        if answer.error:
            self.failed += 1
            log(f"heedful: {answer.error}")
            return
        self._add_odd(answer, input_text, str(location))
        notes = [note for note in answer.notes if not note.startswith(HELD_BACK)]
        self.held_back += len(notes) < len(answer.notes)
        if notes:
            kind = "unknown words" if all(map(is_of_unknown_words, notes)) else "a note"
            self._counts[kind] += 1
            if self._counts[kind] <= FIRST:
                text = f": {input_text[:60]!r}{'…' * (len(input_text) > 60)}" if input_text else ""
                log(f"heedful: {'; '.join(notes)}{text}")

    def _add_odd(self, answer: "Prediction | Embedding", input_text: Any, location: str) -> None:
        """Count an input that is answered like any other, although it is hardly a text."""
        from heedful.data.findings import NUL

        texts = [input_text] if isinstance(input_text, str) else input_text
        kinds = []
        if isinstance(texts, list) and any(isinstance(text, str) and NUL in text for text in texts):
            kinds.append("with NUL characters, which are read as text")
        if isinstance(input_text, str) and input_text.isspace() and not answer.notes:
            kinds.append("of white space alone, which is read as text")
        for kind in kinds:
            self._odd[kind] += 1
            self._first.setdefault(kind, f" (first at {location})" if location else "")

    def summarize(self) -> None:
        """Log how many inputs are hardly texts, and how many further notes of each sort there were."""
        if self.held_back:
            verb = "is" if self.held_back == 1 else "are"
            counts = f"{self.held_back:,} of {self.n:,} answers {verb} held back"
            log(f"heedful: {counts}: {HELD_BACK} the threshold")
        for kind, n in self._odd.items():
            log(f"heedful: {n:,} input{'s' * (n > 1)} {kind}{self._first[kind]}")
        for kind, n in self._counts.items():
            if n > FIRST:
                further = f"{n - FIRST:,} more input{'s' if n > FIRST + 1 else ''}"
                log(f"heedful: … and {further} with {kind} (--to jsonl and --out have all notes)")
