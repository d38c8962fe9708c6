"""Curves as text, for terminals."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 10
"""Lines of a chart, without its axes."""
NARROWEST = 20


def area_chart(xs: Sequence[int], ys: Sequence[float], width: int, x: str, y: str) -> Iterator[str]:
    """Yield the lines of a chart: a column is as high as the curve, in eighths of a line, from 0 upwards.

    A column shows the largest value of its part of the x axis, so that a narrow peak is not lost.

    Args:
        xs: increasing whole numbers.
        ys: a value for each, at least 0.
        width: maximum number of characters of a line.
        x: label of the x axis.
        y: label of the y axis.
    """
    top = max(ys)
    labels = [f"{top:.3g}", *[""] * (HEIGHT - 1)]
    margin = max(map(len, labels))
    n_columns = max(NARROWEST, width - margin - 2)
    eighths = [_eighths(value, top) for value in _columns(xs, ys, n_columns)]
    yield y
    for line, label in zip(range(HEIGHT - 1, -1, -1), labels, strict=True):
        cells = "".join(BLOCKS[min(8, max(0, n - 8 * line))] for n in eighths)
        yield f"{label.rjust(margin)} │{cells}".rstrip()
    yield f"{'0'.rjust(margin)} └{'─' * n_columns}"
    first, last = f"{xs[0]:,}", f"{xs[-1]:,}"
    yield f"{' ' * (margin + 2)}{first}{x.center(n_columns - len(first) - len(last))}{last}".rstrip()


def _columns(xs: Sequence[int], ys: Sequence[float], n: int) -> Iterator[float]:
    """Yield the largest value of each of ``n`` parts; of an empty one, the value before it."""
    span = xs[-1] - xs[0] + 1
    start = 0
    for column in range(n):
        end = bisect_right(xs, xs[0] + span * (column + 1) / n - 1e-9)
        yield max(ys[start:end]) if end > start else ys[start - 1]
        start = end


def _eighths(value: float, top: float) -> int:
    """Return the height of a value in eighths of a line; more than 0 for each positive value."""
    if value <= 0 or top <= 0:
        return 0
    return max(1, round(8 * HEIGHT * value / top))
