"""Folders of images: with one subfolder for each class, with captions, or with masks."""

import os
from collections.abc import Iterator, Mapping
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from heedful.data.delimited import TsvSource
from heedful.data.file_hints import listed
from heedful.data.image_files import SUFFIXES, is_image_name
from heedful.data.image_paths import file_at, without_form
from heedful.data.images import IMAGE, MASK, LazyImage
from heedful.data.json_lines import field_at, record_of, texts_at
from heedful.data.lines import (
    File,
    LocatedRow,
    Location,
    Rows,
    Source,
    expand,
    files_in,
    is_hidden,
    located_lines,
)
from heedful.errors import DataError, nearest
from heedful.files import is_unicode

LABEL, CAPTION = "label", "caption"

METADATA, TABLE, TEXT_SUFFIX = "metadata.jsonl", "captions.txt", ".txt"
FILE, TEXTS = "file_name", ("text", "caption")
"""Fields of `METADATA`: the image, and its caption or captions."""

FILE_HEADERS, TEXT_HEADERS = {"image", "picture", "file", "file_name", "filename"}, {"caption", "text"}
"""Accepted names of the two fields in the header of `TABLE`."""

TABBED = TsvSource(paths=TABLE, columns={IMAGE: 0, CAPTION: 1})
COMMAS = TABBED.model_copy(update={"separator": ",", "quotes": True})


def _find(recipe_path: str, root: Path) -> File:
    """Find a folder by its path in a recipe.

    Raises:
        DataError: if there is no such folder; the message suggests the nearest name.
    """
    name = expand(recipe_path)
    folder = root / name
    if not folder.is_dir():
        entries = folder.parent.iterdir() if folder.parent.is_dir() else ()
        siblings = (path for path in entries if path.is_dir())
        raise DataError(f"{folder}: no such folder{nearest(folder.name, (path.name for path in siblings))}")
    return File(folder, name)


def _stem(path: Path) -> Path:
    """Return a path without its suffix, to compare names in any Unicode form."""
    return without_form(path.with_suffix(""))


class FolderSource(Source):
    """Every image in a class's folder and its subfolders is one of that class; other files are skipped.

    Rows alternate between classes, and the images of a class are sorted by file name. So if all classes have
    the same size, ``limit`` and ``skip`` take equal parts of each. Files whose names begin with a dot are
    ignored.

    Args:
        path: the folder; the names of its subfolders are the labels.
    """

    fixed_columns: ClassVar[tuple[str, ...]] = (IMAGE, LABEL)
    kind: Literal["folder"] = "folder"
    path: str

    def open(self, root: Path) -> Rows:
        """Yield rows with an ``image``, not opened yet, and a ``label``."""
        classes = _classes(_find(self.path, root))
        rounds = zip_longest(*([(label, file) for file in files] for label, files in classes.items()))
        return (
            LocatedRow({IMAGE: LazyImage(*file), LABEL: label}, Location(file.name))
            for label, file in filter(None, chain.from_iterable(rounds))
        )


def _classes(folder: File) -> dict[str, list[File]]:
    entries = sorted(path for path in folder.path.iterdir() if not is_hidden(path.name))
    folders = [File(path, str(Path(folder.name) / path.name)) for path in entries if path.is_dir()]
    classes = {subfolder.path.name: _images_in(subfolder) for subfolder in folders}
    if not classes:
        raise DataError(f"{folder.path}: has no subfolders; expected one for each class, named by its label")
    for path in entries:
        if path.is_file() and is_image_name(path):
            raise DataError(f"{path}: image outside the class folders; move it into one, or elsewhere")
    _require_classes(folder, classes)
    if invalid := [label for label in classes if not is_unicode(label)]:
        raise DataError(f"{folder.path / invalid[0]}: the class name is not UTF-8; rename the folder")
    if empty := [label for label, files in classes.items() if not files]:
        raise DataError(
            f"{folder.path / empty[0]}: the class has no images; add files named {', '.join(SUFFIXES)}, or "
            "remove the folder"
        )
    return classes


def _images_in(folder: File) -> list[File]:
    return [file for file in files_in(folder) if is_image_name(file.path)]


SETS = {"train", "training", "valid", "validation", "val", "dev", "test", "testing", "eval"}
"""Usual names of folders of data sets, each with the folders of all classes."""


def _require_classes(folder: File, classes: Mapping[str, list[File]]) -> None:
    """Check that the subfolders of a folder are classes, not data sets or a single folder around them.

    Raises:
        DataError: they are not; the message has the paths that are.
    """
    names = [*classes]
    if len(names) == 1:
        path = Path(names[0])
        while len(below := _only_folders(folder.path / path)) == 1:
            path /= below[0]
        if below:
            raise DataError(
                f"{folder.path}: expected one subfolder for each class, got only {names[0]}, with "
                f"{listed(below)} in it; set path: {Path(folder.name) / path}"
            )
    elif {name.lower() for name in names} <= SETS and all(
        _only_folders(folder.path / name) for name in names
    ):
        paths = " and ".join(f"path: {Path(folder.name) / name}" for name in names)
        raise DataError(
            f"{folder.path}: the subfolders {', '.join(names)} are data sets, not classes; give data.train, "
            f"data.valid and data.test a source each: {paths}"
        )


def _only_folders(path: Path) -> list[str]:
    """Return the subfolders of a folder; none if it also has images."""
    has_images = any(entry.is_file() and is_image_name(entry) for entry in path.iterdir())
    return [] if has_images else _subfolders(path)


def _subfolders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not is_hidden(entry.name))


class CaptionedFolderSource(Source):
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

    group_column: ClassVar[str | None] = IMAGE
    fixed_columns: ClassVar[tuple[str, ...]] = (IMAGE, CAPTION)
    kind: Literal["captioned-folder"] = "captioned-folder"
    path: str

    def open(self, root: Path) -> Rows:
        """Yield rows with an ``image``, not opened yet, and a ``caption``."""
        folder = _find(self.path, root)
        files = files_in(folder)
        images = [file.path for file in files if is_image_name(file.path)]
        return _caption_rows(_captions(files, images, folder), images, folder)


class Caption(NamedTuple):
    """A caption: the path of its image in the folder, its text and its location."""

    file: str
    text: str
    location: Location


def _caption_rows(captions: Iterator[Caption], images: list[Path], folder: File) -> Rows:
    """Yield the captions of each image; an image without one gets an empty caption."""
    captions_by_file: dict[str, list[Caption]] = {str(path.relative_to(folder.path)): [] for path in images}
    for caption in captions:
        if not caption.file:
            raise DataError(f"{caption.location}: the image name is empty")
        file = os.path.relpath(file_at(folder.path, caption.file), folder.path)
        captions_by_file.setdefault(file, []).append(caption)
    for file in sorted(captions_by_file, key=Path):
        name = str(Path(folder.name) / file)
        image = LazyImage(folder.path / file, name)
        for caption in captions_by_file[file] or [Caption(file, "", Location(name))]:
            yield LocatedRow({IMAGE: image, CAPTION: caption.text}, caption.location)


def _captions(files: list[File], images: list[Path], folder: File) -> Iterator[Caption]:
    """Read the captions in the first format that exists; missing files are reported at once."""
    by_path = {file.path: file for file in files}
    for table, reader in ((METADATA, _metadata_captions), (TABLE, _table_captions)):
        if folder.path / table in by_path:
            return reader(by_path[folder.path / table])
    text_files = [file for file in files if file.path.suffix.lower() == TEXT_SUFFIX]
    if {_stem(file.path) for file in text_files} & {*map(_stem, images)}:
        return _text_file_captions(text_files, images, folder)
    nested = next((path for path in by_path if path.name in (METADATA, TABLE)), None)
    hint = "" if nested is None else f"; found {nested}: did you mean its folder?"
    raise DataError(
        f"{folder.path}: no {METADATA}, no {TABLE}, and no image with a {TEXT_SUFFIX} file of the same "
        f"name{hint}"
    )


def _metadata_captions(file: File) -> Iterator[Caption]:
    for location, line in located_lines(file):
        record = record_of(line, location)
        fields = [field for field in TEXTS if field in record]
        if len(fields) != 1:
            raise DataError(
                f"{location}: expected exactly one of the fields {' and '.join(TEXTS)}, got "
                f"{'both' if fields else 'neither'}; for other fields use a source with kind=jsonl"
            )
        name = field_at(record, FILE, location)
        if not isinstance(name, str):
            raise DataError(f"{location}: field {FILE!r} must name one image, got a list")
        for text in texts_at(record, fields[0], location) or [""]:
            yield Caption(name, text, location)


def _table_captions(file: File) -> Iterator[Caption]:
    _, first = next(located_lines(file))
    words = [word.strip().strip('"').lower() for word in first.split(",")]
    is_header = len(words) == 2 and words[0] in FILE_HEADERS and words[1] in TEXT_HEADERS
    if "\t" in first:
        records, separator, hint = TABBED.field_lists(file), "tab", ""
    elif is_header:
        records, separator = islice(COMMAS.field_lists(file), 1, None), "comma"
        hint = "; put a caption that contains a comma in double quotes"
    else:
        raise DataError(
            f"{file.name}:1: expected an image, a tab and a caption, or the header 'image,caption' of a "
            "comma-separated table"
        )
    for location, record in records:
        if len(record) != 2:
            fields = f"{len(record)} field{'s' * (len(record) != 1)}"
            raise DataError(f"{location}: expected an image, a {separator} and a caption, got {fields}{hint}")
        yield Caption(record[0], record[1], location)


def _text_file_captions(text_files: list[File], images: list[Path], folder: File) -> Iterator[Caption]:
    """Read captions from text files; one without an image is reported as a missing image."""
    by_stem: dict[Path, list[Path]] = {}
    for path in images:
        by_stem.setdefault(_stem(path), []).append(path)
    for file in text_files:
        stem = _stem(file.path)
        captions = list(located_lines(file)) if file.path.stat().st_size else []
        for image in by_stem.get(stem, [stem]):
            for location, text in captions:
                yield Caption(str(image.relative_to(folder.path)), text, location)


IMAGES, MASKS = "images", "masks"
"""Subfolders of a folder with masks."""


class SegmentedFolderSource(Source):
    """A row for each image in the subfolder ``images``, with the mask of the same name in ``masks``.

    Names may differ in their suffixes: ``images/1.jpg`` and ``masks/1.png``. Both subfolders may have the
    same subfolders. Images are sorted by file name; files whose names begin with a dot are ignored.

    Args:
        path: the folder.
    """

    fixed_columns: ClassVar[tuple[str, ...]] = (IMAGE, MASK)
    kind: Literal["segmented-folder"] = "segmented-folder"
    path: str

    def open(self, root: Path) -> Rows:
        """Yield rows with an ``image`` and a ``mask``, not opened yet."""
        folder = _find(self.path, root)
        images, masks = (_by_stem(folder, part) for part in (IMAGES, MASKS))
        for files, part, partners, kind in ((images, MASKS, masks, "mask"), (masks, IMAGES, images, "image")):
            if missing := next((stem for stem in files if stem not in partners), None):
                partner = folder.path / part / f"{missing}.png"
                raise DataError(
                    f"{files[missing].path}: has no {kind}; expected {partner} (or another suffix); add it, "
                    "or move the file elsewhere"
                )
        return (
            LocatedRow({IMAGE: LazyImage(*images[stem]), MASK: LazyImage(*masks[stem])}, Location(file.name))
            for stem, file in images.items()
        )


def _by_stem(folder: File, part: str) -> dict[Path, File]:
    """Return the images in a subfolder by their paths in it, without suffix."""
    subfolder = File(folder.path / part, str(Path(folder.name) / part))
    if not subfolder.path.is_dir():
        nested = [name for name in _subfolders(folder.path) if (folder.path / name / part).is_dir()]
        hint = f"; set path: {Path(folder.name) / nested[0]}" if len(nested) == 1 else ""
        raise DataError(
            f"{folder.path}: has no subfolder {part}; expected the subfolders {IMAGES} and {MASKS}, whose "
            f"files have equal names{hint}"
        )
    files: dict[Path, File] = {}
    for file in _images_in(subfolder):
        other = files.setdefault(_stem(file.path.relative_to(subfolder.path)), file)
        if other is not file:
            raise DataError(f"{file.path}: has the same name as {other.path.name}; rename one of them")
    if not files:
        raise DataError(f"{subfolder.path}: has no images; add some")
    return files


def unread_files(source: object, root: Path) -> list[Path]:
    """Return the files in a folder of images that are not read, by their paths in it.

    Files of systems are not counted.
    """
    if not isinstance(source, FolderSource | CaptionedFolderSource | SegmentedFolderSource):
        return []
    folder = _find(source.path, root)
    parts = (IMAGES, MASKS) if isinstance(source, SegmentedFolderSource) else ("",)
    files = [file.path for part in parts for file in files_in(File(folder.path / part, part))]
    others = [path for path in files if not is_image_name(path)]
    if isinstance(source, CaptionedFolderSource):
        stems = {_stem(path) for path in files if is_image_name(path)}
        tables = {folder.path / METADATA, folder.path / TABLE}
        others = [
            path
            for path in others
            if path not in tables and not (path.suffix.lower() == TEXT_SUFFIX and _stem(path) in stems)
        ]
    return [path.relative_to(folder.path) for path in others]
