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
from heedful.explain.patterns.classes import CLASSES
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
    answer = {"output": "yes", "score": -0.1}
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


def test_classes_have_shares_and_meanings(seen):
    shares, *_ = view_module("census").drawings(seen, seen.views["census"])
    assert shares.title == "Census of 3 heads over 3 inputs: classes"
    assert shares.media == {"page", "terminal"}
    assert shares.rows[0] == ["self-attention", "previous token", 1, "33%", "attends to the previous token"]
    assert [row[1:4] for row in shares.rows] == [
        ["previous token", 1, "33%"],
        ["first token", 1, "33%"],
        ["broad", 1, "33%"],
    ]
    assert "Of 3 self-attention heads, 33% attend to the previous token, 0% to the next token" in shares.note


def test_of_one_input_it_is_said_that_more_would_tell_more():
    one = constructed(11)
    view = view_module("census")
    assert "use several inputs" in view.drawings(one, view.compute(None, None, [one]))[0].note


def test_every_row_of_the_page_opens_its_head(seen):
    *_, table = view_module("census").drawings(seen, seen.views["census"])
    heads = table.to_dict()
    assert [row[0] for row in heads["rows"]] == [
        {"text": f"3.{number + 1}", "tap": "stack.2.weights", "head": number} for number in (0, 1, 3)
    ]
    first, second, third = heads["rows"]
    assert first[1:5] == ["self", "previous token", "100%", {"text": "1.00", "share": pytest.approx(1)}]
    assert "w0 → <cls> 1.00" in first[5]
    # A class token is the first token, and a special one.
    assert second[6] == "separator"
    assert third[2:4] == ["broad", None]


def test_heads_are_a_table_of_signs_and_colours(seen):
    _, table, _ = view_module("census").drawings(seen, seen.views["census"])
    assert table.media == {"page", "image"}
    assert table.columns == ["layer", "head 1", "head 2", "head 3", "head 4"]
    # Layers and heads that were not selected remain empty.
    assert table.rows[:2] == [[1, None, None, None, None], [2, None, None, None, None]]
    number, *cells = table.rows[2]
    assert number == 3
    assert [cell and cell.text for cell in cells] == ["P", "1", None, "B"]
    assert [cell and cell.head for cell in cells] == [0, 1, None, 3]
    assert cells[3].colour == CLASSES["broad"].colour
    assert table.note == "P: previous token, 1: first token, B: broad"
    figure_of(seen).canvas.draw()


def test_each_kind_of_attention_has_its_table(explained):
    seen = explain_input(*explained("translation"), views=["census"])
    tables = view_module("census").drawings(seen, seen.views["census"])[1:-1]
    assert [table.title.rpartition("the heads of ")[2] for table in tables] == [
        "self-attention",
        "causal self-attention",
        "cross-attention",
    ]


def test_classes_differ_in_sign_and_colour():
    for field in zip(*CLASSES.values(), strict=True):
        assert len(set(field)) == len(CLASSES)


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
    for view, by_word in (("lens", "integrated-gradients"), ("occlusion", "occlusion")):
        with pytest.raises(
            RequestError, match="only the views patching, census and distances support several inputs, got 3"
        ) as refusal:
            explain_input(run, given, views=[view], others=[given, given])
        assert str(refusal.value).endswith(f": --view {by_word} --out words.csv")


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
