"""Curves as text: columns are as high as the curve."""

import pytest

from heedful.cli.charts import BLOCKS, HEIGHT, area_chart, line_chart


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


def test_two_curves_have_a_mark_each_at_their_places():
    train = [(i, 10.0 - i / 10) for i in range(1, 101)]
    valid = [(1, 10.0), (50, 5.0), (100, 0.0)]
    legend, *rows, axis, ends = line_chart({"train": train, "valid": valid}, 60, "update", "loss")
    assert legend == "loss:  · train   ● valid"
    start = axis.index("└") + 1
    n = len(axis) - start
    cells = [row[start:].ljust(n) for row in rows]
    found = [(i, j) for i, row in enumerate(cells) for j, cell in enumerate(row) if cell == "●"]
    assert found[0] == (0, 0)
    assert found[-1] == (HEIGHT - 1, n - 1)
    assert len(found) == len(valid)
    columns = [
        next(i for i in range(HEIGHT) if cells[i][j] == "·") for j in range(1, n - 1) if j != found[1][1]
    ]
    assert columns == sorted(columns)  # the curve falls
    assert (rows[0].split()[0], rows[-1].split()[0]) == ("10", "0")
    assert ends.split() == ["1", "update", "100"]


@pytest.mark.parametrize("points", [[(3, 1.0)], [(1, 2.0), (9, 2.0)]])
def test_a_level_curve_is_at_the_bottom(points):
    rows = list(line_chart({"loss": points, "none": []}, 40, "update", ""))
    assert len(rows) == HEIGHT + 3
    assert "·" in rows[HEIGHT]
    assert max(map(len, rows)) <= 40


def test_no_points_have_no_chart():
    assert list(line_chart({"loss": []}, 40, "update", "")) == []
