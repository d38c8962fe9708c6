"""Metrics of summarisation: ROUGE (Lin 2004), computed with the package rouge-score.

With the common n-grams of hypothesis and reference (ROUGE-n), or their longest common subsequence of words
(ROUGE-L), P = common / total in the hypothesis and R = common / total in the reference::

    F1 = 2 P R / (P + R)

A score is the mean F1 over the texts, times 100. Texts are split into lower-case words by one of:

- ``unicode``: words of any script (`heedful.tasks.metrics.words`); characters in scripts without spaces.
- ``rouge-score``: the tokenizer of the package, which most papers use: everything except a to z and 0 to 9 is
  a separator. It drops texts in other scripts, and splits words at letters such as ``ü``.

Both give the same words for ASCII texts. With stemming, words of more than three characters, all of them a to
z or 0 to 9, are stemmed (Porter). The signature names the tokenizer, unless it is that of the package.
"""

from collections.abc import Sequence
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Literal

from heedful.errors import RequestError
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import mean
from heedful.tasks.metrics.words import words

ROUGE_NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}

References = Sequence[str | Sequence[str]]
RougeTokenizer = Literal["unicode", "rouge-score"]


def rouge_scores(
    hypotheses: Sequence[str],
    references: References,
    *,
    stem: bool = True,
    tokenizer: RougeTokenizer = "unicode",
) -> dict[str, Score]:
    """Compute ``{"ROUGE-1": ..., "ROUGE-2": ..., "ROUGE-L": ...}``, up to 100.

    If there are several references, each score uses the one with the highest F1.

    Args:
        hypotheses: one text per input.
        references: one or more references per hypothesis.
        stem: whether to stem words.
        tokenizer: how to split texts into words; see the module.

    Raises:
        RequestError: there are no texts, unequal numbers of references, or a text without a reference.
    """
    text_scores = sentence_rouge(hypotheses, references, stem=stem, tokenizer=tokenizer)
    n = len(text_scores)
    max_references = max(1 if isinstance(texts, str) else len(texts) for texts in references)
    tokenizer_setting = "" if tokenizer == "rouge-score" else f"tok:{tokenizer}|"
    settings = f"{tokenizer_setting}stem:{'porter' if stem else 'no'}"
    signature = f"refs:{max_references}|{settings}|agg:mean|version:{version('rouge-score')}"
    return {
        name: Score(name, sum(values) / n, signature, {}, {"sentences": n}, partial(mean, values))
        for name, values in ((name, [row[name] for row in text_scores]) for name in ROUGE_NAMES.values())
    }


def sentence_rouge(
    hypotheses: Sequence[str],
    references: References,
    *,
    stem: bool = True,
    tokenizer: RougeTokenizer = "unicode",
) -> list[dict[str, float]]:
    """Compute the three scores of each text; see `rouge_scores`."""
    check_lengths(hypotheses, references, "summaries", "references")
    scorer = _scorer(stem, tokenizer)
    scores = []
    for number, (hypothesis, texts) in enumerate(zip(hypotheses, references, strict=True), 1):
        text_references = [texts] if isinstance(texts, str) else list(texts)
        if not text_references:
            raise RequestError(f"summary {number} has no reference")
        rouge_results = [scorer.score(reference, hypothesis) for reference in text_references]
        scores.append(
            {
                name: 100 * max(rouge_result[key].fmeasure for rouge_result in rouge_results)
                for key, name in ROUGE_NAMES.items()
            }
        )
    return scores


class _UnicodeWords:
    """Tokenizer with the interface of rouge-score."""

    def __init__(self, stem: bool) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stem = PorterStemmer().stem if stem else None

    def tokenize(self, text: str) -> list[str]:
        if self._stem is None:
            return words(text)
        return [self._stem(word) if len(word) > 3 and word.isascii() else word for word in words(text)]


@cache
def _scorer(stem: bool, tokenizer: RougeTokenizer) -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # it imports nltk, which takes a second

    word_tokenizer = _UnicodeWords(stem) if tokenizer == "unicode" else None
    return RougeScorer(list(ROUGE_NAMES), use_stemmer=stem, tokenizer=word_tokenizer)
