"""Scripts without spaces between words, and the words of a text in any script.

Words are separated by white space. Some scripts (of Chinese, Japanese, Thai and others) have none between
words, and only a dictionary would find their words. There, the pieces of the run's tokenizer are words
(`words_of_pieces`), or, without a tokenizer, single characters with their marks (`segments`).
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import regex

NO_WORD = -1
"""The word index of what is in no word: white space and special tokens."""

JOINERS = "\u200c\u200d"
"""Zero-width characters within words of Persian, Sinhala and others, and within emoji."""

SYLLABLE_SCRIPTS = ("Tibetan",)
"""Scripts without spaces between words in which a mark separates syllables."""

LETTER_SCRIPTS = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Thai", "Lao", "Khmer", "Myanmar"),
    *("Tai_Le", "New_Tai_Lue", "Tai_Tham", "Javanese", "Balinese"),
)
"""Scripts without spaces between words, and without marks between syllables."""


def characters_of(scripts: Iterable[str]) -> str:
    """Return a character class of `regex` (version 1): the characters of scripts, with their punctuation.

    Characters that Latin text also uses (such as the middle dot) are left out.
    """
    classes = "".join(rf"\p{{scx={script}}}" for script in scripts)
    return rf"[[{classes}]&&[\u0e00-\U0010ffff]]"


_FULL_WIDTH_PUNCTUATION = r"\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_SPACELESS = regex.compile(
    rf"[{characters_of((*LETTER_SCRIPTS, *SYLLABLE_SCRIPTS))}{_FULL_WIDTH_PUNCTUATION}]", regex.VERSION1
)
_LETTER = regex.compile(r"\p{L}")
_CHARACTER = regex.compile(r"\X")
_WORD = regex.compile(r"\S+")
_LANGUAGES = {
    language: regex.compile(rf"[\p{{L}}&&{characters_of(scripts)}]", regex.VERSION1)
    for language, scripts in {
        "th": ("Thai",),
        "lo": ("Lao",),
        "km": ("Khmer",),
        "my": ("Myanmar",),
        "bo": ("Tibetan",),
        "ja": ("Hiragana", "Katakana"),
        "zh": ("Han",),
    }.items()
}


def has_script_without_spaces(text: str) -> bool:
    """Return whether a text has a character of a script without spaces between words."""
    return _SPACELESS.search(text) is not None


def language_without_spaces(texts: Iterable[str]) -> str | None:
    """Return the language of texts whose script has no spaces between words, or None.

    Han characters are Chinese (``zh``), or Japanese (``ja``) if there is at least one kana per ten of them.
    None if most letters are of other scripts, or there are no letters.
    """
    all_text = " ".join(texts)
    counts = {language: len(pattern.findall(all_text)) for language, pattern in _LANGUAGES.items()}
    if counts["ja"] * 10 >= counts["zh"]:
        counts["ja"] += counts.pop("zh")
    most_frequent = max(counts, key=lambda language: counts[language])
    return most_frequent if counts[most_frequent] * 2 > len(_LETTER.findall(all_text)) else None


def characters(text: str) -> list[str]:
    """Split a text into characters as readers see them (Unicode's extended grapheme clusters)."""
    return _CHARACTER.findall(text)


def segments(text: str) -> list[str]:
    """Split a text into words at white space, and into characters in scripts without spaces."""
    segments_found = []
    for word in _WORD.findall(text):
        bounds = [0, *sorted(_breaks(word)), len(word)]
        segments_found += [word[a:b] for a, b in pairwise(bounds)]
    return segments_found


def words_of_pieces(pieces: Sequence[bytes]) -> tuple[list[str], list[int]]:
    """Return the words of a text, and for each of its pieces the index of its word.

    A word begins after white space, and at a piece before or after which there is a character of a script
    without spaces; never within a character. The word of a piece is that of its first character that is not
    white space; `NO_WORD` if there is none.

    Args:
        pieces: the UTF-8 text; invalid bytes become U+FFFD.
    """
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    ends, breaks = list(accumulate(map(len, pieces))), _breaks(text)
    piece_bounds = set(ends)
    words: list[list[str]] = []
    word_of_byte: list[int] = []
    is_inside = False
    for index, character in enumerate(text):
        size = len(character.encode("utf-8", "surrogateescape"))
        is_space = character.isspace()
        if not is_space:
            if not is_inside or (index in breaks and len(word_of_byte) in piece_bounds):
                words.append([])
            words[-1].append(character)
        is_inside = not is_space
        word_of_byte += [NO_WORD if is_space else len(words) - 1] * size
    indices = [
        next((index for index in word_of_byte[end - len(piece) : end] if index != NO_WORD), NO_WORD)
        for piece, end in zip(pieces, ends, strict=True)
    ]
    texts = ["".join(word).encode("utf-8", "surrogateescape").decode("utf-8", "replace") for word in words]
    return texts, indices


def _breaks(text: str) -> set[int]:
    """Return the indices before which a script without spaces permits a word to end."""
    if not has_script_without_spaces(text):
        return set()
    starts = [match.start() for match in _CHARACTER.finditer(text)][1:]
    return {i for i in starts if _SPACELESS.match(text, i) or _SPACELESS.match(text, i - 1)}
