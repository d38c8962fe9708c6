"""Rows of the table with the scores of each class, for terminals and notebooks; imports nothing heavy."""

from collections.abc import Sequence

from heedful.typing import JsonMapping

RATES = {"precision": "precision", "recall": "recall", "f1": "F1", "iou": "IoU", "threshold": "threshold"}

MOST_SCORES = 50
"""Maximum number of classes whose scores are shown."""


def has_classes(details: JsonMapping) -> bool:
    """Return whether the details of a score have scores of classes."""
    return "classes" in details and bool(RATES.keys() & details.keys())


def class_rows(details: JsonMapping, names: Sequence[str], heading: str) -> list[list[str]]:
    """Return a row for each class, after a header.

    Args:
        details: of a score.
        names: of the classes, as they are shown.
        heading: of the column of the classes.
    """
    rates = [key for key in RATES if key in details]
    rows = [[heading, *(RATES[key] for key in rates), "count"]]
    for i, name in enumerate(names):
        rows.append([name, *(_rate(details[key][i]) for key in rates), f"{details['support'][i]:,}"])
    return rows


def _rate(value: float | None) -> str:
    """Return a rate with four digits; a dash if it is undefined."""
    return "-" if value is None else f"{value:.4f}"
