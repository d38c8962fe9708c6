"""All heads at a glance: numbers by plain loops, thumbnails as those of the page."""

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.attention_sites import NO_MAPS, Selection, find_sites
from heedful.explain.capture import explain_input
from heedful.explain.drawing.matrix import thumbnail
from heedful.explain.explanation import Explanation
from heedful.explain.views import view_module
from heedful.tasks.model_input import Axis


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


def mosaics(seen):
    """The thumbnails of each stack."""
    drawings = view_module("heads").drawings(seen, seen.views["heads"])
    return [drawing for drawing in drawings if "image" in drawing.media]


@pytest.mark.parametrize("name", ["translation", "local and compressed", "images", "recurrent, one head"])
def test_every_head_has_its_thumbnail_in_its_row_and_column(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, views=["heads"])
    stacks = {}
    for each in seen.maps:
        stacks.setdefault((each.kind, each.queries, each.keys), []).append(each)
    found = mosaics(seen)
    assert len(found) == len(stacks)
    for drawing, maps in zip(found, stacks.values(), strict=True):
        n = maps[0].weights.shape[0]
        assert drawing.rows == [f"layer {each.layer + 1}" for each in maps]
        assert drawing.columns == [*(f"head {i + 1}" for i in range(n)), *["mean"] * (n > 1)]
        assert (drawing.power, drawing.media) == (0.5, {"image"})
        height, width = (
            (size + 1) // len(names)
            for size, names in zip(drawing.values.shape, (drawing.rows, drawing.columns), strict=True)
        )
        is_there = np.zeros(drawing.values.shape, bool)
        for i, each in enumerate(maps):
            views = [*each.weights.astype(float), *[each.weights.astype(float).mean(0)] * (n > 1)]
            for j, weights in enumerate(views):
                cells = thumbnail(weights)
                down, right = ((size - 3) // k for size, k in zip((height, width), cells.shape, strict=True))
                where = np.s_[i * height + 1 : (i + 1) * height - 2, j * width + 1 : (j + 1) * width - 2]
                wanted = cells.repeat(down, 0).repeat(right, 1)
                np.testing.assert_allclose(drawing.values[where], wanted, atol=1e-7)
                is_there[where] = True
        np.testing.assert_array_equal(np.isnan(drawing.values), ~is_there)


@pytest.mark.parametrize(
    "rows, columns, aspect", [(7, 5, 5 / 7), (5, 5, 1), (5, 7, 7 / 5), (12, 3, 0.5), (3, 12, 2), (1, 40, 2)]
)
def test_thumbnails_have_the_aspect_of_their_matrix_within_limits(rows, columns, aspect):
    weights = np.random.default_rng(3).dirichlet(np.ones(columns), (3, rows)).astype(np.float32)
    axes = {"a": Axis(("w",) * rows), "b": Axis(("w",) * columns)}
    maps = [AttentionMap("0", "cross", 0, "a", "b", (0, 1, 2), weights)]
    (drawing,) = mosaics(Explanation("t", "r", "i", {}, axes, maps, views={"heads": {"stacks": []}}))
    height, width = drawing.values.shape
    assert (width - 11) / 4 / (height - 2) == pytest.approx(aspect, rel=0.26)
    assert f"({rows} \N{MULTIPLICATION SIGN} {columns} tokens)" in drawing.title


def test_only_the_heads_that_were_asked_for_are_drawn(explained):
    run, given = explained("translation")
    maps = Selection(kinds=["self"], layers=[1], heads=[2, 0])
    (drawing,) = mosaics(explain_input(run, given, maps=maps, views=["heads"]))
    assert (drawing.columns, drawing.rows) == (["head 1", "head 3", "mean"], ["layer 2"])


def test_layers_are_rows_of_a_table_whose_cells_open_their_heads(explained):
    run, given = explained("classification")
    seen = explain_input(run, given, views=["heads"])
    values = seen.views["heads"]
    drawing, _ = view_module("heads").drawings(seen, values)
    assert drawing.title == "Sharpness of each head (1: one key per query): self-attention of the input"
    assert drawing.media == {"page", "terminal"}
    table = drawing.to_dict()
    assert table["columns"] == ["layer", "head 1", "head 2", "head 3", "mean"]
    for row, layer in zip(table["rows"], values["stacks"][0]["layers"], strict=True):
        assert [(cell["tap"], cell["head"]) for cell in row[1:-1]] == [(layer["tap"], n) for n in range(3)]
        assert [cell["share"] for cell in row[1:-1]] == layer["sharpness"]
        assert (row[0], row[-1]) == (layer["layer"] + 1, f"{np.mean(layer['sharpness']):.2f}")


def test_without_attention_there_is_nothing_to_see(explained):
    run, given = explained("classification")
    with pytest.raises(RequestError, match="view heads needs attention; select some"):
        explain_input(run, given, maps=NO_MAPS, views=["heads"])
