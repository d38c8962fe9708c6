"""Metrics of classification, with one label or a set of labels per item: accuracy and F1."""

from collections.abc import Hashable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError, nearest
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.typing import JsonObject

Counts = NDArray[np.int64]
Rates = NDArray[np.float64]


def confusion(
    predictions: Sequence[Hashable], truths: Sequence[Hashable], classes: Sequence[Hashable]
) -> Counts:
    """Return the confusion matrix ``[C, C]``: entry i, j counts items of class i predicted as class j.

    Raises:
        RequestError: there are no labels, unequal numbers of them, an unknown label, or a duplicate class.
    """
    check_lengths(predictions, truths, "predictions", "labels")
    numbers = {label: i for i, label in enumerate(classes)}
    if len(numbers) != len(classes):
        raise RequestError("classes must not have duplicates")
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    rows = _numbered(truths, numbers, "label")
    np.add.at(table, (rows, _numbered(predictions, numbers, "prediction")), 1)
    return table


def _numbered(labels: Sequence[Hashable], numbers: dict[Hashable, int], what: str) -> list[int]:
    for number, label in enumerate(labels, 1):
        if label not in numbers:
            guess = nearest(str(label), map(str, numbers))
            raise RequestError(f"{what} {number}: {label!r} is not one of the classes{guess}")
    return [numbers[label] for label in labels]


def accuracy(table: Counts) -> float:
    """Return the accuracy: the share of the diagonal of a confusion matrix."""
    return float(np.trace(table) / table.sum())


def precision_recall_f1(table: Counts) -> tuple[Rates, Rates, Rates]:
    """Return precision, recall and F1, ``[C]`` each, from true and false positives and false negatives::

        precision = tp / (tp + fp)    recall = tp / (tp + fn)    F1 = 2 tp / (2 tp + fp + fn)

    0 / 0 is NaN: the precision of a class that is never predicted, the recall of one that never occurs, and
    the F1 of a class that does neither.
    """
    true = np.diag(table).astype(float)
    predicted, actual = table.sum(0), table.sum(1)
    with np.errstate(invalid="ignore"):
        return true / predicted, true / actual, 2 * true / (predicted + actual)


def macro_f1(table: Counts) -> float:
    """Return the mean F1 of the classes that occur in the labels or predictions."""
    return float(np.nanmean(precision_recall_f1(table)[2]))


def micro_f1(table: Counts) -> float:
    """Return the F1 of the counts summed over all classes.

    With one label per item, every false positive of one class is a false negative of another, so this equals
    the accuracy. It is included because papers report it.
    """
    true, total = np.trace(table), table.sum()
    return float(2 * true / (2 * true + 2 * (total - true)))


def classification_scores(
    predictions: Sequence[Hashable],
    truths: Sequence[Hashable],
    classes: Sequence[Hashable] | None = None,
) -> dict[str, Score]:
    """Compute ``{"accuracy": ..., "macro_f1": ..., "micro_f1": ...}``, between 0 and 1.

    The details of the accuracy contain the classes, the confusion matrix (rows are true classes), and the
    precision, recall, F1 (None if undefined) and support of each class.

    Args:
        predictions: one label per item.
        truths: the true labels.
        classes: all classes, in the order of the matrix; default: those that occur, sorted as text.

    Raises:
        RequestError: as in `confusion`.
    """
    check_lengths(predictions, truths, "predictions", "labels")
    chosen = sorted({*predictions, *truths}, key=str) if classes is None else list(classes)
    table = confusion(predictions, truths, chosen)
    counts = {"examples": int(table.sum()), "classes": len(chosen)}
    signature = f"classes:{len(chosen)}"
    return {
        "accuracy": Score("accuracy", accuracy(table), signature, _details(table, chosen), counts),
        "macro_f1": Score("macro F1", macro_f1(table), f"{signature}|average:macro", {}, counts),
        "micro_f1": Score("micro F1", micro_f1(table), f"{signature}|average:micro", {}, counts),
    }


def label_set_scores(
    predictions: Sequence[Set[Hashable]], truths: Sequence[Set[Hashable]], classes: Sequence[Hashable]
) -> list[Score]:
    """Compute micro F1, macro F1 and the exact-match accuracy of sets of labels, between 0 and 1.

    With tp, fp and fn, the true positives, false positives and false negatives of a label over all items::

        F1 = 2 tp / (2 tp + fp + fn)

    micro F1 sums tp, fp and fn over all labels first; macro F1 is the mean over the labels that occur in the
    predictions or truths. An item is an exact match if both sets are equal.

    Args:
        predictions: a set of labels per item.
        truths: the true sets.
        classes: all labels.

    Raises:
        RequestError: there are no items, or the numbers differ.
    """
    check_lengths(predictions, truths, "predictions", "sets of labels")
    predicted, right = (
        np.array([[label in each for label in classes] for each in sets]).reshape(len(sets), -1)
        for sets in (predictions, truths)
    )
    true, either = (predicted & right).sum(0), predicted.sum(0) + right.sum(0)
    with np.errstate(invalid="ignore"):
        of_labels = 2 * true / either
        micro = 2 * true.sum() / either.sum()
    details: JsonObject = {
        "classes": [str(label) for label in classes],
        "f1": [None if np.isnan(value) else float(value) for value in of_labels],
        "support": right.sum(0).tolist(),
    }
    counts = {"examples": len(truths), "classes": len(classes), "labels": int(right.sum())}
    signature = f"classes:{len(classes)}|labels:sets"
    macro = float(of_labels[either > 0].mean()) if either.any() else float("nan")
    exact = float((predicted == right).all(1).mean())
    return [
        Score("micro F1", float(micro), f"{signature}|average:micro", details, counts),
        Score("macro F1", macro, f"{signature}|average:macro", {}, counts),
        Score("exact match", exact, signature, {}, counts),
    ]


def _details(table: Counts, classes: Sequence[Hashable]) -> JsonObject:
    columns = [[None if np.isnan(v) else float(v) for v in part] for part in precision_recall_f1(table)]
    return {
        "classes": [str(label) for label in classes],
        "precision": columns[0],
        "recall": columns[1],
        "f1": columns[2],
        "support": table.sum(1).tolist(),
        "confusion": table.tolist(),
    }
