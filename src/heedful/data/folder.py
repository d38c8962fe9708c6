"""A folder of images with one subfolder for each class."""

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from heedful.data.images import IMAGE, SUFFIXES, LazyImage
from heedful.data.lines import LocatedRow, Location, Row, expand
from heedful.data.range import Ranged
from heedful.errors import DataError, nearest
from heedful.files import is_unicode

LABEL = "label"


class FolderSource(Ranged):
    """Every file in a class's folder and its subfolders is an image of that class.

    Rows alternate between classes, and the images of a class are sorted by file name. So if all classes have
    the same size, ``limit`` and ``skip`` take equal parts of each. Files whose names begin with a dot are
    ignored.

    Args:
        path: the folder; the names of its subfolders are the labels.
    """

    kind: Literal["folder"] = "folder"
    path: str


def open_folder(config: FolderSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield rows with an ``image`` and a ``label``. Files are not opened yet.

    Raises:
        DataError: if there is no such folder, it has no class folder, a class folder has no file, or an
            image is outside the class folders.
    """
    folder, name = find_folder(config.path, root)
    return _rows(_classes(folder), folder, name)


def find_folder(written: str, root: Path) -> tuple[Path, str]:
    """Find the folder ``written`` in a recipe; return it with its name for messages.

    Raises:
        DataError: if there is no such folder; the message suggests the nearest name.
    """
    name = expand(written)
    folder = root / name
    if not folder.is_dir():
        siblings = folder.parent.iterdir() if folder.parent.is_dir() else ()
        raise DataError(f"{folder}: no such folder{nearest(folder.name, (path.name for path in siblings))}")
    return folder, name


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder and its subfolders sorted by name, hidden ones (``.name``) excluded."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not any(x.startswith(".") for x in path.relative_to(folder).parts)]


def is_image(path: Path) -> bool:
    """Whether a file is an image, judged by its suffix."""
    return path.suffix.lower() in SUFFIXES


def _classes(folder: Path) -> dict[str, list[Path]]:
    seen = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    classes = {path.name: files_in(path) for path in seen if path.is_dir()}
    if not classes:
        raise DataError(f"{folder}: has no subfolders; expected one for each class, named by its label")
    for path in seen:
        if path.is_file() and is_image(path):
            raise DataError(f"{path}: image outside the class folders; move it into one, or elsewhere")
    if invalid := [label for label in classes if not is_unicode(label)]:
        raise DataError(f"{folder / invalid[0]}: the class name is not UTF-8; rename the folder")
    if empty := [label for label, files in classes.items() if not files]:
        raise DataError(f"{folder / empty[0]}: the class has no images; add some, or remove the folder")
    return classes


def _rows(classes: dict[str, list[Path]], folder: Path, name: str) -> Iterator[LocatedRow[Row]]:
    turns = zip_longest(*([(label, path) for path in files] for label, files in classes.items()))
    for entry in chain.from_iterable(turns):
        if entry is not None:
            label, path = entry
            shown = str(Path(name) / path.relative_to(folder))
            yield LocatedRow({IMAGE: LazyImage(path, shown), LABEL: label}, Location(shown))
