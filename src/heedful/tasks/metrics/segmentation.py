"""Metrics of segmentation: intersection over union of each class, its mean, and the accuracy of pixels.

All are functions of one confusion matrix over the pixels of a whole data set (Everingham et al. 2010, "The
PASCAL visual object classes challenge", section 4.4)::

    IoU_c = tp_c / (tp_c + fp_c + fn_c)          mean IoU: the mean over the classes
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from heedful.errors import RequestError
from heedful.tasks.metrics.classification import Counts, Rates, accuracy, precision_recall_f1
from heedful.tasks.metrics.score import Score
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


def segmentation_scores(matrix: Counts, classes: Sequence[str], signature: str) -> list[Score]:
    """Return mean IoU and pixel accuracy, between 0 and 1.

    The details of the mean IoU contain the classes, precision, recall and IoU (None if undefined) and the
    number of pixels (``support``) of each, and the confusion matrix (rows are true classes).

    Args:
        matrix: of all pixels of the data set.
        classes: their names.
        signature: further settings that change the values.

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
    return [
        Score("mean IoU", mean_iou(matrix), f"{signature}|average:present", details, counts),
        Score("pixel accuracy", accuracy(matrix), signature, {}, counts),
    ]
