"""How far heads look, as a view: by plain loops, over several inputs, and as tables."""

import math

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.views import view_module

TEXTS = ["the cat sat", "a dog lay", "mat"]
ROUNDED = 5.1e-7


def tokens_between(weights, grid=None, patch=1, before=0):
    """For each query the mean distance to what it looks at, in tokens, or pixels between centres."""
    found = []
    for i, row in enumerate(weights[before:, before:]):
        far = 0.0
        for j, weight in enumerate(row):
            apart = abs(i - j)
            if grid is not None:
                apart = patch * math.dist(divmod(i, grid[1]), divmod(j, grid[1]))
            far += weight / row.sum() * apart
        found.append(far)
    return found


@pytest.mark.parametrize("name", ["classification", "language model", "masked"])
def test_in_tokens_over_all_queries_of_all_inputs(explained, name):
    run, _ = explained(name)
    values = explain_input(run, TEXTS[0], views=["distances"], others=TEXTS[1:]).views["distances"]
    assert values["inputs"] == 3
    (stack,) = values["stacks"]
    assert (stack["side"], stack["unit"]) == ("input", "tokens")
    alone = [explain_input(run, text) for text in TEXTS]
    for n, layer in enumerate(stack["layers"]):
        assert (layer["layer"], layer["tap"], layer["heads"]) == (n, alone[0].maps[n].tap, [0, 1, 2])
        for head in range(3):
            wanted = np.mean([far for seen in alone for far in tokens_between(seen.maps[n].weights[head])])
            assert layer["distances"][head] == pytest.approx(wanted, abs=1e-5)


def test_even_attention_over_what_is_seen(explained):
    run, given = explained("language model")
    seen = explain_input(run, given, views=["distances"])
    n = len(seen.axes["input"].tokens)
    # Token i sees i + 1 places, on average i / 2 away.
    even = seen.views["distances"]["stacks"][0]["even"]
    assert even == pytest.approx(np.mean([i / 2 for i in range(n)]), abs=ROUNDED)
    run, given = explained("classification")
    seen = explain_input(run, given, views=["distances"])
    n = len(seen.axes["input"].tokens)
    even = seen.views["distances"]["stacks"][0]["even"]
    assert even == pytest.approx(np.mean([[abs(i - j) for j in range(n)] for i in range(n)]), abs=ROUNDED)


@pytest.mark.parametrize("name", ["images", "images without class token"])
def test_in_pixels_between_patches(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, views=["distances"])
    (stack,) = seen.views["distances"]["stacks"]
    assert stack["unit"] == "pixels"
    side = seen.axes["input"]
    for n, layer in enumerate(stack["layers"]):
        for head, found in enumerate(layer["distances"]):
            every = tokens_between(seen.maps[n].weights[head], side.grid, 3, side.before)
            assert found == pytest.approx(np.mean(every), abs=1e-5)
    # Two by two patches of three pixels: none away, two at 3, one at 3 √2.
    assert stack["even"] == pytest.approx((0 + 3 + 3 + 3 * 2**0.5) / 4, abs=ROUNDED)


def test_both_halves_of_a_translator_have_a_stack(explained):
    seen = explain_input(*explained("translation"), views=["distances"])
    stacks = seen.views["distances"]["stacks"]
    assert [(stack["side"], stack["kind"]) for stack in stacks] == [("source", "self"), ("prefix", "causal")]
    with pytest.raises(RequestError, match="needs self-attention"):
        explain_input(*explained("translation"), maps=Selection(kinds=["cross"]), views=["distances"])
    one, other = view_module("distances").drawings(seen, seen.views["distances"])
    assert one.title == "Mean attention distance in tokens: self-attention of the source"
    assert other.title == "Mean attention distance in tokens: causal self-attention of the prefix"
    assert one.note == f"uniform attention: {stacks[0]['even']:.2f}"


@pytest.mark.parametrize(
    "name, layers, numbers", [("classification", [1], [2]), ("local and compressed", None, [1, 3])]
)
def test_layers_have_their_own_numbers(explained, name, layers, numbers):
    seen = explain_input(*explained(name), maps=Selection(layers=layers), views=["distances"])
    table = view_module("distances").drawings(seen, seen.views["distances"])[0]
    assert [row[0] for row in table.rows] == numbers


def test_every_head_has_its_distance_at_its_layer(explained):
    seen = explain_input(*explained("classification"), views=["distances"])
    values = seen.views["distances"]
    layer = values["stacks"][0]["layers"][1]
    (drawing,) = view_module("distances").drawings(seen, values)
    table = drawing.to_dict()
    assert table["columns"] == ["layer", "head 1", "head 2", "head 3", "mean"]
    number, *cells, mean = table["rows"][1]
    assert (number, mean) == (2, f"{np.mean(layer['distances']):.2f}")
    assert [cell["text"] for cell in cells] == [f"{value:.2f}" for value in layer["distances"]]
    assert [(cell["tap"], cell["head"]) for cell in cells] == [(layer["tap"], n) for n in range(3)]
    every = [cell["share"] for row in table["rows"] for cell in row[1:-1]]
    assert max(every) == 1
    (axes,) = figure_of(seen).axes
    shown = {tuple(map(round, text.get_position())): text.get_text() for text in axes.texts}
    assert [shown[n, 1] for n in range(3)] == [f"{value:.2f}" for value in layer["distances"]]


def test_a_head_that_looks_at_no_patch_has_no_distance(explained):
    run, given = explained("images")
    seen = explain_input(run, given)
    weights = seen.maps[0].weights.copy()
    weights[1] = 0
    weights[1, :, 0] = 1
    changed = type(seen.maps[0])(**{**vars(seen.maps[0]), "weights": weights})
    blind = type(seen)(**{**vars(seen), "maps": [changed]})
    view = view_module("distances")
    values = view.compute(run, None, [blind])
    (layer,) = values["stacks"][0]["layers"]
    assert [value is None for value in layer["distances"]] == [False, True, False]
    cell = view.drawings(blind, values)[0].rows[0][2]
    assert (cell.text, cell.share) == ("-", None)
    # Of another input it has one, and that counts.
    both = view.compute(run, None, [blind, seen])["stacks"][0]["layers"][0]["distances"]
    alone = view.compute(run, None, [seen])["stacks"][0]["layers"][0]["distances"]
    assert both[1] == alone[1]
    figure_of(type(seen)(**{**vars(blind), "views": {"distances": values}})).canvas.draw()
