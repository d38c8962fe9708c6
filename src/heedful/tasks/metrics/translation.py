"""Metrics of translation and other text generation with references, computed with sacrebleu.

BLEU (Papineni et al. 2002), chrF (Popović 2015) and TER (Snover et al. 2006) are computed on plain,
detokenised text, with sacrebleu's signatures (Post 2018). BLEU and TER count words; in languages without
spaces between words they count what a tokeniser of the language finds, or characters. BLEU on tokenised text
depends on the tokeniser and is not comparable with these: it is reported as "tokenised BLEU".

Runs generate composed text (NFC). If a reference is not composed, all texts are brought to NFC before they
are compared, and the signatures begin with ``form:nfc``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from heedful.errors import RequestError
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import RowStatistics, mean, one_by_one
from heedful.text.normalisation import Lowercase, lowercased, normalised
from heedful.text.scripts import language_without_spaces, segments
from heedful.typing import JsonObject

References = Sequence[str | Sequence[str]]
Streams = list[list[Any]]
"""The first references of all hypotheses, then the second …; None if missing (not in sacreBLEU's types)."""

Language = Literal["zh", "ja", "ko", "th", "lo", "km", "my", "bo"]
"""Languages for which BLEU does not use sacreBLEU's default tokeniser."""

_BY_CHARACTERS = ("th", "lo", "km", "my", "bo")
"""Languages without spaces between words for which sacreBLEU has no tokeniser; split into characters."""

_TOKENISERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", **dict.fromkeys(_BY_CHARACTERS, "char")}
"""sacreBLEU's tokenisers of languages; ``13a`` for others."""

_EXTRAS = {"ja": "heedful[japanese]", "ko": "heedful[korean]"}
"""Languages whose tokeniser is an extra of sacreBLEU; its own error message names ``ja`` for both."""


def translation_scores(
    hypotheses: Sequence[str],
    references: References,
    *,
    language: str | None = None,
    lowercase: Lowercase = False,
) -> dict[str, Score]:
    """Compute BLEU, chrF and TER of a corpus of detokenised text.

    Args:
        hypotheses: one text per input.
        references: one or more references per hypothesis.
        language: code of the target language; None: `language_without_spaces` of the references. For BLEU,
            Chinese, Japanese and Korean (zh, ja, ko) have their own tokenisers, and Thai, Lao, Khmer, Burmese
            and Tibetan (th, lo, km, my, bo) are split into characters, as is Japanese if its tokeniser is not
            installed and ``language`` is None. TER counts Chinese and Japanese characters, and those of the
            other five with their marks. The signatures show it.
        lowercase: whether BLEU and chrF ignore case (TER always does, as usual), or the language by whose
            rules.

    Returns:
        ``{"BLEU": ..., "chrF": ..., "TER": ...}``; for TER, lower is better.

    Raises:
        RequestError: there are no texts, unequal numbers of references, a text without a reference, or the
            tokeniser of the language is not installed.
    """
    texts = _Texts.of(hypotheses, references, lowercase)
    bleu, chrf = _bleu(bleu_tokeniser(language, texts.references), lowercase), CHRF(lowercase=bool(lowercase))
    return {
        "BLEU": _bleu_score("BLEU", bleu, texts),
        "chrF": _score(chrf, texts),
        "TER": _ter_score(language or language_without_spaces(texts.references), texts),
    }


@dataclass(frozen=True)
class Preparation:
    """A function that tokenises text before it is scored, and its name in the signature."""

    name: str
    function: Callable[[str], str]


NO_PREPARATION = Preparation("none", lambda text: text)
SEGMENTS = Preparation("segments", lambda text: " ".join(segments(text)))
"""Characters in scripts without spaces between words, and words in others."""


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    preparation: Preparation = NO_PREPARATION,
    lowercase: Lowercase = False,
) -> Score:
    """Compute BLEU on tokenised text, as papers before 2018 report it (Moses' multi-bleu).

    With c and r the lengths in tokens, r that of the closest reference (the shorter one on ties)::

        BLEU = 100 · min(1, exp(1 - r/c)) · exp(1/4 Σ_{n=1..4} ln p_n)

    p_n is the clipped n-gram precision over the corpus, without smoothing: BLEU is 0 if any p_n is 0. Tokens
    are separated by Unicode whitespace; there is no other tokenisation.

    Args:
        hypotheses: tokenised text, or plain text with a ``preparation``.
        references: as in `translation_scores`, in the same form as the hypotheses.
        preparation: applied to every hypothesis and reference first (normalise, tokenise, lowercase).
        lowercase: whether to ignore case, or the language by whose rules.

    Raises:
        RequestError: as in `translation_scores`.
    """
    texts = _Texts.of(hypotheses, references, lowercase).prepared(preparation)
    metric = BLEU(lowercase=bool(lowercase), tokenize="none", force=True, smooth_method="none")
    return _bleu_score("tokenised BLEU", metric, texts)


def exact_match(hypotheses: Sequence[str], references: References, *, lowercase: Lowercase = False) -> Score:
    """Compute the share of texts that are equal to one of their references.

    Args:
        hypotheses: one text per input.
        references: one or more references per text.
        lowercase: whether to ignore case, or the language by whose rules.

    Raises:
        RequestError: as in `translation_scores`.
    """
    texts = _Texts.of(hypotheses, references, lowercase)
    rows = texts.rows
    if lowercase:
        texts = texts.changed(str.lower)
    equal = [text in row for text, row in zip(texts.hypotheses, texts.rows, strict=True)]
    n_references = {len(row) for row in rows}
    references_setting = (
        "" if n_references == {1} else f"nrefs:{n_references.pop() if len(n_references) == 1 else 'var'}|"
    )
    signature = f"{texts.prefix}{references_setting}case:{'lc' if lowercase else 'mixed'}"
    counts = {"sentences": len(rows), "equal": sum(equal)}
    return Score("exact match", sum(equal) / len(rows), signature, {}, counts, partial(mean, equal))


def sentence_scores(
    hypotheses: Sequence[str],
    references: References,
    *,
    language: str | None = None,
    lowercase: Lowercase = False,
) -> list[dict[str, float]]:
    """Compute BLEU and chrF of each sentence: ``[{"BLEU": ..., "chrF": ...}, ...]``.

    Sentence BLEU is smoothed ("exp") and omits n-gram orders longer than the hypothesis; its mean is not the
    corpus BLEU.

    Raises:
        RequestError: as in `translation_scores`.
    """
    texts = _Texts.of(hypotheses, references, lowercase)
    tokeniser = bleu_tokeniser(language, texts.references)
    bleu, chrf = _bleu(tokeniser, lowercase, effective_order=True), CHRF(lowercase=bool(lowercase))
    pairs = zip(texts.hypotheses, texts.rows, strict=True)
    return [
        {"BLEU": _bounded(bleu.sentence_score(text, row).score), "chrF": chrf.sentence_score(text, row).score}
        for text, row in pairs
    ]


def quick_scores(
    hypotheses: Sequence[str],
    references: References,
    *,
    language: str | None = None,
    lowercase: Lowercase = False,
) -> dict[str, float]:
    """Compute corpus BLEU and chrF as plain numbers, ``{"bleu": ..., "chrf": ...}``, for validation.

    Raises:
        RequestError: as in `translation_scores`.
    """
    texts = _Texts.of(hypotheses, references, lowercase)
    bleu = _bleu(bleu_tokeniser(language, texts.references), lowercase)
    metrics: JsonObject = {"bleu": bleu, "chrf": CHRF(lowercase=bool(lowercase))}
    corpus = texts.hypotheses, texts.streams
    return {name: _bounded(m.corpus_score(*corpus).score) for name, m in metrics.items()}


def check_language(language: str | None) -> None:
    """Check that the tokeniser of a language for BLEU is installed.

    Raises:
        RequestError: it is not.
    """
    _bleu(bleu_tokeniser(language, ()), lowercase=False)


def bleu_tokeniser(language: str | None, references: Iterable[str]) -> str:
    """Return the name of sacreBLEU's tokeniser for a language; if that is None, for that of the references.

    The language of references is only detected if their script has no spaces between words; Japanese is split
    into characters if its tokeniser is not installed.
    """
    if language:
        return _TOKENISERS.get(language, "13a")
    detected = language_without_spaces(references)
    if detected == "ja" and not all(map(find_spec, ("MeCab", "ipadic"))):
        return "char"
    return _TOKENISERS.get(detected or "", "13a")


def reference_notes(references: Iterable[str], language: str | None) -> list[str]:
    """Return notes on how BLEU is computed, and on references whose BLEU is not comparable.

    The references may have no spaces between words while no language is set, or may be tokenised: most of
    those that end with a period have a space before it, and these are at least a tenth of all.
    """
    texts, notes = list(references), []
    if not language and (code := language_without_spaces(texts)):
        tokeniser = bleu_tokeniser(None, texts)
        extra = _EXTRAS.get(code) if tokeniser == "char" else None
        install = f", and pip install '{extra}' provides one that finds words" if extra else ""
        notes.append(
            f"the references have no spaces between words (they look like {code}): BLEU uses sacreBLEU's "
            f"tokeniser {tokeniser}; evaluation.language selects another one{install}"
        )
    n_with_period = sum(text.endswith(".") for text in texts)
    n_spaced = sum(text.endswith(" .") for text in texts)
    if n_spaced * 2 > n_with_period and n_spaced * 10 >= len(texts):
        notes.append(
            f'the references are tokenised ({n_spaced:,} of {len(texts):,} end in " ."): their BLEU does not '
            "compare with published scores, which are of plain text"
        )
    return notes


def _bleu(tokeniser: str, lowercase: Lowercase, effective_order: bool = False) -> BLEU:
    try:
        # force: `reference_notes` warns about tokenised text once; sacrebleu would at each validation.
        return BLEU(
            lowercase=bool(lowercase), force=True, tokenize=tokeniser, effective_order=effective_order
        )
    except RuntimeError as error:
        language = tokeniser.partition("-")[0]
        if language not in _EXTRAS:
            raise
        raise RequestError(
            f"evaluation.language={language}: the tokeniser that BLEU needs is not installed; install it by "
            f"pip install '{_EXTRAS[language]}'"
        ) from error


@dataclass(frozen=True)
class _Texts:
    """Hypotheses with the references of each, and what was done to them, for the signatures."""

    hypotheses: list[str]
    rows: list[list[str]]
    prefix: str = ""

    @classmethod
    def of(cls, hypotheses: Sequence[str], references: References, lowercase: Lowercase = False) -> Self:
        """Return the texts, in NFC if a reference is not, and lowercase if that depends on the language.

        Raises:
            RequestError: as in `translation_scores`.
        """
        check_lengths(hypotheses, references, "hypotheses", "references")
        rows = [[row] if isinstance(row, str) else list(row) for row in references]
        for number, row in enumerate(rows, 1):
            if not row:
                raise RequestError(f"hypothesis {number} has no reference")
        texts = cls(list(hypotheses), rows)
        composed = texts.changed(lambda text: normalised(text, "nfc"), "form:nfc|")
        texts = texts if composed.rows == rows else composed
        if isinstance(lowercase, bool):
            return texts
        return texts.changed(lambda text: lowercased(text, lowercase), f"lowercase:{lowercase}|")

    @property
    def references(self) -> Iterator[str]:
        """All references."""
        return (text for row in self.rows for text in row)

    @property
    def streams(self) -> Streams:
        """The first references of all hypotheses, then the second, and so on; None if missing."""
        return [list(stream) for stream in zip_longest(*self.rows)]

    def changed(self, function: Callable[[str], str], prefix: str = "") -> Self:
        """Return the texts after a function was applied to each."""
        rows = [[function(text) for text in row] for row in self.rows]
        return type(self)([function(text) for text in self.hypotheses], rows, prefix + self.prefix)

    def prepared(self, preparation: Preparation) -> Self:
        """Return the prepared texts."""
        return self.changed(preparation.function, f"prep:{preparation.name}|")


def _score(metric: BLEU | CHRF | TER, texts: _Texts) -> Score:
    result = metric.corpus_score(texts.hypotheses, texts.streams)
    signature = texts.prefix + metric.get_signature().format()
    statistics = partial(_statistics, metric, texts)
    return Score(result.name, result.score, signature, {}, {"sentences": len(texts.rows)}, statistics)


def _statistics(metric: BLEU | CHRF | TER, texts: _Texts) -> RowStatistics:
    """Return the statistics of each text as sacrebleu's own tests of significance have them."""
    values = metric._extract_corpus_statistics(texts.hypotheses, texts.streams)
    return RowStatistics(
        np.array(values, dtype=np.float64), partial(one_by_one, partial(_score_of_sums, metric))
    )


def _score_of_sums(metric: BLEU | CHRF | TER, sums: NDArray[np.float64]) -> float:
    score = float(metric._compute_score_from_stats(sums.tolist()).score)
    return _bounded(score) if isinstance(metric, BLEU) else score


def _bleu_score(name: str, metric: BLEU, texts: _Texts) -> Score:
    result = metric.corpus_score(texts.hypotheses, texts.streams)
    details = {
        "precisions": [float(p) for p in result.precisions],
        "brevity_penalty": float(result.bp),
        "length_ratio": float(result.ratio),
    }
    counts = {
        "sentences": len(texts.rows),
        "hypothesis_tokens": int(result.sys_len),
        "reference_tokens": int(result.ref_len),
    }
    signature = texts.prefix + metric.get_signature().format()
    statistics = partial(_statistics, metric, texts)
    return Score(name, _bounded(result.score), signature, details, counts, statistics)


def _bounded(score: float) -> float:
    """Clip BLEU to 100: sacrebleu's rounding gives 100.00000000000004 for equal texts."""
    return min(float(score), 100.0)


def _ter_score(language: str | None, texts: _Texts) -> Score:
    """Compute TER.

    sacreBLEU's TER splits Chinese and Japanese (if it also normalises); texts in other scripts without spaces
    are split beforehand.
    """
    is_asian = language in ("zh", "ja")
    metric = TER(normalized=is_asian, asian_support=is_asian)
    texts = texts.prepared(SEGMENTS) if language in _BY_CHARACTERS else texts
    result = metric.corpus_score(texts.hypotheses, texts.streams)
    details = {"edits": float(result.num_edits), "mean_reference_length": float(result.ref_length)}
    signature = texts.prefix + metric.get_signature().format()
    counts, statistics = {"sentences": len(texts.rows)}, partial(_statistics, metric, texts)
    return Score(result.name, float(result.score), signature, details, counts, statistics)
