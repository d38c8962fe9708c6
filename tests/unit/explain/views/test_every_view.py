"""Laws of all views in all media: they can be drawn, with titles, numbers, and labels that are apart."""

import json
import re

import numpy as np
import pytest
from tiers import sampled

from heedful.explain.attention_sites import Selection, find_sites
from heedful.explain.capture import explain_input
from heedful.explain.drawing import on_figure, on_terminal
from heedful.explain.drawings import EVERYWHERE, Drawing, cell_text
from heedful.explain.page.build import page
from heedful.explain.views import VIEWS, view_module, views_of

RUNS = ["translation", "language model", "masked", "tagging", "answers", "images", "captions", "masks"]
RUNS += ["regression", "recurrent", "fourier"]


@pytest.fixture(scope="module")
def viewed(explained, others):
    """The explanation of a run with all views, and the drawings of each."""
    made = {}

    def of(name):
        if name not in made:
            run, given = explained(name)
            maps = Selection(kinds=None if find_sites(run.model) else ())
            seen = explain_input(run, given, maps=maps, views=["all"], others=others(name))
            views = {view: view_module(view).drawings(seen, values) for view, values in seen.views.items()}
            made[name] = seen, views
        return made[name]

    return of


def test_these_runs_have_every_view(explained):
    assert {view for name in RUNS for view in views_of(explained(name)[0])} == VIEWS.keys()


@pytest.mark.parametrize("name", RUNS)
def test_every_view_has_a_drawing_in_every_medium(viewed, name):
    _, views = viewed(name)
    for view, drawings in views.items():
        media = set().union(*(drawing.media for drawing in drawings))
        # The page draws rollouts between words as attention maps.
        hidden = (
            {"page"} if view == "rollout" and "patches" not in {each.kind for each in drawings} else set()
        )
        assert media == EVERYWHERE - hidden, view
        for drawing in drawings:
            assert isinstance(drawing, Drawing)
            assert drawing.title == drawing.title[0].upper() + drawing.title[1:]
            assert drawing.media <= EVERYWHERE
            json.dumps(drawing.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", RUNS)
def test_every_view_is_on_the_page(viewed, name):
    seen, views = viewed(name)
    html = page(seen)
    for drawings in views.values():
        for drawing in drawings:
            if "page" in drawing.media:
                assert json.dumps(drawing.title) in html


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(RUNS, ["translation", "tagging", "images", "masks", "recurrent"]))
def test_every_view_is_an_image_whose_labels_are_apart(viewed, name, labels_are_apart, drawn_on_white):
    seen, views = viewed(name)
    for drawings in views.values():
        figure = on_figure.figure(drawings, seen.axes, title=seen.text)
        drawn_on_white(figure)
        labels_are_apart(figure)
        assert len(figure.subfigs) == sum("image" in drawing.media for drawing in drawings)


@pytest.mark.parametrize("view", VIEWS)
def test_equal_explanations_give_equal_bytes(viewed, saved, view):
    seen, views = next(found for name in RUNS if view in (found := viewed(name))[1])
    files = {saved(on_figure.figure(views[view], seen.axes, title="t"), ".png") for _ in range(2)}
    assert len(files) == 1


@pytest.mark.parametrize("name", RUNS)
def test_the_terminal_has_every_number(viewed, name):
    seen, views = viewed(name)
    for drawings in views.values():
        for drawing in drawings:
            if "terminal" in drawing.media:
                found = on_terminal.lines(drawing, seen.axes, width=100)
                assert found[0] == drawing.title
                CHECKS[drawing.kind](drawing, seen.axes, found[1:])


def check_tokens(drawing, axes, found):
    rows = drawing.rows(axes)
    found = [line.split() for line in found[bool(drawing.others) :]][: len(rows)]
    for line, row in zip(found, rows, strict=True):
        numbers = [float(text) for text in line[: 1 + len(drawing.others)]]
        assert numbers == pytest.approx([row.value, *row.others], rel=1e-3, abs=6e-5)


def check_table(drawing, axes, found):
    text = "\n".join(found)
    for row in drawing.rows:
        for cell in row:
            shown = cell_text(cell)
            assert shown in text or len(shown) > 60


def check_patches(drawing, axes, found):
    numbers = [
        float(value) for line in found for value in re.findall(r"\d+,\d+ ([-+]?[\d.]+(?:e[-+]\d+)?)", line)
    ]
    for panel in drawing.panels:
        largest = np.abs(panel.values).max()
        assert not largest or any(abs(abs(number) - largest) <= 0.01 * largest for number in numbers)


def check_heat(drawing, axes, found):
    assert drawing.has_named_cells
    for row, line in zip(drawing.values, found, strict=False):
        assert row.max() < 0.005 or f" {row.max():.2f}" in line


def check_image(drawing, axes, found):
    assert found[0].strip() == drawing.text


CHECKS = {
    "tokens": check_tokens,
    "table": check_table,
    "patches": check_patches,
    "heat": check_heat,
    "image": check_image,
}
