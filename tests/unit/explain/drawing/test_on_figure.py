"""Figures of drawings: what is on the axes are the numbers, and equal drawings give equal files."""

import re
import subprocess
import sys
from importlib.resources import files
from io import BytesIO
from math import inf, nan

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from PIL import Image

from heedful.errors import RequestError
from heedful.explain.drawing.canvas import MAX_CELLS, PAGE_COLOURS, UNIFORM_COLOUR, colours, shorten
from heedful.explain.drawing.on_figure import MUTED, PLAIN, figure
from heedful.explain.drawings import Cell, Heat, PatchPanel, PatchValues, Picture, Table, TokenValues
from heedful.tasks.model_input import Axis

RNG = np.random.default_rng(3)
GRID = RNG.dirichlet(np.ones(15)).reshape(3, 5)
SIGNED_GRID = RNG.normal(size=(3, 5))
TOKENS = ("naan", "$x$", "<sep>", "a\x07")
WORDS = ["transformations", "of", "$x$"]
LONG = "t " * 99


def png(height, width, mode="RGB"):
    pixels = np.arange(height * width * len(mode)) % 251
    shape = (height, width, len(mode)) if len(mode) > 1 else (height, width)
    stream = BytesIO()
    Image.fromarray(pixels.reshape(shape).astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue(), pixels.reshape(shape)


PHOTO, PIXELS = png(9, 15)
AXES = {
    "text": Axis(TOKENS),
    "image": Axis(tuple(map(str, range(15))), grid=(3, 5), image=PHOTO),
    "no image": Axis(tuple(map(str, range(15))), grid=(3, 5)),
}
CELLS = [["naan", Cell("a"), Cell("b", 0.25)], ["$x$", Cell("c", probability=0.5, is_emphasised=True), None]]
CELLS += [["a\x07", Cell("N", colour="#1f77b4", tap="t", head=0), 3], [4, 0.12345, "transformation " * 3]]

DRAWINGS = {
    "losses": TokenValues(
        "t", "text", [0.5, 2.25, None, inf], name="loss", muted=[True, False, False, False]
    ),
    "products": TokenValues("t", "text", [-1.0, 2.0, 0.0, 0.5], note="n"),
    "words": TokenValues(LONG, "nowhere", [1e-9, 2e-9], ["a", "b" * 40], note=LONG),
    "table": Table("t", ["row", "a", "$b$"], CELLS, note="n"),
    "layers": PatchValues(
        "t", "image", [PatchPanel(f"layer {n}", GRID * n) for n in range(1, 6)], among=16, note="n"
    ),
    "apart": PatchValues(
        "t",
        "image",
        [PatchPanel("pixels", RNG.normal(size=(9, 15)), False), PatchPanel("patches", SIGNED_GRID)],
        apart=True,
    ),
    "one map": PatchValues("", "no image", [PatchPanel("", GRID)]),
    "named": Heat("t", GRID[:, :3], WORDS, WORDS, note="n"),
    "mosaic": Heat("t", np.where(GRID < 0.05, nan, GRID).repeat(4, 0), ["a"], WORDS[:1] * 5, power=0.5),
    "signed": Heat("t", np.clip(SIGNED_GRID, -1, 1)),
    "picture": Picture("t", png(9, 15, "L")[0], "what it shows", 150),
}


def drawn(*drawings, title="answer"):
    return figure(drawings, AXES, title=title)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("name", DRAWINGS)
def test_equal_drawings_give_equal_bytes(name, suffix, saved):
    assert saved(drawn(DRAWINGS[name]), suffix) == saved(drawn(DRAWINGS[name]), suffix)


@pytest.mark.parametrize("name", DRAWINGS)
def test_all_of_it_is_on_white_and_labels_are_apart(name, drawn_on_white, labels_are_apart):
    made = drawn(DRAWINGS[name], title=LONG)
    assert (drawn_on_white(made) != 255).any()
    labels_are_apart(made)


def test_drawings_are_below_each_other_in_their_order(drawn_on_white, labels_are_apart):
    made = drawn(*DRAWINGS.values())
    drawn_on_white(made)
    labels_are_apart(made)
    tops = [part.bbox.y1 for part in made.subfigs]
    assert len(tops) == len(DRAWINGS)
    assert tops == sorted(tops, reverse=True)
    assert made.get_suptitle() == "answer"


def titles(made):
    """The titles and notes of the drawings of a figure."""
    parts = [part.subfigs[1] if part.subfigs else part for part in made.subfigs]
    return [(part.get_suptitle(), part.get_supxlabel()) for part in parts]


def test_titles_and_notes_are_those_of_the_drawings():
    shown = [DRAWINGS[name] for name in ("losses", "table", "signed")]
    assert titles(drawn(*shown)) == [("t", ""), ("t", "n"), ("t", "")]


def test_only_drawings_for_images_are_drawn():
    hidden = Table("hidden", ["a"], [["b"]], media={"page", "terminal"})
    assert titles(drawn(hidden, DRAWINGS["signed"])) == [("t", "")]
    for drawings in ([], [hidden]):
        with pytest.raises(RequestError, match="there is nothing to draw"):
            drawn(*drawings)


NUMBERS = {
    "signed": [8.906e-05, -2.0, 8.906e-03],
    "small": [8.906e-09, -8.906e-09, 0.0],
    "large": [-28924.123, 12.0, inf],
    "of one sign": [0.1, 2.8924, 1.0],
}


@pytest.mark.filterwarnings("ignore:no installed font", "ignore:Glyph")
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("label", ["a", "W" * 28, "\u4e2d" * 28], ids=["short", "long", "wide"])
def test_every_number_is_inside_the_frame_and_the_frame_in_the_figure(numbers, label, drawn_on_white):
    values = NUMBERS[numbers]
    made = drawn(TokenValues("t", "nowhere", values, [label] * len(values)))
    drawn_on_white(made)
    (axes,) = made.axes
    frame = axes.get_window_extent()
    assert len(axes.texts) == len(values)
    for number in axes.texts:
        extent = number.get_window_extent()
        assert frame.x0 < extent.x0 < extent.x1 < frame.x1
        assert frame.y0 < extent.y0 < extent.y1 < frame.y1


def test_the_note_of_a_figure_is_below_all_drawings_and_covers_none(drawn_on_white):
    made = figure([DRAWINGS["products"]], AXES, title="answer", note=LONG)
    drawn_on_white(made)
    (part,) = made.subfigs
    above, below = part._supxlabel.get_window_extent(), made._supxlabel.get_window_extent()
    assert below.y1 < above.y0 < above.y1 < made.axes[0].get_window_extent().y0
    assert made._suptitle.get_window_extent().y0 > part._suptitle.get_window_extent().y1


def test_the_scale_of_a_matrix_has_its_own_numbers():
    made = drawn(Heat("t", np.array([[1.0, -0.5]]), ["a"], ["x", "y"], largest=0.542))
    made.canvas.draw()
    *_, bar = made.axes
    assert [float(text) for text in texts_of(bar.get_yticklabels())] == [-0.542, 0.0, 0.542]


def texts_of(labels):
    return [label.get_text() for label in labels]


# Bars


def test_every_token_has_a_bar_as_long_as_its_number():
    (axes,) = drawn(DRAWINGS["losses"]).axes
    assert [bar.get_width() for bar in axes.patches] == [0.5, 2.25, 2.25]  # the last is infinite
    assert [bar.get_facecolor() for bar in axes.patches] == [to_rgba(MUTED), to_rgba(PLAIN), to_rgba(PLAIN)]
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    np.testing.assert_allclose(middles, axes.get_yticks())
    assert texts_of(axes.get_yticklabels()) == ["naan", "$x$", "a\N{REPLACEMENT CHARACTER}"]
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())
    assert texts_of(axes.texts) == ["0.5000", "2.2500", "inf"]
    assert axes.yaxis_inverted()
    assert axes.get_xlim()[0] == 0
    assert axes.get_xlabel() == "loss"


def test_positive_bars_are_blue_and_to_the_right():
    (axes,) = drawn(DRAWINGS["products"]).axes
    assert [bar.get_width() for bar in axes.patches] == [-1.0, 2.0, 0.0, 0.5]
    red, blue = (np.argmax(axes.patches[i].get_facecolor()[:3]) for i in (0, 1))
    assert (red, blue) == (0, 2)
    assert texts_of(axes.texts) == ["-1.0000", "+2.0000", "+0.0000", "+0.5000"]


def test_words_may_stand_for_tokens():
    (axes,) = drawn(DRAWINGS["words"]).axes
    assert texts_of(axes.get_yticklabels()) == ["a", shorten("b" * 40, 28)]
    assert texts_of(axes.texts) == ["1.000e-09", "2.000e-09"]


def test_numbers_of_zero_have_a_scale():
    (axes,) = drawn(TokenValues("t", "text", [0.0] * 4)).axes
    assert axes.get_xlim()[1] > 0


# Tables


def test_cells_have_their_texts_and_colours():
    (axes,) = drawn(DRAWINGS["table"]).axes
    shown = {tuple(map(round, text.get_position())): text for text in axes.texts}
    wanted = [
        ["a", "b"],
        ["c 0.50", ""],
        ["N", "3"],
        ["0.1235", "transformation tr\N{HORIZONTAL ELLIPSIS}"],
    ]
    assert [[shown[j, i].get_text() for j in range(2)] for i in range(4)] == wanted
    assert [at for at, text in shown.items() if text.get_weight() == "bold"] == [(0, 1)]
    assert not any(text.get_parse_math() for text in axes.texts)
    pixels = np.asarray(axes.images[0].get_array())
    expected = np.ones((4, 2, 4))
    expected[0, 1], expected[1, 0], expected[2, 0] = colours()(0.25), colours()(0.5), to_rgba("#1f77b4")
    np.testing.assert_allclose(pixels, expected, atol=1e-6)
    assert texts_of(axes.get_xticklabels()) == ["a", "$b$"]
    assert texts_of(axes.get_yticklabels()) == ["naan", "$x$", "a\N{REPLACEMENT CHARACTER}", "4"]
    assert axes.get_ylabel() == "row"


def test_texts_stay_in_their_cells():
    made = drawn(DRAWINGS["table"])
    made.canvas.draw()
    (axes,) = made.axes
    for text in axes.texts:
        column, row = text.get_position()
        box = text.get_window_extent()
        (left, low), (right, high) = (axes.transData.transform((column + d, row - d)) for d in (-0.5, 0.5))
        if text.get_text():
            assert left < box.x0 < box.x1 < right
            assert low < box.y0 < box.y1 < high


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("abcd", "abcd"), ("abcde", "abc\N{HORIZONTAL ELLIPSIS}"), ("a\n", "a\ufffd"), ("", "")],
)
def test_long_texts_are_shortened(text, wanted):
    assert shorten(text, 4) == wanted


# Numbers over an image


def panels_of(made):
    return [axes for axes in made.axes if axes.images and axes.get_title()]


def test_layers_are_beside_each_other_on_one_scale():
    photo, *panels = panels_of(drawn(DRAWINGS["layers"]))
    assert photo.get_title() == "the image"
    assert [axes.get_title() for axes in panels] == [f"layer {n}" for n in range(1, 6)]
    for n, axes in enumerate(panels, 1):
        np.testing.assert_array_equal(np.asarray(axes.images[-1].get_array()), GRID * n)
        assert axes.images[-1].get_clim() == (0, 5 * GRID.max())


def test_panels_apart_have_scales_of_their_own():
    made = drawn(DRAWINGS["apart"])
    _, *panels = panels_of(made)
    for axes, panel in zip(panels, DRAWINGS["apart"].panels, strict=True):
        limit = np.abs(panel.values).max()
        assert axes.images[0].get_clim() == (-limit, limit)
        np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), panel.values)
    bars = [axes for axes in made.axes if axes not in panels and len(axes.get_xticks()) == 3]
    assert [bar.get_xlim()[1] for bar in bars] == [
        np.abs(panel.values).max() for panel in DRAWINGS["apart"].panels
    ]


def seen_in(made, axes, rows, columns):
    """What is drawn in the middle of each cell of a panel, ``[rows, columns, 3]``."""
    made.canvas.draw()
    pixels = np.asarray(made.canvas.buffer_rgba())[..., :3].astype(int)
    row, column = np.mgrid[:rows, :columns]
    x, y = axes.transData.transform(np.stack([column.ravel(), row.ravel()], axis=1)).T
    return pixels[len(pixels) - 1 - y.astype(int), x.astype(int)].reshape(rows, columns, 3)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_what_is_seen_is_the_weights_and_the_image_beside_them(mode):
    file, pixels = png(9, 15, mode)
    axes = {"image": Axis(AXES["image"].tokens, grid=(3, 5), image=file)}
    made = figure([PatchValues("", "image", [PatchPanel("", GRID)])], axes)
    photo, weights, _ = made.axes
    wanted = 255 * colours()(GRID / GRID.max())[..., :3]
    assert np.abs(seen_in(made, weights, 3, 5) - wanted).max() <= 2
    middle = pixels[1::3, 1::3]
    assert np.abs(seen_in(made, photo, 3, 5) - middle.reshape(3, 5, -1)).max() <= 2
    assert tuple(photo.images[0].get_extent()) == tuple(weights.images[0].get_extent())


def over_image(values, among=None):
    return drawn(PatchValues("", "no image", [PatchPanel("", values)], among=among))


def test_the_bar_has_the_colours_of_the_cells_and_a_line_at_even_attention():
    made = over_image(GRID, 17)
    bar = made.axes[-1]
    made.canvas.draw()
    pixels = np.asarray(made.canvas.buffer_rgba())[..., :3].astype(int)
    at = np.linspace(0.05, 0.95, 7) * GRID.max()
    at = at[np.abs(at - 1 / 17) > 0.03 * GRID.max()]
    x, y = bar.transData.transform(np.stack([np.full(len(at), 0.5), at], axis=1)).T
    found = pixels[len(pixels) - 1 - y.astype(int), x.astype(int)]
    assert np.abs(found - 255 * colours()(at / GRID.max())[:, :3]).max() <= 3
    (line,) = (line for line in bar.lines if line.get_color() == UNIFORM_COLOUR)
    np.testing.assert_allclose(line.get_ydata(), 1 / 17)
    assert "1/17 = 0.059" in titles(made)[0][1]


def test_even_attention_is_on_the_scale_even_where_all_is_less():
    axes, bar = over_image(np.full((3, 5), 0.001), 16).axes
    assert axes.images[0].get_clim() == (0, 1 / 16)
    assert bar.get_ylim()[1] >= 1 / 16


def test_no_attention_at_all_can_be_drawn():
    assert over_image(np.zeros((3, 5))).axes[0].images[0].get_clim() == (0, 1)


# Matrices


def test_the_colours_are_those_of_the_page():
    style = files("heedful.explain.page").joinpath("page.css").read_text("utf-8")
    assert tuple(re.findall(r"--plus-\d: light-dark\((#\w{6})", style)) == PAGE_COLOURS
    for number, colour in enumerate(PAGE_COLOURS):
        np.testing.assert_allclose(colours()(number / 7), to_rgba(colour), atol=1.5 / 255)


def test_names_are_at_their_cells_or_in_the_middle_of_their_parts():
    axes = drawn(DRAWINGS["named"]).axes[0]
    assert (axes.get_xticks().tolist(), axes.get_yticks().tolist()) == ([0, 1, 2], [0, 1, 2])
    assert texts_of(axes.get_xticklabels()) == texts_of(axes.get_yticklabels()) == WORDS
    axes = drawn(Heat("t", np.ones((6, 8)), ["a", "b", "c"], ["d", "e"])).axes[0]
    assert axes.get_yticks().tolist() == [0.5, 2.5, 4.5]
    assert axes.get_xticks().tolist() == [1.5, 5.5]


def test_a_cell_has_the_colour_of_the_power_of_its_number():
    values = np.where(GRID < 0.05, nan, GRID)
    made = drawn(Heat("", values, power=0.5))
    axes = made.axes[0]
    largest = np.nanmax(values)
    assert axes.images[0].norm.vmax == pytest.approx(np.ceil(largest * 10) / 10)
    shares = np.sqrt(values / axes.images[0].norm.vmax)
    wanted = 255 * colours()(np.ma.masked_invalid(shares))[..., :3]
    assert np.abs(seen_in(made, axes, 3, 5) - wanted).max() <= 3


@pytest.mark.parametrize(
    ("largest", "end"), [(0.0, 1.0), (0.04, 0.04), (0.1, 0.1), (0.3, 0.3), (0.301, 0.4), (1.0, 1.0)]
)
def test_the_scale_ends_at_the_tenth_above_a_large_number(largest, end):
    axes = drawn(Heat("", np.array([[0.0, largest]]))).axes[0]
    assert axes.images[0].get_clim() == (0, end)


def test_alike_is_blue_and_opposite_is_red_as_on_the_page():
    image = drawn(DRAWINGS["signed"]).axes[0].images[0]
    assert image.get_clim() == (-1, 1)
    alike, opposite = image.to_rgba(np.array([1.0, -1.0]))[:, :3]
    assert (alike.argmax(), opposite.argmax()) == (2, 0)


def test_an_svg_of_a_large_matrix_is_small(saved):
    """Noise, which cannot be packed, takes a colour of 24 bits for each cell, in base64; and little else."""
    values = RNG.random((624, 624))
    assert len(saved(drawn(Heat("t", values)), ".svg")) < 3 * 4 / 3 * 1.1 * values.size


def test_a_picture_has_its_pixels():
    (axes,) = drawn(DRAWINGS["picture"]).axes
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()) * 255, png(9, 15, "L")[1], atol=1e-4)
    assert titles(drawn(DRAWINGS["picture"])) == [("t", "what it shows")]


# Requests


@pytest.mark.parametrize("n", [MAX_CELLS, MAX_CELLS + 1])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: TokenValues("t", "x", [1.0] * n, ["a"] * n), "at most 120 tokens, got"),
        (lambda n: Table("t", ["a", "b"], [["c", "d"]] * n), "at most 120 rows and columns, got"),
        (lambda n: Heat("t", np.ones((n, 1)), ["a"] * n, ["b"]), "at most 120 rows and columns, got"),
    ],
)
def test_what_could_not_be_read_is_refused(make, message, n):
    if n <= MAX_CELLS:
        drawn(make(n))
    else:
        with pytest.raises(RequestError, match=f"{message} {n}.*write .html"):
            drawn(make(n))


@pytest.mark.slow
def test_pyplot_is_not_needed():
    code = "import sys, heedful.explain.drawing.on_figure; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
