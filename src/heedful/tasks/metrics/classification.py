"""Accuracy, F1 and the confusion matrix of single-label classification."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError, nearest
from heedful.tasks.metrics.score import Score, check_lengths

Counts = NDArray[np.int64]


def confusion(
    predictions: Sequence[Hashable], truths: Sequence[Hashable], classes: Sequence[Hashable]
) -> Counts:
    """``[C, C]``: in row i, column j stands how often class i was taken for class j.

    Raises:
        RequestError: no labels, unequal numbers of them, a label that is none of the classes, or a
            class given twice.
    """
    check_lengths(predictions, truths, "predictions", "labels")
    numbers = {label: i for i, label in enumerate(classes)}
    if len(numbers) != len(classes):
        raise RequestError("a class is given twice")
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    rows = _numbered(truths, numbers, "label")
    np.add.at(table, (rows, _numbered(predictions, numbers, "prediction")), 1)
    return table


def _numbered(labels: Sequence[Hashable], numbers: dict[Hashable, int], what: str) -> list[int]:
    for place, label in enumerate(labels, 1):
        if label not in numbers:
            guess = nearest(str(label), map(str, numbers))
            raise RequestError(f"{what} {place} is {label!r}, which is not among the classes{guess}")
    return [numbers[label] for label in labels]


def accuracy(table: Counts) -> float:
    """The share of the diagonal in a confusion matrix."""
    return float(np.trace(table) / table.sum())


def precision_recall_f1(table: Counts) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """``[C]`` each. For class c, with tp, fp and fn its true and false positives and false negatives::

        precision = tp / (tp + fp)    recall = tp / (tp + fn)    F1 = 2 tp / (2 tp + fp + fn)

    A quotient of nothing by nothing is NaN: precision of a class never predicted, recall of one that
    never occurs, F1 of one that is neither.
    """
    true = np.diag(table).astype(float)
    predicted, actual = table.sum(0), table.sum(1)
    with np.errstate(invalid="ignore"):
        return true / predicted, true / actual, 2 * true / (predicted + actual)


def macro_f1(table: Counts) -> float:
    """The mean F1 of the classes that occur among the labels or the predictions."""
    return float(np.nanmean(precision_recall_f1(table)[2]))


def micro_f1(table: Counts) -> float:
    """F1 of the counts summed over all classes.

    With one label an item, every false positive of one class is a false negative of another, so it
    equals the accuracy. It is given because papers report it.
    """
    true, total = np.trace(table), table.sum()
    return float(2 * true / (2 * true + 2 * (total - true)))


def classification_scores(
    predictions: Sequence[Hashable],
    truths: Sequence[Hashable],
    classes: Sequence[Hashable] | None = None,
) -> dict[str, Score]:
    """``{"accuracy": ..., "macro_f1": ..., "micro_f1": ...}``, between 0 and 1.

    The accuracy's details hold the classes, the confusion matrix (rows are the true classes), and for
    each class its precision, recall, F1 (None where undefined) and support.

    Args:
        predictions: one label an item.
        truths: the right labels.
        classes: all classes, in the order of the table; those that occur, sorted by their text,
            unless given.

    Raises:
        RequestError: as `confusion` does.
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


def _details(table: Counts, classes: Sequence[Hashable]) -> dict[str, Any]:
    columns = [[None if np.isnan(v) else float(v) for v in part] for part in precision_recall_f1(table)]
    return {
        "classes": [str(label) for label in classes],
        "precision": columns[0],
        "recall": columns[1],
        "f1": columns[2],
        "support": table.sum(1).tolist(),
        "confusion": table.tolist(),
    }
