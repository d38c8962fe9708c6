"""Guess the encoding of text that is not UTF-8, for messages.

A guess is an encoding in which the text can be read and looks like a language that is written in it; it may
be wrong, and nothing is ever converted by it.
"""

import re
import shlex
from collections.abc import Iterable

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

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
_LATIN_LETTERS = {
    "WINDOWS-1252": (
        "äöüß",  # German
        "àâæçéèêëîïôœùûüÿ",  # French
        "áéíñóúü¿¡ªº",  # Spanish
        "àáâãçéêíóôõúü",  # Portuguese
        "àèéìíîòóùú",  # Italian
        "åäöæøé",  # Danish, Finnish, Norwegian, Swedish
        "áæðéíóöúýþ",  # Icelandic
    ),
    "WINDOWS-1250": (
        "ąćęłńóśźż",  # Polish
        "áäčďéěíĺľňóôŕřšťúůýž",  # Czech, Slovak
        "áéíóöőúüű",  # Hungarian
        "ăâîşţ",  # Romanian
        "čćđšž",  # Croatian, Slovene
    ),
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
}
"""Encodings that are guessed, by their names for ``iconv``."""


def looks_like_utf16(raw: bytes) -> bool:
    """Whether a file begins with a UTF-16 byte order mark."""
    return raw.startswith(UTF16_MARKS)


def likely_encoding(content: bytes) -> str | None:
    """Return the name of the likely encoding of bytes that are not UTF-8, for ``iconv``.

    UTF-16 is recognised by its byte order mark. Shift JIS needs kana, GB 18030 frequent ideographs (the
    first level of GB 2312) without kana, in text that is not Korean. In text of Latin letters, most bytes
    above 127 are single or next to letters of ASCII, and the letters of languages decide between its
    encodings. Cyrillic needs its frequent vowels. For other alphabets, nothing is guessed.
    """
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
    if name.lower().endswith(".gz"):
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
