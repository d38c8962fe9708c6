"""Running text: files that are read whole, cut into documents as asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from heedful.data.files import Paths
from heedful.data.lines import Located, Row, TextFile, Where, expand, find, lines, read_text
from heedful.data.range import Ranged
from heedful.errors import DataError

TEXT = "text"
"""The one column of running text."""


class TextSource(Ranged):
    """Files of text, each document a row with the column ``text``.

    Args:
        paths: a file or folder, or several, read one after another; files are plain or ``.gz``. Of a
            folder, all files below it are read that end in one of ``suffixes``, by their names in order,
            but for those whose name, or a folder of theirs, begins with a dot.
        documents: what is one document: a whole ``file``, a ``line``, or what stands between
            ``blank-lines``. The line ends (and blank lines) that separate documents are not part of them.
        suffixes: of the files to read in folders, with or without ``.gz`` behind them.
    """

    kind: Literal["text"] = "text"
    paths: Paths
    documents: Literal["file", "line", "blank-lines"] = "file"
    suffixes: list[str] = Field(default=[".txt", ".md"], min_length=1)


def open_text(config: TextSource, root: Path) -> Iterator[Located[Row]]:
    """The documents of files of text. Missing files are reported at once, all else when reached.

    Raises:
        DataError: a file is missing, empty or unreadable, or a folder has no file to read.
    """
    written = [config.paths] if isinstance(config.paths, str) else config.paths
    found = [file for path in written for file in _files(path, root, tuple(config.suffixes))]
    return (row for file in found for row in _documents(file, config.documents))


def _files(written: str, root: Path, suffixes: tuple[str, ...]) -> list[TextFile]:
    """The file, or those in the folder, that a recipe calls ``written``."""
    name = expand(written)
    folder = root / name
    if not folder.is_dir():
        return [find(written, root)]
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    # What a dot hides (environments, copies that editors keep) is no text of the user's.
    paths = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    kept = [path for path in paths if path.name.removesuffix(".gz").endswith(suffixes)]
    if not kept:
        known = " or ".join(suffixes)
        raise DataError(f"{folder}: there is no file that ends in {known} in this folder; set `suffixes`")
    return [TextFile(path, str(Path(name) / path.relative_to(folder))) for path in kept]


def _documents(file: TextFile, kind: str) -> Iterator[Located[Row]]:
    """The documents of one file, each with the place of its first line."""
    if kind == "file":
        yield Located({TEXT: read_text(file)}, Where(file.name, 1))
    elif kind == "line":
        for number, line in enumerate(lines(file), 1):
            yield Located({TEXT: line}, Where(file.name, number))
    else:
        yield from _paragraphs(file)


def _paragraphs(file: TextFile) -> Iterator[Located[Row]]:
    held: list[str] = []
    first = 1
    for number, line in enumerate(lines(file), 1):
        if line.strip():
            first = first if held else number
            held.append(line)
        elif held:
            yield Located({TEXT: "\n".join(held)}, Where(file.name, first))
            held = []
    if held:
        yield Located({TEXT: "\n".join(held)}, Where(file.name, first))
