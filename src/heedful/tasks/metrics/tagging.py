"""Metrics of tagging: per word, and per span in the BIO scheme.

Spans are counted as in the script of the CoNLL shared tasks (Tjong Kim Sang and De Meulder 2003): ``B-X``
begins a span of type X; ``I-X`` continues a span of type X that ends directly before it, and begins one
otherwise; any other tag ends the span. A span is correct if both boundaries and the type are. Precision,
recall and F1 use the counts summed over all types.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.metrics.score import Score
from heedful.typing import JsonObject

Span = tuple[str, int, int]
"""Type, index of the first word, and index after the last word."""

_BIO = re.compile(r"O|[BI]-.+")


def is_bio(labels: Sequence[str]) -> bool:
    """Return whether labels are a BIO scheme: only ``O``, ``B-…`` and ``I-…``, and not all ``O``."""
    return all(_BIO.fullmatch(label) for label in labels) and any(label != "O" for label in labels)


def bio_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of the BIO tags of a sentence, in order."""
    spans: list[Span] = []
    for i, tag in enumerate(tags):
        prefix, _, name = tag.partition("-")
        continues = prefix == "I" and spans and spans[-1][0] == name and spans[-1][2] == i
        if continues:
            spans[-1] = (name, spans[-1][1], i + 1)
        elif prefix in ("B", "I"):
            spans.append((name, i, i + 1))
    return spans


def tagging_scores(
    predictions: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    labels: Sequence[str],
    unseen: Sequence[str] = (),
) -> list[Score]:
    """Compute accuracy, macro and micro F1 of words and, for BIO labels, precision, recall and F1 of spans.

    Args:
        predictions: the predicted tags of each sentence.
        targets: the true tags.
        labels: all tags that can be predicted, in the order of the confusion matrix.
        unseen: true tags that cannot be predicted.

    Raises:
        RequestError: there are no words, or a tag is in neither ``labels`` nor ``unseen``.
    """
    predicted, expected = (
        [tag for sentence in sentences for tag in sentence] for sentences in (predictions, targets)
    )
    counts = {"words": len(expected), "sentences": len(targets), "classes": len(labels) + len(unseen)}
    words = classification_scores(predicted, expected, (*labels, *unseen)).values()
    spans = span_scores(predictions, targets) if is_bio(labels) else []
    return [replace(score, counts=counts) for score in words] + spans


def span_scores(predictions: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[Score]:
    """Compute precision, recall and F1 of whole spans; the details of F1 contain those of each type.

    0 / 0 is 0, as in the CoNLL script.
    """
    tallies = {name: Counter[str]() for name in ("predicted", "expected", "correct")}
    for predicted_tags, target_tags in zip(predictions, targets, strict=True):
        predicted, expected = set(bio_spans(predicted_tags)), set(bio_spans(target_tags))
        for name, spans in (
            ("predicted", predicted),
            ("expected", expected),
            ("correct", predicted & expected),
        ):
            tallies[name].update(type_name for type_name, _, _ in spans)
    types = sorted({*tallies["predicted"], *tallies["expected"]})
    sums = {name: tally.total() for name, tally in tallies.items()}
    rates_by_type = [
        _rates(*(tallies[name][type_name] for name in ("correct", "predicted", "expected")))
        for type_name in types
    ]
    precision, recall, f1 = _rates(sums["correct"], sums["predicted"], sums["expected"])
    columns: JsonObject = {
        name: [rates[i] for rates in rates_by_type] for i, name in enumerate(("precision", "recall", "f1"))
    }
    details = {
        "classes": types,
        **columns,
        "support": [tallies["expected"][type_name] for type_name in types],
    }
    signature, counts = "scheme:bio|average:micro|ill-formed:begins", {"spans": sums["expected"]}
    return [
        Score("span precision", precision, signature, {}, counts),
        Score("span recall", recall, signature, {}, counts),
        Score("span F1", f1, signature, details, counts),
    ]


def _rates(correct: int, predicted: int, expected: int) -> tuple[float, float, float]:
    """Return precision, recall and F1."""
    return tuple(
        a / b if b else 0.0
        for a, b in ((correct, predicted), (correct, expected), (2 * correct, predicted + expected))
    )  # type: ignore[return-value]
