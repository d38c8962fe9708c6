"""A folder of pictures, with one folder inside for each class."""

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from heedful.data.lines import LocatedRow, Location, Row, expand
from heedful.data.pictures import PICTURE, SUFFIXES, Picture
from heedful.data.range import Ranged
from heedful.errors import DataError, nearest
from heedful.files import is_unicode

LABEL = "label"


class FolderSource(Ranged):
    """Every file in a class's folder, and in folders in it, is a picture of that class.

    Rows come from all classes in turn, of each class by the names of its files in order. So where the classes
    are of one size, ``limit`` and ``skip`` take equal parts of all. Files whose names begin with a dot are
    not looked at.

    Args:
        path: the folder; the names of the folders in it are the labels.
    """

    kind: Literal["folder"] = "folder"
    path: str


def open_folder(config: FolderSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Rows with a ``picture`` and a ``label``. Files are not opened here.

    Raises:
        DataError: there is no such folder, it has no folder of a class, or one of them has no file; or a
            picture lies beside them.
    """
    folder, name = find_folder(config.path, root)
    return _rows(_classes(folder), folder, name)


def find_folder(written: str, root: Path) -> tuple[Path, str]:
    """The folder that a recipe calls ``written``, and the name by which messages call it.

    Raises:
        DataError: there is no such folder; the message names the nearest one.
    """
    name = expand(written)
    folder = root / name
    if not folder.is_dir():
        beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
        raise DataError(f"{folder}: no such folder{nearest(folder.name, (path.name for path in beside))}")
    return folder, name


def files_in(folder: Path) -> list[Path]:
    """The files of a folder and of folders in it, by their names in order, but for those with a dot first."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not any(x.startswith(".") for x in path.relative_to(folder).parts)]


def is_picture(path: Path) -> bool:
    """Whether a file is taken for a picture by its name."""
    return path.suffix.lower() in SUFFIXES


def _classes(folder: Path) -> dict[str, list[Path]]:
    seen = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    classes = {path.name: files_in(path) for path in seen if path.is_dir()}
    if not classes:
        raise DataError(f"{folder}: there is no folder in it; every class needs one, named by its label")
    for path in seen:
        if path.is_file() and is_picture(path):
            raise DataError(f"{path}: lies beside the folders of the classes; put it into one, or elsewhere")
    if strange := [label for label in classes if not is_unicode(label)]:
        raise DataError(f"{folder / strange[0]}: the name of a class is not UTF-8; rename the folder")
    if empty := [label for label, files in classes.items() if not files]:
        raise DataError(
            f"{folder / empty[0]}: there is no picture of this class; add some, or remove the folder"
        )
    return classes


def _rows(classes: dict[str, list[Path]], folder: Path, name: str) -> Iterator[LocatedRow[Row]]:
    turns = zip_longest(*([(label, path) for path in files] for label, files in classes.items()))
    for entry in chain.from_iterable(turns):
        if entry is not None:
            label, path = entry
            shown = str(Path(name) / path.relative_to(folder))
            yield LocatedRow({PICTURE: Picture(path, shown), LABEL: label}, Location(shown))
