"""Bars and tables of tokens: what is drawn is the numbers."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from heedful.errors import RequestError
from heedful.explain.canvas import shortened
from heedful.explain.heat_map import MOST_CELLS, colours
from heedful.explain.token_drawings import GIVEN, PREDICTED, check_rows, depth_table, loss_bars, signed_bars

TOKENS = ["naan", "$x$", "<sep>", "a\x07"]
COSTS = [0.5, 2.25, 0.0, 1.0]
IS_GIVEN = [True, True, False, False]
DEPTHS = ["embeddings", "layer 1", "layer 2"]
SAID = [["a", "naan", "naan"], ["b", "$x$", "y"], ["<sep>"] * 3, ["z", "transformation", "transformations"]]
SHARES = np.linspace(0, 1, 12).reshape(4, 3)

FIGURES = {
    "costs": lambda: loss_bars(TOKENS, COSTS, IS_GIVEN, mean=0.5, title="t " * 99, note="n"),
    "signed": lambda: signed_bars(
        [("a", TOKENS, [-1, 2, 0, 3]), ("b", TOKENS[:1], [5])], title="t", note="n"
    ),
    "depths": lambda: depth_table(TOKENS, DEPTHS, SAID, SHARES, title="t " * 99, note="n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("name", FIGURES)
def test_equal_figures_give_equal_bytes(name, suffix, saved):
    assert saved(FIGURES[name](), suffix) == saved(FIGURES[name](), suffix)


@pytest.mark.parametrize("name", FIGURES)
def test_all_of_it_is_on_the_page_on_white(name, drawn_on_white):
    drawn_on_white(FIGURES[name]())


# What tokens cost


def test_every_token_has_a_bar_as_long_as_its_cost():
    axes = FIGURES["costs"]().axes[0]
    assert [bar.get_width() for bar in axes.patches] == COSTS
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


def test_the_legend_has_what_occurs():
    axes = loss_bars(TOKENS, COSTS, [False] * 4).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["predicted"]
    assert not axes.lines


def test_what_cost_nothing_has_a_scale_all_the_same():
    assert loss_bars(["a"], [0.0], [True]).axes[0].get_xlim()[1] > 0


# What every depth would have answered


def test_a_cell_has_what_was_said_and_the_colour_of_its_probability():
    figure = FIGURES["depths"]()
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), SHARES)
    assert axes.images[0].get_clim() == (0, 1)
    texts = {tuple(map(round, text.get_position())): text for text in axes.texts}
    for row, column in np.ndindex(4, 3):
        text = texts[column, row]
        assert text.get_text() == shortened(SAID[row][column], 14)
        assert text.get_weight() == ("bold" if SAID[row][column] == TOKENS[row] else "normal")
        assert not text.get_parse_math()
    assert [label.get_text() for label in axes.get_xticklabels()] == DEPTHS
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        shortened(token, 28) for token in TOKENS
    ]
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    for (row, column), share in np.ndenumerate(SHARES):
        x, y = axes.transData.transform((column - 0.46, row - 0.4))
        wanted = np.array(colours()(share)[:3]) * 255
        assert np.abs(drawn[len(drawn) - 1 - int(y), int(x)] - wanted).max() <= 2


def test_texts_stay_in_their_cells():
    figure = FIGURES["depths"]()
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
    assert shortened(text, 4) == wanted


# Requests


@pytest.mark.parametrize(
    ("draw", "given"),
    [
        (signed_bars, [[]]),
        (signed_bars, [[("a", ["x"], [1.0, 2.0])]]),
        (loss_bars, [[], [], []]),
        (loss_bars, [["a"], [1.0], []]),
        (depth_table, [[], [], [], []]),
        (depth_table, [["a"], ["x", "y"], [["a", "b"]], [[0.5]]]),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, given):
    with pytest.raises(ValueError):
        draw(*given)


def test_what_could_not_be_read_is_refused():
    check_rows(MOST_CELLS)
    with pytest.raises(RequestError, match=f"at most {MOST_CELLS} tokens, got {MOST_CELLS + 1}; write .html"):
        check_rows(MOST_CELLS + 1)
