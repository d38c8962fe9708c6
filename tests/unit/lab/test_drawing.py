"""What pictures are made of: the numbers are on the axes."""

import matplotlib
import numpy as np

from heedful.lab.drawing import bars, curves, matrix, panels


def test_a_panel_for_each_title():
    figure, axes = panels("a", "b $x$", "c")
    assert [each.get_title(loc="left") for each in axes] == ["a", "b $x$", "c"]
    figure.canvas.draw()


def test_curves_hold_their_values_and_names():
    _, (axes,) = panels("")
    curves(axes, [1, 2, 4], {"a": [1, 2, 3], "b": [3, 2, 1]}, x_label="x", y_label="y", logarithmic="x")
    for line, values in zip(axes.lines, ([1, 2, 3], [3, 2, 1]), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 4])
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")


def test_one_curve_needs_no_legend():
    _, (axes,) = panels("")
    curves(axes, [1, 2], {"": [1, 2]}, x_label="", y_label="")
    assert axes.get_legend() is None


def test_more_lines_than_colours_are_not_lost():
    _, (axes,) = panels("")
    lines = {str(i): [i, i] for i in range(20)}
    curves(axes, [1, 2], lines, x_label="", y_label="")
    assert len(axes.lines) == 20


def test_a_matrix_with_negative_numbers_is_white_at_zero():
    _, (left, right) = panels("", "")
    matrix(left, [[-1.0, 3.0]])
    matrix(right, [[1.0, 3.0]])
    assert left.images[0].get_clim() == (-3, 3)
    assert right.images[0].get_clim() == (0, 3)
    np.testing.assert_array_equal(left.images[0].get_array(), [[-1.0, 3.0]])


def test_a_matrix_among_negative_limits_has_the_colours_of_those():
    _, axes = panels("", "", "")
    matrix(axes[0], [[0.0, 1.0]], limits=(-1, 1))
    matrix(axes[1], [[-1.0, 1.0]])
    matrix(axes[2], [[0.0, 1.0]], limits=(0, 1))
    first, second, third = (each.images[0].get_cmap().name for each in axes)
    assert first == second != third


def test_a_matrix_of_zeros_can_be_drawn():
    figure, (axes,) = panels("")
    matrix(axes, np.zeros((2, 3)))
    figure.canvas.draw()


def test_bars_have_their_lengths_from_the_top():
    _, (axes,) = panels("")
    bars(axes, {"a": 2.0, "b": 3.0}, x_label="")
    assert [bar.get_width() for bar in axes.patches] == [2.0, 3.0]
    assert axes.yaxis_inverted()


def test_the_settings_of_matplotlib_stay_as_they_were():
    before = dict(matplotlib.rcParams)
    figure, (axes,) = panels("a")
    matrix(axes, [[0.5]])
    figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before
