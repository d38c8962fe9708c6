"""Tables as spreadsheet programs write them: hints in CSV files, cells with errors, and workbooks of Excel.

The library (openpyxl, in the extra ``excel``) is imported when a workbook is read.
"""

import datetime
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

from heedful.data.lines import File, Location, Stream
from heedful.data.opening import WORKBOOK
from heedful.data.signatures import ZIP
from heedful.errors import DataError

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
        texts = [*map(cell_text, row)]
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
