"""Scores of answers that are cut out of a passage: exact match and the F1 of their words.

Both compare normalised answers, as is usual since SQuAD (Rajpurkar et al. 2016, section 6.1): in lower case,
without ASCII punctuation, without the words "a", "an" and "the", with single blanks. Where one of both is
empty once normalised, F1 is 1 if the other is too, and 0 otherwise (Rajpurkar et al. 2018).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from heedful.tasks.metrics.score import Score, check_lengths

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> list[str]:
    """The words by which an answer is compared."""
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def is_exact(answer: str, truth: str) -> bool:
    """Whether both have the same words in the same order."""
    return normalised(answer) == normalised(truth)


def token_f1(answer: str, truth: str) -> float:
    """``2 common / (words of both)``, where a word that occurs several times counts so often."""
    found, wanted = normalised(answer), normalised(truth)
    if not found or not wanted:
        return float(found == wanted)
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted))


def nearest(measure: Callable[[str, str], float], answer: str, truths: Sequence[str]) -> float:
    """By the right answer that it is nearest to (Rajpurkar et al. 2016, section 6.1)."""
    return max(float(measure(answer, truth)) for truth in truths)


def answer_scores(answers: Sequence[str], truths: Sequence[Sequence[str]]) -> list[Score]:
    """Exact match and F1, the means over questions, between 0 and 1.

    The details have both for the questions that have an answer and for those that have none, apart.

    Args:
        answers: one for each question; empty for none.
        truths: the right ones, one or more for each question; an empty one for none.

    Raises:
        RequestError: no questions, or not as many answers.
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
