"""The census as a view: over one input and over several, in lines, on the page and as a drawing."""

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.attention_sites import NO_MAPS, Selection
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.explanation import Explanation
from heedful.explain.patterns.census import census
from heedful.explain.views import view_module
from heedful.tasks.model_input import Axis

TEXTS = ["the cat sat", "a dog lay", "the mat the"]


def constructed(length: int) -> Explanation:
    """Three heads: one attends to the previous token, one at the first token, one at everything."""
    before = np.eye(length, k=-1)
    before[0, 0] = 1
    first = np.zeros((length, length))
    first[:, 0] = 1
    heads = np.stack([before, first, np.full((length, length), 1 / length)]).astype(np.float32)
    side = Axis(("<cls>", *(f"w{n}" for n in range(length - 2)), "<sep>"))
    one = AttentionMap("stack.2.weights", "self", 2, "input", "input", (0, 1, 3), heads)
    answer = {"text": "yes", "score": -0.1, "alternatives": []}
    return Explanation("classification", "r", "w", answer, {"input": side}, [one])


@pytest.fixture
def seen():
    inputs = [constructed(length) for length in (11, 13, 17)]
    values = view_module("census").compute(None, None, inputs)
    return Explanation(**{**vars(inputs[0]), "views": {"census": values}})


def test_known_heads_get_their_classes(seen):
    heads = seen.views["census"]["heads"]
    found = [(head["layer"], head["head"], head["pattern"], head["tap"]) for head in heads]
    assert found == [
        (2, 0, "previous token", "stack.2.weights"),
        (2, 1, "first token", "stack.2.weights"),
        (2, 3, "broad", "stack.2.weights"),
    ]
    assert seen.views["census"]["inputs"] == 3


def test_the_terminal_tells_shares_meanings_and_every_head(seen):
    lines = view_module("census").lines(seen, seen.views["census"])
    assert lines[0] == "census of 3 heads over 3 inputs"
    (share,) = (line for line in lines if line.startswith("  self-attention: previous token"))
    assert share.split()[3:5] == ["1", "33%"]
    assert share.endswith("attends to the previous token")
    (told,) = (line for line in lines if line.startswith("  of 3 self-attention heads"))
    assert "33% attend to the previous token, 0% to the next token" in told
    rows = lines[lines.index("") + 2 :]
    assert [row.split()[:3] for row in rows] == [["self", "3", "1"], ["self", "3", "2"], ["self", "3", "4"]]
    assert rows[0].split()[3:7] == ["previous", "token", "100%", "1.00"]
    assert "w0 → <cls> 1.00" in rows[0]
    # A class token is the first token, and a special one.
    assert rows[1].endswith("also separator")


def test_of_one_input_it_is_said_that_more_would_tell_more():
    one = constructed(11)
    view = view_module("census")
    assert "--inputs FILE" in view.lines(one, view.compute(None, None, [one]))[1]


def test_every_row_of_the_page_opens_its_head(seen):
    shares, heads = (each.to_dict() for each in view_module("census").drawings(seen, seen.views["census"]))
    assert [row[1:4] for row in shares["rows"]] == [
        ["previous token", 1, "33%"],
        ["first token", 1, "33%"],
        ["broad", 1, "33%"],
    ]
    assert [row[0] for row in heads["rows"]] == [
        {"text": f"3.{number + 1}", "tap": "stack.2.weights", "head": number} for number in (0, 1, 3)
    ]
    assert heads["rows"][0][2:5] == ["previous token", "100%", {"text": "1.00", "share": pytest.approx(1)}]
    assert heads["rows"][2][2:4] == ["broad", None]


def test_it_is_drawn_as_a_table_of_signs(seen):
    (axes,) = figure_of(seen).axes
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == [
        ((0, 2), "P"),
        ((1, 2), "1"),
        ((3, 2), "B"),
    ]


@pytest.mark.parametrize("name", ["classification", "masked", "language model", "tagging"])
def test_several_inputs_of_a_run_are_one_census(explained, name):
    run, _ = explained(name)
    found = explain_input(run, TEXTS[0], views=["census"], others=TEXTS[1:])
    wanted = census([explain_input(run, text) for text in TEXTS])
    assert found.views["census"] == wanted.to_dict()
    assert wanted.inputs == 3
    assert found.maps[0].weights.shape == explain_input(run, TEXTS[0]).maps[0].weights.shape


def test_of_the_heads_that_were_asked_for(explained):
    run, given = explained("translation")
    seen = explain_input(run, given, maps=Selection(layers=[1], heads=[0, 2]), views=["census"])
    found = seen.views["census"]["heads"]
    assert [(head["kind"], head["layer"], head["head"]) for head in found] == [("self", 1, 0), ("self", 1, 2)]


def test_slots_of_a_compressed_memory_are_left_out(explained):
    run, given = explained("local and compressed")
    seen = explain_input(run, given, views=["census"])
    taps = {each.tap for each in seen.maps if each.keys != "memory"}
    assert {head["tap"] for head in seen.views["census"]["heads"]} == taps
    assert len(taps) < len(seen.maps)


def test_what_does_not_attend_says_what_there_is(explained):
    run, given = explained("fourier")
    with pytest.raises(RequestError, match=r"view census needs attention .* \(available: lens, losses,"):
        explain_input(run, given, maps=NO_MAPS, views=["census"])


def test_several_inputs_are_for_views_of_several(explained):
    run, given = explained("classification")
    with pytest.raises(
        RequestError, match="only the views census and distances support several inputs, got 3"
    ):
        explain_input(run, given, views=["lens"], others=[given, given])


def test_an_input_that_cannot_be_read_is_told_by_its_number(explained):
    run, given = explained("classification")
    with pytest.raises(RequestError, match="input 3: the input must not be empty"):
        explain_input(run, given, views=["census"], others=[given, ""])


def test_all_inputs_together_keep_to_the_limit(explained):
    run, given = explained("classification")
    alone = explain_input(run, given)
    n = len(alone.axes["input"].tokens)
    # Two layers of three heads, and three rectangles of a layer while it works.
    taken, working = 4 * n * n * 2 * 3, 4 * n * n * 3 * 3
    explain_input(run, given, views=["census"], others=[given], limit=2 * taken + working)
    with pytest.raises(RequestError, match=r"input 2: .* with that of previous inputs"):
        explain_input(run, given, views=["census"], others=[given], limit=2 * taken + working - 1)
