"""Guess the encoding of text that is not UTF-8, for messages.

A guess is an encoding in which the text can be read and looks like a language that is written in it; it may
be wrong, and nothing is ever converted by it.
"""

import re
import shlex
from codecs import getincrementaldecoder
from collections.abc import Iterable

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
UTF32_MARKS = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")

SHARE_OF_ASCII = 0.02
"""The least share of ASCII, such as line ends, in a text in UTF-16, and the largest of unused characters."""

SHARE_OF_CONTROLS = 0.05
"""A file that is not UTF-8 is not text if more bytes than this share are control characters."""

FEWEST_BYTES = 512
"""The least number of bytes of which this share is computed."""

_CONTROLS = re.compile(rb"[\0-\x07\x0e-\x1a\x1c-\x1f]")

_HIGH = re.compile(rb"[\x80-\xff]+")
_HIGH_OF_LATIN = re.compile(
    rb"(?<=[A-Za-z])[\x80-\xff]+|[\x80-\xff]+(?=[A-Za-z])|(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])"
)
_KANA = re.compile(r"[\u3041-\u30ff]")
_HALF_WIDTH = re.compile(r"[\uff61-\uff9f]")
_IDEOGRAPHS = re.compile(r"[\u4e00-\u9fff]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_FREQUENT = re.compile(rb"[\xb0-\xd7][\xa1-\xfe]")
_CYRILLIC_VOWELS = re.compile("[аио]")

_PUNCTUATION = {*"‘’‚“”„–—…•€«»§°"}
_WESTERN = (
    "äöüß",  # German
    "àâæçéèêëîïôœùûüÿ",  # French
    "áéíñóúü¿¡ªº",  # Spanish
    "àáâãçéêíóôõúü",  # Portuguese
    "àèéìíîòóùú",  # Italian
    "åäöæøé",  # Danish, Finnish, Norwegian, Swedish
    "áæðéíóöúýþ",  # Icelandic
)
_LATIN_LETTERS = {
    "WINDOWS-1252": _WESTERN,
    "WINDOWS-1250": (
        "ąćęłńóśźż",  # Polish
        "áäčďéěíĺľňóôŕřšťúůýž",  # Czech, Slovak
        "áéíóöőúüű",  # Hungarian
        "ăâîşţ",  # Romanian
        "čćđšž",  # Croatian, Slovene
    ),
    "MACINTOSH": _WESTERN,
    "CP850": _WESTERN,
}
"""Letters other than ASCII of the languages that are written in an encoding, in lower case."""

_CYRILLIC = ("WINDOWS-1251", "KOI8-R")

DESCRIPTIONS = {
    "UTF-16": "UTF-16",
    "SHIFT_JIS": "Shift JIS (Japanese)",
    "GB18030": "GB 18030 (Chinese)",
    "WINDOWS-1252": "Windows-1252 (Western European), as Excel and older Windows programs save it",
    "WINDOWS-1250": "Windows-1250 (Central European), as Excel and older Windows programs save it",
    "WINDOWS-1251": "Windows-1251 (Cyrillic), as Excel and older Windows programs save it",
    "KOI8-R": "KOI8-R (Cyrillic)",
    "UTF-32": "UTF-32",
    "MACINTOSH": "Mac Roman, as Excel and older programs on a Mac save it",
    "CP850": "code page 850, as Excel saves CSV for MS-DOS",
}
"""Encodings that are guessed, by their names for ``iconv``."""


def looks_like_utf16(raw: bytes) -> bool:
    """Whether a file begins with a UTF-16 byte order mark."""
    return raw.startswith(UTF16_MARKS)


def utf16_form(head: bytes) -> str | None:
    """Return the form of UTF-16 without a byte order mark, for ``iconv``, that a file begins with, or None.

    Half of each character of ASCII is a zero byte; ASCII read as UTF-16 is Chinese, without any ASCII.
    """
    if b"\0" not in head or head.startswith((*UTF16_MARKS, *UTF32_MARKS)):
        return None
    for form in ("UTF-16LE", "UTF-16BE"):
        text = head[: len(head) // 2 * 2].decode(form, errors="replace")
        n_plausible = sum(character.isprintable() or character.isspace() for character in text)
        n_ascii = sum("\t" <= character < "\x7f" for character in text)
        if n_plausible >= (1 - SHARE_OF_ASCII) * len(text) and n_ascii >= SHARE_OF_ASCII * len(text) > 0:
            return form
    return None


def looks_binary(content: bytes) -> bool:
    """Whether bytes that are not UTF-8 have too many control characters for text in another encoding."""
    return len(_CONTROLS.findall(content)) > SHARE_OF_CONTROLS * max(FEWEST_BYTES, len(content))


def is_utf8(content: bytes) -> bool:
    """Whether bytes are UTF-8, whose last character may be incomplete."""
    try:
        getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return False
    return True


def likely_encoding(content: bytes) -> str | None:
    """Return the name of the likely encoding of bytes that are not UTF-8, for ``iconv``.

    UTF-16 is recognised by its byte order mark. Shift JIS needs kana, GB 18030 frequent ideographs (the
    first level of GB 2312) without kana, in text that is not Korean. In text of Latin letters, most bytes
    above 127 are single or next to letters of ASCII, and the letters of languages decide between its
    encodings. Cyrillic needs its frequent vowels. For other alphabets, nothing is guessed.
    """
    if content.startswith(UTF32_MARKS):
        return "UTF-32"
    if looks_like_utf16(content):
        return "UTF-16"
    japanese = _decoded(content, "shift_jis")
    n_kana = len(_KANA.findall(japanese))
    if n_kana > _n_high(japanese) / 10 and n_kana > len(_HALF_WIDTH.findall(japanese)):
        return "SHIFT_JIS"
    if _looks_chinese(content):
        return "GB18030"
    if 2 * len(_HIGH_OF_LATIN.findall(content)) > len(_HIGH.findall(content)):
        shares = {encoding: _share_of_latin(content, encoding) for encoding in _LATIN_LETTERS}
        best = max(shares, key=lambda encoding: shares[encoding])
        return best if shares[best] > 0.5 else None
    return next((encoding for encoding in _CYRILLIC if _looks_russian(content, encoding)), None)


def _share_of_latin(content: bytes, encoding: str) -> float:
    """Return the largest share of characters other than ASCII that a language of the encoding has."""
    characters = [c for c in _decoded(content, encoding).lower() if not c.isascii()]
    languages = [_PUNCTUATION | {*letters} for letters in _LATIN_LETTERS[encoding]]
    return max(sum(c in language for c in characters) for language in languages) / max(1, len(characters))


def _looks_chinese(content: bytes) -> bool:
    chinese, korean = _decoded(content, "gb18030"), _decoded(content, "euc_kr")
    ideographs = _IDEOGRAPHS.findall(chinese)
    n_frequent = sum(_FREQUENT.fullmatch(c.encode("gb18030")) is not None for c in ideographs)
    is_korean = len(_HANGUL.findall(korean)) > 0.8 * _n_high(korean) > 0
    return n_frequent > _n_high(chinese) / 2 and not _KANA.search(chinese) and not is_korean


def _looks_russian(content: bytes, encoding: str) -> bool:
    text = _decoded(content, encoding)
    return len(_CYRILLIC_VOWELS.findall(text)) > 0.15 * _n_high(text)


def conversion_hint(lines: Iterable[bytes], name: str, decompression: str = "") -> str:
    """Return a hint for a file that is not UTF-8: what it probably is, and the command that converts it.

    Args:
        lines: lines of the file, from its beginning, one at least not UTF-8; repeated ones count once.
        name: the file's name.
        decompression: the command that prints the content of the file, if it is compressed.
    """
    beginning, wrong, n_right = b"", [], 0
    for line in dict.fromkeys(line.rstrip(b"\r\n") for line in lines):
        beginning = beginning or line
        if not _is_utf8(line):
            wrong.append(line)
        elif not line.isascii():
            n_right += 1
    is_wide = looks_like_utf16(beginning) or beginning.startswith(UTF32_MARKS)
    if n_right > len(wrong):
        return "other lines are UTF-8; correct this one"
    encoding = likely_encoding(beginning if is_wide else b"".join(wrong))
    iconv, file = f"iconv -f {encoding or 'ENC'} -t UTF-8", shlex.quote(name)
    command = f"{decompression} | {iconv} > NEW" if decompression else f"{iconv} {file} > NEW"
    if encoding is None:
        return f"convert it from its encoding ENC: {command}"
    return f"the file is probably {DESCRIPTIONS[encoding]}; convert it: {command}"


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
