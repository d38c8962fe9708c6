"""Rows that a program gives, instead of a file: lists of mappings, tables of pandas, polars and datasets."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
from pydantic import Field

from heedful.data.hub import Dataset, DatasetsSource, json_fields
from heedful.data.images import LazyImage
from heedful.data.json_lines import field_at
from heedful.data.lines import LocatedRow, Location, Row, Rows, Source, WholeRow, read_cells
from heedful.errors import DataError, RequestError, nearest, type_name
from heedful.identifiers import found_in
from heedful.typing import JsonMapping

RowsLike: TypeAlias = object
"""Mappings from columns to values: any iterable of them, a function that returns one, or a table
(``pandas.DataFrame``, ``polars.DataFrame``, ``pyarrow.Table``, ``datasets.Dataset``)."""

N_CHECKED = 100
"""The number of rows that must be mappings before any work starts."""


class HeldRows:
    """Rows in memory, under a name by which recipes refer to them.

    They are held as long as this object is; a saved recipe has only the name.

    Args:
        rows: any of `RowsLike`. An iterator is read to its end; a function is called for each pass.
        label: for messages, for example ``train``.
        name: the name in recipes; by default a new one.

    Raises:
        RequestError: they are not mappings.
    """

    def __init__(self, rows: RowsLike, label: str, name: str | None = None) -> None:
        self.label, self.name = label, name or f"{label}-{uuid4().hex[:8]}"
        self.rows, self._read = rows, _reader(rows, label)
        self.is_table = _is_table(rows)
        for number, row in enumerate(islice(self._read(), N_CHECKED), 1):
            if not isinstance(row, Mapping):
                raise RequestError(
                    f"data[{label!r}]: row {number}: expected a mapping from column names to values, "
                    f"got {type_name(row)}"
                )
        _held[self.name] = self

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._read())

    def fields(self) -> list[str]:
        """Return the names in the first row."""
        return [str(key) for key in next(iter(self), {})]


_held: WeakValueDictionary[str, HeldRows] = WeakValueDictionary()


class MemorySource(Source):
    """Rows that a program gives (``heedful.train(…, data={"train": rows})``); a run has only their token ids.

    Args:
        name: which rows.
        columns: maps each column to a name in the rows. Empty: all that can be read, under their own names
            (`heedful.data.lines.PartialRow`).
    """

    kind: Literal["memory"] = "memory"
    name: str
    columns: dict[str, str] = Field(default_factory=dict)

    def open(self, root: Path) -> Rows:
        """Yield the rows, located by their number."""
        held = _held.get(self.name)
        if held is None:
            raise DataError(
                "the rows were given in Python, and runs do not contain rows; give them again: data={…} of "
                "heedful.train or heedful.resume, or data=… of run.evaluate"
            )
        if isinstance(held.rows, Dataset) and held.rows.features is not None:  # of the library `datasets`
            columns = self.columns or {name: name for name in held.rows.features}
            source = DatasetsSource(path=f"data[{held.label!r}]", columns=columns)
            return source.rows_of(held.rows, all_needed=bool(self.columns))
        return self._rows(held)

    def open_whole(self, root: Path) -> Rows:
        """Yield the rows with all that JSON can represent of what the program gave."""
        rows, held = self.open(root), _held[self.name]
        if isinstance(held.rows, Dataset):
            return rows
        both = zip(rows, held, strict=True)
        return (row._replace(row=self._whole(row.row, given)) for row, given in both)

    def _whole(self, row: Row, given: Mapping[str, Any]) -> WholeRow:
        whole = row if isinstance(row, WholeRow) else WholeRow(row, None)
        whole.fields = self._fields(row, given)
        return whole

    def _fields(self, row: Row, given: Mapping[str, Any]) -> JsonMapping:
        names = {self.columns.get(column, column): cell for column, cell in row.items()}
        plain = {name: cell for name, cell in given.items() if isinstance(cell, str | int | float | list)}
        images = {name: str(cell) for name, cell in names.items() if isinstance(cell, LazyImage)}
        return json_fields({**plain, **images})

    def _rows(self, held: HeldRows) -> Rows:
        for number, row in enumerate(held, 1):
            location = Location(f"data[{held.label!r}]", number)
            found = cells(row, self.columns, location, all_needed=bool(self.columns), has_gaps=held.is_table)
            yield LocatedRow(found, location)


def cells(
    row: object,
    columns: Mapping[str, str],
    location: Location,
    *,
    all_needed: bool = True,
    has_gaps: bool = False,
) -> Row:
    """Return a row of a program as sources have it: texts, lists of texts, and images.

    Args:
        row: a mapping.
        columns: the name in the row of each column; empty: all under their own names.
        location: where the row is, for messages.
        all_needed: whether values that cannot be read are errors, or left out of a `PartialRow`.
        has_gaps: whether missing values are empty cells, as in a file with a table; otherwise they are
            errors, as null in JSON lines is.

    Raises:
        DataError: if it is not a mapping, lacks a column, or has a value of another type or none.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{location}: expected a mapping of columns to values, got {type_name(row)}")
    given, columns = row, columns or {name: name for name in row}
    if any(name not in row for name in columns.values()):
        columns = {column: _written(name, row) for column, name in columns.items()}
    for name in columns.values():
        if name not in row:
            names = [name for name in row if isinstance(name, str)]
            raise DataError(
                f"{location}: no column {name!r}{nearest(name, names)}; the row has the columns "
                f"{', '.join(sorted(names))}"
            )
        if not isinstance(name, str):
            raise DataError(f"{location}: the name of a column must be text, got {name!r}")
    return read_cells(
        columns,
        lambda column: _cell(given[columns[column]], columns[column], location, has_gaps=has_gaps),
        all_needed=all_needed,
    )


def _written(name: str, row: Mapping[Any, object]) -> str:
    """Return the name of a column as a row has it, or as it is if the row does not have it."""
    return name if name in row else found_in(name, (key for key in row if isinstance(key, str))) or name


def _cell(value: object, name: str, location: Location, *, has_gaps: bool) -> str | list[str] | LazyImage:
    """Return a value as the columns of other sources have it."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, np.ndarray | bytes | LazyImage) or type(value).__module__.startswith("PIL."):
        return LazyImage.of(value, str(location))
    value = [*map(_plain, value)] if isinstance(value, list | tuple) else _plain(value)
    if has_gaps and (value is None or value != value):  # NaN
        return ""
    if value is not None and not isinstance(value, str | int | float | list | dict):
        raise DataError(
            f"{location}: column {name!r}: expected text, a number, a list of these or an image, got "
            f"{type_name(value)}; convert the column to text"
        )
    return field_at({name: value}, name, location)


def _plain(value: object) -> object:
    """Return numbers of numpy as those of Python, paths as text, and missing values of pandas as None."""
    if isinstance(value, Path):
        return str(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _rows_of_frame(frame: Any, columns: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a frame of pandas, without columns that were added since, such as predictions."""
    if list(frame.columns) != columns:
        frame = frame[[column for column in columns if column in frame.columns]]
    names = [str(column) for column in frame.columns]
    return (dict(zip(names, row)) for row in frame.itertuples(index=False, name=None))


def _is_table(rows: object) -> bool:
    """Whether rows are a table of pandas, polars or pyarrow, whose cells may be missing."""
    is_pandas = hasattr(rows, "to_dict") and hasattr(rows, "itertuples")
    return is_pandas or hasattr(rows, "iter_rows") or hasattr(rows, "to_batches")


def _distinct(names: Iterable[str], label: str) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        RequestError: several have the same name.
    """
    counts = Counter(names)
    for name, n in counts.items():
        if n > 1:
            raise RequestError(
                f"data[{label!r}]: the table has the column {name!r} {n} times; rename or drop one"
            )
    return list(counts)


def _called(function: Callable[[], Any], label: str) -> Iterable[Any]:
    """Return the rows that a function gives.

    Raises:
        RequestError: they cannot be iterated.
    """
    rows = function()
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise RequestError(
            f"data[{label!r}]: the function must return an iterable of mappings, got {type_name(rows)}"
        )
    return rows


def _reader(rows: Any, label: str) -> Callable[[], Iterable[Any]]:
    """Return a function that begins a pass over the rows.

    Raises:
        RequestError: they cannot be iterated, or a table has several columns of one name.
    """
    if hasattr(rows, "to_dict") and hasattr(rows, "itertuples"):  # pandas
        _distinct(map(str, rows.columns), label)
        return partial(_rows_of_frame, rows, list(rows.columns))
    if hasattr(rows, "iter_rows"):  # polars, whose names are distinct
        return lambda: rows.iter_rows(named=True)
    if hasattr(rows, "to_batches"):  # pyarrow
        _distinct(rows.column_names, label)
        return lambda: (row for batch in rows.to_batches() for row in batch.to_pylist())
    if callable(rows):
        return partial(_called, rows, label)
    if isinstance(rows, str | bytes | Mapping | Path) or not isinstance(rows, Iterable):
        raise RequestError(
            f"data[{label!r}]: expected rows (an iterable of mappings, or a DataFrame), got {type_name(rows)}"
        )
    if isinstance(rows, Iterator):
        rows = list(rows)
    return lambda: rows
