"""Metrics of segmentation: intersection over union of each class, its mean, and the accuracy of pixels.

All are functions of one confusion matrix over the pixels of a whole data set (Everingham et al. 2010, "The
PASCAL visual object classes challenge", section 4.4)::

    IoU_c = tp_c / (tp_c + fp_c + fn_c)          mean IoU: the mean over the classes
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import UInt8

from heedful.errors import RequestError
from heedful.tasks.metrics.classification import Counts, Rates, accuracy, precision_recall_f1
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.statistics import by_class, mean_iou_of, ratio
from heedful.typing import JsonObject


def pixel_confusion(
    predicted: UInt8[np.ndarray, "*axes"], targets: UInt8[np.ndarray, "*axes"], n_classes: int
) -> Counts:
    """Return the confusion matrix ``[C, C]``: entry i, j counts pixels of class i predicted as class j.

    Pixels whose target or prediction is not one of the classes 0 to C - 1 are left out.
    """
    counted = (targets < n_classes) & (predicted < n_classes)
    cells = targets[counted].astype(np.int64) * n_classes + predicted[counted]
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


def intersection_over_union(matrix: Counts) -> Rates:
    """Return the intersection over union of each class; NaN if it has no pixel in targets and predictions."""
    intersection = np.diag(matrix).astype(float)
    with np.errstate(invalid="ignore"):
        return intersection / (matrix.sum(0) + matrix.sum(1) - intersection)


def mean_iou(matrix: Counts) -> float:
    """Return the mean intersection over union of the classes that occur in targets or predictions."""
    return float(np.nanmean(intersection_over_union(matrix)))


def segmentation_scores(
    matrix: Counts, classes: Sequence[str], signature: str, images: Sequence[Counts] = ()
) -> list[Score]:
    """Return mean IoU and pixel accuracy, between 0 and 1.

    The details of the mean IoU contain the classes, precision, recall and IoU (None if undefined) and the
    number of pixels (``support``) of each, and the confusion matrix (rows are true classes).

    Args:
        matrix: of all pixels of the data set.
        classes: their names.
        signature: further settings that change the values.
        images: of each image, ``[2, C]``: the true positives, and how many pixels are predicted as each class
            and how many have it, together.

    Raises:
        RequestError: no pixel is scored.
    """
    if not matrix.any():
        raise RequestError("there is nothing to score: no pixel of the masks has a class")
    precision, recall, _ = precision_recall_f1(matrix)
    rates = {"precision": precision, "recall": recall, "iou": intersection_over_union(matrix)}
    details: JsonObject = {
        "classes": list(classes),
        **{name: [None if np.isnan(v) else float(v) for v in values] for name, values in rates.items()},
        "support": matrix.sum(1).tolist(),
        "confusion": matrix.tolist(),
    }
    counts = {"pixels": int(matrix.sum()), "classes": len(classes)}
    signature = f"classes:{len(classes)}|{signature}"
    of_iou = of_accuracy = None
    if images:
        true_positives, totals = np.stack(images, axis=1)
        of_iou = partial(by_class, true_positives, totals, classes, mean_iou_of)
        of_accuracy = partial(ratio, 2 * true_positives.sum(1), totals.sum(1))
    return [
        Score("mean IoU", mean_iou(matrix), f"{signature}|average:present", details, counts, of_iou),
        Score("pixel accuracy", accuracy(matrix), signature, {}, counts, of_accuracy),
    ]


def counts_of_image(matrix: Counts) -> Counts:
    """Return the true positives of each class, and its predicted and actual pixels together, ``[2, C]``."""
    return np.stack([np.diag(matrix), matrix.sum(0) + matrix.sum(1)])
