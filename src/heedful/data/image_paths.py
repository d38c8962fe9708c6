"""Paths of images as other systems write them: with the separators of Windows, or in another Unicode form."""

import re
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Literal
from unicodedata import normalize

NO_PATH = "the path of an image is empty"
"""The message for a path without a name."""

_OF_WINDOWS = re.compile(r"[A-Za-z]:|.*\\")
_FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")


def file_at(folder: Path, name: str) -> Path:
    r"""Return the path of a file that a table names.

    If there is none of this name: that of ``a\1.png`` as ``a/1.png``, or one whose folders and file differ
    only in their Unicode form, as macOS and other systems write them.
    """
    path = folder / name
    if (name.isascii() and "\\" not in name) or _exists(path):
        return path
    if "\\" in name and not PureWindowsPath(name).drive:
        name = PureWindowsPath(name).as_posix()
    found = folder
    for part in Path(name).parts:
        forms = (found / part, *(found / normalize(form, part) for form in _FORMS))
        found = next(filter(_exists, forms), found / part)
    return found if _exists(found) else path


def without_form(path: Path) -> Path:
    """Return a path that is equal for equal names in any Unicode form, to compare paths."""
    return Path(normalize("NFC", str(path)))


def no_such_image(name: str) -> str:
    """Return the message for an image that does not exist."""
    if _OF_WINDOWS.match(name):
        return (
            f"{name}: no such file; for a path of another computer, write it relative to the folder of the "
            "table, with / between folders"
        )
    return f"{name}: no such file"


def _exists(path: Path) -> bool:
    with suppress(OSError, ValueError):  # too long, or with a character that no path may have
        return path.exists()
    return False
