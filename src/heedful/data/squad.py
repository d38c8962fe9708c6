"""Questions about passages in the form of SQuAD (Rajpurkar et al. 2016 and 2018): one JSON object a file."""

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

    Questions stand below their paragraphs, and these below articles, as in the published files; there may be
    several right answers, or none (``is_impossible``), which is an empty list.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
    """

    kind: Literal["squad"] = "squad"
    paths: Paths


def open_squad(config: SquadSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """The questions of files, each located by its number in its file.

    Raises:
        DataError: a file is missing (at once), or is not such a file (when reached).
    """
    return in_turn(config.paths, root, _rows)


def _rows(file: TextFile) -> Iterator[LocatedRow[Row]]:
    try:
        whole = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name}: not JSON that can be read ({error})") from None
    number = 0
    for article in _entries(whole, "data", file.name):
        for paragraph in _entries(article, "paragraphs", file.name):
            for asked in _entries(paragraph, "qas", file.name):
                number += 1
                yield _row(paragraph, asked, Location(f"{file.name}, question {number}"))


def _row(paragraph: Any, asked: Any, where: Location) -> LocatedRow[Row]:
    answers = [] if asked.get("is_impossible") else [*_entries(asked, "answers", str(where))]
    row = {
        "question": field_at(asked, "question", where),
        "passage": field_at(paragraph, "context", where),
        "answer": [text for answer in answers for text in texts_at(answer, "text", where)],
        "start": [place for answer in answers for place in texts_at(answer, "answer_start", where)],
    }
    return LocatedRow(row, where)


def _entries(record: Any, field: str, name: str) -> Iterable[Any]:
    """The objects in a list of an object.

    Raises:
        DataError: there is no such list.
    """
    found = record.get(field) if isinstance(record, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise DataError(f"{name}: no list {field!r} of objects, as SQuAD's files have: data, paragraphs, qas")
    return found
