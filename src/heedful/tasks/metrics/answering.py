"""Metrics of extractive question answering: exact match and token F1.

Both compare normalised answers, as in SQuAD (Rajpurkar et al. 2016, section 6.1): lower case, without ASCII
punctuation and the words "a", "an" and "the", single spaces. If either normalised answer is empty, F1 is 1 if
both are, and 0 otherwise (Rajpurkar et al. 2018).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from heedful.tasks.metrics.score import Score, check_lengths

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> list[str]:
    """Return the words of a normalised answer."""
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def is_exact(answer: str, truth: str) -> bool:
    """Return whether both normalised answers are equal."""
    return normalised(answer) == normalised(truth)


def token_f1(answer: str, truth: str) -> float:
    """Return ``2 common / (words in both)``, counting repeated words."""
    predicted, expected = normalised(answer), normalised(truth)
    if not predicted or not expected:
        return float(predicted == expected)
    common = (Counter(predicted) & Counter(expected)).total()
    return 2 * common / (len(predicted) + len(expected))


def nearest(measure: Callable[[str, str], float], answer: str, truths: Sequence[str]) -> float:
    """Return the maximum of the measure over all right answers (Rajpurkar et al. 2016, section 6.1)."""
    return max(float(measure(answer, truth)) for truth in truths)


def answer_scores(answers: Sequence[str], truths: Sequence[Sequence[str]]) -> list[Score]:
    """Compute exact match and F1, averaged over questions, between 0 and 1.

    The details contain the averages over answerable and unanswerable questions.

    Args:
        answers: one per question; empty for no answer.
        truths: one or more right answers per question; empty for no answer.

    Raises:
        RequestError: there are no questions, or unequal numbers of answers.
    """
    check_lengths(answers, truths, "answers", "right answers")
    has = [any(map(normalised, own)) for own in truths]
    n_truths = {len(own) for own in truths}
    references = f"{n_truths.pop()}" if len(n_truths) == 1 else f"{min(n_truths)}-{max(n_truths)}"
    counts = {"questions": len(truths), "answerable": sum(has)}
    scores = []
    for name, measure in (("exact match", is_exact), ("F1", token_f1)):
        each = [nearest(measure, a, own) for a, own in zip(answers, truths, strict=True)]
        parts = {
            key: _mean([value for value, own in zip(each, has, strict=True) if own == kind])
            for key, kind in (("answerable", True), ("unanswerable", False))
        }
        scores.append(
            Score(name, sum(each) / len(each), f"norm:squad|references:{references}", parts, counts)
        )
    return scores


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
