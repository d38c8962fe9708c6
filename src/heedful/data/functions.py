"""Rows from a function of the user's: of a database, a service, or a format that no other source reads."""

import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from heedful.data.lines import LocatedRow, Location, Rows, Source
from heedful.data.memory import cells
from heedful.errors import DataError, type_name
from heedful.parts import build_reference, check_marked, check_settings, is_reference
from heedful.plugins import PluginError

GIVEN = ("root",)
"""Parameters of a function that it gets without being named in ``arguments``."""


class PythonSource(Source):
    """Rows that a function of your own returns or yields.

    A row is a mapping of column names to texts, numbers (which become text), lists of these, or images: the
    path of a file (relative to the recipe's folder), the bytes of one, an array, or an image of Pillow. The
    function is called for each pass over the data, and must give the same rows each time. It must have the
    decorator ``@heedful.part``, and its module is imported only if it is allowed (``--plugin ./my_rows.py``
    or ``--plugin my_package``).

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
            check_marked(self.function)
            check_settings(self.function, self.arguments, GIVEN)
        return self._rows(root)

    def _rows(self, root: Path) -> Rows:
        with self._errors_of_user(self.function):
            rows = build_reference(self.function, self.arguments, {"root": root})
            if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
                raise DataError(f"{self.function}: expected rows (mappings), got {type_name(rows)}")
            iterator = iter(rows)
        for number in count(1):
            with self._errors_of_user(f"{self.function}: row {number}"):
                row = next(iterator, _END)
            if row is _END:
                return
            location = Location(self.function, number)
            yield LocatedRow(cells(row, self.columns, location), location)

    @contextmanager
    def _errors_of_user(self, place: str) -> Iterator[None]:
        """Convert any exception of the user's code to `DataError`, with where it was raised."""
        try:
            yield
        except DataError:
            raise
        except PluginError as error:
            raise DataError(str(error)) from None
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            cause = f"{type(error).__name__}: {error}".removesuffix(": ")
            module = sys.modules.get(self.function.partition(":")[0])
            own_frames = [frame for frame in frames if frame.filename == getattr(module, "__file__", None)]
            places = [f"{frame.filename}:{frame.lineno}" for frame in (*own_frames[-1:], frames[-1])]
            raised = " in a call at ".join(dict.fromkeys(reversed(places)))
            raise DataError(f"{place}: {cause} (raised at {raised})") from error


_END = object()
