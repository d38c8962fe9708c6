"""Images in rows, and their pixels as model inputs.

A `LazyImage` is opened only when its pixels are read, so rows with images are as small as rows of text. Files
may have any of the `FORMATS`, whatever their names, and at most `MAX_PIXELS`. Only `_open_file` opens them.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from heedful.data.lines import LocatedRow, Location, Row
from heedful.errors import DataError, type_name
from heedful.files import require_end

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE, MASK = "image", "mask"
"""The image column in every task that reads images, and the column of the classes of its pixels."""

UNSCORED = 255
"""The class index of pixels that are neither learned nor scored, as in PASCAL VOC."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
"""Suffixes of image files in folders; a file that is named explicitly may have any name."""

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
"""Supported formats. Pillow supports more, but starts other programs for some of them."""

MAX_PIXELS = 2**26
"""Maximum number of pixels of a file (8,192 x 8,192), checked before decoding.

Reading a file takes up to 20 bytes of memory for each pixel, 1.25 GiB at the limit.
"""

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode by number of channels: grey, and RGB."""

_STRIP = 2**20  # number of pixels whose transparency is processed at once


@dataclass(frozen=True, eq=False)
class LazyImage:
    """An image that has not been opened yet.

    Args:
        content: the path of its file, the bytes of a file, or its pixels: ``[H, W]``, or ``[H, W, C]`` with
            one or three channels, from 0 (black) to 255.
        name: its name in messages.
    """

    content: Path | bytes | UInt8[np.ndarray, "..."]
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
            if not str(source):
                raise DataError("the path of an image is empty")
            return cls(Path(source), str(source))
        if isinstance(source, bytes):
            return cls(source, name)
        if not isinstance(source, np.ndarray):
            from PIL import Image, ImageOps

            if not isinstance(source, Image.Image):
                raise DataError(f"{name}: expected a path, an array or an image, got {type_name(source)}")
            with _as_data_errors(name):
                _refuse_large(source)
                source = np.asarray(_on_white(ImageOps.exif_transpose(source), "RGB"))
        if source.dtype != np.uint8 or source.ndim not in {2, 3} or source.shape[2:] not in {(), (1,), (3,)}:
            raise DataError(
                f"{name}: an image array must be uint8 of shape [H, W] or [H, W, 3], got {source.dtype} of "
                f"shape {source.shape}"
            )
        return cls(source, name)

    @classmethod
    def missing(cls, location: Location) -> "LazyImage":
        """Return a placeholder for an image that is missing from a row; reading it fails."""
        return cls(b"", str(location))

    def pixels(self, size: int, channels: int) -> UInt8[np.ndarray, "C H W"]:
        """Return the image as model input, ``[channels, size, size]``, 0 to 255.

        The EXIF orientation is applied, transparent pixels are blended with white, the image is converted to
        grey or RGB, and its centre square is resized to ``size`` (bilinear, antialiased when shrinking). Of
        several frames, the first is read.

        Args:
            size: the number of pixels along each side.
            channels: 1 for grey (0.299 red + 0.587 green + 0.114 blue), 3 for RGB.

        Raises:
            DataError: if it cannot be read, or has more than `MAX_PIXELS` pixels; the message names it.
        """
        from PIL import Image, ImageOps

        content = self.content
        if isinstance(content, np.ndarray) and content.shape[:2] == (size, size):
            planes = content[None] if content.ndim == 2 else content.transpose(2, 0, 1)
            if len(planes) == channels:  # nothing to convert
                return planes
        with self._opened() as image:
            ImageOps.exif_transpose(image, in_place=True)
            bilinear = Image.Resampling.BILINEAR
            fitted = ImageOps.fit(_on_white(image, MODES[channels]), (size, size), bilinear)
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
            if image.format == "JPEG":
                raise DataError(f"{self.name}: JPEG does not keep the numbers of a mask; save masks as PNG")
            if image.mode not in {"1", "L", "P"}:
                raise DataError(
                    f"{self.name}: a mask must have one class number for each pixel (8-bit grey or palette), "
                    f"got mode {image.mode}; convert its colours to numbers"
                )
            ImageOps.exif_transpose(image, in_place=True)
            if size is not None:
                image = ImageOps.fit(image, (size, size), Image.Resampling.NEAREST)
            return np.array(image, dtype=np.uint8)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, after the EXIF orientation is applied.

        Raises:
            DataError: if it cannot be read.
        """
        from PIL import ImageOps

        with self._opened() as image:
            ImageOps.exif_transpose(image, in_place=True)
            return image.size

    @property
    def kind(self) -> str:
        """The size and colour mode for display, as stored, before the EXIF orientation is applied.

        Raises:
            DataError: if it cannot be read.
        """
        with self._opened() as image:
            (width, height), mode = image.size, image.mode
        grey = mode in {"1", "L", "LA", "La"} or mode.startswith("I")
        return f"{width} x {height} pixels in {'grey' if grey else 'colours'}"

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
        with _as_data_errors(self.name):
            if isinstance(content, np.ndarray):
                yield Image.fromarray(content[..., 0] if content.shape[2:] == (1,) else content)
                return
            if isinstance(content, Path):
                require_end(content)
            elif not content:
                raise DataError(f"{self.name}: the image is missing")
            with _open_file(content) as image:
                yield image


def _open_file(content: Path | bytes) -> "Image":
    """Open an image file, or the bytes of one, without decoding any pixel.

    Raises:
        OSError: if it cannot be opened, or is not in one of the `FORMATS`.
        ValueError: if it has too many pixels.
    """
    from PIL import Image

    if isinstance(content, Path) and content.exists() and not content.is_file():
        raise ValueError("expected a file")
    try:
        image = Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"more than {MAX_PIXELS:,} pixels; reduce its size") from None
    _refuse_large(image)
    return image


def _refuse_large(image: "Image") -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width:,} x {height:,} pixels, more than {MAX_PIXELS:,}; reduce its size")


@contextmanager
def _as_data_errors(name: str) -> Iterator[None]:
    """Convert all errors of Pillow's readers, which raise many types, to `DataError`.

    Raises:
        DataError: in place of any other error.
    """
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{name}: no such file") from None
    except Exception as error:
        if type(error).__name__ == "UnidentifiedImageError":
            formats = ", ".join(FORMATS)
            raise DataError(f"{name}: not an image of a supported format ({formats})") from None
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: cannot be read as an image ({reason})") from None


def _on_white(image: "Image", mode: str) -> "Image":
    """Convert an image to grey ("L") or "RGB", with transparent pixels blended with white.

    It works in strips, so that there is only one copy of the whole image.
    """
    from PIL import Image

    width, height = image.size
    if 0 in image.size:
        raise ValueError("the image has no pixels")
    if image.mode in {"I", "F"}:
        raise ValueError("32-bit pixels are not supported; save it with 8 or 16 bits")
    canvas, rows = Image.new(mode, image.size), max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        canvas.paste(_strip_on_white(strip).convert(mode), (0, top))
    return canvas


def _strip_on_white(image: "Image") -> "Image":
    """Convert an image to 8 bits without transparency.

    Pillow itself would drop the alpha channel, and clip 16-bit values at 255.
    """
    from PIL import Image

    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def with_images(row: LocatedRow[Row], columns: Sequence[str], root: Path) -> LocatedRow[Row]:
    """Replace the image paths of a row by `LazyImage` objects; an empty path is a missing image.

    A relative path in a table is resolved against the table's folder.

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
        column: LazyImage(folder / path, path) if path else LazyImage.missing(row.location)
        for column, path in paths.items()
    }
    return LocatedRow({**row.row, **images}, row.location)
