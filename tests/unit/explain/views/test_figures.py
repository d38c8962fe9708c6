"""Figures of views: arrays on the axes are the numbers, and equal figures give equal files."""

import re
import subprocess
import sys
from importlib.resources import files
from io import BytesIO
from math import log

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from PIL import Image

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.drawing.canvas import MAX_CELLS, PAGE_COLOURS, check_rows, colours, page_colours, shorten
from heedful.explain.drawing.heat_map import UNIFORM_COLOUR, attention_panels, save
from heedful.explain.explanation import Explanation
from heedful.explain.patterns.census import Census, HeadPattern
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.views import view_module
from heedful.explain.views.losses import GIVEN, PREDICTED
from heedful.tasks.model_input import Axis

RNG = np.random.default_rng(3)
DISTANCES = RNG.random((5, 7)) * 100
GRID = RNG.dirichlet(np.ones(15)).reshape(3, 5)
SIMILARITY = np.clip(RNG.normal(size=(3, 5, 3, 5)), -1, 1)
TILES = RNG.random((8, 5, 5, 3))
HEADS = RNG.dirichlet(np.ones(5), (2, 3, 7)).astype(np.float32)  # 2 layers of 3 heads, 7 x 5 cells
TOKENS = ["naan", "$x$", "<sep>", "a\x07"]
LOSSES = [0.5, 2.25, 0.0, 1.0]
IS_GIVEN = [True, True, False, False]
DEPTHS = ["embeddings", "layer 1", "layer 2"]
PREDICTIONS = [["a", "naan", "naan"], ["b", "$x$", "y"], ["<sep>"] * 3]
PREDICTIONS += [["z", "transformation", "transformations"]]
SHARES = np.linspace(0, 1, 12).reshape(4, 3).round(6)
LONG = "t " * 99


def explanation(maps=(), title="", **axes):
    return Explanation("t", "r", "i", {"text": title}, axes, maps)


def axis(n):
    return Axis(tuple(f"w{i}" for i in range(n)))


def heads(*stacks, title=""):
    """The figure of stacks of weights ``[layers, heads, queries, keys]``."""
    maps, axes = [], {}
    for n, weights in enumerate(stacks):
        queries, keys = f"queries{n}", f"keys{n}"
        axes |= {queries: axis(weights.shape[2]), keys: axis(weights.shape[3])}
        for layer, own in enumerate(weights):
            numbers = tuple(range(len(own)))
            maps.append(
                AttentionMap(f"{n}.{layer}", "cross", layer, queries, keys, numbers, own.astype(np.float32))
            )
    return view_module("heads").figure(explanation(maps, title, **axes), {})


def with_mean(weights):
    weights = weights.astype(float)
    return np.concatenate([weights, weights.mean(axis=1, keepdims=True)], axis=1)


def head(layer, number, pattern, kind="self"):
    return HeadPattern(layer, kind, number, pattern, None, None, (), "tap", (), None, None, None, {})


def census(*heads):
    return view_module("census").figure(explanation(), Census("t", "r", 1, 0.5, heads).to_dict())


def all_classes():
    return census(
        *(head(n // 4, n % 4, pattern) for n, pattern in enumerate(CLASSES)),
        head(1, 2, "separator", "cross"),
    )


def stack(distances, even=None, unit="pixels", kind="self", numbers=None):
    layers = [
        {"layer": number - 1, "distances": own}
        for number, own in zip(numbers or range(1, 99), distances.tolist(), strict=False)
    ]
    return {"side": "input", "kind": kind, "unit": unit, "even": even, "layers": layers}


def distances(*stacks):
    return view_module("distances").figure(explanation(), {"stacks": stacks})


def positions(similarity, grid=None):
    values = {"sides": [{"name": "input", "similarity": similarity.tolist()}]}
    tokens = tuple(str(n) for n in range(len(similarity)))
    return view_module("positions").figure(explanation(input=Axis(tokens, grid=grid)), values)


def filters(tiles):
    values = {"tiles": tiles.tolist(), "shares": [0.1] * len(tiles)}
    return view_module("filters").figure(explanation(), values)


def losses(tokens, own, given, mean=None, title=""):
    values = {"answers": tokens, "losses": own, "given": given, "mean": mean, "perplexity": mean}
    return view_module("losses").figure(explanation(title=title), values)


def gradients(*texts):
    axes = {name: Axis(tuple(tokens)) for name, tokens, _ in texts}
    sides = [{"name": name, "products": products} for name, _, products in texts]
    return view_module("gradients").figure(explanation(title="t", **axes), {"sides": sides})


def lens(answers, predicted, shares, title=""):
    depths = [
        {
            "top": [
                [{"answer": word, "log_prob": log(share) if share else None}]
                for word, share in zip(words, own, strict=True)
            ]
        }
        for words, own in zip(zip(*predicted, strict=True), np.transpose(shares).tolist(), strict=True)
    ]
    return view_module("lens").figure(explanation(title=title), {"answers": answers, "depths": depths})


def png(height, width, mode="RGB"):
    pixels = np.arange(height * width * len(mode)) % 251
    shape = (height, width, len(mode)) if len(mode) > 1 else (height, width)
    stream = BytesIO()
    Image.fromarray(pixels.reshape(shape).astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue(), pixels.reshape(shape)


FIGURES = {
    "heads": lambda: heads(HEADS, HEADS[:1], title="t"),
    "census": all_classes,
    "distances": lambda: distances(stack(DISTANCES, 37.0)),
    "stacks": lambda: distances(stack(DISTANCES, 1.5, "tokens"), stack(DISTANCES[:2], kind="causal")),
    "layers": lambda: attention_panels(
        [(f"layer {n}", GRID * n) for n in range(1, 6)], png(9, 15)[0], among=16, title="t", note="n"
    ),
    "image": lambda: attention_panels([("", GRID)], png(9, 15)[0]),
    "map alone": lambda: attention_panels([("", GRID)]),
    "positions": lambda: positions(SIMILARITY.reshape(15, 15), (3, 5)),
    "filters": lambda: filters(TILES),
    "losses": lambda: losses(TOKENS, LOSSES, IS_GIVEN, 0.5, LONG),
    "gradients": lambda: gradients(("a", TOKENS, [-1, 2, 0, 3]), ("b", TOKENS[:1], [5])),
    "lens": lambda: lens(TOKENS, PREDICTIONS, SHARES, LONG),
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
    figure = all_classes()
    own, cross = figure.axes
    assert own.get_title() == "self attention"
    cells = np.asarray(own.images[0].get_array())
    assert cells.shape == (3, 4, 4)
    signs = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in own.texts}
    for number, pattern in enumerate(CLASSES):
        place = divmod(number, 4)
        assert signs[place] == CLASSES[pattern].sign
        np.testing.assert_allclose(cells[place], to_rgba(CLASSES[pattern].colour), atol=1e-6)
    # A head that was not looked at stays empty.
    assert (2, 3) not in signs
    np.testing.assert_array_equal(cells[2, 3], 1)
    assert cross.get_title() == "cross attention"
    assert [text.get_text() for text in cross.texts] == ["S"]
    assert np.asarray(cross.images[0].get_array()).shape == (2, 4, 4)


def test_layers_and_heads_count_from_one_and_the_first_layer_is_above():
    figure = all_classes()
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]
    assert axes.yaxis_inverted()


def test_the_legend_has_what_occurs():
    figure = census(head(0, 0, "broad"), head(0, 1, "next token"), head(1, 0, "broad"))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["N  next token", "B  broad"]


def test_classes_differ_in_sign_and_colour():
    for field in zip(*CLASSES.values(), strict=True):
        assert len(set(field)) == len(CLASSES)


# All heads


def test_the_colours_are_those_of_the_page():
    style = files("heedful.explain.page").joinpath("page.css").read_text("utf-8")
    assert tuple(re.findall(r"--plus-\d: light-dark\((#\w{6})", style)) == PAGE_COLOURS
    colours = page_colours()
    for number, colour in enumerate(PAGE_COLOURS):
        np.testing.assert_allclose(colours(number / 7), to_rgba(colour), atol=1.5 / 255)


def test_a_thumbnail_lies_in_the_row_of_its_layer_and_the_column_of_its_head():
    scaled = HEADS[:1, :2] / 9
    first, other = (axes for axes in heads(HEADS, scaled).axes if axes.get_title(loc="left"))
    # 48 // 7 = 6 pixels for a cell downwards, 48 // 5 = 9 across; then three between.
    for axes, cells in ((first, with_mean(HEADS)), (other, with_mean(scaled))):
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
    name = "cross-attention of the queries0 to the keys0 (7 \N{MULTIPLICATION SIGN} 5 tokens)"
    assert first.get_title(loc="left") == name
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "2", "3", "mean"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["1", "2"]
    np.testing.assert_allclose(first.get_xticks(), [23, 71, 119, 167])
    np.testing.assert_allclose(first.get_yticks(), [21.5, 66.5])


def test_a_cell_has_the_colour_of_the_patch_root_of_its_weight():
    cells = with_mean(HEADS)
    cells[1, 1] = np.nan
    cells[1, 3] = cells[1, [0, 2]].mean(axis=0)
    maps = [
        AttentionMap("0", "self", 0, "a", "b", (0, 1, 2), HEADS[0]),
        AttentionMap("1", "self", 1, "a", "b", (0, 2), HEADS[1, [0, 2]]),
    ]
    figure = view_module("heads").figure(explanation(maps, a=axis(7), b=axis(5)), {})
    axes = figure.axes[0]
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    for layer, number, row, column in np.ndindex(cells.shape):
        place = 48 * number + 9 * column + 5, 45 * layer + 6 * row + 3.5
        x, y = axes.transData.transform(place)
        share = cells[layer, number, row, column] / np.nanmax(cells)
        wanted = np.array(page_colours()(np.sqrt(share) if np.isfinite(share) else np.nan)[:3]) * 255
        assert np.abs(drawn[len(drawn) - 1 - int(y), int(x)] - wanted).max() <= 4


@pytest.mark.parametrize(
    "rows, columns, aspect", [(7, 5, 5 / 7), (5, 5, 1), (5, 7, 7 / 5), (12, 3, 0.5), (3, 12, 2)]
)
def test_thumbnails_have_the_aspect_of_their_matrix_within_limits(rows, columns, aspect):
    figure = heads(RNG.dirichlet(np.ones(columns), (2, 3, rows)))
    figure.canvas.draw()
    box = figure.axes[0].get_window_extent()
    assert box.width / 4 / (box.height / 2) == pytest.approx(aspect, rel=0.08)  # the lines between


def test_heads_without_any_weight_are_white():
    (image,) = heads(np.zeros((1, 1, 2, 2))).axes[0].images
    assert image.norm.vmax == 1


def test_an_svg_of_many_heads_is_small(tmp_path):
    """Noise, which cannot be packed, takes a colour of 24 bits for each cell, in base64; and little else."""
    cells = RNG.dirichlet(np.ones(48), (12, 13, 48))
    save(heads(cells), tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size < 3 * 4 / 3 * 1.1 * with_mean(cells).size


# Numbers


def test_every_head_has_a_point_at_its_layer():
    axes = distances(stack(DISTANCES, unit="tokens")).axes[0]
    points = np.asarray(axes.collections[0].get_offsets())
    wanted = [(layer + 1, DISTANCES[layer, number]) for layer in range(5) for number in range(7)]
    np.testing.assert_allclose(points, wanted)
    assert "tokens" in axes.get_ylabel()
    assert axes.get_ylim()[0] == 0
    assert not axes.lines


def test_even_attention_is_a_line():
    axes = distances(stack(DISTANCES, 37.0)).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [37.0, 37.0])


def test_each_stack_has_its_panel():
    one, other = distances(stack(DISTANCES, 1.5, "tokens"), stack(DISTANCES[:2], kind="causal")).axes
    assert one.get_title() == "self-attention of the input"
    assert other.get_title() == "causal self-attention of the input"
    assert "tokens" in one.get_ylabel()
    assert len(other.collections[0].get_offsets()) == 14
    assert (len(one.lines), len(other.lines)) == (1, 0)


def test_layers_stand_at_their_numbers():
    numbers = [(1, 3, 5), (4,)]
    stacks = [stack(DISTANCES[: len(own)], numbers=own) for own in numbers]
    for axes, own in zip(distances(*stacks).axes, numbers, strict=True):
        points = np.asarray(axes.collections[0].get_offsets())
        wanted = [(layer, DISTANCES[n, head]) for n, layer in enumerate(own) for head in range(7)]
        np.testing.assert_allclose(points, wanted)
        assert axes.get_xticks().tolist() == list(own)


# Attention over an image


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
    figure = attention_panels([("", GRID)], file)
    photo, weights, _ = figure.axes
    wanted = 255 * colours()(GRID / GRID.max())[..., :3]
    assert np.abs(seen_in(figure, weights, 3, 5) - wanted).max() <= 2
    middle = pixels[1::3, 1::3]
    assert np.abs(seen_in(figure, photo, 3, 5) - middle.reshape(3, 5, -1)).max() <= 2
    assert tuple(photo.images[0].get_extent()) == tuple(weights.images[0].get_extent())


def test_the_bar_has_the_colours_of_the_cells_and_a_line_at_even_attention():
    figure = attention_panels([("", GRID)], among=17)
    bar = figure.axes[-1]
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    at = np.linspace(0.05, 0.95, 7) * GRID.max()
    at = at[np.abs(at - 1 / 17) > 0.03 * GRID.max()]
    x, y = bar.transData.transform(np.stack([np.full(len(at), 0.5), at], axis=1)).T
    found = drawn[len(drawn) - 1 - y.astype(int), x.astype(int)]
    assert np.abs(found - 255 * colours()(at / GRID.max())[:, :3]).max() <= 3
    (line,) = (line for line in bar.lines if line.get_color() == UNIFORM_COLOUR)
    np.testing.assert_allclose(line.get_ydata(), 1 / 17)
    assert "1/17 = 0.059" in figure.get_supxlabel()


def test_even_attention_is_on_the_scale_even_where_all_is_less():
    axes, bar = attention_panels([("", np.full((3, 5), 0.001))], among=16).axes
    assert axes.images[0].get_clim() == (0, 1 / 16)
    assert bar.get_ylim()[1] >= 1 / 16


def test_no_attention_at_all_can_be_drawn():
    (image,) = attention_panels([("", np.zeros((3, 5)))]).axes[0].images
    assert image.get_clim() == (0, 1)


@pytest.mark.parametrize(
    "maps",
    [
        [],
        [("a", GRID), ("b", GRID.T)],
        [("", [1.0, 2.0])],
        [("", [[-0.1]])],
        [("", [[float("nan")]])],
        [("", np.zeros((0, 3)))],
    ],
)
def test_what_cannot_be_drawn_is_refused(maps):
    with pytest.raises(ValueError):
        attention_panels(maps)


# Positions and filters


def test_small_maps_lie_where_their_patches_lie():
    drawn = np.ma.filled(positions(SIMILARITY.reshape(15, 15), (3, 5)).axes[0].images[0].get_array(), np.nan)
    assert drawn.shape == (3 * 4 - 1, 5 * 6 - 1)
    for row, column in np.ndindex(3, 5):
        part = drawn[4 * row : 4 * row + 3, 6 * column : 6 * column + 5]
        np.testing.assert_array_equal(part, SIMILARITY[row, column])
    np.testing.assert_array_equal(np.isnan(drawn[3]), True)
    np.testing.assert_array_equal(np.isnan(drawn[:, 5]), True)
    flat = SIMILARITY.reshape(15, 15)
    image = positions(flat).axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), flat)
    assert image.get_clim() == (-1, 1)


@pytest.mark.slow
def test_alike_is_blue_and_opposite_is_red_as_on_the_page():
    image = positions(SIMILARITY.reshape(15, 15), (3, 5)).axes[0].images[0]
    alike, opposite = image.to_rgba(np.array([1.0, -1.0]))[:, :3]
    assert alike.argmax() == 2
    assert opposite.argmax() == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_stand_left_to_right_and_downwards(channels, monkeypatch):
    monkeypatch.setattr("heedful.explain.views.filters.COLUMNS", 3)
    tiles = TILES[..., :channels]
    drawn = np.asarray(filters(tiles).axes[0].images[0].get_array())
    assert drawn.shape == (3 * 6 - 1, 3 * 6 - 1, 3)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, 3)
        part = drawn[6 * row : 6 * row + 5, 6 * column : 6 * column + 5]
        np.testing.assert_array_equal(part, np.broadcast_to(tile, (5, 5, 3)))
    assert (drawn[12:, 12:] == 1).all()  # there are eight
    assert filters(tiles[:2]).axes[0].images[0].get_array().shape == (5, 11, 3)


# Losses


def test_every_token_has_a_bar_as_long_as_its_loss():
    axes = FIGURES["losses"]().axes[0]
    assert [bar.get_width() for bar in axes.patches] == LOSSES
    assert [bar.get_facecolor() for bar in axes.patches] == [to_rgba(GIVEN)] * 2 + [to_rgba(PREDICTED)] * 2
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    np.testing.assert_allclose(middles, axes.get_yticks())
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        *TOKENS[:3],
        "a\N{REPLACEMENT CHARACTER}",
    ]
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())
    assert [text.get_text() for text in axes.texts] == ["0.50", "2.25", "0.00", "1.00"]
    assert axes.yaxis_inverted()
    assert axes.get_xlim()[0] == 0
    (line,) = axes.lines
    assert set(line.get_xdata()) == {0.5}
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == ["predicted", "given", "mean 0.50"]


def test_the_legend_of_losses_has_what_occurs():
    axes = losses(TOKENS, LOSSES, [False] * 4).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["predicted"]
    assert not axes.lines


def test_losses_of_zero_have_a_scale():
    assert losses(["a"], [0.0], [True]).axes[0].get_xlim()[1] > 0


# Lens


def test_a_cell_has_the_answer_and_the_colour_of_its_probability():
    figure = FIGURES["lens"]()
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), SHARES)
    assert axes.images[0].get_clim() == (0, 1)
    texts = {tuple(map(round, text.get_position())): text for text in axes.texts}
    for row, column in np.ndindex(4, 3):
        text = texts[column, row]
        assert text.get_text() == shorten(PREDICTIONS[row][column], 14)
        assert text.get_weight() == ("bold" if PREDICTIONS[row][column] == TOKENS[row] else "normal")
        assert not text.get_parse_math()
    assert [label.get_text() for label in axes.get_xticklabels()] == DEPTHS
    assert [label.get_text() for label in axes.get_yticklabels()] == [shorten(token, 28) for token in TOKENS]
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    for (row, column), share in np.ndenumerate(SHARES):
        x, y = axes.transData.transform((column - 0.46, row - 0.4))
        wanted = np.array(colours()(share)[:3]) * 255
        assert np.abs(drawn[len(drawn) - 1 - int(y), int(x)] - wanted).max() <= 2


def test_texts_stay_in_their_cells():
    figure = FIGURES["lens"]()
    figure.canvas.draw()
    axes = figure.axes[0]
    for text in axes.texts:
        column, row = text.get_position()
        box = text.get_window_extent()
        (left, low), (right, high) = (axes.transData.transform((column + d, row - d)) for d in (-0.5, 0.5))
        assert left < box.x0 < box.x1 < right
        assert low < box.y0 < box.y1 < high


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("abcd", "abcd"), ("abcde", "abc\N{HORIZONTAL ELLIPSIS}"), ("a\n", "a\ufffd"), ("", "")],
)
def test_long_texts_are_shortened(text, wanted):
    assert shorten(text, 4) == wanted


# Requests


def test_what_could_not_be_read_is_refused():
    check_rows(MAX_CELLS)
    with pytest.raises(RequestError, match=f"at most {MAX_CELLS} tokens, got {MAX_CELLS + 1}; write .html"):
        check_rows(MAX_CELLS + 1)


@pytest.mark.slow
def test_pyplot_is_not_needed():
    code = "import sys, heedful.explain.drawing.heat_map; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
