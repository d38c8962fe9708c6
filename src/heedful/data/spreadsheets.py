"""Tables as spreadsheet programs write them: hints in CSV files, cells with errors, and workbooks of Excel.

The library (openpyxl, in the extra ``excel``) is imported when a workbook is read or written.
"""

import datetime
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any

from heedful.data.lines import File, Location, Stream
from heedful.data.opening import WORKBOOK
from heedful.data.signatures import ZIP
from heedful.errors import DataError, RequestError
from heedful.files import json_text

ERRORS = frozenset(
    ("#N/A", "#REF!", "#VALUE!", "#DIV/0!", "#NAME?", "#NUM!", "#NULL!", "#SPILL!", "#CALC!", "#GETTING_DATA")
)
"""What spreadsheets show in cells whose formula failed."""

WORKBOOKS = (".xlsx", ".xlsm")
"""Suffixes of workbooks of Excel."""

MOST_BYTES = 1 << 30
"""The largest size of an unpacked workbook."""

_HINT = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_LARGEST_WHOLE = 2**53
_EXACT = 10**15
"""Excel keeps 15 digits of a number."""
_LONGEST_CELL, _MOST_ROWS, _MOST_COLUMNS = 32_767, 1_048_576, 16_384
"""Limits of Excel, beyond which a workbook loses texts or cannot be opened."""
_ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)|[\0-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
"""What a workbook cannot contain as it is: characters that XML excludes, and what looks like their escape."""


class CellText(str):
    """The text of a cell of a workbook that is not a text.

    Attributes:
        value: the number or truth value; a workbook that is written from it has the same.
    """

    value: float | bool

    @classmethod
    def of(cls, value: float | bool) -> "CellText":
        """Return the text of a number or truth value (`cell_text`)."""
        text = cls(cell_text(value))
        text.value = value
        return text


LocatedLines = Iterator[tuple[Location, str]]


def obeying_hint(lines: LocatedLines, separator: str) -> tuple[LocatedLines, str]:
    """Return the lines without Excel's hint ``sep=;``, if it is the first, and the separator that applies."""
    first = next(lines, None)
    if first is None:
        return lines, separator
    hint = _HINT.fullmatch(first[1])
    return (chain([first], lines), separator) if hint is None else (lines, hint[1])


def is_workbook(file: File) -> bool:
    """Whether a file is a workbook of Excel (since 2007), by its content."""
    if isinstance(file, Stream) or not file.path.is_file():
        return False
    with suppress(OSError, zipfile.BadZipFile), file.path.open("rb") as stream:
        return stream.read(len(ZIP)) == ZIP and WORKBOOK in zipfile.ZipFile(stream).namelist()
    return False


def sheet_rows(file: File) -> Iterator[tuple[Location, list[str]]]:
    """Yield the rows of the first visible sheet of a workbook as texts, each as long as the first.

    Numbers are written without formats, whole ones without a point; dates as in ISO 8601. A formula has the
    value that was stored with it.

    Raises:
        DataError: if the library is missing, the workbook cannot be read or is too large, or a formula has no
            stored value.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        remedy = "save the sheet as CSV in UTF-8, or run: pip install 'heedful[excel]'"
        raise DataError(f"{file.name}: is an Excel workbook; {remedy}") from None
    _require_small(file)
    try:
        with warnings.catch_warnings(), file.path.open("rb") as values, file.path.open("rb") as formulas:
            warnings.simplefilter("ignore")  # about formats and validation, which are not read
            sheets = [
                load_workbook(values, read_only=True, data_only=True),
                load_workbook(formulas, read_only=True),
            ]
            yield from _rows(file.name, *map(_first_sheet, sheets))
    except (DataError, GeneratorExit):
        raise
    except Exception as error:  # the library raises errors of all kinds for damaged files
        problem = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{file.name}: cannot be read as an Excel workbook ({problem}); save it again"
        ) from None


def _require_small(file: File) -> None:
    with zipfile.ZipFile(file.path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > MOST_BYTES:
        raise DataError(
            f"{file.name}: the workbook has {size:,} bytes unpacked; save the sheet as CSV in UTF-8"
        )


def _first_sheet(workbook: Any) -> Any:
    sheet = next((each for each in workbook.worksheets if each.sheet_state == "visible"), None)
    if sheet is None:
        raise ValueError("no sheet is visible")
    sheet.reset_dimensions()  # the stored ones may be wrong
    return sheet


def _rows(name: str, values: Any, formulas: Any) -> Iterator[tuple[Location, list[str]]]:
    n_fields = 0
    rows = zip(values.iter_rows(values_only=True), formulas.iter_rows(values_only=True), strict=True)
    for number, (row, written) in enumerate(rows, 1):
        location = Location(name, number)
        for cell, formula in zip(row, written, strict=True):
            if cell is None and formula is not None:
                raise DataError(
                    f"{location}: the value of the formula {str(formula)[:50]!r} is not stored; open the "
                    "workbook in a spreadsheet program and save it"
                )
        texts = [CellText.of(cell) if isinstance(cell, int | float) else cell_text(cell) for cell in row]
        while len(texts) > n_fields and not texts[-1]:
            texts.pop()
        n_fields = n_fields or len(texts)
        yield location, [*texts, *[""] * (n_fields - len(texts))]


def cell_text(value: object) -> str:
    """Return the value of a cell as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_WHOLE:
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), str(value))
    return text.replace("\r\n", "\n")


def check_library(path: Path) -> None:
    """Check that workbooks can be written.

    Raises:
        RequestError: the library is missing.
    """
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise RequestError(
            f"{path}: an Excel workbook requires openpyxl; run: pip install 'heedful[excel]', or write .csv"
        ) from None


def write_sheet(file: IO[bytes], name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a workbook with one sheet, whose cells keep their types: texts are never formulas or numbers.

    Whole numbers of more digits than Excel keeps are texts, and so are lists and objects, as JSON; other
    numbers are rounded to 16 digits. `sheet_rows` reads what was written.

    Args:
        file: where to.
        name: of the file, for messages.
        header: the first row.
        rows: the others.

    Raises:
        RequestError: a text or the table is larger than Excel allows.
    """
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    if len(header) > _MOST_COLUMNS:
        raise RequestError(f"{name}: a sheet has at most {_MOST_COLUMNS:,} columns; write .csv")
    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet()
    with closing(sheet):  # also if a row is refused; the library complains about open ones
        for number, row in enumerate(chain([header], rows), 1):
            if number > _MOST_ROWS:
                raise RequestError(f"{name}: a sheet has at most {_MOST_ROWS:,} rows; write .csv")
            cells: list[Any] = []
            for value in map(_written, row):
                if not isinstance(value, str):
                    cells.append(value)
                    continue
                if len(value) > _LONGEST_CELL:
                    raise RequestError(
                        f"{name}: row {number} has a text of {len(value):,} characters; a cell has at most "
                        f"{_LONGEST_CELL:,}; write .csv"
                    )
                cells.append(WriteOnlyCell(sheet, value))
                cells[-1].data_type = "s"  # also of what looks like a formula or an error
            sheet.append(cells)
    workbook.save(file)


def _written(value: object) -> str | float | None:
    """Return the value of a cell for `write_sheet`; empty texts are empty cells."""
    if value is None or value == "":
        return None
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _EXACT):
        return value
    text = value if isinstance(value, str) else json_text(value)
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text.replace("\r\n", "\n"))
