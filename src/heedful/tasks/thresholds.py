"""Thresholds of labels: a label is predicted if its probability is greater than its threshold.

A tuned threshold has the best F1 of its label on the validation data. Of the distinct probabilities
p_1 < … < p_n that the model gives a label there, and p_0 = 0, the candidates are the middles:

    t_k = (p_{k-1} + p_k) / 2,      F1(t) = 2 tp(t) / (predicted(t) + positives)

with tp(t) the number of rows that have the label and a probability above t. Of equally good candidates, the
one nearest 0.5 is taken. (F1 is 0 above p_n, so no candidate is there.)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from heedful.errors import DamagedError
from heedful.records import RESTORE, Record, Text, read_record
from heedful.tasks.inputs.labels import check_known, first_labels

DEFAULT = 0.5
"""The threshold of labels without another."""

Thresholds = Mapping[str, float]
"""The threshold of every label."""


def given_thresholds(setting: float | Mapping[str, float], labels: Sequence[str]) -> Thresholds:
    """Return the threshold of every label, given that of all of them or those of some.

    Raises:
        RequestError: a threshold is that of an unknown label.
    """
    if not isinstance(setting, Mapping):
        return dict.fromkeys(labels, setting)
    known = check_known(setting, labels, "task.threshold")
    thresholds = dict(zip(known, setting.values(), strict=True))
    return {label: thresholds.get(label, DEFAULT) for label in labels}


def best_threshold(probabilities: NDArray[np.float64], targets: NDArray[np.bool_]) -> float:
    """Return the threshold of one label with the best F1; 0.5 if no row has the label.

    Args:
        probabilities: ``[n]``, of the label, for each row.
        targets: ``[n]``: whether the row has the label.
    """
    values, indices = np.unique(probabilities, return_inverse=True)
    middles = (np.concatenate([[0.0], values[:-1]]) + values) / 2
    n_predicted = _at_least(np.bincount(indices, minlength=len(values)))
    true_positives = _at_least(np.bincount(indices[targets], minlength=len(values)))
    is_candidate = middles < values  # false for a probability of 0, which no threshold is below
    if not targets.any() or not is_candidate.any():
        return DEFAULT
    f1 = np.where(is_candidate, 2 * true_positives / (n_predicted + targets.sum()), -1.0)
    best = middles[f1 == f1.max()]
    return float(best[np.abs(best - DEFAULT).argmin()])


def _at_least(counts: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return for each value how many rows have it or a greater one."""
    return counts[::-1].cumsum()[::-1]


class ThresholdsRecord(Record):
    """Content of ``thresholds.json``."""

    version: Literal[1] = 1
    thresholds: dict[Text, Annotated[float, Field(gt=0, lt=1)]]


def read_thresholds(path: Path, labels: Sequence[str]) -> Thresholds:
    """Read the threshold of every label from a file of a run.

    Raises:
        DamagedError: the file does not have a threshold between 0 and 1 for every label.
    """
    thresholds = read_record(path, ThresholdsRecord).thresholds
    if missing := [label for label in labels if label not in thresholds]:
        raise DamagedError(
            f"{path}: damaged: expected a threshold between 0 and 1 for the label {missing[0]!r}; {RESTORE}"
        )
    return {label: thresholds[label] for label in labels}


def shown(thresholds: Thresholds) -> str:
    """Return the first thresholds, for messages."""
    return first_labels([f"{label} {threshold:.3g}" for label, threshold in thresholds.items()])
