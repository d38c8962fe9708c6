"""Images in rows, and their pixels as model inputs.

A `LazyImage` is opened only when its pixels are read, so rows with images are as small as rows of text. Files
may have any supported format, whatever their names; only `heedful.data.image_files.open_file` opens them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
from jaxtyping import UInt8

from heedful.data.image_files import as_data_errors, open_file, refuse_large
from heedful.data.image_paths import NO_PATH, file_at
from heedful.data.levels import Extremes, Levels, extremes_of, in_8_bits, is_deep
from heedful.data.lines import LocatedRow, Location, Row, with_cells
from heedful.errors import DataError, type_name
from heedful.files import require_end

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE, MASK = "image", "mask"
"""The image column in every task that reads images, and the column of the classes of its pixels."""

UNSCORED = 255
"""The class index of pixels that are neither learned nor scored, as in PASCAL VOC."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode by number of channels: grey, and RGB."""

_STRIP = 2**20  # number of pixels whose transparency is processed at once


class ImageFacts(NamedTuple):
    """What is particular about an image.

    Args:
        n_frames: the number of frames or pages, of which the first is read.
        has_deep_colours: whether it has colours of 16 bits, of which the highest 8 are read.
        extremes: of the levels of an image in grey with more than 8 bits.
    """

    n_frames: int = 1
    has_deep_colours: bool = False
    extremes: Extremes | None = None


@dataclass(frozen=True, eq=False)
class LazyImage:
    """An image that has not been opened yet.

    Args:
        content: the path of its file, the bytes of a file, or its pixels: ``[H, W]``, or ``[H, W, C]`` with
            one or three channels, from 0 (black) to 255; ``[H, W]`` may have more than 8 bits (`Levels`).
        name: its name in messages.
    """

    content: Path | bytes | np.ndarray
    name: str

    @classmethod
    def of(cls, source: object, name: str = "an image") -> "LazyImage":
        """Make an image from a path, the bytes of a file, an array or a Pillow image.

        Raises:
            DataError: if it is none of these, an array of another type or shape, or a Pillow image that
                cannot be read.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str | Path):
            if not str(source).strip():
                raise DataError(NO_PATH)
            return cls(file_at(Path(), str(source)), str(source))
        if isinstance(source, bytes):
            return cls(source, name)
        if not isinstance(source, np.ndarray):
            from PIL import Image

            if not isinstance(source, Image.Image):
                raise DataError(f"{name}: expected a path, an array or an image, got {type_name(source)}")
            with as_data_errors(name):
                refuse_large(source)
                source = _upright(source)
                if is_deep(source):
                    levels = np.asarray(source)
                    return cls(levels.astype(levels.dtype.newbyteorder("=")), name)
                source = np.asarray(_on_white(source, "RGB"))
        if source.dtype != np.uint8 or source.ndim not in {2, 3} or source.shape[2:] not in {(), (1,), (3,)}:
            raise DataError(
                f"{name}: an image array must be uint8 of shape [H, W] or [H, W, 3], got {source.dtype} of "
                f"shape {source.shape}; pixels [H, W] of 16 or 32 bits are given as an image: "
                "PIL.Image.fromarray(array)"
            )
        return cls(source, name)

    @classmethod
    def missing(cls, location: Location) -> "LazyImage":
        """Return a placeholder for an image that is missing from a row; reading it fails."""
        return cls(b"", str(location))

    def pixels(self, size: int, channels: int, levels: Levels | None = None) -> UInt8[np.ndarray, "C H W"]:
        """Return the image as model input, ``[channels, size, size]``, 0 to 255.

        The EXIF orientation is applied, transparent pixels are blended with white, the image is converted to
        grey or RGB, and its centre square is resized to ``size`` (bilinear, antialiased when shrinking). Of
        several frames, the first is read.

        Args:
            size: the number of pixels along each side.
            channels: 1 for grey (0.299 red + 0.587 green + 0.114 blue), 3 for RGB.
            levels: black and white in images with more than 8 bits, of the training data.

        Raises:
            DataError: if it cannot be read, or has more than `MAX_PIXELS` pixels; the message names it.
        """
        from PIL import Image, ImageOps

        content = self.content
        if _has_8_bits(content) and content.shape[:2] == (size, size):
            planes = content[None] if content.ndim == 2 else content.transpose(2, 0, 1)
            if len(planes) == channels:  # nothing to convert
                return planes
        with self._opened() as image:
            whole = _on_white(_upright(image), MODES[channels], levels)
            fitted = ImageOps.fit(whole, (size, size), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(fitted).reshape(size, size, channels).transpose(2, 0, 1))

    def numbers(self, size: int | None = None) -> UInt8[np.ndarray, "H W"]:
        """Return the pixels of a mask as they are stored: class numbers, or the indices of a palette.

        Args:
            size: the geometry of `pixels` at this size, with the nearest number; None: the whole mask.

        Raises:
            DataError: if it cannot be read, or its pixels are not numbers from 0 to 255.
        """
        from PIL import Image, ImageOps

        with self._opened() as image:
            if image.format in {"JPEG", "MPO", "HEIF"}:
                raise DataError(
                    f"{self.name}: {image.format} does not keep the numbers of a mask; save masks as PNG"
                )
            if image.mode not in {"1", "L", "P"} and not image.mode.startswith("I"):
                raise DataError(
                    f"{self.name}: a mask must have one class number for each pixel (grey or palette), got "
                    f"mode {image.mode}; convert its colours to numbers"
                )
            image = _upright(image)
            if is_deep(image):
                image = self._as_class_numbers(image)
            if size is not None:
                image = ImageOps.fit(image, (size, size), Image.Resampling.NEAREST)
            return np.array(image, dtype=np.uint8)

    def _as_class_numbers(self, image: "Image") -> "Image":
        """Return a mask of 16 or 32 bits with 8.

        Raises:
            DataError: it has a number that is not a class.
        """
        from PIL import Image

        numbers = np.asarray(image)
        for number in (int(numbers.min()), int(numbers.max())):
            if not 0 <= number <= UNSCORED:
                raise DataError(
                    f"{self.name}: the class numbers of a mask must be from 0 to {UNSCORED}, got {number}; "
                    "renumber the classes"
                )
        return Image.fromarray(numbers.astype(np.uint8))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, after the EXIF orientation is applied.

        Raises:
            DataError: if it cannot be read.
        """
        with self._opened() as image:
            return _upright(image).size

    @property
    def is_turned(self) -> bool:
        """Whether its EXIF orientation exchanges width and height.

        Raises:
            DataError: if it cannot be read.
        """
        with self._opened() as image:
            stored = image.size
            return _upright(image).size != stored

    @property
    def kind(self) -> str:
        """The size and colour mode for display, as stored, before the EXIF orientation is applied.

        Raises:
            DataError: if it cannot be read.
        """
        with self._opened() as image:
            (width, height), mode = image.size, image.mode
        grey = mode in {"1", "L", "LA", "La", "F"} or mode.startswith("I")
        return f"{width} x {height} pixels in {'grey' if grey else 'colours'}"

    def facts(self) -> ImageFacts:
        """Return what is particular about an image; pixels are decoded only of those with more than 8 bits.

        Raises:
            DataError: if it cannot be read.
        """
        if _has_8_bits(self.content):
            return ImageFacts()
        with self._opened() as image:
            # Photographs of telephones (MPO) hold previews as further frames.
            n_frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
            tiles = getattr(image, "tile", ())
            deep_colours = image.mode.startswith(("RGB", "LA")) and any(";16" in str(t[3]) for t in tiles)
            return ImageFacts(n_frames, deep_colours, extremes_of(image) if is_deep(image) else None)

    def encoded(self) -> bytes:
        """Return bytes that identify the image, for hashes; no bytes if there is no file."""
        if isinstance(self.content, bytes):
            return self.content
        if isinstance(self.content, Path):
            try:
                require_end(self.content)
                return self.content.read_bytes()
            except (OSError, DataError):  # reported when its pixels are read
                return b""
        return f"{self.content.shape}".encode() + self.content.tobytes()

    @property
    def identity(self) -> Path | bytes:
        """A key that identifies the image: the path of its file, or a hash if there is none.

        Two missing images have different keys.
        """
        if isinstance(self.content, Path):
            return self.content
        return sha256(self.encoded() or self.name.encode()).digest()

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def _opened(self) -> "Iterator[Image]":
        """Open the image; errors inside the block become `DataError`."""
        from PIL import Image

        content = self.content
        with as_data_errors(self.name):
            if isinstance(content, np.ndarray):
                yield Image.fromarray(content[..., 0] if content.shape[2:] == (1,) else content)
                return
            if isinstance(content, Path):
                require_end(content)
            elif not content:
                raise DataError(f"{self.name}: the image is missing")
            with open_file(content) as image:
                yield image


_ORIENTATION = 0x0112
"""The EXIF tag of the orientation."""


def _upright(image: "Image") -> "Image":
    """Decode an image, and apply its EXIF orientation; a broken EXIF block has none.

    Pillow's own function also rewrites the block, and fails if another tag of it is damaged.
    """
    from PIL.Image import Transpose

    image.load()
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:
        return image
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return image.transpose(turns[orientation]) if orientation in turns else image


def _has_8_bits(content: object) -> TypeGuard[np.ndarray]:
    """Whether an image is an array of pixels from 0 to 255."""
    return isinstance(content, np.ndarray) and content.dtype == np.uint8


def _on_white(image: "Image", mode: str, levels: Levels | None = None) -> "Image":
    """Convert an image to grey ("L") or "RGB", with transparent pixels blended with white.

    It works in strips, so that there is only one copy of the whole image.

    Args:
        image: the image.
        mode: the mode of the result.
        levels: see `in_8_bits`.
    """
    from PIL import Image

    width, height = image.size
    if 0 in image.size:
        raise ValueError("the image has no pixels")
    canvas, rows = Image.new(mode, image.size), max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        canvas.paste(_strip_on_white(strip, levels).convert(mode), (0, top))
    return canvas


def _strip_on_white(image: "Image", levels: Levels | None) -> "Image":
    """Convert an image to 8 bits without transparency.

    Pillow itself would drop the alpha channel, and clip 16-bit values at 255.
    """
    from PIL import Image

    if is_deep(image):
        return in_8_bits(image, levels)
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def with_images(row: LocatedRow[Row], columns: Sequence[str], root: Path) -> LocatedRow[Row]:
    """Replace the image paths of a row by `LazyImage` objects; an empty path is a missing image.

    A relative path in a table is resolved against the table's folder (`file_at`).

    Args:
        row: a row of a source.
        columns: the image columns.
        root: the folder that the paths of the recipe are relative to.
    """
    paths = {column: row.row[column] for column in columns if isinstance(row.row.get(column), str)}
    if not paths:
        return row
    folder = (root / row.location.name).parent
    images = {
        column: LazyImage(file_at(folder, path), path) if path else LazyImage.missing(row.location)
        for column, path in paths.items()
    }
    return with_cells(row, images)
