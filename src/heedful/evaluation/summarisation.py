"""Scores of summaries: ROUGE (Lin 2004), through the package rouge-score.

With the n-grams of hypothesis and reference counted (ROUGE-n), or their longest common subsequence of words
(ROUGE-L), P = common / in the hypothesis and R = common / in the reference::

    F1 = 2 P R / (P + R)

A score is the mean of F1 over the texts, times 100. Texts are lower-cased, cut at all that is no letter or
digit of ASCII, and, with the stemmer, words of more than three letters are stemmed (Porter): so does the
package, and so do most papers. Texts in other scripts have no words for it.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from heedful.errors import RequestError
from heedful.evaluation.score import Score, check_lengths

KINDS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}

References = Sequence[str | Sequence[str]]


def rouge_scores(hypotheses: Sequence[str], references: References, *, stem: bool = True) -> dict[str, Score]:
    """``{"ROUGE-1": ..., "ROUGE-2": ..., "ROUGE-L": ...}``, up to 100.

    Of several references, the one that a hypothesis is nearest to counts, for each score by itself.

    Args:
        hypotheses: one text an input.
        references: for each its reference, or several.
        stem: whether words are stemmed.

    Raises:
        RequestError: no texts, another number of references, or a text without any.
    """
    each = sentence_rouge(hypotheses, references, stem=stem)
    n = len(each)
    most = max(1 if isinstance(texts, str) else len(texts) for texts in references)
    signature = f"refs:{most}|stem:{'porter' if stem else 'no'}|agg:mean|version:{version('rouge-score')}"
    return {
        name: Score(name, sum(row[name] for row in each) / n, signature, {}, {"sentences": n})
        for name in KINDS.values()
    }


def sentence_rouge(
    hypotheses: Sequence[str], references: References, *, stem: bool = True
) -> list[dict[str, float]]:
    """The three scores of each text; see `rouge_scores`."""
    check_lengths(hypotheses, references, "summaries", "references")
    scorer = _scorer(stem)
    found = []
    for number, (hypothesis, texts) in enumerate(zip(hypotheses, references, strict=True), 1):
        several = [texts] if isinstance(texts, str) else list(texts)
        if not several:
            raise RequestError(f"summary {number} has no reference")
        rows = [scorer.score(reference, hypothesis) for reference in several]
        found.append({name: 100 * max(row[key].fmeasure for row in rows) for key, name in KINDS.items()})
    return found


@cache
def _scorer(stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # it imports nltk, which takes a second

    return RougeScorer(list(KINDS), use_stemmer=stem)
