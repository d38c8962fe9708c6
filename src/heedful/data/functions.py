"""Rows from a function of the user's: of a database, a service, or a format that no other source reads."""

import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from heedful import plugins
from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Location, Row, Rows, Source
from heedful.data.text import field_at
from heedful.errors import DataError, nearest
from heedful.plugins import build_reference, check_settings, is_reference

GIVEN = ("root",)
"""Parameters of a function that it gets without being named in ``arguments``."""


class PythonSource(Source):
    """Rows that a function of your own returns or yields.

    A row is a mapping of column names to texts, numbers (which become text), lists of these, or images: the
    path of a file (relative to the recipe's folder), the bytes of one, an array, or an image of Pillow. The
    function is called for each pass over the data, and must give the same rows each time. Its package is
    imported only if it is allowed (``--plugin my_package``).

    Args:
        function: its import path, ``my_package.data:rows``.
        arguments: its arguments by name. A parameter named ``root`` gets the recipe's folder, a
            `pathlib.Path`.
        columns: the name in the rows of each column; empty: all columns under their own names.
    """

    kind: Literal["python"] = "python"
    function: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)

    @field_validator("function")
    @classmethod
    def _is_an_import_path(cls, function: str) -> str:
        if not is_reference(function):
            raise ValueError(f"expected an import path such as my_package.data:rows, got {function!r}")
        return function

    def open(self, root: Path) -> Rows:
        """Yield the rows; the function is imported at once, and called when the first row is read.

        Raises:
            DataError: if the function may not be imported, does not have these arguments, fails, or gives
                something other than rows; the message has the row, the exception and where it was raised.
        """
        with self._errors_of_user(self.function):
            check_settings(self.function, self.arguments, GIVEN)
        return self._rows(root)

    def _rows(self, root: Path) -> Rows:
        with self._errors_of_user(self.function):
            rows = build_reference(self.function, self.arguments, {"root": root})
            if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
                raise DataError(f"{self.function}: expected rows (mappings), got {_type_name(rows)}")
            iterator = iter(rows)
        for number in count(1):
            with self._errors_of_user(f"{self.function}: row {number}"):
                row = next(iterator, _END)
            if row is _END:
                return
            location = Location(self.function, number)
            yield LocatedRow(self._cells(row, location), location)

    @contextmanager
    def _errors_of_user(self, place: str) -> Iterator[None]:
        """Convert any exception of the user's code to `DataError`, with where it was raised."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            if isinstance(error, ValueError) and frames[-1].filename == plugins.__file__:
                raise DataError(str(error)) from None  # the function was refused or not found
            cause = f"{type(error).__name__}: {error}".removesuffix(": ")
            module = sys.modules.get(self.function.partition(":")[0])
            own_frames = [frame for frame in frames if frame.filename == getattr(module, "__file__", None)]
            places = [f"{frame.filename}:{frame.lineno}" for frame in (*own_frames[-1:], frames[-1])]
            raised = " in a call at ".join(dict.fromkeys(reversed(places)))
            raise DataError(f"{place}: {cause} (raised at {raised})") from error

    def _cells(self, row: object, location: Location) -> Row:
        if not isinstance(row, Mapping):
            raise DataError(f"{location}: expected a mapping of columns to values, got {_type_name(row)}")
        cells: Row = {}
        for column, name in (self.columns or {name: name for name in row}).items():
            if name not in row:
                names = [name for name in row if isinstance(name, str)]
                raise DataError(f"{location}: no column {name!r}{nearest(name, names)}")
            if not isinstance(name, str):
                raise DataError(f"{location}: the name of a column must be text, got {name!r}")
            cells[column] = _cell(row[name], name, location)
        return cells


_END = object()


def _cell(value: object, name: str, location: Location) -> str | list[str] | LazyImage:
    """Return a value as the columns of other sources have it."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, np.ndarray | bytes | LazyImage) or type(value).__module__.startswith("PIL."):
        return LazyImage.of(value, str(location))
    value = [*map(_plain, value)] if isinstance(value, list | tuple) else _plain(value)
    if value is not None and not isinstance(value, str | int | float | list | dict):
        raise DataError(
            f"{location}: column {name!r}: expected text, a number, a list of these or an image, got "
            f"{_type_name(value)}"
        )
    return field_at({name: value}, name, location)


def _plain(value: object) -> object:
    """Return numbers of numpy as those of Python, and paths as text."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _type_name(value: object) -> str:
    return f"a value of type {type(value).__name__}"
