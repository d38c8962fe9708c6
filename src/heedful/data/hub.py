"""Data sets of the Hugging Face ``datasets`` library: by name, from files, or saved to disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from heedful.data.files import Paths, find_all
from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Location, Row, expand
from heedful.data.range import Ranged
from heedful.data.tables import field_at
from heedful.errors import DataError, nearest
from heedful.typing import JsonObject

_SAVED = ("state.json", "dataset_dict.json")
_READERS = ("json", "csv", "parquet", "text")


class DatasetsSource(Ranged):
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
        if self.path in _READERS and self.data_files is None:  # it would read the working directory
            raise ValueError(f"path={self.path!r} is a reader and requires `data_files`")
        return self


def open_datasets(config: DatasetsSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the rows of a data set, which is loaded at once; rows are numbered from 1.

    Raises:
        DataError: if the library fails (with its message), or a field is missing.
    """
    folder = _folder(config, root)
    files = None if config.data_files is None else find_all(config.data_files, root)
    names = None if files is None else [str(file.path) for file in files]
    try:
        dataset = _load(config, folder, names)
    except DataError:
        raise
    except Exception as error:  # the library raises many types of errors, its own and its readers'
        raise DataError(_failed(config, error)) from error
    return _rows(config, dataset)


def _folder(config: DatasetsSource, root: Path) -> Path | None:
    """Return the local folder named by ``path``, or None; a path that can only be local must exist."""
    written = expand(config.path)
    path = root / written
    if path.is_dir():
        return path
    if written != config.path or config.path.startswith(("/", "./", "../")):
        raise DataError(f"datasets: {path}: no such folder")
    return None


def _load(config: DatasetsSource, folder: Path | None, files: list[str] | None) -> Any:
    import datasets

    if folder is not None and any((folder / name).exists() for name in _SAVED):
        return _saved(datasets.load_from_disk(str(folder)), config)
    return datasets.load_dataset(
        str(folder or config.path),
        config.name,
        split=config.split,
        data_files=files,
        streaming=config.streaming,
    )


def _saved(loaded: Any, config: DatasetsSource) -> Any:
    if not isinstance(loaded, dict):
        return loaded
    if config.split not in loaded:
        raise DataError(f"datasets: {config.path} has no split {config.split!r}; it has {', '.join(loaded)}")
    return loaded[config.split]


def _failed(config: DatasetsSource, error: BaseException) -> str:
    """Return a message with the library's innermost error, which names the file and the reason."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(error).split()) or type(error).__name__
    files = config.data_files or []
    source = " ".join([config.path, *([files] if isinstance(files, str) else files)])
    return f"datasets: cannot load {source} (split {config.split}): {reason[:500]}"


def _rows(config: DatasetsSource, dataset: Any) -> Iterator[LocatedRow[Row]]:
    dataset, labels = _select(config, dataset)
    images = _images(config, dataset)
    name = f"{config.path}[{config.split}]"
    try:
        for number, record in enumerate(dataset, start=1):
            where = Location(name, number)
            row = {
                column: _image(record[field], where)
                if field in images
                else _text(record, field, labels.get(field), where)
                for column, field in config.columns.items()
            }
            yield LocatedRow(row, where)
    except DataError:
        raise
    except Exception as error:  # with streaming, the library reads (and fails) here
        raise DataError(_failed(config, error)) from error


def _select(config: DatasetsSource, dataset: Any) -> tuple[Any, JsonObject]:
    """Select the requested fields, so that no others are decoded, and find the class labels among them."""
    features = dataset.features
    if features is None:
        return dataset, {}
    tops = {field: field if field in features else field.split(".")[0] for field in config.columns.values()}
    for field, top in tops.items():
        if top not in features:
            raise DataError(
                f"datasets: {config.path} has no field {field!r}{nearest(top, features)}; "
                f"it has {', '.join(features)}"
            )
    labels = {field: named for field in tops if (named := _names(features.get(field))) is not None}
    dataset = dataset.select_columns(sorted(set(tops.values())))
    for field in _images(config, dataset):
        dataset = dataset.cast_column(field, type(features[field])(decode=False))
    return dataset, labels


def _names(feature: Any) -> Any:
    """Return the feature that maps class indices (or lists of them) to names; None for other features."""
    own = getattr(feature, "feature", feature)
    return own if hasattr(own, "int2str") else None


def _images(config: DatasetsSource, dataset: Any) -> set[str]:
    """Return the fields that contain images."""
    features = dataset.features or {}
    return {f for f in config.columns.values() if type(features.get(f)).__name__ == "Image"}


def _image(stored: Any, where: Location) -> LazyImage:
    """Return a stored image: the bytes of a file, a path, or nothing."""
    content, path = (stored["bytes"], stored["path"]) if stored else (None, None)
    if content is None and path is not None:
        content = Path(path)
    return LazyImage.missing(where) if content is None else LazyImage(content, str(where))


def _text(record: Any, field: str, label: Any, where: Location) -> str | list[str]:
    if label is None:
        return field_at(record, field, where)
    value = record[field]
    if isinstance(value, list):
        return [_label(each, f"{field}.{number}", label, where) for number, each in enumerate(value)]
    return _label(value, field, label, where)


def _label(value: Any, field: str, label: Any, where: Location) -> str:
    if value is None or not 0 <= value < label.num_classes:
        raise DataError(f"{where}: field {field!r} is not a label ({value})")
    name: str = label.int2str(value)
    return name
