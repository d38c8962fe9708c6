"""Open image files of the supported formats, and convert the errors of their readers to messages."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.data.image_paths import no_such_image
from heedful.data.signatures import IMAGE
from heedful.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".heic", ".heif")
"""Suffixes of image files in folders; a file that is named explicitly may have any name."""

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF")
"""Supported formats; HEIC needs the extra ``heic``. Pillow supports more, but starts other programs."""

MAX_PIXELS = 2**26
"""Maximum number of pixels of a file (8,192 x 8,192), checked before decoding.

Reading a file takes up to 20 bytes of memory for each pixel, 1.25 GiB at the limit.
"""

HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
"""Brands at the beginning of HEIC files, the usual format of photographs of some telephones."""

N_SUFFIXES = 8
"""The number of suffixes that a note shows."""

_N_FIRST = 512  # bytes of a file that show what it is


def open_file(content: Path | bytes) -> "Image":
    """Open an image file, or the bytes of one, without decoding any pixel.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not in a supported format, or has too many pixels.
    """
    if isinstance(content, Path) and content.exists() and not content.is_file():
        raise ValueError("expected a file")
    try:
        image = _opened(content, FORMATS)
    except UnsupportedImageError:
        if not _is_heic(_first_bytes(content)):
            raise
        image = _opened_heic(content)
    refuse_large(image)
    return image


class UnsupportedImageError(ValueError):
    """A file that is not an image of a supported format."""


def _opened(content: Path | bytes, formats: tuple[str, ...]) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=formats)
    except UnidentifiedImageError:
        raise UnsupportedImageError(_what_it_is(_first_bytes(content))) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"more than {MAX_PIXELS:,} pixels; reduce its size") from None


def _opened_heic(content: Path | bytes) -> "Image":
    if find_spec("pillow_heif") is None:
        raise UnsupportedImageError(
            "a HEIC image; install the extra for them (pip install 'heedful[heic]'), or save it as JPEG"
        )
    import pillow_heif

    pillow_heif.register_heif_opener()
    return _opened(content, ("HEIF",))


def _first_bytes(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return content[:_N_FIRST]
    with content.open("rb") as stream:
        return stream.read(_N_FIRST)


def _is_heic(first: bytes) -> bool:
    return first[4:8] == b"ftyp" and first[8:12] in HEIC_BRANDS


def _what_it_is(first: bytes) -> str:
    """Return what is wrong with a file that Pillow does not recognise, and what to do."""
    if not first:
        return "the file is empty; copy it again, or remove it"
    if first.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page, not an image; download the image itself"
    if first[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return (
            "a form of TIFF that is not supported, or the raw file of a camera; save it as PNG, JPEG or "
            "TIFF with 8 or 16 bits"
        )
    return f"not an image of a supported format ({', '.join(FORMATS)}); save it as PNG or JPEG"


def refuse_large(image: "Image") -> None:
    """Check the number of pixels.

    Raises:
        ValueError: there are more than `MAX_PIXELS`.
    """
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width:,} x {height:,} pixels, more than {MAX_PIXELS:,}; reduce its size")


@contextmanager
def as_data_errors(name: str) -> Iterator[None]:
    """Convert all errors of Pillow's readers, which raise many types, to `DataError`.

    Raises:
        DataError: in place of any other error.
    """
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(no_such_image(name)) from None
    except UnsupportedImageError as error:
        raise DataError(f"{name}: {error}") from None
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: cannot be read as an image ({reason})") from None


def is_image_name(name: str | Path) -> bool:
    """Return whether a file in a folder is an image, which its suffix decides."""
    return str(name).lower().endswith(SUFFIXES)


def is_image(file: str | Path) -> bool:
    """Return whether a file that is named explicitly is an image: by its suffix, or else its first bytes."""
    if is_image_name(file):
        return True
    with suppress(OSError, ValueError):  # a text in place of a name may be too long
        path = Path(file)
        return path.is_file() and IMAGE.beginning.match(_first_bytes(path)) is not None
    return False


def unread_note(paths: Sequence[Path]) -> str:
    """Return a note on files that are not read as images, by their suffixes; empty if there are none."""
    suffixes = Counter(path.suffix.lower() for path in paths)
    shown = ", ".join(f"{n:,} {suffix or 'without suffix'}" for suffix, n in suffixes.most_common(N_SUFFIXES))
    n_more = len(suffixes) - N_SUFFIXES
    more = f", and {n_more:,} more suffixes" if n_more > 0 else ""
    return f"files that are not read as images: {shown}{more}; the first is {paths[0]}" if suffixes else ""
