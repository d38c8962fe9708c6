"""Panels: what is on the axes is what was given; image files for light pages and for dark ones."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from heedful.explain.drawing.heat_map import save
from heedful.lab.drawing import (
    CARD,
    COLOURS,
    INK,
    Bars,
    Curves,
    Dots,
    Matrix,
    box_beside,
    choose_sides,
    curves_over,
    draw,
    save_figure,
)

LINES = {"first": ([1, 2, 4], [0.5, 0.0, 3.0]), "second": ([1, 2], [7.0, 1.0])}
CURVES = Curves("curves", "x", "y", LINES)
PANELS = [
    CURVES,
    Bars("bars", "", "", {"a": 2.0}),
    Dots("dots", "", "", {"group": {"a": (1.0, 2.0)}}),
    Matrix("matrix", "", "", [[1.0, 2.0]]),
]


def drawn(panel):
    """The axes of one panel."""
    return draw(panel).axes[0]


# Curves


def test_curves_have_the_points_and_names_that_were_given():
    axes = drawn(Curves("a $ title", "x $", "y", LINES))
    assert [line.get_label() for line in axes.lines] == ["first", "second"]
    for line, (xs, ys) in zip(axes.lines, LINES.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), xs)
        np.testing.assert_array_equal(line.get_ydata(), ys)
    assert axes.get_title(loc="left") == "a $ title"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x $", "y")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]


@pytest.mark.parametrize("log, kept", [("", 3), ("x", 3), ("y", 2), ("xy", 2)])
def test_a_zero_has_no_place_on_a_logarithmic_axis(log, kept):
    axes = drawn(Curves("", "", "", {"a": LINES["first"]}, log=log))
    assert len(axes.lines[0].get_xdata()) == kept
    assert axes.get_xscale() == ("log" if "x" in log else "linear")
    assert axes.get_yscale() == ("log" if "y" in log else "linear")


def test_levels_lie_and_places_stand():
    axes = drawn(Curves("", "", "", {"a": LINES["first"]}, {"wanted": 3.0}, {"here": 2.5}))
    _, level, place = axes.lines
    assert (level.get_label(), set(level.get_ydata())) == ("wanted", {3.0})
    assert (place.get_label(), set(place.get_xdata())) == ("here", {2.5})
    assert level.get_color() == COLOURS[1]
    assert len(axes.get_legend().get_texts()) == 3


def test_one_curve_needs_no_legend():
    assert drawn(Curves("", "", "", {"": ([1, 2], [1, 2])})).get_legend() is None


@pytest.mark.parametrize(
    "limits, shown", [((0, 9), (0, 9)), ((0, None), (0, None)), ((None, 9), (None, 9)), ((None, None), ())]
)
def test_limits(limits, shown):
    low, high = drawn(Curves("", "", "", LINES, limits=limits)).get_ylim()
    plain = drawn(CURVES).get_ylim()
    wanted = shown or plain
    assert low == (plain[0] if wanted[0] is None else wanted[0])
    assert high == (plain[1] if wanted[1] is None else wanted[1])


def test_many_points_are_not_marked():
    few, many = ({"": (range(n), range(n))} for n in (20, 21))
    assert drawn(Curves("", "", "", few)).lines[0].get_marker() == "o"
    assert drawn(Curves("", "", "", many)).lines[0].get_marker() == "None"


def test_more_curves_than_colours_are_told_apart():
    axes = drawn(Curves("", "", "", {str(i): ([1, 2], [i, i]) for i in range(20)}))
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}
    assert len(axes.lines) == len(looks) == 20


def test_curves_over_the_same_numbers():
    assert curves_over([1, 2], {"a": [3, 4], "b": [5, 6]}) == {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])}


# Bars


@pytest.mark.parametrize("log", [False, True])
def test_bars_stand(log):
    axes = drawn(Bars("", "which", "how much", {"a": 2.0, "b": 3.5}, {"wanted": 3.0}, log=log))
    assert [bar.get_height() for bar in axes.patches] == [2.0, 3.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert set(axes.lines[0].get_ydata()) == {3.0}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("which", "how much")
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log" if log else "linear")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["wanted"]


@pytest.mark.parametrize("log", [False, True])
def test_bars_with_long_names_lie_the_first_at_the_top(log):
    names = ("causal self-attention", "causal separable convolution")
    axes = drawn(
        Bars("", "which", "how much", dict(zip(names, (2.0, 3.5), strict=True)), {"w": 3.0}, log=log)
    )
    assert [bar.get_width() for bar in axes.patches] == [2.0, 3.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(names)
    assert axes.yaxis_inverted()
    assert set(axes.lines[0].get_xdata()) == {3.0}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("how much", "which")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log" if log else "linear", "linear")


# Dots


GROUPS = {"ours": {"small": (1e18, 27.0), "large": (2e19, 28.0)}, "theirs": {"other": (2e19, 26.0)}}


@pytest.mark.parametrize("log", [False, True])
def test_dots_have_their_names_beside_them(log):
    axes = drawn(Dots("", "cost $", "score", GROUPS, {"no cost": 25.0}, log=log))
    *groups, level = axes.lines
    assert [list(zip(*line.get_data(), strict=True)) for line in groups] == [
        list(points.values()) for points in GROUPS.values()
    ]
    assert [line.get_label() for line in axes.lines] == ["ours", "theirs", "no cost"]
    assert set(level.get_ydata()) == {25.0}
    assert {text.get_text(): text.xy for text in axes.texts} == GROUPS["ours"] | GROUPS["theirs"]
    assert axes.get_xscale() == ("log" if log else "linear")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cost $", "score")
    assert len(axes.get_legend().get_texts()) == 3


def test_one_group_needs_no_legend():
    assert drawn(Dots("", "", "", {"ours": GROUPS["ours"]})).get_legend() is None


def meet(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_names_of_dots_keep_out_of_each_others_way():
    dots = {
        "in the middle": (150, 100),
        "close to it": (156, 103),
        "at the edge": (295, 60),
        "alone": (30, 20),
    }
    chosen = choose_sides(dots, (300, 200))
    boxes = {name: box_beside(name, dots[name], side) for name, side in chosen.items()}
    assert chosen["alone"] == "right"
    assert chosen["at the edge"] == "left"
    for name, (left, bottom, right, top) in boxes.items():
        assert left >= 0
        assert right <= 300
        assert bottom >= 0
        assert top <= 200
        assert not any(meet(boxes[name], boxes[other]) for other in boxes if other != name)


def test_a_name_without_room_stands_to_the_right():
    assert choose_sides({"far too long a name": (5, 5)}, (20, 10)) == {"far too long a name": "right"}


# Matrices


def test_a_matrix_with_negative_numbers_is_white_at_zero():
    left, right, *_ = draw(Matrix("", "", "", [[-1.0, 3.0]]), Matrix("", "", "", [[1.0, 3.0]])).axes
    assert left.images[0].get_clim() == (-3, 3)
    assert right.images[0].get_clim() == (0, 3)
    np.testing.assert_array_equal(left.images[0].get_array(), [[-1.0, 3.0]])


@pytest.mark.slow
def test_a_matrix_among_negative_limits_has_the_colours_of_those():
    first, second, third = (
        drawn(Matrix("", "", "", [[low, 1.0]], limits)).images[0].get_cmap().name
        for low, limits in ((0.0, (-1, 1)), (-1.0, None), (0.0, (0, 1)))
    )
    assert first == second != third


def test_a_matrix_of_zeros_can_be_drawn():
    draw(Matrix("", "", "", [[0.0] * 3] * 2)).canvas.draw()


def test_rows_and_columns_can_have_words():
    axes = drawn(Matrix("", "", "", [[1.0, 2.0]], columns=["a", "b"], rows=["c"]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c"]


# Figures


def test_panels_stand_side_by_side_as_wide_as_they_say():
    figure = draw(
        Curves("one", "", "", LINES, inches=(4.0, 2.0)), Curves("two", "", "", LINES, inches=(8.0, 3.0))
    )
    figure.canvas.draw()
    assert tuple(figure.get_size_inches()) == (12.0, 3.0)
    left, right = (axes.get_window_extent() for axes in figure.axes)
    assert left.x1 < right.x0
    assert right.width > 1.5 * left.width
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["one", "two"]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_equal_panels_give_equal_bytes(suffix, tmp_path):
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        save(draw(*PANELS), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_settings_of_matplotlib_stay_as_they_were():
    before = dict(matplotlib.rcParams)
    draw(*PANELS).canvas.draw()
    assert dict(matplotlib.rcParams) == before


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, heedful.lab.drawing; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


def ticks(xs, log=""):
    axes = drawn(Curves("", "", "", {"": (xs, [1.0] * len(xs))}, log=log))
    low, high = axes.get_xlim()
    return [
        (x, text.get_text())
        for x, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= x <= high
    ]


def test_between_things_that_are_counted_there_are_no_ticks():
    assert [x for x, _ in ticks([1, 2, 3])] == [1, 2, 3]
    assert any(x != int(x) for x, _ in ticks([0.5, 1, 1.5]))


def test_a_few_places_of_a_logarithmic_axis_are_named_as_they_are():
    assert ticks([1, 8, 64, 2000], "x") == [(1, "1"), (8, "8"), (64, "64"), (2000, "2,000")]
    assert ticks([0.001, 0.1], "xy") == [(0.001, "0.001"), (0.1, "0.1")]
    assert ticks([0, 2, 8], "x") == [(2, "2"), (8, "8")]
    assert [x for x, _ in ticks(range(1, 101), "x")] == [1, 10, 100]


# Image files: nothing of a light page's is left in a dark page's


CURVES_OF_FILES = {"one": ([1, 2, 3], [0.5, 2.0, 1.0]), "two": ([1, 2, 3], [0.1, 0.2, 7.0])}
PANELS_OF_FILES = {
    "curves": Curves("A title", "x", "y", CURVES_OF_FILES, levels={"wanted": 3.0}, places={"here": 2.0}),
    "logarithmic": Curves("A title", "x", "y", CURVES_OF_FILES, log="xy"),
    "dots": Dots("A title", "x", "y", {"a": {"p": (1.0, 2.0)}, "b": {"q": (2.0, 1.0)}}),
    "bars": Bars("A title", "x", "y", {"a": 1.0, "b": 2.0}, levels={"wanted": 1.5}),
    "matrix": Matrix("A title", "x", "y", [[0.0, 0.2], [0.1, 0.0]], limits=(0.0, 1.0)),
    "signed matrix": Matrix("A title", "x", "y", [[0.0, 0.2], [-0.1, 0.0]], limits=(-1.0, 1.0)),
}
WHITE = (1.0, 1.0, 1.0)
NEAR = 0.05  # zero of a heat map is nearly white


def pixels(path):
    """``[height, width, 3]``, from 0 to 1."""
    return np.asarray(Image.open(path).convert("RGB")) / 255


def luminance(colour):
    """Relative luminance, as WCAG 2.2 defines it: ``[..., 3] -> [...]``."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def contrast(one, other):
    low, high = sorted((luminance(np.array(one)), luminance(np.array(other))))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("panel", PANELS_OF_FILES.values(), ids=PANELS_OF_FILES)
def test_a_dark_image_lies_on_the_dark_card_and_a_light_one_on_white(panel, tmp_path):
    save_figure([panel], tmp_path, "a")
    for name, ground in (("a.png", WHITE), ("a.dark.png", to_rgb(CARD))):
        found = pixels(tmp_path / name)
        for corner in (found[0, 0], found[0, -1], found[-1, 0], found[-1, -1]):
            assert corner == pytest.approx(ground, abs=1 / 255)
        # Most is ground, inside the axes too.
        assert (np.abs(found - ground).max(axis=2) < NEAR).mean() > 0.5
    dark = luminance(pixels(tmp_path / "a.dark.png"))
    # What is light is thin: signs and lines.
    assert (dark > 0.5).mean() < 0.05
    assert dark.max() > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("panel", PANELS_OF_FILES.values(), ids=PANELS_OF_FILES)
def test_what_is_drawn_lies_at_the_same_places(panel, tmp_path):
    """Where a light image is empty a dark one is, and the other way about."""
    save_figure([panel], tmp_path, "a")
    empty = [
        np.abs(pixels(tmp_path / name) - ground).max(axis=2) < NEAR
        for name, ground in (("a.png", WHITE), ("a.dark.png", to_rgb(CARD)))
    ]
    assert (empty[0] == empty[1]).mean() > 0.98


def test_signs_and_curves_stand_out_from_the_dark_card():
    assert contrast(to_rgb(INK), to_rgb(CARD)) >= 7  # WCAG 2.2, criterion 1.4.6
    for colour in COLOURS:
        drawn = INK if colour == "#555555" else colour
        assert contrast(to_rgb(drawn), to_rgb(CARD)) >= 3, colour  # criterion 1.4.11


@pytest.mark.slow
def test_of_one_panel_the_first_is_all_and_of_three_about_a_third(tmp_path):
    panel = PANELS_OF_FILES["curves"]
    assert save_figure([panel], tmp_path, "a").first == 1
    assert save_figure([panel, panel, panel], tmp_path, "b").first == pytest.approx(1 / 3, abs=0.03)
    assert save_figure([PANELS_OF_FILES["matrix"], panel], tmp_path, "c").first == pytest.approx(
        4.4 / 9.2, abs=0.05
    )


@pytest.mark.slow
def test_nothing_of_the_first_panel_is_cut_off(tmp_path):
    """Around the edge between the first panel and the second is a column with nothing on it."""
    made = save_figure([PANELS_OF_FILES["matrix"], PANELS_OF_FILES["curves"]], tmp_path, "a")
    found, edge = pixels(tmp_path / "a.png"), round(made.first * made.width)
    near = found[:, edge - 12 : edge + 1]
    assert (np.abs(near - WHITE).max(axis=(0, 2)) < 0.02).any()
