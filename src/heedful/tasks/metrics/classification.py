"""Metrics of classification, with one label or a set of labels per item: accuracy and F1."""

from collections.abc import Hashable, Sequence, Set
from functools import partial

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError, nearest
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import RowStatistics, by_class, macro_f1_of, mean, ratio
from heedful.typing import JsonObject

Counts = NDArray[np.int64]
Rates = NDArray[np.float64]


def confusion(
    predictions: Sequence[Hashable], targets: Sequence[Hashable], classes: Sequence[Hashable]
) -> Counts:
    """Return the confusion matrix ``[C, C]``: entry i, j counts items of class i predicted as class j.

    Raises:
        RequestError: there are no labels, unequal numbers of them, an unknown label, or a duplicate class.
    """
    check_lengths(predictions, targets, "predictions", "labels")
    class_indices = {label: i for i, label in enumerate(classes)}
    if len(class_indices) != len(classes):
        raise RequestError("classes must not have duplicates")
    matrix = np.zeros((len(classes), len(classes)), dtype=np.int64)
    rows = _indices(targets, class_indices, "label")
    np.add.at(matrix, (rows, _indices(predictions, class_indices, "prediction")), 1)
    return matrix


def _indices(labels: Sequence[Hashable], class_indices: dict[Hashable, int], name: str) -> list[int]:
    for number, label in enumerate(labels, 1):
        if label not in class_indices:
            suggestion = nearest(str(label), map(str, class_indices))
            raise RequestError(f"{name} {number}: {label!r} is not one of the classes{suggestion}")
    return [class_indices[label] for label in labels]


def accuracy(matrix: Counts) -> float:
    """Return the accuracy: the share of the diagonal of a confusion matrix."""
    return float(np.trace(matrix) / matrix.sum())


def precision_recall_f1(matrix: Counts) -> tuple[Rates, Rates, Rates]:
    """Return precision, recall and F1, ``[C]`` each, from true and false positives and false negatives::

        precision = tp / (tp + fp)    recall = tp / (tp + fn)    F1 = 2 tp / (2 tp + fp + fn)

    0 / 0 is NaN: the precision of a class that is never predicted, the recall of one that never occurs, and
    the F1 of a class that does neither.
    """
    true_positives = np.diag(matrix).astype(float)
    predicted, actual = matrix.sum(0), matrix.sum(1)
    with np.errstate(invalid="ignore"):
        return true_positives / predicted, true_positives / actual, 2 * true_positives / (predicted + actual)


def macro_f1(matrix: Counts) -> float:
    """Return the mean F1 of the classes that occur in the labels or predictions."""
    return float(np.nanmean(precision_recall_f1(matrix)[2]))


def micro_f1(matrix: Counts) -> float:
    """Return the F1 of the counts summed over all classes.

    With one label per item, every false positive of one class is a false negative of another, so this equals
    the accuracy. It is included because papers report it.
    """
    n_correct, n_items = np.trace(matrix), matrix.sum()
    return float(2 * n_correct / (2 * n_correct + 2 * (n_items - n_correct)))


def classification_scores(
    predictions: Sequence[Hashable],
    targets: Sequence[Hashable],
    classes: Sequence[Hashable] | None = None,
    sizes: Sequence[int] | None = None,
) -> dict[str, Score]:
    """Compute ``{"accuracy": ..., "macro_f1": ..., "micro_f1": ...}``, between 0 and 1.

    The details of the accuracy contain the classes, the confusion matrix (rows are true classes), and the
    precision, recall, F1 (None if undefined) and support of each class.

    Args:
        predictions: one label per item.
        targets: the true labels.
        classes: all classes, in the order of the matrix; default: those that occur, sorted as text.
        sizes: how many consecutive items belong to each row, for the statistics of rows; None: one.

    Raises:
        RequestError: as in `confusion`.
    """
    check_lengths(predictions, targets, "predictions", "labels")
    all_classes = sorted({*predictions, *targets}, key=str) if classes is None else list(classes)
    matrix = confusion(predictions, targets, all_classes)
    counts = {"examples": int(matrix.sum()), "classes": len(all_classes)}
    signature = f"classes:{len(all_classes)}"
    right = partial(_accuracy_statistics, predictions, targets, sizes)
    macro = partial(_macro_statistics, predictions, targets, all_classes, sizes)
    details = _details(matrix, all_classes)
    return {
        "accuracy": Score("accuracy", accuracy(matrix), signature, details, counts, right),
        "macro_f1": Score("macro F1", macro_f1(matrix), f"{signature}|average:macro", {}, counts, macro),
        "micro_f1": Score("micro F1", micro_f1(matrix), f"{signature}|average:micro", {}, counts, right),
    }


def _accuracy_statistics(
    predictions: Sequence[Hashable], targets: Sequence[Hashable], sizes: Sequence[int] | None
) -> RowStatistics:
    statistics = mean([a == b for a, b in zip(predictions, targets, strict=True)])
    return statistics if sizes is None else statistics.grouped(sizes)


def _macro_statistics(
    predictions: Sequence[Hashable],
    targets: Sequence[Hashable],
    classes: Sequence[Hashable],
    sizes: Sequence[int] | None,
) -> RowStatistics:
    predicted, actual = (
        np.asarray(_indices(labels, {label: i for i, label in enumerate(classes)}, name), dtype=np.int64)
        for labels, name in ((predictions, "prediction"), (targets, "label"))
    )
    rows = np.arange(len(targets)) if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    true_positives, totals = (np.zeros((int(rows.max()) + 1, len(classes))) for _ in range(2))
    right = predicted == actual
    np.add.at(true_positives, (rows[right], actual[right]), 1)
    np.add.at(totals, (rows, predicted), 1)
    np.add.at(totals, (rows, actual), 1)
    return by_class(true_positives, totals, classes, macro_f1_of)


def label_set_scores(
    predictions: Sequence[Set[Hashable]], targets: Sequence[Set[Hashable]], classes: Sequence[Hashable]
) -> list[Score]:
    """Compute micro F1, macro F1 and the exact-match accuracy of sets of labels, between 0 and 1.

    With tp, fp and fn, the true positives, false positives and false negatives of a label over all items::

        F1 = 2 tp / (2 tp + fp + fn)

    micro F1 sums tp, fp and fn over all labels first; macro F1 is the mean over the labels that occur in the
    predictions or targets. An item is an exact match if both sets are equal.

    Args:
        predictions: a set of labels per item.
        targets: the true sets.
        classes: all labels.

    Raises:
        RequestError: there are no items, or the numbers differ.
    """
    check_lengths(predictions, targets, "predictions", "sets of labels")
    is_predicted, is_target = (
        np.array([[label in label_set for label in classes] for label_set in label_sets]).reshape(
            len(label_sets), -1
        )
        for label_sets in (predictions, targets)
    )
    true_positives, totals = (is_predicted & is_target).sum(0), is_predicted.sum(0) + is_target.sum(0)
    with np.errstate(invalid="ignore"):
        f1 = 2 * true_positives / totals
        micro = 2 * true_positives.sum() / totals.sum()
    details: JsonObject = {
        "classes": [str(label) for label in classes],
        "f1": [None if np.isnan(value) else float(value) for value in f1],
        "support": is_target.sum(0).tolist(),
    }
    counts = {"examples": len(targets), "classes": len(classes), "labels": int(is_target.sum())}
    signature = f"classes:{len(classes)}|labels:sets"
    macro = float(f1[totals > 0].mean()) if totals.any() else float("nan")
    is_exact = (is_predicted == is_target).all(1)
    row_true_positives, row_totals = is_predicted & is_target, is_predicted.astype(int) + is_target
    of_macro = partial(by_class, row_true_positives, row_totals, classes, macro_f1_of)
    of_micro = partial(ratio, 2 * row_true_positives.sum(1), row_totals.sum(1))
    return [
        Score("micro F1", float(micro), f"{signature}|average:micro", details, counts, of_micro),
        Score("macro F1", macro, f"{signature}|average:macro", {}, counts, of_macro),
        Score("exact match", float(is_exact.mean()), signature, {}, counts, partial(mean, is_exact)),
    ]


def _details(matrix: Counts, classes: Sequence[Hashable]) -> JsonObject:
    columns = [[None if np.isnan(v) else float(v) for v in part] for part in precision_recall_f1(matrix)]
    return {
        "classes": [str(label) for label in classes],
        "precision": columns[0],
        "recall": columns[1],
        "f1": columns[2],
        "support": matrix.sum(1).tolist(),
        "confusion": matrix.tolist(),
    }
