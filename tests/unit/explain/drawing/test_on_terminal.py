"""Drawings in the terminal: numbers, bars, tables within the width, and the strongest of many."""

from itertools import chain
from math import inf, nan

import numpy as np
import pytest
from rich.cells import cell_len

from heedful.explain.drawing.on_terminal import BAR, lines
from heedful.explain.drawing.terminal import ASCII, COLOUR, SHADES
from heedful.explain.drawings import Cell, Heat, PatchPanel, PatchValues, Picture, Table, TokenValues
from heedful.tasks.model_input import Axis

AXES = {"text": Axis(("naan", "b\x07", "</s>")), "image": Axis(tuple("abcdef"), grid=(2, 3))}
GRID = np.array([[0.1, 0.4, 0.0], [0.05, 0.3, 0.15]])


def shown(drawing, style=SHADES, width=80):
    title, *content = lines(drawing, AXES, style=style, width=width)
    assert title == "t"
    assert all(line.startswith("  ") or not line for line in content)
    return [line[2:] for line in content]


# Numbers of tokens


def test_a_number_has_a_bar_and_its_token():
    found = shown(TokenValues("t", "text", [1.0, 0.5, 0.0]))
    assert found == [
        f"1.0000  {'█' * BAR}  naan",
        f"0.5000  {'█' * (BAR // 2):<{BAR}}  b\N{REPLACEMENT CHARACTER}",
        f"0.0000  {'':<{BAR}}  </s>",
    ]


def test_negative_bars_are_left_of_a_line():
    found = shown(TokenValues("t", "text", [-1.0, 0.5, 0.0]), ASCII)
    assert found[0] == f"-1.0000  {'#' * 10}|{' ' * 10}  naan"
    assert found[1].startswith(f"+0.5000  {' ' * 10}|{'#' * 5}{' ' * 5}  ")
    assert found[2] == f"+0.0000  {' ' * 10}|{' ' * 10}  </s>"


def test_further_numbers_have_names_and_muted_tokens_parentheses():
    values = TokenValues(
        "t", "text", [1e-9, None, 3e-9], name="loss", others={"p": [0.5, 9, 1.0]}, muted=[True, False, False]
    )
    header, first, second = shown(values)
    assert header == "     loss       p"
    assert first.split() == ["1.000e-09", "0.5000", "███████", "(naan)"]
    assert second.split()[-1] == "</s>"


def test_words_may_stand_for_tokens_and_infinite_numbers_have_the_longest_bar():
    found = shown(TokenValues("t", "nowhere", [inf, 2.0], ["a", "b"]))
    assert [line.split() for line in found] == [["inf", "█" * BAR, "a"], ["2.0000", "█" * BAR, "b"]]


# Tables


ROWS = [["naan", Cell("b", probability=0.5, is_emphasised=True), 3], ["中文", None, 12], ["", "x\x07", 0.25]]


def test_columns_are_aligned_and_numbers_are_to_the_right():
    assert shown(Table("t", ["word", "best", "n"], ROWS)) == [
        "word  best         n",
        "naan  b 0.50       3",
        "中文              12",
        "      x\N{REPLACEMENT CHARACTER}      0.2500",
    ]


def test_what_is_emphasised_is_bold_in_colour():
    assert "\x1b[1mb 0.50\x1b[0m" in shown(Table("t", ["word", "best", "n"], ROWS), COLOUR)[1]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_wide_table_has_parts_that_fit(width):
    columns = ["layer", *(f"head {n}" for n in range(1, 17)), "evidence"]
    rows = [[i, *(i + n / 100 for n in range(16)), "long " * 40] for i in range(3)]
    found = lines(Table("t", columns, rows), AXES, width=width)
    assert max(map(cell_len, found)) <= width
    parts = "\n".join(found[1:]).split("\n\n")
    assert [part.split()[0] for part in parts] == ["layer"] * len(parts)
    numbers = [part.splitlines()[2].split()[1:] for part in parts]
    assert [*chain(*numbers)][:16] == [f"{1 + n / 100:.4f}" for n in range(16)]


def test_a_table_without_rows_has_its_columns():
    assert shown(Table("t", ["a", "b"], [])) == ["a  b"]


# Images and matrices


def test_the_strongest_patches_are_by_row_and_column():
    panels = [PatchPanel("layer 1", GRID), PatchPanel("layer 12", GRID.T * 0)]
    assert shown(PatchValues("t", "image", panels)) == [
        "strongest patches (row,column):",
        "layer 1   1,2 0.4   2,2 0.3   2,3 0.15   1,1 0.1",
        "layer 12  none",
    ]


def test_positive_and_negative_patches_are_apart():
    signed = PatchPanel("sum", GRID * [[1, -1, 1], [1, 1, -1]])
    _, positive, negative = shown(PatchValues("t", "image", [signed], apart=True))
    assert positive == "sum, positive  2,2 +0.3   1,1 +0.1   2,1 +0.05"
    assert negative == "sum, negative  1,2 -0.4   2,3 -0.15"


def test_one_panel_is_a_heat_map_too():
    found = shown(PatchValues("t", "image", [PatchPanel("", GRID)]))
    assert any("███" in line for line in found)
    assert found[-1].split()[:2] == ["1,2", "0.4"]
    assert len(shown(PatchValues("t", "image", [PatchPanel("", np.ones((99, 2)))]))) == 2


def test_named_rows_have_their_strongest_columns():
    values = np.array([[0.2, 0.7], [nan, 0.001]])
    assert shown(Heat("t", values, ["a", "bb"], ["c", "d"])) == [
        "a   →  d 0.70   c 0.20",
        "bb  →  all weights below 0.005",
    ]


def test_what_cannot_be_drawn_says_which_files_can():
    assert "3 x 5 values" in shown(Heat("t", np.ones((3, 5))))[0]
    text, how = shown(Picture("t", b"", "nine components", 9))
    assert text == "nine components"
    assert "--out" in how


def test_notes_are_below_within_the_width():
    *_, first, second = shown(Table("t", ["a"], [["b"]], note="word " * 14), width=40)
    assert max(len(first), len(second)) <= 38
    assert f"{first} {second}".split() == ["word"] * 14
