"""Split conformal prediction: intervals that contain the target of a number as often as they say.

    q = the k-th smallest |y_i - ŷ_i| of n validation rows,     k = ceil((n + 1) coverage)
    interval = ŷ ± q

If the rows to predict are drawn like the validation rows, the target is inside with a probability of at least
``coverage``, whatever the model. (The validation rows also chose the checkpoint, which makes q a little too
small.) Source: Lei et al. 2018, "Distribution-free predictive inference for regression", algorithm 2.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from heedful.records import Record, read_record
from heedful.tasks.metrics.score import Score

MOST = 1000
"""Maximum number of residuals that are stored; of more, evenly spaced rows."""


class Residuals(Record):
    """Content of ``residuals.json``.

    Args:
        residuals: |y - ŷ| of validation rows, in ascending order.
    """

    version: Literal[1] = 1
    residuals: Annotated[list[Annotated[float, Field(ge=0)]], Field(max_length=MOST)]


def residuals_of(predictions: ArrayLike, targets: ArrayLike) -> Residuals:
    """Return the residuals of validation rows."""
    p, y = np.asarray(predictions, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    chosen = np.abs(p - y)[:: -(-len(y) // MOST) or 1]
    return Residuals(residuals=np.sort(chosen).tolist())


def half_width(residuals: Sequence[float], coverage: float) -> float | None:
    """Return q; None if the rows are too few for the coverage."""
    # Without rounding, 0.9 * 10 may exceed 9.
    k = math.ceil(round((len(residuals) + 1) * coverage, 9))
    return residuals[k - 1] if k <= len(residuals) else None


def fewest_rows(coverage: float) -> int:
    """Return the number of validation rows that a coverage needs."""
    return math.ceil(round(coverage / (1 - coverage), 9))


def interval_scores(
    intervals: NDArray[np.float64], targets: ArrayLike, *, coverage: float, rows: int
) -> list[Score]:
    """Compute how often targets are inside, and the mean width.

    Args:
        intervals: ``[n, 2]``, the lower and the upper end.
        targets: of each.
        coverage: how often they should be.
        rows: number of validation rows that gave the intervals.
    """
    y = np.asarray(targets, dtype=np.float64)
    inside = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
    signature = f"conformal:absolute|coverage:{coverage:g}"
    counts = {"examples": len(y), "residuals": rows}
    return [
        Score("interval coverage", float(inside.mean()), signature, {}, counts),
        Score("interval width", float((intervals[:, 1] - intervals[:, 0]).mean()), signature, {}, counts),
    ]


def read_residuals(path: Path) -> list[float]:
    """Read the file of a run; empty if it has none.

    Raises:
        DamagedError: it is damaged.
    """
    return sorted(read_record(path, Residuals).residuals) if path.is_file() else []
