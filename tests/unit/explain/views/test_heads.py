"""All heads at a glance: numbers by plain loops, thumbnails as those of the page."""

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import NO_MAPS, Selection, find_sites
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.drawing.matrix import thumbnail
from heedful.explain.views import view_module


def test_sharpness_is_the_mean_of_the_greatest_weights(explained, every):
    run, given = explained(every)
    view = view_module("heads")
    assert view.supports(run) == bool(find_sites(run.model))
    if not view.supports(run):
        return
    seen = explain_input(run, given, views=["heads"])
    found = {
        (stack["kind"], stack["queries"], stack["keys"], layer["layer"], layer["tap"]): layer
        for stack in seen.views["heads"]["stacks"]
        for layer in stack["layers"]
    }
    whole = [each for each in seen.maps if not each.is_part]
    assert len(found) == len(whole)
    for each in whole:
        layer = found[each.kind, each.queries, each.keys, each.layer, each.tap]
        assert layer["heads"] == [*each.heads]
        wanted = [sum(max(row) for row in head.tolist()) / len(head) for head in each.weights]
        np.testing.assert_allclose(layer["sharpness"], wanted, atol=1e-6)


def drawn(figure):
    """The image of each stack by its title, and what stands along its axes."""
    return {
        axes.get_title(loc="left"): (
            np.ma.filled(axes.images[0].get_array(), np.nan),
            [label.get_text() for label in axes.get_xticklabels()],
            [label.get_text() for label in axes.get_yticklabels()],
        )
        for axes in figure.axes
        if axes.get_title(loc="left")
    }


@pytest.mark.parametrize("name", ["translation", "local and compressed", "images", "recurrent, one head"])
def test_every_head_is_drawn_as_its_thumbnail(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, views=["heads"])
    stacks = {}
    for each in seen.maps:
        stacks.setdefault((each.kind, each.queries, each.keys), []).append(each)
    found = drawn(figure_of(seen))
    assert len(found) == len(stacks)
    for (pixels, columns, rows), maps in zip(found.values(), stacks.values(), strict=True):
        assert rows == [str(each.layer + 1) for each in maps]
        heads = maps[0].weights.shape[0]
        assert columns == [*(str(n + 1) for n in range(heads)), *["mean"] * (heads > 1)]
        for i, each in enumerate(maps):
            views = [*each.weights.astype(float), *[each.weights.astype(float).mean(0)] * (heads > 1)]
            for j, weights in enumerate(views):
                cells = thumbnail(weights)
                down, right = (max(1, 48 // n) for n in cells.shape)
                y, x = i * (len(cells) * down + 3) + 1, j * (cells.shape[1] * right + 3) + 1
                part = pixels[y : y + len(cells) * down : down, x : x + cells.shape[1] * right : right]
                np.testing.assert_allclose(part, cells, atol=1e-7)


def test_only_the_heads_that_were_asked_for_are_drawn(explained):
    run, given = explained("translation")
    seen = explain_input(
        run, given, maps=Selection(kinds=["self"], layers=[1], heads=[2, 0]), views=["heads"]
    )
    ((_, columns, rows),) = drawn(figure_of(seen)).values()
    assert (columns, rows) == (["1", "3", "mean"], ["2"])


def test_in_words_layers_are_lines_and_on_the_page_they_open(explained):
    run, given = explained("classification")
    seen = explain_input(run, given, views=["heads"])
    values = seen.views["heads"]
    lines = view_module("heads").lines(seen, values)
    assert lines[0] == "sharpness of each head (1: one key per query): self-attention of the input"
    for line, layer in zip(lines[2:], values["stacks"][0]["layers"], strict=True):
        sharp = layer["sharpness"]
        assert line.split() == [
            f"{layer['layer'] + 1}",
            f"{np.mean(sharp):.2f}",
            *(f"{v:.2f}" for v in sharp),
        ]
    (table,) = (each.to_dict() for each in view_module("heads").drawings(seen, values))
    assert table["columns"] == ["layer", "head 1", "head 2", "head 3"]
    for row, layer in zip(table["rows"], values["stacks"][0]["layers"], strict=True):
        assert [(cell["tap"], cell["head"]) for cell in row[1:]] == [(layer["tap"], n) for n in range(3)]
        assert [cell["share"] for cell in row[1:]] == layer["sharpness"]


def test_without_attention_there_is_nothing_to_see(explained):
    run, given = explained("classification")
    with pytest.raises(RequestError, match="view heads needs attention; select some"):
        explain_input(run, given, maps=NO_MAPS, views=["heads"])
