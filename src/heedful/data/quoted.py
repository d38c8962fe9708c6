"""Records of fields in double quotes (CSV), also with blanks around the quotes."""

import csv
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from heedful import limits
from heedful.data.lines import Location
from heedful.data.spreadsheets import LocatedLines
from heedful.errors import DataError

_REST_OF_FIELD = re.compile(r'[^"]*+(?:""[^"]*+)*+"')
"""What is left of a quoted field that began on an earlier line."""

MOST_LINES = 1000
"""So many further lines are searched for the end of a field whose quote follows a blank."""


class _Lines:
    """Lines with a view of those that follow.

    Args:
        located: the lines.
    """

    def __init__(self, located: LocatedLines) -> None:
        self._located = located
        self._seen: deque[tuple[Location, str]] = deque()
        self._error: DataError | None = None

    def __iter__(self) -> LocatedLines:
        """Yield the lines; an error is raised in place of its line."""
        while self._seen or self._read():
            yield self._seen.popleft()
        if self._error is not None:
            raise self._error

    def _read(self) -> bool:
        """Read a line; return False at the end, or at an error, which is kept."""
        try:
            line = None if self._error is not None else next(self._located, None)
        except DataError as error:
            self._error, line = error, None
        self._seen.extend([] if line is None else [line])
        return line is not None

    def following(self) -> Iterator[str]:
        """Yield the lines after the current one."""
        position = 0
        while position < len(self._seen) or self._read():
            yield self._seen[position][1]
            position += 1


def quoted_records(located: LocatedLines, name: str, separator: str) -> Iterator[tuple[Location, list[str]]]:
    """Yield quoted records; one may span several lines and is located by its first.

    Args:
        located: the lines.
        name: of the file, for messages.
        separator: the character between fields.

    Raises:
        DataError: quotes do not match.
    """
    csv.field_size_limit(limits.LONGEST_LINE)  # an article may be one field, and the default is 131,072
    of_record: list[Location] = []
    padding, lines = _Padding(separator), _Lines(located)

    def texts() -> Iterator[str]:
        for location, line in lines:
            is_continued = bool(of_record)
            of_record.append(location)
            yield padding.removed(line, lines.following, is_continued=is_continued) + "\n"

    try:
        for record in csv.reader(texts(), delimiter=separator, strict=True):
            yield of_record[0], record
            of_record.clear()
    except csv.Error as error:
        problem = f"the quotes of this record do not match ({error})"
        if "new-line" in str(error):
            problem = (
                "a carriage return ends a line here, and a newline others; make them alike: "
                f"tr '\\r' '\\n' < {shlex.quote(name)} > NEW"
            )
        raise DataError(f"{of_record[0] if of_record else name}: {problem}") from None


def quotes_fields(lines: Iterable[str], separator: str) -> bool:
    """Whether the lines of a table are those of a CSV whose writer quotes fields where it must.

    Then each record has as many fields as the first, every field with a quote is in quotes, in which it is
    doubled, and there is such a field or one with a separator or a line end. A table of plain lines, in which
    a quote is text, looks like this only if its texts do.
    """
    csv.field_size_limit(limits.LONGEST_LINE)
    raw: list[str] = []

    def texts() -> Iterator[str]:
        for line in lines:
            raw.append(line)
            yield line + "\n"

    n_fields, has_evidence = 0, False
    try:
        for record in csv.reader(texts(), delimiter=separator, strict=True):
            n_fields = n_fields or len(record)
            if record and len(record) != n_fields:
                return False
            text = "\n".join(raw)
            if '"' in text:
                with_quotes = [field for field in record if '"' in field]
                if any('"' + field.replace('"', '""') + '"' not in text for field in with_quotes):
                    return False
                is_torn = len(raw) > 1 or any(separator in field for field in record)
                has_evidence |= is_torn or bool(with_quotes)
            raw.clear()
    except csv.Error:
        return False
    return has_evidence


class _Padding:
    """Blanks between separators and quotes, ``a, "b"``, which are removed.

    A quote after a blank is text for Python's reader, which would keep the quotes and split at a separator
    between them.

    Args:
        separator: the character between fields.
    """

    def __init__(self, separator: str) -> None:
        mark, content = re.escape(separator), r'"[^"]*+(?:""[^"]*+)*+'
        blanks = "" if separator == " " else " *"
        padded = rf"| +(?P<padded>{content}$)" if blanks else ""
        whole = rf'{blanks}(?P<whole>{content}"){blanks}(?=$|{mark})'
        self._field = re.compile(rf"(?P<mark>^|{mark})(?:{whole}|(?P<begun>{content}$){padded})")
        self._end = re.compile(rf"{_REST_OF_FIELD.pattern}({blanks})(?=$|{mark})")

    def removed(self, line: str, following: Callable[[], Iterator[str]], *, is_continued: bool) -> str:
        """Return a line without padding.

        Args:
            line: the line.
            following: returns the lines after it. A quote after a blank without partner in the line begins a
                field only if one of these ends it.
            is_continued: whether the line begins inside a field.
        """
        if '"' not in line or " " not in line:
            return line
        start, rest = 0, line
        if is_continued:
            end = _REST_OF_FIELD.match(line)
            if end is None:
                return line
            padded = self._end.match(line)
            start, rest = end.end(), line[(end if padded is None else padded).end() :]

        def field(match: re.Match[str]) -> str:
            groups = match.groupdict()
            if (padded := groups.get("padded")) is None:
                return groups["mark"] + (groups["whole"] or groups["begun"])
            return groups["mark"] + padded if self._ends(following()) else match[0]

        return line[:start] + self._field.sub(field, rest)

    def _ends(self, lines: Iterator[str]) -> bool:
        """Return whether the first quote of some lines that has no partner ends a field."""
        n_characters = 0
        for line in islice(lines, MOST_LINES):
            if _REST_OF_FIELD.match(line):
                return self._end.match(line) is not None
            if (n_characters := n_characters + len(line)) > limits.LONGEST_LINE:
                return False
        return False
