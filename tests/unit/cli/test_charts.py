"""Curves as text: columns are as high as the curve."""

import pytest

from heedful.cli.charts import BLOCKS, HEIGHT, area_chart


def heights(lines):
    """The height of each column in eighths of a line, and the number of columns."""
    _, *rows, axis, _ = lines
    start = axis.index("└") + 1
    n = len(axis) - start
    cells = [row[start:].ljust(n) for row in rows]
    return [sum(BLOCKS.index(row[i]) for row in cells) for i in range(n)]


def chart(xs, ys, width=50):
    return list(area_chart(xs, ys, width, "update", "rate"))


def test_a_straight_line_rises_by_as_much_in_every_column():
    lines = chart(range(1, 401), [i / 400 for i in range(1, 401)], width=44)
    found = heights(lines)
    assert found == sorted(found)
    assert len(found) == 44 - 1 - 2
    top = 8 * HEIGHT
    assert found == pytest.approx([top * (i + 1) / len(found) for i in range(len(found))], abs=1)
    assert lines[0] == "rate"
    assert lines[-1].split() == ["1", "update", "400"]


def test_a_narrow_peak_is_shown():
    ys = [0.0] * 1000
    ys[700] = 2.0
    found = heights(chart(range(1000), ys))
    assert sorted(found)[-2:] == [0, 8 * HEIGHT]
    assert chart(range(1000), ys)[1].startswith("2 │")


def test_few_points_are_steps():
    found = heights(chart([1, 2, 3], [1.0, 4.0, 2.0], width=63))
    third = len(found) // 3
    assert found == [20] * third + [80] * third + [40] * third


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_one_point_is_a_level_line(value):
    assert set(heights(chart([1], [value]))) == {8 * HEIGHT if value else 0}


def test_no_line_is_wider_than_the_terminal():
    for width in (40, 61, 80):
        assert max(map(len, chart(range(1, 9000), [1 / i for i in range(1, 9000)], width))) <= width
