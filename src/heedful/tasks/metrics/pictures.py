"""Scores as HTML for notebooks: tables of classes, shaded confusion matrices, curves of probabilities."""

import html
from collections.abc import Iterator, Sequence

from heedful.svg import line_chart, shaded_table
from heedful.tables import html_table
from heedful.tasks.metrics.class_rows import MOST_SCORES, class_rows, has_classes
from heedful.tasks.metrics.score import Score
from heedful.typing import JsonMapping


def pictures(scores: Sequence[Score]) -> Iterator[str]:
    """Yield HTML elements for the details of scores that have classes or probabilities."""
    for score in scores:
        if has_classes(score.details):
            yield from _classes(score.details, "span" if score.name.startswith("span") else "class")
    by_name = {score.name: score.details for score in scores}
    if "calibration error" in by_name:
        points = [(entry["confidence"], entry["accuracy"]) for entry in by_name["calibration error"]["bins"]]
        yield line_chart(
            {"accuracy of each bin": points}, "mean probability", "accuracy", limits=(0, 1), diagonal=True
        )
    if "AURC" in by_name:
        curve = [(point["coverage"], point["accuracy"]) for point in by_name["AURC"]["coverage"]]
        yield line_chart({"accuracy of the most probable answers": curve}, "share of answers", "accuracy")


def _classes(details: JsonMapping, heading: str) -> Iterator[str]:
    names = details["classes"]
    if len(names) > MOST_SCORES:
        yield f"<p>{html.escape(f'the scores of {len(names):,} classes are in details of the score')}</p>"
        return
    yield html_table(class_rows(details, names, heading))
    if "confusion" in details:
        yield shaded_table(names, details["confusion"], "confusion matrix: true classes in rows", "predicted")
