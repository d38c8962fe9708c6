"""Tables of ``heedful evaluate`` about probabilities: how often they are right, and thresholds of them."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from heedful.tables import columns
from heedful.typing import JsonMapping, JsonObject

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25)
"""Shares of answers, the most probable ones, whose accuracy is shown."""

GAP, WIDTH = " " * 4, 76


def calibration_tables(details: JsonMapping, curve: JsonMapping) -> Iterator[str]:
    """Yield the lines of the bins of a calibration error, beside the accuracy of the most probable answers.

    Args:
        details: of the score ``calibration error``.
        curve: of the score ``AURC``.
    """
    temperature = details["temperature"]
    scaled = "not calibrated" if temperature is None else f"calibrated by temperature {temperature:.3g}"
    yield ""
    yield from textwrap.wrap(
        f"The probabilities are {scaled}. A perfectly calibrated model has a calibration error of at most "
        f"{details['perfect']:.4f} in 95 % of samples of this size.",
        WIDTH,
    )
    yield ""
    rows = [["probability", "answers", "mean", "accuracy"]]
    for entry in details["bins"]:
        cells = (f"{entry['low']:.2f}-{entry['high']:.2f}", f"{entry['count']:,}")
        rows.append([*cells, f"{entry['confidence']:.3f}", f"{entry['accuracy']:.3f}"])
    left = list(columns(rows, range(1, 4)))
    right = list(columns([["most probable", "threshold", "accuracy"], *_points(curve["coverage"])], range(3)))
    width = max(map(len, left))
    for first, second in zip_longest(left, right, fillvalue=""):
        yield f"{first:<{width}}{GAP}{second}"


def _points(curve: Sequence[JsonObject]) -> list[list[str]]:
    """Return the rows of the points nearest to `SHARES`, each once."""
    nearest = [min(curve, key=lambda point: abs(point["coverage"] - share)) for share in SHARES]
    chosen = [point for i, point in enumerate(nearest) if point not in nearest[:i]]
    return [
        [f"{point['coverage']:.1%}", f"{point['threshold']:.3f}", f"{point['accuracy']:.3f}"]
        for point in chosen
    ]


def threshold_line(accuracy: float, point: JsonObject | None) -> str:
    """Return a line about the threshold for an accuracy."""
    if point is None:
        return f"accuracy {accuracy:g}: no threshold has it on these data"
    return (
        f"accuracy {accuracy:g}: answers with a probability of at least {point['threshold']:.4g}, which are "
        f"{point['coverage']:.1%} (accuracy {point['accuracy']:.4f})"
    )
