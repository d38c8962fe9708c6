"""Images for light pages and for dark ones: nothing of one is left in the other."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from heedful.lab.drawing import COLOURS, Bars, Curves, Dots, Matrix
from heedful.lab.figures import CARD, INK, make

LINES = {"one": ([1, 2, 3], [0.5, 2.0, 1.0]), "two": ([1, 2, 3], [0.1, 0.2, 7.0])}
PANELS = {
    "curves": Curves("A title", "x", "y", LINES, levels={"wanted": 3.0}, places={"here": 2.0}),
    "logarithmic": Curves("A title", "x", "y", LINES, log="xy"),
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
@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_dark_image_lies_on_the_dark_card_and_a_light_one_on_white(panel, tmp_path):
    make([panel], tmp_path, "a")
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
@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_what_is_drawn_lies_at_the_same_places(panel, tmp_path):
    """Where a light image is empty a dark one is, and the other way about."""
    make([panel], tmp_path, "a")
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
    panel = PANELS["curves"]
    assert make([panel], tmp_path, "a").first == 1
    assert make([panel, panel, panel], tmp_path, "b").first == pytest.approx(1 / 3, abs=0.03)
    assert make([PANELS["matrix"], panel], tmp_path, "c").first == pytest.approx(4.4 / 9.2, abs=0.05)


@pytest.mark.slow
def test_nothing_of_the_first_panel_is_cut_off(tmp_path):
    """Around the edge between the first panel and the second is a column with nothing on it."""
    made = make([PANELS["matrix"], PANELS["curves"]], tmp_path, "a")
    found, edge = pixels(tmp_path / "a.png"), round(made.first * made.width)
    near = found[:, edge - 12 : edge + 1]
    assert (np.abs(near - WHITE).max(axis=(0, 2)) < 0.02).any()
