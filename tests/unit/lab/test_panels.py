"""Panels: what is on the axes is what was given."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from heedful.explain.picture import save
from heedful.lab.panels import Panel, draw

CURVES = {"first": ([1, 2, 4], [0.5, 0.0, 3.0]), "second": ([1, 2], [7.0, 1.0])}


def test_curves_have_the_points_and_names_that_were_given():
    (axes,) = draw(Panel("a $ title", "x", "y", CURVES)).axes
    assert [line.get_label() for line in axes.lines] == ["first", "second"]
    for line, (xs, ys) in zip(axes.lines, CURVES.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), xs)
        np.testing.assert_array_equal(line.get_ydata(), ys)
    assert axes.get_title(loc="left") == "a $ title"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert axes.get_legend() is not None


@pytest.mark.parametrize("log, kept", [("", 3), ("x", 3), ("y", 2), ("xy", 2)])
def test_a_zero_has_no_place_on_a_logarithmic_axis(log, kept):
    (axes,) = draw(Panel("", curves={"a": CURVES["first"]}, log=log)).axes
    assert len(axes.lines[0].get_xdata()) == kept
    assert axes.get_xscale() == ("log" if "x" in log else "linear")
    assert axes.get_yscale() == ("log" if "y" in log else "linear")


def test_bars_and_levels():
    (axes,) = draw(Panel("", bars={"a": 2.0, "b": 3.5}, levels={"wanted": 3.0})).axes
    assert [bar.get_height() for bar in axes.patches] == [2.0, 3.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert set(axes.lines[0].get_ydata()) == {3.0}


def test_panels_stand_side_by_side():
    figure = draw(Panel("one", curves=CURVES), Panel("two", bars={"a": 1.0}))
    figure.canvas.draw()
    left, right = (axes.get_window_extent() for axes in figure.axes)
    assert left.x1 < right.x0
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["one", "two"]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_equal_panels_give_equal_bytes(suffix, tmp_path):
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        save(draw(Panel("t", curves=CURVES, log="y")), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_settings_of_matplotlib_stay_as_they_were():
    before = dict(matplotlib.rcParams)
    draw(Panel("t", curves=CURVES))
    assert dict(matplotlib.rcParams) == before


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, heedful.lab.panels; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
