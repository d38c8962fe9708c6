"""Records of fields in double quotes (CSV), also with blanks around the quotes."""

import csv
import re
import shlex
from collections.abc import Iterator

from heedful import limits
from heedful.data.lines import Location
from heedful.data.spreadsheets import LocatedLines
from heedful.errors import DataError

_REST_OF_FIELD = re.compile(r'[^"]*+(?:""[^"]*+)*+"')
"""What is left of a quoted field that began on an earlier line."""


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
    padded = _padded_fields(separator)

    def texts() -> Iterator[str]:
        for location, line in located:
            is_continued = bool(of_record)
            of_record.append(location)
            yield _without_padding(line, padded, is_continued=is_continued) + "\n"

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


def _padded_fields(separator: str) -> re.Pattern[str]:
    """Return the pattern of a quoted field with its padding, or of one that ends on a later line."""
    mark, content = re.escape(separator), r'"[^"]*+(?:""[^"]*+)*+'
    padding = "" if separator == " " else " *"
    return re.compile(rf'(^|{mark})(?:{padding}({content}"){padding}(?=$|{mark})|({content}$))')


def _without_padding(line: str, padded: re.Pattern[str], *, is_continued: bool) -> str:
    """Return a line without the blanks between separators and quotes, ``a, "b"``.

    A quote after a blank is text for Python's reader, which would keep the quotes and split at a separator
    between them.
    """
    if '"' not in line or " " not in line:
        return line
    start = 0
    if is_continued:
        end = _REST_OF_FIELD.match(line)
        if end is None:
            return line
        start = end.end()
    return line[:start] + padded.sub(lambda match: match[1] + (match[2] or match[3]), line[start:])
