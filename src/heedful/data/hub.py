"""Data sets of the Hugging Face ``datasets`` library: by name, from files, or saved to disk."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

from heedful.data.images import LazyImage
from heedful.data.json_lines import field_at
from heedful.data.lines import (
    LocatedRow,
    Location,
    Paths,
    Record,
    Rows,
    Source,
    expand,
    find_all,
    read_cells,
    usable_rows,
)
from heedful.data.parquet_rows import parquet_rows, parquet_schema
from heedful.data.strict_json import without_nan
from heedful.errors import DataError, nearest
from heedful.typing import JsonMapping

_SAVED = ("state.json", "dataset_dict.json")
READERS = ("json", "csv", "parquet", "text")
"""Readers of the library for files."""


Reader = Callable[[JsonMapping, Location], str | list[str] | LazyImage]
"""Function that reads a column of a record."""


def _read(readers: Mapping[str, Reader], record: JsonMapping, location: Location, column: str) -> object:
    return readers[column](record, location)


@runtime_checkable
class Dataset(Protocol):
    """What is used of the library's data sets; streamed ones may have no features."""

    features: Mapping[str, Any] | None

    def select_columns(self, column_names: list[str]) -> Self:
        """Return the data set with only these columns."""

    def cast_column(self, column: str, feature: object) -> Self:
        """Return the data set with another feature for a column."""

    def __iter__(self) -> Iterator[JsonMapping]: ...


@runtime_checkable
class ClassLabel(Protocol):
    """What is used of the library's class labels."""

    num_classes: int

    def int2str(self, values: int) -> str:
        """Return the name of a class."""


class DatasetsSource(Source):
    """A data set of the ``datasets`` library.

    Args:
        path: a name on the hub, a folder (of data files, or written by ``save_to_disk``), or a reader:
            ``json``, ``csv``, ``parquet``, ``text``.
        name: the configuration, if the data set has several.
        split: the split.
        columns: the field of each column: ``text``, or a dotted path, ``translation.en``. Class labels become
            their names, images become images.
        data_files: the files for a reader.
        streaming: whether to read while downloading, without storing anything on disk.
    """

    kind: Literal["datasets"] = "datasets"
    path: str
    name: str | None = None
    split: str = "train"
    columns: dict[str, str] = Field(min_length=1)
    data_files: Paths | None = None
    streaming: bool = False

    @model_validator(mode="after")
    def _readers_need_files(self) -> "DatasetsSource":
        if self.path in READERS and self.data_files is None:  # it would read the working directory
            raise ValueError(f"path={self.path!r} is a reader and requires `data_files`")
        return self

    def open(self, root: Path) -> Rows:
        """Yield the rows of a data set, which is loaded at once; rows are numbered from 1.

        Raises:
            DataError: if the library fails (with its message), or a field is missing.
        """
        return self.rows_of(self._loaded(root))

    def open_whole(self, root: Path) -> Rows:
        """Yield the rows with all fields that JSON can represent."""
        return usable_rows(self.records(root, [*self.columns]))

    def _loaded(self, root: Path) -> Dataset:
        folder = self._folder(root)
        files = None if self.data_files is None else find_all(self.data_files, root)
        names = None if files is None else [str(file.path) for file in files]
        with self._library_errors():
            return self._load(folder, names)

    @property
    def _name(self) -> str:
        """The name of the data set in messages."""
        return f"{self.path}[{self.split}]"

    def _folder(self, root: Path) -> Path | None:
        """Return the local folder named by ``path``, or None; a path that can only be local must exist."""
        recipe_path = expand(self.path)
        path = root / recipe_path
        if path.is_dir():
            return path
        if recipe_path != self.path or self.path.startswith(("/", "./", "../")):
            raise DataError(f"datasets: {path}: no such folder")
        return None

    @contextmanager
    def _library_errors(self) -> Iterator[None]:
        """Convert errors of the library, which raises many types, its own and its readers', to `DataError`.

        The message contains the innermost error, which names the file and the reason.
        """
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            inner: BaseException = error
            while inner.__cause__ is not None:
                inner = inner.__cause__
            reason = " ".join(str(inner).split()) or type(inner).__name__
            files = self.data_files or []
            source = " ".join([self.path, *([files] if isinstance(files, str) else files)])
            raise DataError(f"datasets: cannot load {source} (split {self.split}): {reason[:500]}") from error

    def _load(self, folder: Path | None, files: list[str] | None) -> Dataset:
        import datasets

        if folder is None or not any((folder / name).exists() for name in _SAVED):
            if self.path == "parquet" and files and self.split == "train":  # the only one of a list of files
                return datasets.IterableDataset.from_generator(
                    parquet_rows,
                    features=datasets.Features.from_arrow_schema(parquet_schema(Path(files[0]))),
                    gen_kwargs={"files": files},
                )
            return datasets.load_dataset(
                str(folder or self.path),
                self.name,
                split=self.split,
                data_files=files,
                streaming=self.streaming,
            )
        loaded = datasets.load_from_disk(str(folder))
        if not isinstance(loaded, dict):
            return loaded
        if self.split not in loaded:
            raise DataError(f"datasets: {self.path} has no split {self.split!r}; it has {', '.join(loaded)}")
        return loaded[self.split]

    def records(
        self, root: Path, columns: Collection[str], optional: Collection[str] = ()
    ) -> Iterator[Record]:
        """Yield the records of a data set with all fields that JSON can represent, images excluded."""
        dataset = self._loaded(root)
        features = {} if dataset.features is None else dataset.features
        read = {column: self.columns[column] for column in columns}
        read |= {column: column for column in optional if column in features}
        dataset, readers = self._readers(dataset, read)
        with self._library_errors():
            for row_number, record in enumerate(dataset, start=1):
                location, cells, error = Location(self._name, row_number), dict[str, Any](), None
                try:
                    cells = {column: read_cell(record, location) for column, read_cell in readers.items()}
                except DataError as raised:
                    error = raised
                yield Record(location, json_fields(record), cells, error)

    def rows_of(self, dataset: Dataset, *, all_needed: bool = True) -> Rows:
        """Yield the rows of a data set that was loaded; as `PartialRow` unless all columns are needed."""
        dataset, readers = self._select(dataset)
        with self._library_errors():  # with streaming, the library reads (and fails) here
            for row_number, record in enumerate(dataset, start=1):
                location = Location(self._name, row_number)
                read = partial(_read, readers, record, location)
                yield LocatedRow(read_cells(readers, read, all_needed=all_needed), location)

    def _select(self, dataset: Dataset) -> tuple[Dataset, dict[str, Reader]]:
        """Select the requested fields, so that no others are decoded, and the reader of each column."""
        features = {} if dataset.features is None else dataset.features
        self._check_fields(self.columns.values(), features)
        if features:
            dataset = dataset.select_columns(sorted({_top_field(f, features) for f in self.columns.values()}))
        return self._readers(dataset, self.columns)

    def _check_fields(self, fields: Iterable[str], features: Mapping[str, Any]) -> None:
        for field in fields:
            top_field = _top_field(field, features)
            if features and top_field not in features:
                raise DataError(
                    f"datasets: {self.path} has no field {field!r}{nearest(top_field, features)}; "
                    f"it has {', '.join(features)}"
                )

    def _readers(self, dataset: Dataset, columns: Mapping[str, str]) -> tuple[Dataset, dict[str, Reader]]:
        """Return the data set with images as they are stored, and the reader of each column."""
        features = {} if dataset.features is None else dataset.features
        self._check_fields(columns.values(), features)
        for field, feature in features.items():
            if type(feature).__name__ == "Image":
                dataset = dataset.cast_column(field, type(feature)(decode=False))
        return dataset, {column: _reader(field, features.get(field)) for column, field in columns.items()}


def _top_field(field: str, features: Mapping[str, Any]) -> str:
    """Return the field of a data set that contains a field."""
    return field if field in features else field.split(".")[0]


def _reader(field: str, feature: object) -> Reader:
    """Return the function that reads a field."""
    labels = getattr(feature, "feature", feature)  # the feature of the items of a list
    if type(feature).__name__ == "Image":
        return partial(_image, field)
    return partial(_labels, field, labels) if isinstance(labels, ClassLabel) else partial(_text, field)


def json_fields(record: JsonMapping) -> JsonMapping:
    """Return the fields that JSON can represent: no bytes; dates, times and decimal numbers become text."""
    fields = {key: value for key, value in record.items() if not _has_bytes(value)}
    found: JsonMapping = json.loads(json.dumps(without_nan(fields), default=str))
    return found


def _has_bytes(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_bytes, value.values()))
    return isinstance(value, bytes) or (isinstance(value, list) and any(map(_has_bytes, value)))


def _text(field: str, record: JsonMapping, location: Location) -> str | list[str]:
    return field_at(record, field, location)


def _image(field: str, record: JsonMapping, location: Location) -> LazyImage:
    """Return a stored image: the bytes of a file, a path, or nothing."""
    stored = record[field] or {"bytes": None, "path": None}
    if stored["bytes"] is None and stored["path"] is None:
        return LazyImage.missing(location)
    return LazyImage(Path(stored["path"]) if stored["bytes"] is None else stored["bytes"], str(location))


def _labels(field: str, labels: ClassLabel, record: JsonMapping, location: Location) -> str | list[str]:
    """Return the name of a class index, or the names of a list of them."""

    def name(value: int | None, path: str) -> str:
        if value is None or not 0 <= value < labels.num_classes:
            raise DataError(f"{location}: field {path!r} is not a label ({value})")
        return str(labels.int2str(value))

    value = record[field]
    if isinstance(value, list):
        return [name(class_id, f"{field}.{number}") for number, class_id in enumerate(value)]
    return name(value, field)
