"""Questions about passages in SQuAD format (Rajpurkar et al. 2016 and 2018): one JSON object a file."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from heedful.data.files import Paths, in_turn
from heedful.data.lines import LocatedRow, Location, Row, TextFile, read_text
from heedful.data.range import Ranged
from heedful.data.tables import field_at, texts_at
from heedful.errors import DataError


class SquadSource(Ranged):
    """A row for each question: ``question``, ``passage``, and the lists ``answer`` and ``start``.

    Questions are nested in paragraphs and paragraphs in articles, as in the published files. A question may
    have several correct answers, or none (``is_impossible``), which gives empty lists.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
    """

    kind: Literal["squad"] = "squad"
    paths: Paths


def open_squad(config: SquadSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the questions of the files, located by their number in the file.

    Raises:
        DataError: if a file is missing (at once), or is not in SQuAD format (when reached).
    """
    return in_turn(config.paths, root, _rows)


def _rows(file: TextFile) -> Iterator[LocatedRow[Row]]:
    try:
        whole = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name}: invalid JSON ({error})") from None
    number = 0
    for article in _entries(whole, "data", file.name):
        for paragraph in _entries(article, "paragraphs", file.name):
            for question in _entries(paragraph, "qas", file.name):
                number += 1
                yield _row(paragraph, question, Location(f"{file.name}, question {number}"))


def _row(paragraph: Any, question: Any, where: Location) -> LocatedRow[Row]:
    answers = [] if question.get("is_impossible") else [*_entries(question, "answers", str(where))]
    row = {
        "question": field_at(question, "question", where),
        "passage": field_at(paragraph, "context", where),
        "answer": [text for answer in answers for text in texts_at(answer, "text", where)],
        "start": [place for answer in answers for place in texts_at(answer, "answer_start", where)],
    }
    return LocatedRow(row, where)


def _entries(record: Any, field: str, name: str) -> Iterable[Any]:
    """Return the objects in a list field of an object.

    Raises:
        DataError: if there is no such list.
    """
    found = record.get(field) if isinstance(record, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise DataError(
            f"{name}: expected a list {field!r} of objects; SQuAD files nest the lists data, paragraphs, qas"
        )
    return found
