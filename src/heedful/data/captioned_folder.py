"""A folder of pictures with captions, in one table or in a file beside each picture."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from heedful.data.folder import files_in, find_folder, is_picture
from heedful.data.lines import LocatedRow, Location, Row, TextFile, lines
from heedful.data.pictures import PICTURE, Picture
from heedful.data.range import Ranged
from heedful.data.tables import TsvSource, field_at, record_of, records_of, texts_at
from heedful.errors import DataError

CAPTION = "caption"

METADATA, TABLE, BESIDE = "metadata.jsonl", "captions.txt", ".txt"
FILE, TEXTS = "file_name", ("text", "caption")
"""Fields of `METADATA`: of the picture, and of its caption or captions."""

NAMED, SAID = {"image", "picture", "file", "file_name", "filename"}, {"caption", "text"}
"""What a header of `TABLE` calls its two fields."""

TABBED = TsvSource(paths=TABLE, columns={PICTURE: 0, CAPTION: 1})
COMMAS = TABBED.model_copy(update={"separator": ",", "quotes": True})


class CaptionedFolderSource(Ranged):
    """A row for each caption of each picture in a folder, or in folders in it.

    The captions are looked for in this order. ``metadata.jsonl`` has an object a line, with a ``file_name``
    and a ``text`` or ``caption``, which may be a list of several: the layout of the datasets library's
    imagefolder. ``captions.txt`` has a line for each caption, the picture, a tab and the caption; or, below a
    header ``image,caption``, a comma between both, and double quotes around a caption that has one itself,
    as Flickr8k's. Or ``NAME.jpg`` has a ``NAME.txt`` beside it, with a caption a line.

    Pictures come by the names of their files in order, and each with its captions in theirs; ``limit`` and
    ``skip`` count pictures. A picture without a caption is a row with an empty one. Files whose names begin
    with a dot are not looked at.

    Args:
        path: the folder.
    """

    together: ClassVar[str | None] = PICTURE

    kind: Literal["captioned-folder"] = "captioned-folder"
    path: str


class Captioned(NamedTuple):
    """A caption: the name of its picture's file, its text and its place."""

    file: str
    text: str
    where: Location


def open_captioned_folder(config: CaptionedFolderSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Rows with a ``picture`` and a ``caption``. Pictures are not opened here.

    Raises:
        DataError: there is no such folder, or it has no captions (at once); or something else stands where
            they should (when reached).
    """
    folder, name = find_folder(config.path, root)
    files = files_in(folder)
    pictures = [path for path in files if is_picture(path)]
    return _rows(_captions(files, pictures, folder, name), pictures, folder, name)


def _captions(files: list[Path], pictures: list[Path], folder: Path, name: str) -> Iterator[Captioned]:
    """Those of the first form that is there; the files are looked for at once."""
    for table, read in ((METADATA, _of_metadata), (TABLE, _of_table)):
        if folder / table in files:
            return read(TextFile(folder / table, str(Path(name) / table)))
    beside = [path for path in files if path.suffix.lower() == BESIDE]
    if not {path.with_suffix("") for path in beside} & {path.with_suffix("") for path in pictures}:
        raise DataError(_no_captions(files, folder))
    return _of_neighbours(beside, pictures, folder, name)


def _no_captions(files: list[Path], folder: Path) -> str:
    below = next((path for path in files if path.name in (METADATA, TABLE)), None)
    hint = "" if below is None else f"; there is {below}: did you mean its folder?"
    return f"{folder}: there is no {METADATA}, no {TABLE}, and no picture with a {BESIDE} beside it{hint}"


def _rows(
    captions: Iterable[Captioned], pictures: list[Path], folder: Path, name: str
) -> Iterator[LocatedRow[Row]]:
    found: dict[str, list[Captioned]] = {str(path.relative_to(folder)): [] for path in pictures}
    for caption in captions:
        if not caption.file:
            raise DataError(f"{caption.where}: an empty name is no picture's")
        found.setdefault(os.path.relpath(folder / caption.file, folder), []).append(caption)
    for file in sorted(found, key=Path):
        shown = str(Path(name) / file)
        picture = Picture(folder / file, shown)
        for caption in found[file] or [Captioned(file, "", Location(shown))]:
            yield LocatedRow({PICTURE: picture, CAPTION: caption.text}, caption.where)


def _of_metadata(file: TextFile) -> Iterator[Captioned]:
    for number, line in enumerate(lines(file), start=1):
        where = Location(file.name, number)
        record = record_of(line, where)
        fields = [field for field in TEXTS if field in record]
        if len(fields) != 1:
            raise DataError(
                f"{where}: {'two fields' if fields else 'no field'} of {' and '.join(TEXTS)}, of which one "
                "holds the caption; a source of the kind jsonl reads any other"
            )
        name = field_at(record, FILE, where)
        if not isinstance(name, str):
            raise DataError(f"{where}: field {FILE!r} holds a list: one picture is wanted")
        for text in texts_at(record, fields[0], where) or [""]:
            yield Captioned(name, text, where)


def _of_table(file: TextFile) -> Iterator[Captioned]:
    first = next(lines(file))
    tabbed = "\t" in first
    if not tabbed and not _is_header(first):
        raise DataError(
            f"{file.name}:1: neither a picture, a tab and a caption, nor the header 'image,caption' of a "
            "table whose fields are separated by commas"
        )
    for where, record in islice(records_of(file, TABBED if tabbed else COMMAS), 0 if tabbed else 1, None):
        if len(record) != 2:
            raise DataError(_other_fields(where, len(record), tabbed))
        picture, caption = record
        yield Captioned(picture, caption, where)


def _is_header(line: str) -> bool:
    words = [word.strip().strip('"').lower() for word in line.split(",")]
    return len(words) == 2 and words[0] in NAMED and words[1] in SAID


def _other_fields(where: Location, n: int, tabbed: bool) -> str:
    separator = "tab" if tabbed else "comma"
    quotes = "" if tabbed else "; a caption that has a comma stands in double quotes"
    return (
        f"{where}: {n} field{'s' * (n != 1)}, but a picture, a {separator} and a caption are wanted{quotes}"
    )


def _of_neighbours(texts: list[Path], pictures: list[Path], folder: Path, name: str) -> Iterator[Captioned]:
    """A file without its picture is one of a picture that is missing, and is told as such."""
    of: dict[Path, list[Path]] = {}
    for path in pictures:
        of.setdefault(path.with_suffix(""), []).append(path)
    for path in texts:
        file, stem = TextFile(path, str(Path(name) / path.relative_to(folder))), path.with_suffix("")
        written = list(lines(file)) if path.stat().st_size else []
        for picture in of.get(stem, [stem]):
            for number, line in enumerate(written, start=1):
                yield Captioned(str(picture.relative_to(folder)), line, Location(file.name, number))
