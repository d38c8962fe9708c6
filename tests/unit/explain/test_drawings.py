"""The drawings: arrays on the axes are the numbers, and equal figures give equal files."""

import re
import subprocess
import sys
from importlib.resources import files
from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from PIL import Image

from heedful.explain.canvas import PAGE, page_colours
from heedful.explain.classes import MEANINGS, PATTERNS, SIGNS
from heedful.explain.drawings import (
    COLOURS,
    EVEN,
    HeadGrid,
    attention_over,
    attention_panels,
    census_map,
    distance_chart,
    distance_panels,
    filter_tiles,
    head_grids,
    similarity_map,
)
from heedful.explain.heat_map import colours, save
from heedful.explain.patches import mosaic
from heedful.explain.patterns import Census, HeadPattern

RNG = np.random.default_rng(3)
DISTANCES = RNG.random((5, 7)) * 100
GRID = RNG.dirichlet(np.ones(15)).reshape(3, 5)
SIMILARITY = np.clip(RNG.normal(size=(3, 5, 3, 5)), -1, 1)
TILES = RNG.random((8, 5, 5, 3))
HEADS = RNG.dirichlet(np.ones(5), (2, 3, 7))  # 2 layers of 3 heads, 7 x 5 cells


def grid(cells=HEADS, name="self-attention", aspect=0.7):
    layers, heads = cells.shape[:2]
    return HeadGrid(name, [str(n + 1) for n in range(layers)], [f"h{n}" for n in range(heads)], cells, aspect)


def head(layer, number, pattern, kind="self"):
    return HeadPattern(layer, kind, number, pattern, None, None, (), "tap", (), None, None, None, {})


def census(*heads):
    return Census("t", "r", 1, 0.5, heads)


def all_patterns():
    return census(
        *(head(n // 4, n % 4, pattern) for n, pattern in enumerate(PATTERNS)),
        head(1, 2, "separator", "cross"),
    )


def png(height, width, mode="RGB"):
    pixels = np.arange(height * width * len(mode)) % 251
    shape = (height, width, len(mode)) if len(mode) > 1 else (height, width)
    stream = BytesIO()
    Image.fromarray(pixels.reshape(shape).astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue(), pixels.reshape(shape)


FIGURES = {
    "heads": lambda: head_grids([grid(), grid(HEADS[:1], "cross", 2.0)], title="t", note="n"),
    "census": lambda: census_map(all_patterns()),
    "distances": lambda: distance_chart(DISTANCES, even=37.0),
    "stacks": lambda: distance_panels(
        [("a", "tokens", DISTANCES, 1.5), ("b", "pixels", DISTANCES[:2], None)]
    ),
    "layers": lambda: attention_panels(
        [(f"layer {n}", GRID * n) for n in range(1, 6)], png(9, 15)[0], among=16, title="t", note="n"
    ),
    "image": lambda: attention_over(GRID, png(9, 15)[0]),
    "map alone": lambda: attention_over(GRID),
    "similarity": lambda: similarity_map(SIMILARITY, "a title"),
    "filters": lambda: filter_tiles(TILES, title="a title"),
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("name", FIGURES)
def test_equal_figures_give_equal_bytes(name, suffix, saved):
    assert saved(FIGURES[name](), suffix) == saved(FIGURES[name](), suffix)


@pytest.mark.parametrize("name", FIGURES)
def test_all_of_it_is_on_the_page_on_white(name, drawn_on_white):
    assert (drawn_on_white(FIGURES[name]()) != 255).any()


# Census


def test_every_head_has_its_sign_and_colour():
    figure = census_map(all_patterns())
    own, cross = figure.axes
    assert own.get_title() == "self attention"
    cells = np.asarray(own.images[0].get_array())
    assert cells.shape == (3, 4, 4)
    signs = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in own.texts}
    for number, pattern in enumerate(PATTERNS):
        place = divmod(number, 4)
        sign, colour = SIGNS[pattern], COLOURS[pattern]
        assert signs[place] == sign
        np.testing.assert_allclose(cells[place], to_rgba(colour), atol=1e-6)
    # A head that was not looked at stays empty.
    assert (2, 3) not in signs
    np.testing.assert_array_equal(cells[2, 3], 1)
    assert cross.get_title() == "cross attention"
    assert [text.get_text() for text in cross.texts] == ["S"]
    assert np.asarray(cross.images[0].get_array()).shape == (2, 4, 4)


def test_layers_and_heads_count_from_one_and_the_first_layer_is_above():
    figure = census_map(all_patterns())
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]
    assert axes.yaxis_inverted()


def test_the_legend_has_what_occurs():
    figure = census_map(census(head(0, 0, "broad"), head(0, 1, "next token"), head(1, 0, "broad")))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["N  next token", "B  broad"]


def test_patterns_are_told_apart():
    assert SIGNS.keys() == COLOURS.keys() == MEANINGS.keys() == set(PATTERNS)
    assert len(set(SIGNS.values())) == len(set(COLOURS.values())) == len(PATTERNS)


# All heads


def test_the_colours_are_those_of_the_page():
    style = files("heedful.explain.page").joinpath("page.css").read_text("utf-8")
    assert tuple(re.findall(r"--plus-\d: light-dark\((#\w{6})", style)) == PAGE
    colours = page_colours()
    for number, colour in enumerate(PAGE):
        np.testing.assert_allclose(colours(number / 7), to_rgba(colour), atol=1.5 / 255)


def test_a_thumbnail_lies_in_the_row_of_its_layer_and_the_column_of_its_head():
    first, other = (
        axes for axes in head_grids([grid(), grid(HEADS[:1, :2] / 9, "b")]).axes if axes.get_title(loc="left")
    )
    # 48 // 7 = 6 pixels for a cell downwards, 48 // 5 = 9 across; then three between.
    for axes, cells in ((first, HEADS), (other, HEADS[:1, :2] / 9)):
        drawn = np.ma.filled(axes.images[0].get_array(), np.nan)
        assert drawn.shape == (cells.shape[0] * 45 - 1, cells.shape[1] * 48 - 1)
        is_there = np.zeros(drawn.shape, bool)
        for layer, number in np.ndindex(cells.shape[:2]):
            where = np.s_[45 * layer + 1 : 45 * layer + 43, 48 * number + 1 : 48 * number + 46]
            np.testing.assert_array_equal(
                drawn[where].reshape(7, 6, 5, 9),
                cells[layer, number][:, None, :, None] * np.ones((7, 6, 5, 9)),
            )
            is_there[where] = True
        np.testing.assert_array_equal(np.isnan(drawn), ~is_there)
        assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == (0, cells.max())
    assert first.get_title(loc="left") == "self-attention"
    assert [label.get_text() for label in first.get_xticklabels()] == ["h0", "h1", "h2"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["1", "2"]
    np.testing.assert_allclose(first.get_xticks(), [23, 71, 119])
    np.testing.assert_allclose(first.get_yticks(), [21.5, 66.5])


def test_a_cell_has_the_colour_of_the_patch_root_of_its_weight():
    cells = HEADS.copy()
    cells[1, 2] = np.nan
    figure = head_grids([grid(cells)])
    axes = figure.axes[0]
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    for layer, number, row, column in np.ndindex(cells.shape):
        place = 48 * number + 9 * column + 5, 45 * layer + 6 * row + 3.5
        x, y = axes.transData.transform(place)
        share = cells[layer, number, row, column] / np.nanmax(cells)
        wanted = np.array(page_colours()(np.sqrt(share) if np.isfinite(share) else np.nan)[:3]) * 255
        assert np.abs(drawn[len(drawn) - 1 - int(y), int(x)] - wanted).max() <= 4


@pytest.mark.parametrize("aspect", [0.5, 1.0, 2.0])
def test_thumbnails_are_as_wide_as_they_are_told_to_be(aspect):
    figure = head_grids([grid(aspect=aspect)])
    figure.canvas.draw()
    box = figure.axes[0].get_window_extent()
    assert box.width / 3 / (box.height / 2) == pytest.approx(aspect, rel=0.08)  # the lines between


def test_heads_without_any_weight_are_white():
    (image,) = head_grids([grid(np.zeros((1, 1, 2, 2)))]).axes[0].images
    assert image.norm.vmax == 1


def test_an_svg_of_many_heads_is_small(tmp_path):
    """Noise, which cannot be packed, takes a colour of 24 bits for each cell, in base64; and little else."""
    cells = RNG.dirichlet(np.ones(48), (12, 13, 48))
    save(head_grids([grid(cells)]), tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size < 3 * 4 / 3 * 1.1 * cells.size


# Numbers


def test_every_head_has_a_point_at_its_layer():
    axes = distance_chart(DISTANCES, unit="tokens").axes[0]
    points = np.asarray(axes.collections[0].get_offsets())
    wanted = [(layer + 1, DISTANCES[layer, number]) for layer in range(5) for number in range(7)]
    np.testing.assert_allclose(points, wanted)
    assert "tokens" in axes.get_ylabel()
    assert axes.get_ylim()[0] == 0
    assert not axes.lines


def test_even_attention_is_a_line():
    axes = distance_chart(DISTANCES, even=37.0).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [37.0, 37.0])


def test_each_stack_has_its_panel():
    one, other = distance_panels([("a", "tokens", DISTANCES, 1.5), ("b", "pixels", DISTANCES[:2], None)]).axes
    assert (one.get_title(), other.get_title()) == ("a", "b")
    assert "tokens" in one.get_ylabel()
    assert len(other.collections[0].get_offsets()) == 14
    assert (len(one.lines), len(other.lines)) == (1, 0)


def test_layers_stand_at_their_numbers():
    panels = [("a", "tokens", DISTANCES[:3], None), ("b", "tokens", DISTANCES[:1], None)]
    numbers = [(1, 3, 5), (4,)]
    for axes, own in zip(distance_panels(panels, numbers).axes, numbers, strict=True):
        points = np.asarray(axes.collections[0].get_offsets())
        wanted = [(layer, DISTANCES[n, head]) for n, layer in enumerate(own) for head in range(7)]
        np.testing.assert_allclose(points, wanted)
        assert axes.get_xticks().tolist() == list(own)
    with pytest.raises(ValueError, match=r"expected 3 layer numbers, .* got 2"):
        distance_panels(panels[:1], [(1, 3)])


def test_layers_stand_side_by_side_on_one_scale():
    grids = [(f"layer {n}", GRID * n) for n in range(1, 6)]
    panels = [axes for axes in attention_panels(grids).axes if axes.images and axes.get_title()]
    assert [axes.get_title() for axes in panels] == [name for name, _ in grids]
    for axes, (_, grid) in zip(panels, grids, strict=True):
        np.testing.assert_array_equal(np.asarray(axes.images[-1].get_array()), grid)
        assert axes.images[-1].get_clim() == (0, 5 * GRID.max())


def seen_in(figure, axes, rows, columns):
    """What is drawn in the middle of each cell of a panel, ``[rows, columns, 3]``."""
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    row, column = np.mgrid[:rows, :columns]
    x, y = axes.transData.transform(np.stack([column.ravel(), row.ravel()], axis=1)).T
    return drawn[len(drawn) - 1 - y.astype(int), x.astype(int)].reshape(rows, columns, 3)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_what_is_seen_is_the_weights_and_the_image_beside_them(mode):
    file, pixels = png(9, 15, mode)
    figure = attention_over(GRID, file)
    photo, weights, _ = figure.axes
    wanted = 255 * colours()(GRID / GRID.max())[..., :3]
    assert np.abs(seen_in(figure, weights, 3, 5) - wanted).max() <= 2
    middle = pixels[1::3, 1::3]
    assert np.abs(seen_in(figure, photo, 3, 5) - middle.reshape(3, 5, -1)).max() <= 2
    assert tuple(photo.images[0].get_extent()) == tuple(weights.images[0].get_extent())


def test_the_bar_has_the_colours_of_the_cells_and_a_line_at_even_attention():
    figure = attention_over(GRID, among=17)
    bar = figure.axes[-1]
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    at = np.linspace(0.05, 0.95, 7) * GRID.max()
    at = at[np.abs(at - 1 / 17) > 0.03 * GRID.max()]
    x, y = bar.transData.transform(np.stack([np.full(len(at), 0.5), at], axis=1)).T
    found = drawn[len(drawn) - 1 - y.astype(int), x.astype(int)]
    assert np.abs(found - 255 * colours()(at / GRID.max())[:, :3]).max() <= 3
    (line,) = (line for line in bar.lines if line.get_color() == EVEN)
    np.testing.assert_allclose(line.get_ydata(), 1 / 17)
    assert "1/17 = 0.059" in figure.get_supxlabel()


def test_even_attention_is_on_the_scale_even_where_all_is_less():
    axes, bar = attention_over(np.full((3, 5), 0.001), among=16).axes
    assert axes.images[0].get_clim() == (0, 1 / 16)
    assert bar.get_ylim()[1] >= 1 / 16


def test_no_attention_at_all_can_be_drawn():
    (image,) = attention_over(np.zeros((3, 5))).axes[0].images
    assert image.get_clim() == (0, 1)


def test_small_maps_lie_where_their_patches_lie():
    drawn = np.ma.filled(similarity_map(SIMILARITY).axes[0].images[0].get_array(), np.nan)
    assert drawn.shape == (3 * 4 - 1, 5 * 6 - 1)
    for row, column in np.ndindex(3, 5):
        part = drawn[4 * row : 4 * row + 3, 6 * column : 6 * column + 5]
        np.testing.assert_array_equal(part, SIMILARITY[row, column])
    np.testing.assert_array_equal(np.isnan(drawn[3]), True)
    np.testing.assert_array_equal(np.isnan(drawn[:, 5]), True)
    flat = SIMILARITY.reshape(15, 15)
    image = similarity_map(flat).axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), flat)
    assert image.get_clim() == (-1, 1)


@pytest.mark.slow
def test_alike_is_blue_and_opposite_is_red_as_on_the_page():
    image = similarity_map(SIMILARITY).axes[0].images[0]
    alike, opposite = image.to_rgba(np.array([1.0, -1.0]))[:, :3]
    assert alike.argmax() == 2
    assert opposite.argmax() == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_stand_left_to_right_and_downwards(channels):
    tiles = TILES[..., :channels]
    drawn = np.asarray(filter_tiles(tiles, columns=3).axes[0].images[0].get_array())
    assert drawn.shape == (3 * 6 - 1, 3 * 6 - 1, 3)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, 3)
        part = drawn[6 * row : 6 * row + 5, 6 * column : 6 * column + 5]
        np.testing.assert_array_equal(part, np.broadcast_to(tile, (5, 5, 3)))
    assert (drawn[12:, 12:] == 1).all()  # there are eight
    assert filter_tiles(tiles[:2]).axes[0].images[0].get_array().shape == (5, 11, 3)


def test_a_mosaic_of_one_is_the_map():
    np.testing.assert_array_equal(mosaic(GRID[None, None]), GRID)


# Requests


@pytest.mark.parametrize(
    ("draw", "given"),
    [
        (census_map, census()),
        (head_grids, []),
        (head_grids, [HeadGrid("x", ["1"], ["1", "2"], HEADS)]),
        (distance_chart, [1.0, 2.0]),
        (attention_over, [1.0, 2.0]),
        (attention_panels, []),
        (attention_panels, [("a", GRID), ("b", GRID.T)]),
        (attention_over, [[-0.1]]),
        (attention_over, [[float("nan")]]),
        (attention_over, np.zeros((0, 3))),
        (similarity_map, np.zeros((3, 5))),
        (similarity_map, np.zeros((3, 5, 5, 3))),
        (filter_tiles, np.zeros((7, 5, 5))),
        (filter_tiles, np.zeros((7, 5, 5, 2))),
        (filter_tiles, np.zeros((0, 5, 5, 3))),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, given):
    with pytest.raises(ValueError):
        draw(given)


@pytest.mark.slow
def test_pyplot_is_not_needed():
    code = "import sys, heedful.explain.drawings; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
