"""Pictures: what a row holds of one, and the numbers that a model reads of it.

A `Picture` is opened when its pixels are asked for, so rows with pictures are as light as rows of text. Files
may have any of `FORMATS`, whatever their names, and at most `MAX_PIXELS`. Only `_open_file` opens them.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from heedful.data.lines import LocatedRow, Location, Row
from heedful.errors import DataError
from heedful.files import require_end

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURE = "picture"
"""The column of the picture, in every task that reads one."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
"""By which a file is taken for a picture before it is opened; where one is asked for, any name will do."""

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
"""What is read. Pillow knows more formats, and starts other programs for some of them."""

MAX_PIXELS = 2**26
"""The most pixels of a file, 8,192 x 8,192, which is checked before any is decoded.

Reading a file takes up to 20 bytes of memory for each of its pixels, 1.25 GiB at the limit.
"""

MODES = {1: "L", 3: "RGB"}
"""What Pillow calls pixels of so many numbers: grey, and red, green and blue."""

_STRIP = 2**20  # pixels whose transparency is worked on at once


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture that has not been opened yet.

    Args:
        content: the path of its file, the bytes of one, or its numbers: ``[H, W]``, or ``[H, W, C]`` with one
            or three channels, from 0 (black) to 255.
        name: what messages call it.
    """

    content: Path | bytes | UInt8[np.ndarray, "..."]
    name: str

    @classmethod
    def of(cls, given: Any, name: str = "a picture") -> "Picture":
        """Whatever a caller has in hand: a path, bytes of a file, an array or a picture of Pillow's.

        Raises:
            DataError: it is nothing of these, an array of another type or shape, or a picture of Pillow's
                that cannot be read.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str | Path):
            if not str(given):
                raise DataError("an empty line names no picture")
            return cls(Path(given), str(given))
        if isinstance(given, bytes):
            return cls(given, name)
        if not isinstance(given, np.ndarray):
            given = _pixels_of(given, name)
        if given.dtype != np.uint8 or given.ndim not in {2, 3} or given.shape[2:] not in {(), (1,), (3,)}:
            raise DataError(
                f"{name}: an array of {given.dtype} and shape {given.shape} is no picture; give uint8, "
                "[H, W] or [H, W, 3]"
            )
        return cls(given, name)

    @classmethod
    def missing(cls, where: Location) -> "Picture":
        """What stands for a picture that a row should have and has not; it cannot be read."""
        return cls(b"", str(where))

    def pixels(self, size: int, channels: int) -> UInt8[np.ndarray, "C H W"]:
        """The picture as a model reads it, ``[channels, size, size]``, 0 to 255.

        It is turned as its EXIF orientation says, laid on white where it is transparent, brought to grey or
        to colours, and cut to its middle square, which is brought to the size (so the shorter side fills
        it); bilinearly, smoothed where it becomes smaller. Of several frames, the first is read.

        Args:
            size: pixels along each side.
            channels: 1 for grey (0.299 red + 0.587 green + 0.114 blue), 3 for red, green and blue.

        Raises:
            DataError: it cannot be read, or has more than `MAX_PIXELS`; the message names it.
        """
        ready = self._ready(size, channels)
        if ready is not None:
            return ready
        fitted = self._read(lambda image: _fitted(image, size, MODES[channels]))
        return np.ascontiguousarray(np.asarray(fitted).reshape(size, size, channels).transpose(2, 0, 1))

    @property
    def kind(self) -> str:
        """Its size and whether it has colours, for people; as it is stored, before it is turned.

        Raises:
            DataError: it cannot be read.
        """
        (width, height), mode = self._read(lambda image: (image.size, image.mode))
        grey = mode in {"1", "L", "LA", "La"} or mode.startswith("I")
        return f"{width} x {height} pixels in {'grey' if grey else 'colours'}"

    def encoded(self) -> bytes:
        """Bytes that are alike for the same picture alone: for hashes. None where there is no file."""
        if isinstance(self.content, bytes):
            return self.content
        if isinstance(self.content, Path):
            try:
                require_end(self.content)
                return self.content.read_bytes()
            except (OSError, DataError):  # for whoever reads its pixels to report
                return b""
        return f"{self.content.shape}".encode() + self.content.tobytes()

    @property
    def identity(self) -> Path | bytes:
        """Alike for the same picture alone: the path of its file, or a hash where there is none.

        Two missing pictures are not the same.
        """
        if isinstance(self.content, Path):
            return self.content
        return sha256(self.encoded() or self.name.encode()).digest()

    def __str__(self) -> str:
        return self.name

    def _ready(self, size: int, channels: int) -> UInt8[np.ndarray, "C H W"] | None:
        """The numbers, where nothing has to be done to them."""
        held = self.content
        if not isinstance(held, np.ndarray) or held.shape[:2] != (size, size):
            return None
        planes = held[None] if held.ndim == 2 else held.transpose(2, 0, 1)
        return planes if len(planes) == channels else None

    def _read(self, use: "Callable[[Image], Any]") -> Any:
        from PIL import Image

        held = self.content
        if isinstance(held, bytes) and not held:
            raise DataError(f"{self.name}: there is no picture")
        with _telling(self.name):
            if isinstance(held, Path):
                require_end(held)
            if isinstance(held, np.ndarray):
                return use(Image.fromarray(held[..., 0] if held.shape[2:] == (1,) else held))
            with _open_file(held) as image:
                return use(image)


def _open_file(content: Path | bytes) -> "Image":
    """A picture of a file, or of the bytes of one, of which no pixel is decoded yet.

    Raises:
        OSError: it cannot be opened, or is not in one of `FORMATS`.
        ValueError: it has too many pixels.
    """
    from PIL import Image

    if isinstance(content, Path) and content.exists() and not content.is_file():
        raise ValueError("expected a file")
    try:
        image = Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"it has more than {MAX_PIXELS:,} pixels; make it smaller") from None
    _refuse_large(image)
    return image


def _refuse_large(image: "Image") -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"its {width:,} x {height:,} pixels are more than {MAX_PIXELS:,}; make it smaller")


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """Where a picture is read: each of Pillow's readers fails in its own way, all are told alike.

    Raises:
        DataError: in place of whatever was raised.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(_unreadable(name, error)) from None


def _unreadable(name: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{name}: no such file"
    if type(error).__name__ == "UnidentifiedImageError":
        return f"{name}: is not a picture of a known format ({', '.join(FORMATS)})"
    why = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return f"{name}: cannot be read as a picture ({why})"


def _pixels_of(given: Any, name: str) -> UInt8[np.ndarray, "H W C"]:
    """The numbers of a picture of Pillow's."""
    from PIL import Image, ImageOps

    if not isinstance(given, Image.Image):
        raise DataError(f"{name}: a {type(given).__name__} is no picture: give a path, an array or an image")
    with _telling(name):
        _refuse_large(given)
        return np.asarray(_on_white(ImageOps.exif_transpose(given), "RGB"))


def _fitted(image: "Image", size: int, mode: str) -> "Image":
    """The middle square of a picture, in grey or in colours, of so many pixels along each side."""
    from PIL import Image, ImageOps

    ImageOps.exif_transpose(image, in_place=True)
    return ImageOps.fit(_on_white(image, mode), (size, size), Image.Resampling.BILINEAR)


def _on_white(image: "Image", mode: str) -> "Image":
    """The picture in grey ("L") or in colours ("RGB"), its transparent places white.

    It is made in strips, so that there is only one copy of the whole picture.
    """
    from PIL import Image

    width, height = image.size
    if 0 in image.size:
        raise ValueError("it has no pixels")
    if image.mode in {"I", "F"}:
        raise ValueError("its pixels are numbers of 32 bits; save it with 8 or 16")
    whole, rows = Image.new(mode, image.size), max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        whole.paste(_strip_on_white(strip).convert(mode), (0, top))
    return whole


def _strip_on_white(image: "Image") -> "Image":
    """The picture in 8 bits and without transparency.

    Pillow itself would show what lies hidden there, and cut 16 bits off at 255.
    """
    from PIL import Image

    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def opened(row: LocatedRow[Row], columns: Sequence[str], root: Path) -> LocatedRow[Row]:
    """The row with a `Picture` where it had a path; without one, the picture is missing.

    A relative path in a table starts at the table's folder.

    Args:
        row: as its source gives it.
        columns: those that hold pictures.
        root: where the paths of the recipe start.
    """
    written = {column: row.row[column] for column in columns if isinstance(row.row.get(column), str)}
    if not written:
        return row
    folder = (root / row.where.name).parent
    pictures = {
        column: Picture(folder / path, path) if path else Picture.missing(row.where)
        for column, path in written.items()
    }
    return LocatedRow({**row.row, **pictures}, row.where)
