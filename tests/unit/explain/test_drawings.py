"""Drawings of five kinds, as the page gets them."""

import base64
import json

import numpy as np
import pytest

from heedful.explain.drawings import (
    Cell,
    Drawing,
    Heat,
    PatchPanel,
    PatchValues,
    Picture,
    Table,
    TokenValues,
)
from heedful.explain.page.build import KINDS
from heedful.explain.page.packing import LEVELS
from heedful.explain.views import view_module, views_of

GRID = np.array([[0.5, 0.0, -0.25], [1.0, np.nextafter(1.0, 0.0), 0.125]])


def test_the_page_draws_every_kind():
    assert {kind.kind for kind in Drawing.__subclasses__()} == {*KINDS}


def test_numbers_of_tokens_keep_their_gaps():
    found = TokenValues("t", "input", (0.5, None, -2.0)).to_dict()
    assert found == {"title": "t", "kind": "tokens", "side": "input", "values": [0.5, None, -2.0]}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Cell("a"), {"text": "a"}),
        (Cell("a", 0.0), {"text": "a", "share": 0.0}),
        (Cell("a", tap="t", head=0), {"text": "a", "tap": "t", "head": 0}),
        (Cell("a", 0.25, tap="t", head=3), {"text": "a", "share": 0.25, "tap": "t", "head": 3}),
        (Cell("a", probability=0.0), ["a", 0.0]),
        ("a", "a"),
        (3, 3),
        (None, None),
    ],
)
def test_cells_have_what_they_need(cell, expected):
    found = Table("t", ("x", "y"), [("name", cell)]).to_dict()
    assert found == {"title": "t", "kind": "table", "columns": ["x", "y"], "rows": [["name", expected]]}


def test_panels_over_an_image_are_read_row_by_row():
    panels = [PatchPanel("patches", GRID), PatchPanel("pixels", GRID.T, is_of_patches=False)]
    found = PatchValues("t", "input", panels, apart=True, among=7).to_dict()
    assert found["images"] == [
        {"label": "patches", "values": GRID.ravel().tolist()},
        {"label": "pixels", "values": GRID.T.ravel().tolist(), "grid": [3, 2]},
    ]
    assert (found["side"], found["apart"], found["among"]) == ("input", True, 7)
    assert PatchValues("t", "input", panels).to_dict().keys() == {"title", "kind", "side", "images"}


def test_heat_has_sixteen_bits_and_gaps():
    values = np.where(GRID == 0.125, np.nan, GRID)
    found = Heat("t", values).to_dict()
    levels = np.frombuffer(base64.b64decode(found["levels"]), "<u2").reshape(found["size"]).astype(float)
    shown = np.where(levels == 0, np.nan, 2 * (levels - 1) / (LEVELS - 1) - 1)
    np.testing.assert_allclose(shown, values, atol=1 / LEVELS)


def test_heat_with_named_cells_has_the_names_and_the_number_of_its_darkest_colour():
    found = Heat("t", GRID, ["a", "b"], ["x", "y", "z"], largest=0.542).to_dict()
    assert (found["rows"], found["columns"], found["largest"]) == (["a", "b"], ["x", "y", "z"], 0.542)
    assert not {"rows", "columns", "largest"} & Heat("t", GRID, ["a"], ["x", "y", "z"]).to_dict().keys()


def test_a_picture_is_part_of_the_page():
    found = Picture("t", b"\x89PNG...", "what it shows", 17).to_dict()
    kind, _, content = found["image"].partition(",")
    assert (kind, base64.b64decode(content)) == ("data:image/png;base64", b"\x89PNG...")
    assert (found["text"], found["width"]) == ("what it shows", 17)


@pytest.mark.parametrize(
    "name", ["translation", "classification", "tagging", "images", "captions", "regression"]
)
def test_every_view_returns_drawings_that_are_ready_for_json(explained, others, name):
    run, given = explained(name)
    seen = run.explain(given, views=views_of(run), others=others(name))
    for view, values in seen.views.items():
        for drawing in view_module(view).drawings(seen, values):
            assert isinstance(drawing, Drawing)
            json.dumps(drawing.to_dict(), allow_nan=False)
