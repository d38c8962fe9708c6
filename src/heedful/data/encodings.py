"""Guess the encoding of text that is not UTF-8, for messages.

A guess is an encoding in which the text can be read and looks like a language that is written in it; it may
be wrong, and nothing is ever converted by it.
"""

import re
import shlex
from collections.abc import Iterable

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

_HIGH = re.compile(rb"[\x80-\xff]+")
_KANA = re.compile(r"[\u3041-\u30ff]")
_HALF_WIDTH = re.compile(r"[\uff61-\uff9f]")
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff]")

DESCRIPTIONS = {
    "UTF-16": "UTF-16",
    "SHIFT_JIS": "Shift JIS (Japanese)",
    "GB18030": "GB 18030 (Chinese)",
    "CP1252": "CP1252 (Western European)",
}
"""Encodings that are guessed, by their names for ``iconv``."""


def looks_like_utf16(raw: bytes) -> bool:
    """Whether a file begins with a UTF-16 byte order mark."""
    return raw.startswith(UTF16_MARKS)


def likely_encoding(content: bytes) -> str | None:
    """Return the name of the likely encoding of bytes that are not UTF-8, for ``iconv``.

    UTF-16 is recognised by its byte order mark. Shift JIS needs kana, GB 18030 ideographs without kana. In
    Western European text, most bytes above 127 are single, between letters of ASCII; other alphabets have
    runs of them, but there are several encodings for each, so nothing is guessed.
    """
    if looks_like_utf16(content):
        return "UTF-16"
    japanese, chinese = _decoded(content, "shift_jis"), _decoded(content, "gb18030")
    n_kana, n_ideographs = len(_KANA.findall(japanese)), len(_IDEOGRAPHS.findall(chinese))
    if n_kana > _n_high(japanese) / 10 and n_kana > len(_HALF_WIDTH.findall(japanese)):
        return "SHIFT_JIS"
    if n_ideographs > _n_high(chinese) / 2 and not _KANA.search(chinese):
        return "GB18030"
    runs = _HIGH.findall(content)
    if 2 * sum(len(run) == 1 for run in runs) > len(runs) and _decoded(content, "cp1252"):
        return "CP1252"
    return None


def conversion_hint(lines: Iterable[bytes], name: str) -> str:
    """Return a hint for a file that is not UTF-8: what it probably is, and the command that converts it.

    Args:
        lines: lines of the file, from its beginning, one at least not UTF-8; repeated ones count once.
        name: the file's name.
    """
    beginning, wrong, n_right = b"", [], 0
    for line in dict.fromkeys(line.rstrip(b"\r\n") for line in lines):
        beginning = beginning or line
        if not _is_utf8(line):
            wrong.append(line)
        elif not line.isascii():
            n_right += 1
    if beginning.startswith(b"\x1f\x8b"):
        return "it looks like a gzip file; its name must end in .gz"
    if n_right > len(wrong):
        return "other lines are UTF-8; correct this one"
    encoding = "UTF-16" if looks_like_utf16(beginning) else likely_encoding(b"".join(wrong))
    if encoding is None:
        return f"convert it from its encoding ENC: {_command('ENC', name)}"
    return f"the file is probably {DESCRIPTIONS[encoding]}; convert it: {_command(encoding, name)}"


def _command(encoding: str, name: str) -> str:
    file = shlex.quote(name)
    if name.endswith(".gz"):
        return f"gzip -dc {file} | iconv -f {encoding} -t UTF-8 | gzip > NEW.gz"
    return f"iconv -f {encoding} -t UTF-8 {file} > NEW"


def _is_utf8(line: bytes) -> bool:
    return bool(_decoded(line, "utf-8")) or not line


def _decoded(content: bytes, encoding: str) -> str:
    """Return the text, or an empty one if it is not of this encoding."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return ""


def _n_high(text: str) -> int:
    return sum(not character.isascii() for character in text)
