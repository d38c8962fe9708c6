"""Names of columns, labels and tags: they are compared in NFC, without white space at their ends.

macOS and some programs decompose letters with accents (NFD: ``e`` and U+0301), keyboards compose them (NFC:
é); both look the same. Source: Unicode Standard Annex 15.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060\u00ad"
_AT_ENDS = re.compile(r"^[\s\ufeff\u200b\u2060]+|[\s\ufeff\u200b\u2060]+$")
_BLANKS = re.compile(r"\s+")
_TWINS = str.maketrans("аеорсухіјѕАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "aeopcyxijsABEKMHOPCTXIJSABEZHIKMNOPTYXo")
"""Letters of Cyrillic and Greek that look like Latin ones."""


LONGEST = 1000
"""Characters of a name; a longer text is compared as it is: composing a long run of marks takes minutes."""


def identifier(text: str) -> str:
    """Return a name as it is compared: in NFC, without white space and invisible characters at its ends."""
    if len(text) > LONGEST:
        return text
    return _AT_ENDS.sub("", text if text.isascii() else unicodedata.normalize("NFC", text))


def similar_form(text: str) -> str:
    """Return a form that is equal for names that look alike, apart from case, white space and width."""
    if len(text) > LONGEST:
        return text
    visible = text.translate(dict.fromkeys(map(ord, _INVISIBLE)))
    composed = unicodedata.normalize("NFKC", visible).casefold()
    return _BLANKS.sub(" ", composed.translate(_TWINS)).strip()


def positions_of(name: str, names: Sequence[str]) -> list[int]:
    """Return the positions of names that are equal to one, or else of those that compare so."""
    exact = [position for position, other in enumerate(names) if other == name]
    compared = identifier(name)
    return exact or [position for position, other in enumerate(names) if identifier(other) == compared]


def found_in(name: str, names: Iterable[str]) -> str | None:
    """Return how a name is written among others, or None if it is missing, or if several compare equal."""
    written = [*names]
    positions = positions_of(name, written)
    return written[positions[0]] if len({written[position] for position in positions}) == 1 else None


def difference(first: str, second: str) -> str:
    """Return in what two different names differ that look alike; empty if they do not look alike."""
    if similar_form(first) != similar_form(second):
        return ""
    if unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second):
        return f"in Unicode form ({_form(first)}, {_form(second)})"
    if "".join(first.split()) == "".join(second.split()):
        return "in white space"
    if first.casefold() == second.casefold():
        return "in upper and lower case"
    odd = next(character for character in first + second if (character in first) != (character in second))
    odd = next((c for c in first + second if not c.isascii() and (c in first) != (c in second)), odd)
    return f"in U+{ord(odd):04X} ({unicodedata.name(odd, 'without a name')})"


def _form(text: str) -> str:
    return next((form for form in ("NFC", "NFD") if unicodedata.is_normalized(form, text)), "mixed")


def number_of(text: str) -> float | None:
    """Return the number that a text is, such as 3, -1.50 or 1e3; None if it is none or not finite."""
    if not re.fullmatch(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", text, re.ASCII):
        return None
    value = float(text)
    return value if abs(value) != float("inf") else None


def value_of(text: str) -> float | str | None:
    """Return the number that a text is, or ``true`` or ``false``; None if it is neither.

    A truth value is ``true`` in JSON, ``True`` in tables of pandas and ``TRUE`` in those of spreadsheets.
    """
    lowered = text.lower()
    return lowered if lowered in ("true", "false") else number_of(text)


def in_order(names: Iterable[str]) -> list[str]:
    """Return names sorted: as numbers if all are numbers, or else as texts."""
    written = sorted(names)
    numbers = {name: number_of(name) for name in written}
    if any(number is None for number in numbers.values()):
        return written
    return sorted(written, key=lambda name: numbers[name] or 0.0)
