"""The map in the terminal: what is drawn is read back and compared with the numbers."""

import io
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from heedful.explain.drawing.terminal import (
    ASCII,
    CELL,
    COLOUR,
    COLOURS,
    SHADES,
    choose_style,
    heat_map,
    link_lines,
)
from heedful.explain.summary import AttentionMatrix
from heedful.tasks.model_input import Axis

STYLES = {"colour": COLOUR, "shades": SHADES, "ascii": ASCII}
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
SOURCE = ["I", "enjoyed", "the", "film", "transformers"]
TARGET = ["naan", "transfarmar", "padaththai", "rasiththen"]


def random(rows, columns, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(columns, 0.3), rows)


def plain(text):
    return ESCAPE.sub("", text)


def read_back(text, target, style):
    """The levels drawn in each row, by the row's label; the parts of a wide map are joined."""
    rows = {word: [] for word in target}
    for line in text.splitlines():
        label = line.strip().split(" ")[0]
        if label in rows and not line.strip().startswith(style.line):
            start = line.index(label) + len(label) + 1
            cells = line[start:]
            if style is COLOUR:
                rows[label] += [COLOURS.index(int(c)) for c in re.findall(r"48;5;(\d+)m {3}\x1b\[0m", cells)]
            else:
                cells = cells.ljust(-(-len(cells) // CELL) * CELL)
                found = [cells[i : i + CELL] for i in range(0, len(cells), CELL)]
                rows[label] += [style.levels.index(cell) for cell in found]
    return rows


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@given(seed=st.integers(0, 10_000))
def test_every_cell_shows_its_weight_to_the_nearest_level(style, seed):
    weights = random(4, 5, seed)
    drawn = read_back(heat_map(SOURCE, TARGET, weights, style=style), TARGET, style)
    top = len(style.levels) - 1
    for word, row in zip(TARGET, weights, strict=True):
        levels = drawn[word] + [0] * (5 - len(drawn[word]))  # blanks at the end of a line are not written
        assert np.abs(np.array(levels) / top - row).max() <= 0.5 / top + 1e-12


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_the_ends_of_the_scale(style):
    drawn = read_back(heat_map(["a", "b"], ["c"], [[0.0, 1.0]], style=style), ["c"], style)
    assert drawn["c"] == [0, len(style.levels) - 1]


def test_transposing_is_seen():
    weights = np.zeros((4, 5))
    weights[1, 4] = 1.0
    drawn = read_back(heat_map(SOURCE, TARGET, weights), TARGET, SHADES)
    assert drawn["transfarmar"] == [0, 0, 0, 0, 4]
    assert not any(any(row) for word, row in drawn.items() if word != "transfarmar")


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_every_column_stands_under_its_word(style):
    text = plain(heat_map(SOURCE, TARGET, random(4, 5), style=style))
    lines = text.splitlines()
    for i, word in enumerate(SOURCE):
        place = lines[i].index(word)
        # The line from the word leads down to the middle of its cell.
        assert all(lines[below][place] == style.line for below in range(i + 1, 5))
        margin = max(map(len, TARGET)) + 1
        assert place == margin + i * CELL + CELL // 2


@given(
    st.integers(1, 61),
    st.integers(0, 3),
    st.integers(40, 100),
    st.sampled_from(list(STYLES.values())),
    st.sampled_from(["word", "Donaudampfschifffahrtsgesellschaft", "猫は猫"]),
)
def test_no_line_is_wider_than_the_terminal(columns, rows, width, style, word):
    source = [f"{word}{i}" for i in range(columns)]
    target = [f"{word}{i}" for i in range(rows)]
    weights = np.full((rows, columns), 1.0)
    text = plain(heat_map(source, target, weights, style=style, width=width))
    assert max(cell_len(line) for line in text.splitlines()) <= width
    if style is not COLOUR:
        dark = style.levels[-1].strip()
        assert sum(line.count(dark) for line in text.splitlines()[:-1]) == rows * columns


def test_a_wide_map_goes_on_below_with_all_its_columns():
    source = [f"s{i}" for i in range(53)]
    weights = random(4, 53)
    text = heat_map(source, TARGET, weights, style=ASCII)
    assert re.findall(r"s\d+", text) == source
    drawn = read_back(text, TARGET, ASCII)
    for word, row in zip(TARGET, weights, strict=True):
        assert drawn[word] == [ASCII.level(weight) for weight in row]


def test_colours_darken_step_by_step():
    cube = (0, 95, 135, 175, 215, 255)  # xterm's 6 x 6 x 6 colours begin at place 16

    def luminance(colour):
        red, green, blue = (cube[(colour - 16) // n % 6] for n in (36, 6, 1))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    steps = [luminance(colour) for colour in COLOURS]
    assert all(light > dark for light, dark in pairwise(steps))


class Terminal(io.StringIO):
    """A stream that says what it is asked to."""

    def __init__(self, encoding="utf-8", tty=True):
        super().__init__()
        self._encoding, self._tty = encoding, tty

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return self._tty


@pytest.mark.parametrize(
    ("stream", "environment", "style"),
    [
        (Terminal(), {"TERM": "xterm-256color"}, COLOUR),
        (Terminal(), {"TERM": "xterm-256color", "NO_COLOR": ""}, COLOUR),
        (Terminal(), {"TERM": "xterm", "COLORTERM": "truecolor"}, COLOUR),
        (Terminal(), {"TERM": "xterm-256color", "NO_COLOR": "1"}, SHADES),
        (Terminal(), {"TERM": "dumb"}, SHADES),
        (Terminal(), {}, SHADES),
        (Terminal(tty=False), {"TERM": "xterm-256color"}, SHADES),
        (Terminal(encoding="ascii"), {"TERM": "xterm-256color"}, ASCII),
        (Terminal(encoding="latin-1"), {}, ASCII),
        (Terminal(encoding=None), {}, ASCII),
    ],
)
def test_the_style_fits_the_stream(stream, environment, style):
    assert choose_style(stream, environment) is style


@pytest.mark.parametrize("style", [SHADES, ASCII])
def test_no_colour_means_no_escapes(style):
    assert "\x1b" not in heat_map(SOURCE, TARGET, random(4, 5), style=style)


def test_ascii_is_ascii():
    assert heat_map(SOURCE, ["x" * 40], random(1, 5), style=ASCII, width=44).isascii()


def test_words_cannot_steer_the_terminal():
    text = heat_map(["\x1b[2J", "b\n"], ["\x07c"], [[0.5, 0.5]])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "b\ufffd" in text


@pytest.mark.parametrize("weights", [[[0.5]], [[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5]])
def test_another_shape_is_refused(weights):
    with pytest.raises(ValueError, match=r"must be of shape \(1, 2\)"):
        heat_map(["a", "b"], ["c"], weights)


@pytest.mark.parametrize("weight", [-0.01, 1.01, float("nan"), float("inf")])
def test_what_is_no_weight_is_refused(weight):
    with pytest.raises(ValueError, match="between 0 and 1"):
        heat_map(["a", "b"], ["c"], [[0.5, weight]])


def test_a_row_without_links_says_that_nothing_stands_out():
    even = np.full((1, 300), 1 / 300)
    side = Axis(tuple(f"w{n}" for n in range(300)))
    (line,) = link_lines(AttentionMatrix(Axis(("a",)), side, even, "").strongest())
    assert line == "  a  →  all weights below 0.005"


@pytest.mark.parametrize("word", ["می\u200cخواهم", "👩\u200d🔬", "ශ්\u200dරී"])
def test_joiners_within_words_are_kept(word):
    shown = heat_map([word, "a"], [word, "b"], np.eye(2), style=SHADES)
    assert shown.count(word) == 2
    assert "\ufffd" not in shown


@pytest.mark.parametrize("tokens", [["中文", "ab", "c"], ["ab", "日本語です", "한국어"], ["a" * 30, "b"]])
def test_links_are_aligned_by_the_columns_that_tokens_take(tokens):
    lines = link_lines([(token, [("a", 1.0)]) for token in tokens])
    columns = [cell_len(line[: line.index("→")]) for line in lines]
    assert columns == [2 + max(min(24, max(map(cell_len, tokens))), cell_len(token)) + 2 for token in tokens]


def test_many_tokens_are_listed_in_part():
    rows = [(f"t{i}", [("a", 1.0)]) for i in range(67)]
    *lines, last = link_lines(rows)
    assert [line.split()[0] for line in lines] == [f"t{i}" for i in range(60)]
    assert last == "  and 7 more; --json and --out show all"
    assert len(link_lines(rows[:60])) == 60
