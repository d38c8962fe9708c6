"""A folder of images with captions, in one table or in a text file for each image."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from heedful.data.folder import files_in, find_folder, is_image
from heedful.data.images import IMAGE, LazyImage
from heedful.data.lines import LocatedRow, Location, Row, TextFile, lines
from heedful.data.range import Ranged
from heedful.data.tables import TsvSource, field_at, record_of, records_of, texts_at
from heedful.errors import DataError

CAPTION = "caption"

METADATA, TABLE, BESIDE = "metadata.jsonl", "captions.txt", ".txt"
FILE, TEXTS = "file_name", ("text", "caption")
"""Fields of `METADATA`: the image, and its caption or captions."""

FILE_HEADERS, TEXT_HEADERS = {"image", "picture", "file", "file_name", "filename"}, {"caption", "text"}
"""Accepted names of the two fields in the header of `TABLE`."""

TABBED = TsvSource(paths=TABLE, columns={IMAGE: 0, CAPTION: 1})
COMMAS = TABBED.model_copy(update={"separator": ",", "quotes": True})


class CaptionedFolderSource(Ranged):
    """A row for each caption of each image in a folder and its subfolders.

    Captions are read from the first of these that exists. ``metadata.jsonl`` has one object a line, with a
    ``file_name`` and a ``text`` or ``caption``, which may be a list: the layout of the datasets library's
    imagefolder. ``captions.txt`` has a line for each caption: the image, a tab and the caption; or, below a
    header ``image,caption``, comma-separated values with double quotes around a caption that contains a
    comma, as in Flickr8k. Otherwise ``NAME.txt`` next to ``NAME.jpg`` has one caption a line.

    Images are sorted by file name, and the captions of an image keep their order; ``limit`` and ``skip``
    count images. An image without a caption is a row with an empty caption. Files whose names begin with a
    dot are ignored.

    Args:
        path: the folder.
    """

    together: ClassVar[str | None] = IMAGE

    kind: Literal["captioned-folder"] = "captioned-folder"
    path: str


class Captioned(NamedTuple):
    """A caption: the name of its image file, its text and its location."""

    file: str
    text: str
    where: Location


def open_captioned_folder(config: CaptionedFolderSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield rows with an ``image`` and a ``caption``. Images are not opened yet.

    Raises:
        DataError: if there is no such folder, or it has no captions (at once); or if captions are malformed
            (when reached).
    """
    folder, name = find_folder(config.path, root)
    files = files_in(folder)
    images = [path for path in files if is_image(path)]
    return _rows(_captions(files, images, folder, name), images, folder, name)


def _captions(files: list[Path], images: list[Path], folder: Path, name: str) -> Iterator[Captioned]:
    """Read the captions in the first format that exists; missing files are reported at once."""
    for table, read in ((METADATA, _of_metadata), (TABLE, _of_table)):
        if folder / table in files:
            return read(TextFile(folder / table, str(Path(name) / table)))
    beside = [path for path in files if path.suffix.lower() == BESIDE]
    if not {path.with_suffix("") for path in beside} & {path.with_suffix("") for path in images}:
        raise DataError(_no_captions(files, folder))
    return _of_neighbours(beside, images, folder, name)


def _no_captions(files: list[Path], folder: Path) -> str:
    below = next((path for path in files if path.name in (METADATA, TABLE)), None)
    hint = "" if below is None else f"; found {below}: did you mean its folder?"
    return f"{folder}: no {METADATA}, no {TABLE}, and no image with a {BESIDE} file of the same name{hint}"


def _rows(
    captions: Iterable[Captioned], images: list[Path], folder: Path, name: str
) -> Iterator[LocatedRow[Row]]:
    found: dict[str, list[Captioned]] = {str(path.relative_to(folder)): [] for path in images}
    for caption in captions:
        if not caption.file:
            raise DataError(f"{caption.where}: the image name is empty")
        found.setdefault(os.path.relpath(folder / caption.file, folder), []).append(caption)
    for file in sorted(found, key=Path):
        shown = str(Path(name) / file)
        image = LazyImage(folder / file, shown)
        for caption in found[file] or [Captioned(file, "", Location(shown))]:
            yield LocatedRow({IMAGE: image, CAPTION: caption.text}, caption.where)


def _of_metadata(file: TextFile) -> Iterator[Captioned]:
    for number, line in enumerate(lines(file), start=1):
        where = Location(file.name, number)
        record = record_of(line, where)
        fields = [field for field in TEXTS if field in record]
        if len(fields) != 1:
            raise DataError(
                f"{where}: expected exactly one of the fields {' and '.join(TEXTS)}, got "
                f"{'both' if fields else 'neither'}; for other fields use a source with kind=jsonl"
            )
        name = field_at(record, FILE, where)
        if not isinstance(name, str):
            raise DataError(f"{where}: field {FILE!r} must name one image, got a list")
        for text in texts_at(record, fields[0], where) or [""]:
            yield Captioned(name, text, where)


def _of_table(file: TextFile) -> Iterator[Captioned]:
    first = next(lines(file))
    tabbed = "\t" in first
    if not tabbed and not _is_header(first):
        raise DataError(
            f"{file.name}:1: expected an image, a tab and a caption, or the header 'image,caption' of a "
            "comma-separated table"
        )
    for where, record in islice(records_of(file, TABBED if tabbed else COMMAS), 0 if tabbed else 1, None):
        if len(record) != 2:
            raise DataError(_wrong_field_count(where, len(record), tabbed))
        image, caption = record
        yield Captioned(image, caption, where)


def _is_header(line: str) -> bool:
    words = [word.strip().strip('"').lower() for word in line.split(",")]
    return len(words) == 2 and words[0] in FILE_HEADERS and words[1] in TEXT_HEADERS


def _wrong_field_count(where: Location, n: int, tabbed: bool) -> str:
    separator = "tab" if tabbed else "comma"
    quotes = "" if tabbed else "; put a caption that contains a comma in double quotes"
    return f"{where}: expected an image, a {separator} and a caption, got {n} field{'s' * (n != 1)}{quotes}"


def _of_neighbours(texts: list[Path], images: list[Path], folder: Path, name: str) -> Iterator[Captioned]:
    """Read captions from text files; one without an image is reported as a missing image."""
    by_stem: dict[Path, list[Path]] = {}
    for path in images:
        by_stem.setdefault(path.with_suffix(""), []).append(path)
    for path in texts:
        file, stem = TextFile(path, str(Path(name) / path.relative_to(folder))), path.with_suffix("")
        captions = list(lines(file)) if path.stat().st_size else []
        for image in by_stem.get(stem, [stem]):
            for number, line in enumerate(captions, start=1):
                yield Captioned(str(image.relative_to(folder)), line, Location(file.name, number))
