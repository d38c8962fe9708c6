"""Tables of ``heedful evaluate``: the scores of each class, and the confusion matrix."""

from collections.abc import Iterator, Sequence

from heedful.tables import columns
from heedful.typing import JsonMapping

MOST_SCORES, MOST_COUNTS = 50, 12
"""Maximum number of classes for which the scores and the confusion matrix are printed."""

LONGEST = 24
"""Maximum number of characters of a class in a table."""

RATES = {"precision": "precision", "recall": "recall", "f1": "F1", "iou": "IoU", "threshold": "threshold"}


def class_tables(details: JsonMapping, width: int, heading: str = "class") -> Iterator[str]:
    """Yield the lines of both tables, if there are any in the details of a score.

    Args:
        details: of a score of `heedful.tasks.metrics.classification` or of ``segmentation``.
        width: maximum number of characters of a line; a wider matrix is omitted.
        heading: of the column of the classes.
    """
    if "classes" not in details or not RATES.keys() & details.keys():
        return
    names = [_short(name) for name in details["classes"]]
    n = len(names)
    if n > MOST_SCORES:
        yield f"the scores of {n:,} classes are in --json"
        return
    rates = [key for key in RATES if key in details]
    rows = [[heading, *(RATES[key] for key in rates), "count"]]
    for i, name in enumerate(names):
        rows.append([name, *(_rate(details[key][i]) for key in rates), f"{details['support'][i]:,}"])
    yield ""
    yield from columns(rows, range(1, len(rows[0])))
    if "confusion" in details:
        yield from _matrix(names, details["confusion"], width)


def _matrix(names: Sequence[str], matrix: Sequence[Sequence[int]], width: int) -> Iterator[str]:
    """Yield the lines of a confusion matrix whose rows are the true classes."""
    rows = [["true \\ predicted", *names]]
    rows += [[name, *(f"{count:,}" for count in counts)] for name, counts in zip(names, matrix, strict=True)]
    lines = list(columns(rows, range(1, len(rows[0]))))
    yield ""
    if len(names) > MOST_COUNTS or max(map(len, lines)) > width:
        yield f"the confusion matrix of {len(names)} classes is in --json"
    else:
        yield from lines


def _rate(value: float | None) -> str:
    """Return a rate with four digits; a dash if it is undefined."""
    return "-" if value is None else f"{value:.4f}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
