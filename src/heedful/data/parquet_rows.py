"""Rows of Parquet files, of which no more are in memory at one time than fit.

The reader of ``datasets`` keeps a row group in memory, which may be the whole file. The library (pyarrow,
which ``datasets`` needs too) is imported when a file is read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heedful import limits
from heedful.errors import DataError
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from pyarrow import Schema
    from pyarrow.parquet import ParquetFile

ROWS = 1024
"""The most rows that are in memory at one time."""

BYTES = 256 << 20
"""About the most bytes of these rows: of large values, fewer rows are read at one time."""


def parquet_schema(path: Path) -> "Schema":
    """Return the names and types of the fields of a file.

    Raises:
        DataError: it cannot be read.
    """
    with opened_parquet(path) as file:
        return file.schema_arrow


def parquet_rows(files: Sequence[str]) -> Iterator[JsonObject]:
    """Yield the rows of files, one file after another.

    Raises:
        DataError: a file cannot be read, or has a longer text than `rows_at_once` allows.
    """
    for path in map(Path, files):
        n_rows = rows_at_once(path)
        with opened_parquet(path) as file:
            for batch in file.iter_batches(n_rows):
                yield from batch.to_pylist()


def rows_at_once(path: Path) -> int:
    """Return how many rows of a file take about `BYTES` at most, from 1 to `ROWS`.

    Compressed files may be a million times as large in memory, above all if they store each value once
    (dictionary encoding). So the values themselves are measured, without copies for each row.

    Raises:
        DataError: the file cannot be read, or a text in it is longer than `heedful.limits.LONGEST_LINE`.
    """
    from pyarrow import compute, types

    with opened_parquet(path) as file:
        metadata, schema = file.metadata, file.schema_arrow
        columns = [
            metadata.row_group(group).column(column)
            for group in range(metadata.num_row_groups)
            for column in range(metadata.num_columns)
        ]
        # Of values that are stored for each row.
        longest = max((c.total_uncompressed_size // max(1, c.num_values) for c in columns), default=0)
        stored_once = {c.path_in_schema for c in columns if c.has_dictionary_page}
        kinds = {f.name: f.type.value_type if types.is_dictionary(f.type) else f.type for f in schema}
        is_text = {name: types.is_string(kind) or types.is_large_string(kind) for name, kind in kinds.items()}
        texts = [name for name in kinds if is_text[name] and name in stored_once]
    n_rows = max(1, min(ROWS, BYTES // max(1, longest)))
    with opened_parquet(path, texts) as file:
        for batch in file.iter_batches(n_rows, columns=texts) if texts else ():
            for name, column in zip(texts, batch.columns, strict=True):
                values = column.dictionary if types.is_dictionary(column.type) else column
                n_bytes = compute.max(compute.binary_length(values)).as_py() or 0
                if n_bytes > limits.LONGEST_LINE:
                    limit = limits.LONGEST_LINE >> 20
                    raise DataError(
                        f"{path}: field {name!r} has a text of {n_bytes >> 20:,} MiB, more than {limit}; "
                        "split it into several rows"
                    )
                longest = max(longest, n_bytes)
    return max(1, min(ROWS, BYTES // max(1, longest)))


@contextmanager
def opened_parquet(path: Path, stored_once: Sequence[str] = ()) -> Iterator["ParquetFile"]:
    """Open a file; convert the library's errors to `DataError`.

    Args:
        path: the file.
        stored_once: columns whose repeated values are not copied for each row.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, read_dictionary=[*stored_once]) as file:
            yield file
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {' '.join(str(error).split())}") from None
