"""Small charts and shaded tables as inline SVG and HTML, for notebooks; nothing is imported to draw them."""

import html
from collections.abc import Mapping, Sequence
from itertools import cycle

Points = Sequence[tuple[float, float]]
"""x and y of each point, x increasing."""

# Distinguishable in greyscale and with red-green colour blindness (Okabe and Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
WIDTH, HEIGHT = 480, 260
"""Pixels of a chart."""
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 28, 40
"""Pixels between the edges of a chart and its axes."""
FEW = 30
"""Curves with at most so many points get markers."""


def line_chart(
    lines: Mapping[str, Points],
    x: str,
    y: str,
    *,
    limits: tuple[float, float] | None = None,
    diagonal: bool = False,
) -> str:
    """Return curves in one pair of axes as an SVG element; those without points are left out.

    Args:
        lines: the points of each curve by its name, which the legend shows.
        x: label of the x axis.
        y: label of the y axis.
        limits: lower and upper end of the y axis; None: those of the points.
        diagonal: whether to draw the line y = x.
    """
    drawn = {name: points for name, points in lines.items() if len(points)}
    xs = [point[0] for points in drawn.values() for point in points]
    ys = [point[1] for points in drawn.values() for point in points]
    if not xs:
        return ""
    x_axis = _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    low, high = limits or (min(ys), max(ys))
    y_axis = _Axis(low, high, HEIGHT - BOTTOM, TOP)
    names = ", ".join(drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" font-family="sans-serif" font-size="11" fill="currentColor">',
        f"<title>{html.escape(f'{y} over {x}: {names}')}</title>",
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="currentColor"/>',
        _text(f"{high:.4g}", LEFT - 6, TOP + 4, "end"),
        _text(f"{low:.4g}", LEFT - 6, HEIGHT - BOTTOM, "end"),
        _text(f"{min(xs):,.6g}", LEFT, HEIGHT - BOTTOM + 16, "start"),
        _text(f"{max(xs):,.6g}", WIDTH - RIGHT, HEIGHT - BOTTOM + 16, "end"),
        _text(x, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "middle"),
    ]
    if diagonal:
        ends = [(value, value) for value in (max(min(xs), low), min(max(xs), high))]
        parts.append(_curve(ends, x_axis, y_axis, "currentColor", "1 4"))
    place = LEFT + 8.0
    for (name, points), colour, dash in zip(drawn.items(), cycle(COLOURS), cycle(DASHES), strict=False):
        parts.append(_curve(points, x_axis, y_axis, colour, dash))
        if len(points) <= FEW:
            parts += [
                f'<circle cx="{x_axis(a):.1f}" cy="{y_axis(b):.1f}" r="2.5" fill="{colour}"/>'
                for a, b in points
            ]
        parts.append(f'<path d="M{place:.0f} 12h22" stroke="{colour}" stroke-dasharray="{dash}"/>')
        parts.append(_text(name, place + 27, 16, "start"))
        place += 45 + 6.2 * len(name)
    if len(drawn) == 1:  # the legend names the curve; the axis, the quantity
        parts.append(_text(y, WIDTH - RIGHT, 16, "end"))
    return "".join([*parts, "</svg>"])


class _Axis:
    """A map from values to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.span, self.start, self.end = low, (high - low) or 1.0, start, end

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / self.span * (self.end - self.start)


def _curve(points: Points, x_axis: _Axis, y_axis: _Axis, colour: str, dash: str) -> str:
    pixels = " ".join(f"{x_axis(a):.1f},{y_axis(b):.1f}" for a, b in points)
    return (
        f'<polyline points="{pixels}" fill="none" stroke="{colour}" stroke-width="1.6" '
        f'stroke-dasharray="{dash}"/>'
    )


def _text(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(text)}</text>'


SHADE = "0, 114, 178"
"""Red, green and blue of shaded cells."""
DARKEST = 0.7
"""Opacity of a cell that has all counts of its row; text stays legible on it, in light and dark notebooks."""


def shaded_table(names: Sequence[str], matrix: Sequence[Sequence[int]], caption: str, across: str) -> str:
    """Return a square matrix of counts as an HTML table, each cell shaded by its share of the row.

    The counts are text, and each cell has a title that names its row and column, for screen readers and the
    mouse.

    Args:
        names: of the rows and of the columns.
        matrix: the counts.
        caption: caption of the table.
        across: what the columns are.
    """
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    rows = []
    for name, counts in zip(names, matrix, strict=True):
        total = sum(counts)
        cells = []
        for other, n in zip(names, counts, strict=True):
            title = html.escape(f"{name}, {across} {other}: {n:,} of {total:,}", quote=True)
            shade = f"rgba({SHADE}, {DARKEST * n / (total or 1):.2f})"
            cells.append(f'<td style="text-align: right; background: {shade}" title="{title}">{n:,}</td>')
        rows.append(f'<tr><th scope="row">{html.escape(name)}</th>{"".join(cells)}</tr>')
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
