"""Unicode normalisation and Moses tokenisation of texts, and their inverse."""

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

Lowercase = bool | Literal["tr", "az"]
"""Whether to lowercase text, or the language by whose rules."""

DOTTED_I = (("I\u0307", "i"), ("\u0130", "i"), ("I", "\u0131"))
"""Replacements, in this order, before text in Turkish or Azerbaijani is lowercased (Unicode's SpecialCasing).

The capital letter of ``i`` has a dot, and that of ``ı`` has none.
"""

HYPHEN = "@-@"
"""Moses' marker for a hyphen at which it split a word."""


@dataclass(frozen=True)
class Moses:
    """The Moses scripts for one language (Koehn 2007), as ported by sacremoses.

    XML characters are not escaped: the tokens are shown to users, and escaping does not change BLEU.
    """

    normaliser: "MosesPunctNormalizer"
    tokenizer: "MosesTokenizer"
    detokenizer: "MosesDetokenizer"

    def tokenise(self, text: str, aggressive_hyphens: bool = False) -> str:
        """Normalise punctuation, then separate tokens by single spaces.

        With ``aggressive_hyphens``, ``a-b`` becomes ``a @-@ b``.
        """
        text = self.normaliser.normalize(text)
        return " ".join(self.tokenizer.tokenize(text, aggressive_hyphens, escape=False))

    def detokenise(self, text: str) -> str:
        """Join tokens to natural text; punctuation stays normalised."""
        return str(self.detokenizer.detokenize(text.split(), unescape=False))

    def stable_prefix(self, text: str) -> str:
        """Return the prefix of ``detokenise(text + more)`` that does not depend on ``more``.

        The last token may be incomplete, and ``@-@`` joins its two neighbours. The form of all earlier tokens
        depends only on what precedes them, except in Czech, where a number at the end of a text changes how
        tokens are joined.
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
    """Return the cached Moses scripts of a language.

    Raises:
        RequestError: if Moses has no rules for the language (it would silently use English rules).
    """
    # Imported on first use: it is slower to import than the rest of this package.
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

    require_rules(language)
    tokenizer = MosesTokenizer(language)
    # sacremoses builds this set again for every full stop, which takes three quarters of its time.
    lowercase = frozenset(tokenizer.IsLower)
    tokenizer.islower = lowercase.issuperset
    return Moses(MosesPunctNormalizer(language), tokenizer, MosesDetokenizer(language))


def require_rules(language: str) -> None:
    """Raise an error if Moses has no rules for a language.

    Raises:
        RequestError: lists the supported languages.
    """
    from sacremoses.corpus import NonbreakingPrefixes

    supported = sorted({*NonbreakingPrefixes().available_langs.values(), "ja", "ko", "zh"})
    if language not in supported:
        hint = nearest(language, supported)
        raise RequestError(
            f"Moses has no rules for the language {language!r}{hint}; known: {', '.join(supported)}"
        )


_MARKS = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){32,}")
"""Runs of possible combining marks: no letters, except two that NFKD decomposes to marks."""


def normalised(text: str, form: Literal["nfc", "nfkc"]) -> str:
    """Normalise a text as `unicodedata.normalize` does, but in linear time.

    Python's function orders combining marks by insertion sort, which is quadratic in the length of a run.
    Long runs are sorted here first (Unicode Standard Annex #15: "Canonical Ordering Algorithm"), so that
    it has nothing to move.
    """
    composed: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    decomposed: Literal["NFD", "NFKD"] = "NFD" if form == "nfc" else "NFKD"
    # Fast and linear: the check stops at the first mark that is out of order.
    if unicodedata.is_normalized(composed, text):
        return text
    ordered = _MARKS.sub(lambda run: _in_order(run.group(), decomposed), text)
    return unicodedata.normalize(composed, ordered)


def _in_order(run: str, form: Literal["NFD", "NFKD"]) -> str:
    """Decompose the characters and sort consecutive marks by combining class."""
    characters = (part for character in run for part in unicodedata.normalize(form, character))
    ordered: list[str] = []
    for are_marks, group in groupby(characters, lambda character: unicodedata.combining(character) > 0):
        if not are_marks:
            ordered += group
            continue
        by_class: defaultdict[int, list[str]] = defaultdict(list)
        for mark in group:
            by_class[unicodedata.combining(mark)].append(mark)
        for combining_class in sorted(by_class):
            ordered += by_class[combining_class]
    return "".join(ordered)


def lowercased(text: str, rules: Lowercase = True) -> str:
    """Lowercase a text by the rules of a language; False: return it unchanged."""
    if rules in ("tr", "az"):
        for upper, lower in DOTTED_I:
            text = text.replace(upper, lower)
    return text.lower() if rules else text


def tokenise_for_bleu(
    text: str, language: str, lowercase: bool = True, aggressive_hyphens: bool = False
) -> str:
    """Prepare one line for tokenised BLEU: lowercase, normalised punctuation, Moses tokens.

    This is the pre-processing of the published Multi30k text. Report such scores under their own name,
    never as sacreBLEU.
    """
    return moses(language).tokenise(text.lower() if lowercase else text, aggressive_hyphens)


def refuse_surrogates(text: str, description: str = "the text") -> None:
    """Raise an error if a text cannot be encoded as UTF-8 (JSON can contain lone surrogates).

    Raises:
        DataError: names the place and the first lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{description} cannot be encoded as UTF-8: character {error.start + 1} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}"
        ) from None
