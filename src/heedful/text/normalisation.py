"""What is done to the text of one side before subwords are cut, and undone after they are joined."""

import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from heedful.errors import DataError, RequestError, nearest

if TYPE_CHECKING:
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

Form = Literal["none", "nfc", "nfkc"]

HYPHEN = "@-@"
"""How Moses writes a hyphen at which it cut a word."""


@dataclass(frozen=True)
class Moses:
    """The Moses scripts for one language (Koehn 2007), as ported by sacremoses.

    XML signs are not escaped: the tokens are shown to people, and escaping changes no BLEU.
    """

    normaliser: "MosesPunctNormalizer"
    tokenizer: "MosesTokenizer"
    detokenizer: "MosesDetokenizer"

    def tokenise(self, text: str, aggressive_hyphens: bool = False) -> str:
        """Normalise punctuation, then put one space between tokens.

        With ``aggressive_hyphens``, ``a-b`` becomes ``a @-@ b``.
        """
        text = self.normaliser.normalize(text)
        return " ".join(self.tokenizer.tokenize(text, aggressive_hyphens, escape=False))

    def detokenise(self, text: str) -> str:
        """Join tokens to natural text; punctuation that was normalised stays so."""
        return str(self.detokenizer.detokenize(text.split(), unescape=False))

    def certain(self, text: str) -> str:
        """The beginning of ``detokenise(text + more)`` that is the same whatever more is.

        The last token may go on, and ``@-@`` makes one of both its neighbours. What stands before them has
        its form from what stands before it; but Czech is joined otherwise where a text ends in a number.
        """
        if self.detokenizer.lang == "cs":
            return ""
        tokens = text.split()
        n = len(tokens) - 1
        while n > 0 and (HYPHEN.startswith(tokens[n]) or tokens[n - 1] == HYPHEN):
            n -= 1
        return self.detokenise(" ".join(tokens[: max(n, 0)]))


@lru_cache(maxsize=16)
def moses(language: str) -> Moses:
    """The scripts of a language, made once.

    Raises:
        RequestError: Moses has no rules for the language (it would take the English ones).
    """
    # Imported on first use: it costs more than everything else in this package.
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

    require_rules(language)
    return Moses(MosesPunctNormalizer(language), MosesTokenizer(language), MosesDetokenizer(language))


def require_rules(language: str) -> None:
    """Refuse a language that Moses has no rules for.

    Raises:
        RequestError: with the languages that it has rules for.
    """
    from sacremoses.corpus import NonbreakingPrefixes

    known = sorted({*NonbreakingPrefixes().available_langs.values(), "ja", "ko", "zh"})
    if language not in known:
        hint = nearest(language, known)
        raise RequestError(
            f"Moses has no rules for the language {language!r}{hint}; known: {', '.join(known)}"
        )


@dataclass(frozen=True)
class Preprocessing:
    """What one side's text goes through, in this order.

    1. ``normalization``: Unicode's NFC or NFKC, or nothing;
    2. ``lowercase``;
    3. ``moses``: the punctuation and tokens of a language (``de``), with ``aggressive_hyphens`` or not.

    Lower-casing before tokenising is the order in which the published Multi30k text was made; Moses
    then misses abbreviations that it knows in capitals (``Dr.`` is one token, ``dr.`` may be two).
    """

    lowercase: bool = False
    moses: str | None = None
    normalization: Form = "none"
    aggressive_hyphens: bool = False

    @property
    def is_faithful(self) -> bool:
        """Whether `apply` changes no text at all."""
        return not self.lowercase and self.moses is None and self.normalization == "none"

    def apply(self, text: str) -> str:
        """The text as the subword model sees it."""
        text = self._normalise(text)
        if self.lowercase:
            # Lower-casing can leave a sequence that has a composed form.
            text = self._normalise(text.lower())
        return moses(self.moses).tokenise(text, self.aggressive_hyphens) if self.moses else text

    def undo(self, text: str) -> str:
        """Natural text again: tokens are joined; case and normalisation are not brought back."""
        return moses(self.moses).detokenise(text) if self.moses else text

    def certain(self, text: str) -> str:
        """The beginning of ``undo(text + more)`` that is the same whatever more is."""
        return moses(self.moses).certain(text) if self.moses else text

    def _normalise(self, text: str) -> str:
        return text if self.normalization == "none" else normalised(text, self.normalization)


_MARKS = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){32,}")
"""Runs that may be of combining marks: no letters, but for two that compatibility makes marks of."""


def normalised(text: str, form: Literal["nfc", "nfkc"]) -> str:
    """The text in a Unicode normalization form, as `unicodedata.normalize` gives it, in linear time.

    Python's function orders combining marks by insertion, which is quadratic in the length of a run of
    them. Long runs are ordered here first (Unicode Standard Annex #15: "Canonical Ordering Algorithm"),
    which leaves it nothing to move.
    """
    composed: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    decomposed: Literal["NFD", "NFKD"] = "NFD" if form == "nfc" else "NFKD"
    # Fast, and linear: of text whose marks are out of order, it says so at the first of them.
    if unicodedata.is_normalized(composed, text):
        return text
    ordered = _MARKS.sub(lambda run: _in_order(run.group(), decomposed), text)
    return unicodedata.normalize(composed, ordered)


def _in_order(run: str, form: Literal["NFD", "NFKD"]) -> str:
    """The decomposed characters, with the marks that follow one another ordered by their classes."""
    signs = (part for sign in run for part in unicodedata.normalize(form, sign))
    ordered: list[str] = []
    for are_marks, group in groupby(signs, lambda sign: unicodedata.combining(sign) > 0):
        if not are_marks:
            ordered += group
            continue
        by_class: defaultdict[int, list[str]] = defaultdict(list)
        for mark in group:
            by_class[unicodedata.combining(mark)].append(mark)
        for number in sorted(by_class):
            ordered += by_class[number]
    return "".join(ordered)


def tokenise_for_bleu(
    text: str, language: str, lowercase: bool = True, aggressive_hyphens: bool = False
) -> str:
    """One line as tokenised BLEU counts it: lower case, normalised punctuation, Moses tokens.

    This is the pre-processing of the published Multi30k text. Report such a score only under its own
    name, never as sacreBLEU's.
    """
    chosen = Preprocessing(lowercase=lowercase, moses=language, aggressive_hyphens=aggressive_hyphens)
    return chosen.apply(text)


def refuse_surrogates(text: str, place: str = "the text") -> None:
    """Refuse a text that has no UTF-8 form (JSON can hold one).

    Raises:
        DataError: names the place and the first lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place} cannot be written as UTF-8: character {error.start + 1} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}"
        ) from None
