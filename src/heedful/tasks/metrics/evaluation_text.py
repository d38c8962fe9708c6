"""An evaluation as text, as ``heedful evaluate`` and ``print`` show it."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from heedful.tasks.metrics.calibration_tables import calibration_tables
from heedful.tasks.metrics.class_tables import class_tables

if TYPE_CHECKING:
    from heedful.tasks.metrics.score import Score

TEXT_WIDTH = 76


def evaluation_lines(name: str, unit: str, scores: "Sequence[Score]", width: int) -> Iterator[str]:
    """Yield a line for each score with value and signature, shares of tokens, and tables of classes.

    Of probabilities, it says in words and in tables how often they are right.

    Args:
        name: of the data set.
        unit: plural noun for what it contains; empty: it is not known.
        scores: of the data set.
        width: maximum number of characters of a line of a table.
    """
    yield f"{name}: {scores[0].counts.get(unit, 0):,} {unit}" if unit and scores else f"{name}:"
    for score in scores:
        digits = 2 if abs(score.value) >= 10 else 4
        yield f"  {score.name:<22} {score.value:>8.{digits}f}  {score.signature}".rstrip()
        if shares := score.details.get("shares"):
            text = "share of tokens: " + " ".join(f"{share:.1%}" for share in shares)
            for line in textwrap.wrap(text, TEXT_WIDTH):
                yield f"    {line}"
    for score in scores:
        heading = "span" if score.name.startswith("span") else "class"
        for line in class_tables(score.details, width - 2, heading):
            yield f"  {line}".rstrip()
    by_name = {score.name: score for score in scores}
    if (error := by_name.get("calibration error")) is not None:
        for line in calibration_tables(error.value, error.details, by_name["AURC"].details):
            yield f"  {line}".rstrip()
