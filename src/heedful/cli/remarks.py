"""What was out of the ordinary with inputs: each of the first is told, the others are counted."""

from collections import Counter
from typing import Any

from heedful.cli.output import log
from heedful.tasks.prediction import Prediction

FIRST = 10
"""How many of a sort are told one by one."""


class Remarks:
    """Tells them as answers come.

    What could not be read is always told. Unknown words and all else are counted apart, so that many of the
    one do not hide the other.
    """

    def __init__(self) -> None:
        self._told: Counter[str] = Counter()

    def of(self, prediction: Prediction, given: Any) -> None:
        """What is told of one answer; ``given`` is its input."""
        from heedful.tasks.unknown import is_of_unknown_words

        if prediction.error:
            log(f"heedful: {prediction.error}")
        elif prediction.note:
            sort = "unknown words" if is_of_unknown_words(prediction.note) else "a note"
            self._told[sort] += 1
            if self._told[sort] <= FIRST:
                log(f"heedful: {prediction.note}: {given[:60]!r}{'…' * (len(given) > 60)}")

    def rest(self) -> None:
        """How many there were besides, in the end."""
        for sort, n in self._told.items():
            if n > FIRST:
                more = f"{n - FIRST:,} more input{'s' if n > FIRST + 1 else ''}"
                log(f"heedful: … and {more} with {sort} (with --jsonl every answer has its note)")
