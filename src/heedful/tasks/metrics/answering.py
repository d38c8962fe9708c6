"""Metrics of extractive question answering: exact match and token F1.

Both compare normalised answers, as in SQuAD (Rajpurkar et al. 2016, section 6.1): lower case, without ASCII
punctuation and the words "a", "an" and "the", single spaces; and in NFC. In scripts without spaces, each
character is a word, and spaces do not count. If either normalised answer is empty, F1 is 1 if both are, and 0
otherwise (Rajpurkar et al. 2018).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import mean
from heedful.text.normalisation import normalised as in_form
from heedful.text.scripts import segments

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> list[str]:
    """Return the words of a normalised answer."""
    composed = in_form(answer, "nfc")
    return segments(_ARTICLES.sub(" ", composed.lower().translate(_PUNCTUATION)))


def is_exact(answer: str, target: str) -> bool:
    """Return whether both normalised answers are equal."""
    return normalised(answer) == normalised(target)


def token_f1(answer: str, target: str) -> float:
    """Return ``2 common / (words in both)``, counting repeated words."""
    answer_words, target_words = normalised(answer), normalised(target)
    if not answer_words or not target_words:
        return float(answer_words == target_words)
    common = (Counter(answer_words) & Counter(target_words)).total()
    return 2 * common / (len(answer_words) + len(target_words))


def best_match(measure: Callable[[str, str], float], answer: str, targets: Sequence[str]) -> float:
    """Return the maximum of the measure over all right answers (Rajpurkar et al. 2016, section 6.1)."""
    return max(float(measure(answer, target)) for target in targets)


def answer_scores(answers: Sequence[str], targets: Sequence[Sequence[str]]) -> list[Score]:
    """Compute exact match and F1, averaged over questions, between 0 and 1.

    The details contain the averages over answerable and unanswerable questions.

    Args:
        answers: one per question; empty for no answer.
        targets: one or more right answers per question; empty for no answer.

    Raises:
        RequestError: there are no questions, or unequal numbers of answers.
    """
    check_lengths(answers, targets, "answers", "right answers")
    is_answerable = [any(map(normalised, references)) for references in targets]
    n_targets = {len(references) for references in targets}
    references = f"{n_targets.pop()}" if len(n_targets) == 1 else f"{min(n_targets)}-{max(n_targets)}"
    counts = {"questions": len(targets), "answerable": sum(is_answerable)}
    scores = []
    for name, measure in (("exact match", is_exact), ("F1", token_f1)):
        values = [best_match(measure, *pair) for pair in zip(answers, targets, strict=True)]
        details = {
            key: _mean(
                [value for value, flag in zip(values, is_answerable, strict=True) if flag == has_answer]
            )
            for key, has_answer in (("answerable", True), ("unanswerable", False))
        }
        scores.append(
            Score(
                name,
                sum(values) / len(values),
                f"norm:squad|references:{references}",
                details,
                counts,
                partial(mean, values),
            )
        )
    return scores


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
