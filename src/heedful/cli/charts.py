"""Curves as text, for terminals."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 10
"""Lines of a chart, without its axes."""
NARROWEST = 20
MARKS = "·●x+"
"""Characters of the curves of a `line_chart`; a later one covers those before it."""


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


def line_chart(
    curves: Mapping[str, Sequence[tuple[int, float]]], width: int, x: str, y: str
) -> Iterator[str]:
    """Yield the lines of a chart of several curves, from the lowest to the highest value.

    A column of a curve shows the mean of its part of the x axis, at the nearest line.

    Args:
        curves: the points of each curve by its name, with increasing whole numbers as x.
        width: maximum number of characters of a line.
        x: label of the x axis.
        y: label of the y axis.
    """
    drawn = {name: points for name, points in curves.items() if points}
    if not drawn:
        return
    xs = [point[0] for points in drawn.values() for point in points]
    first, last = min(xs), max(xs)
    margin = len(max((f"{v:.3g}" for p in drawn.values() for _, v in p), key=len))
    n_columns = max(NARROWEST, width - margin - 2)
    means = {name: _means(points, first, last, n_columns) for name, points in drawn.items()}
    values = [value for column in means.values() for value in column.values()]
    low, high = min(values), max(values)
    grid = [[" "] * n_columns for _ in range(HEIGHT)]
    for mark, columns in zip(MARKS, means.values(), strict=False):
        for column, value in columns.items():
            line = round((HEIGHT - 1) * (value - low) / (high - low)) if high > low else 0
            grid[HEIGHT - 1 - line][column] = mark
    legend = "   ".join(f"{mark} {name}" for mark, name in zip(MARKS, drawn, strict=False))
    yield f"{y}:  {legend}" if y else legend
    labels = [f"{high:.3g}", *[""] * (HEIGHT - 2), f"{low:.3g}"]
    for label, cells in zip(labels, grid, strict=True):
        yield f"{label.rjust(margin)} │{''.join(cells)}".rstrip()
    yield f"{' ' * margin} └{'─' * n_columns}"
    ends = f"{first:,}", f"{last:,}"
    yield f"{' ' * (margin + 2)}{ends[0]}{x.center(n_columns - len(''.join(ends)))}{ends[1]}".rstrip()


def _means(points: Sequence[tuple[int, float]], first: int, last: int, n: int) -> dict[int, float]:
    """Return the mean of the points in each of ``n`` columns that has points."""
    columns: dict[int, list[float]] = {}
    for place, value in points:
        columns.setdefault(round((n - 1) * (place - first) / max(1, last - first)), []).append(value)
    return {column: sum(values) / len(values) for column, values in columns.items()}
