"""Split text in any script into words, and detect scripts without spaces between words.

A word is a run of letters, combining marks and digits (Unicode categories L, M and N); everything else is a
separator. In scripts without spaces, each letter with its combining marks is a word. Texts are first
normalised to NFKC and lower case. For ASCII texts, the words are the tokens of rouge-score.
"""

from collections.abc import Iterable

import regex

from heedful.text.normalisation import normalised

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_JOINERS = r"\u200c\u200d"  # occur within words of Persian, Sinhala and others
_WORD = regex.compile(
    rf"[\p{{L}}&&[{_SPACELESS}]]\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}{_JOINERS}]--[\p{{L}}&&[{_SPACELESS}]]]+",
    regex.VERSION1,
)
_LETTER = regex.compile(r"\p{L}")
_LANGUAGES = {
    "th": regex.compile(r"[\p{L}&&\p{Thai}]", regex.VERSION1),
    "lo": regex.compile(r"[\p{L}&&\p{Lao}]", regex.VERSION1),
    "km": regex.compile(r"[\p{L}&&\p{Khmer}]", regex.VERSION1),
    "my": regex.compile(r"[\p{L}&&\p{Myanmar}]", regex.VERSION1),
    "bo": regex.compile(r"[\p{L}&&\p{Tibetan}]", regex.VERSION1),
    "ja": regex.compile(r"[\p{L}&&[\p{Hiragana}\p{Katakana}\u30fc]]", regex.VERSION1),
    "zh": regex.compile(r"[\p{L}&&\p{Han}]", regex.VERSION1),
}


def words(text: str) -> list[str]:
    """Split a text into lower-case words; see the module."""
    return _WORD.findall(normalised(text, "nfkc").lower())


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
