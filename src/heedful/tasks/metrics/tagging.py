"""Metrics of tagging: per word, and per span if the tags encode spans (`heedful.tasks.metrics.spans`).

A span is correct if both boundaries and the type are. Precision, recall and F1 use the counts summed over all
types.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.spans import Scheme
from heedful.tasks.metrics.statistics import ratio
from heedful.typing import JsonObject


def tagging_scores(
    predictions: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    labels: Sequence[str],
    unseen: Sequence[str] = (),
    scheme: Scheme | None = None,
) -> list[Score]:
    """Compute accuracy, macro and micro F1 of words and, in a scheme, precision, recall and F1 of spans.

    Args:
        predictions: the predicted tags of each sentence.
        targets: the true tags.
        labels: all tags that can be predicted, in the order of the confusion matrix.
        unseen: true tags that cannot be predicted.
        scheme: in which the tags encode spans; None: they do not.

    Raises:
        RequestError: there are no words, or a tag is in neither ``labels`` nor ``unseen``.
    """
    predicted, expected = (
        [tag for sentence in sentences for tag in sentence] for sentences in (predictions, targets)
    )
    counts = {"words": len(expected), "sentences": len(targets), "classes": len(labels) + len(unseen)}
    sizes = [len(sentence) for sentence in targets]
    words = classification_scores(predicted, expected, (*labels, *unseen), sizes).values()
    spans = span_scores(predictions, targets, scheme) if scheme else []
    return [replace(score, counts=counts) for score in words] + spans


def span_scores(
    predictions: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], scheme: Scheme
) -> list[Score]:
    """Compute precision, recall and F1 of whole spans; the details of F1 contain those of each type.

    0 / 0 is 0, as in the CoNLL script.
    """
    tallies = {name: Counter[str]() for name in ("predicted", "expected", "correct")}
    counts_of_rows: list[tuple[int, int, int]] = []
    for predicted_tags, target_tags in zip(predictions, targets, strict=True):
        predicted, expected = set(scheme.spans(predicted_tags)), set(scheme.spans(target_tags))
        for name, spans in (
            ("predicted", predicted),
            ("expected", expected),
            ("correct", predicted & expected),
        ):
            tallies[name].update(type_name for type_name, _, _ in spans)
        counts_of_rows.append((len(predicted & expected), len(predicted), len(expected)))
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
    signature = f"scheme:{scheme.name}|average:micro|ill-formed:begins"
    counts = {"spans": sums["expected"]}
    rows = np.array(counts_of_rows, dtype=np.float64).reshape(-1, 3)
    correct, of_predicted, of_expected = rows.T
    return [
        Score("span precision", precision, signature, {}, counts, partial(ratio, correct, of_predicted)),
        Score("span recall", recall, signature, {}, counts, partial(ratio, correct, of_expected)),
        Score(
            "span F1", f1, signature, details, counts, partial(ratio, 2 * correct, of_predicted + of_expected)
        ),
    ]


def _rates(correct: int, predicted: int, expected: int) -> tuple[float, float, float]:
    """Return precision, recall and F1."""
    return tuple(
        a / b if b else 0.0
        for a, b in ((correct, predicted), (correct, expected), (2 * correct, predicted + expected))
    )  # type: ignore[return-value]
