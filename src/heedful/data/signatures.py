"""Formats that are no text, recognised by the first bytes of a file, and how to get text out of them.

A name says little: downloads, mail programs and web pages rename files. ``FILE`` in a remedy is replaced by
the name of the file, quoted for a shell.
"""

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from heedful.data.encodings import UTF16_MARKS, UTF32_MARKS, is_utf8, looks_binary, utf16_form

N_HEAD = 1 << 16
"""Bytes at the beginning of a file by which its format is recognised."""


class Signature(NamedTuple):
    """A format: its first bytes, what it is called in messages, and the remedy."""

    beginning: re.Pattern[bytes]
    name: str
    remedy: str


def _begins(*beginnings: bytes) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, beginnings)))


GZIP, BZIP2, XZ, ZSTANDARD, ZIP = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"

EXTRACT = "extract its files: {} FILE"
LIBRARY = "read it with kind: datasets, path: {0} and data_files: FILE; or convert it to CSV"

IMAGE = Signature(
    re.compile(
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|BM.{4}\0\0\0\0|RIFF.{4}WEBP|"
        rb".{4}ftyp(?:hei|mif|avi)",
        re.DOTALL,
    ),
    "an image",
    "name a file of text, or for a task on images, a folder of them or a table of their paths",
)
"""Images of the usual formats."""

SIGNATURES = (
    Signature(_begins(b"%PDF-"), "a PDF document", "extract its text: pdftotext FILE NEW"),
    Signature(_begins(b"{\\rtf"), "a document in Rich Text Format", "save it as plain text in UTF-8"),
    Signature(
        _begins(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        "a document of Microsoft Office, either old (.xls, .doc) or with a password",
        "open it, remove its password, and save a table as CSV in UTF-8, other text as plain text in UTF-8",
    ),
    IMAGE,
    Signature(
        _begins(b"SQLite format 3\0"),
        "an SQLite database",
        "write a table of it (sqlite3 FILE .tables lists them) as CSV: "
        "sqlite3 -header -csv FILE 'SELECT * FROM TABLE' > NEW.csv",
    ),
    Signature(_begins(b"PAR1"), "a Parquet file", LIBRARY.format("parquet")),
    Signature(_begins(b"ARROW1"), "an Arrow (Feather) file", LIBRARY.format("arrow")),
    Signature(
        re.compile(rb"\x80[\x02-\x05]"),
        "a pickle of Python",
        "loading one runs code that it contains, so heedful never does; where it was made, save the data as "
        "CSV or JSON lines",
    ),
    Signature(
        _begins(b"\x93NUMPY", b"\x89HDF\r\n"), "an array of numbers (NumPy, HDF5)", "save the data as CSV"
    ),
    Signature(
        _begins(b"\0\x05\x16\x07"),
        "an AppleDouble file, which macOS adds for its own use",
        "name the file without ._ at the beginning",
    ),
    Signature(_begins(b"\x04\x22\x4d\x18"), "an lz4 file", "decompress it: lz4 -dc FILE > NEW"),
    Signature(_begins(b"\x1f\x9d"), "a file of compress", "decompress it: gzip -dc < FILE > NEW"),
    Signature(_begins(b"7z\xbc\xaf\x27\x1c"), "a 7z archive", EXTRACT.format("7z x")),
    Signature(_begins(b"Rar!\x1a\x07"), "a RAR archive", EXTRACT.format("unrar x")),
    Signature(re.compile(rb".{257}ustar", re.DOTALL), "a tar archive", "extract its files: tar -xf FILE"),
    Signature(_begins(GZIP), "a gzip file", "decompress it: gzip -dc < FILE > NEW"),
    Signature(
        _begins(BZIP2 + b"1AY", BZIP2 + b"91AY"), "a bzip2 file", "decompress it: bzip2 -dc FILE > NEW"
    ),
    Signature(_begins(XZ), "an xz file", "decompress it: xz -dc < FILE > NEW"),
    Signature(_begins(ZSTANDARD), "a Zstandard file", "decompress it: zstd -dc FILE > NEW"),
    Signature(_begins(ZIP), "a zip archive", "extract its files: unzip FILE"),
    Signature(
        _begins(b"version https://git-lfs.github.com/spec/"),
        "a pointer of Git LFS, which stands for a file that was not downloaded",
        "download it, in the folder of the repository: git lfs pull",
    ),
)

MARKUP = (
    Signature(
        re.compile(rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL),
        "a web page (HTML), perhaps the login or error page of a download",
        "download the file itself",
    ),
    Signature(
        re.compile(
            rb"\s*(?:<\?xml.*?\?>\s*)?(?:<!doctype\s+tmx[^>]*>\s*)?<tmx[\s>]", re.IGNORECASE | re.DOTALL
        ),
        "a TMX file",
        "read it with kind: tmx and the language of each column, such as columns: {source: en, target: de}",
    ),
    Signature(
        re.compile(rb"\s*(?:<!doctype[^>]*>\s*)?<(?:src|ref|tst)set[\s>]", re.IGNORECASE),
        "a test set in SGML",
        r"extract its lines: sed -n 's/.*<seg[^>]*>\(.*\)<\/seg>.*/\1/p' FILE > NEW",
    ),
    Signature(re.compile(rb"\s*<\?xml\s"), "an XML file", "convert it to plain text, CSV or JSON lines"),
)
"""Text that is not what lines and tables consist of; running text may be such a file."""


def recognised(head: bytes, signatures: Sequence[Signature] = SIGNATURES, file: str = "FILE") -> str | None:
    """Return what a file is and what to do, if its first bytes are those of a known format.

    Args:
        head: its first bytes.
        signatures: the formats.
        file: what the file is called in commands.
    """
    found = next((each for each in signatures if each.beginning.match(head)), None)
    return None if found is None else f"is {found.name}; {found.remedy.replace('FILE', shlex.quote(file))}"


def refusal(head: bytes, file: str, *, markup: bool) -> str | None:
    """Return why a file cannot be read as text, or None.

    Args:
        head: its first bytes, not compressed.
        file: its name.
        markup: whether it may be a page or another document with tags.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    found = recognised(head, SIGNATURES if markup else (*SIGNATURES, *MARKUP), file)
    if found is None and (form := utf16_form(head)) is not None:
        command = f"iconv -f {form} -t UTF-8 {shlex.quote(file)} > NEW"
        return f"is {form} without a byte order mark; convert it: {command}"
    is_wide = head.startswith((*UTF16_MARKS, *UTF32_MARKS))  # which has a message of its own
    if found is None and not is_wide and looks_binary(head) and not is_utf8(head):
        return "is a binary file and not text; name a file of text"
    return found
