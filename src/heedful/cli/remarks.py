"""Log notes and errors of predictions: the first of each sort in full, the others as a count."""

from collections import Counter
from typing import Any

from heedful.cli.output import log
from heedful.tasks.prediction import Prediction

FIRST = 10
"""Number of notes per sort that are logged in full."""


class NoteLog:
    """Log notes and errors as predictions arrive.

    Errors are always logged. Unknown words and other notes are counted separately, so that many of one sort
    do not hide the other.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, prediction: Prediction, given: Any) -> None:
        """Log the note or error of one prediction; ``given`` is its input."""
        from heedful.tasks.unknown import is_of_unknown_words

        if prediction.error:
            log(f"heedful: {prediction.error}")
        elif prediction.note:
            sort = "unknown words" if is_of_unknown_words(prediction.note) else "a note"
            self._counts[sort] += 1
            if self._counts[sort] <= FIRST:
                log(f"heedful: {prediction.note}: {given[:60]!r}{'…' * (len(given) > 60)}")

    def summarize(self) -> None:
        """Log how many further notes of each sort there were."""
        for sort, n in self._counts.items():
            if n > FIRST:
                more = f"{n - FIRST:,} more input{'s' if n > FIRST + 1 else ''}"
                log(f"heedful: … and {more} with {sort} (use --jsonl to get the note of every answer)")
