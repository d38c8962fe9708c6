"""Views of attribution in words: what a number says, which words are unknown, which of equal ones is meant.

Also what is claimed of a text of mean words.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from heedful.api.run import load
from heedful.explain.attention_sites import NO_MAPS
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.drawing import on_figure, on_terminal
from heedful.explain.drawing.terminal import SHADES
from heedful.explain.drawings import Table, TokenValues, share_scales
from heedful.explain.page.build import drawings as on_page
from heedful.explain.summary import summary_matrix
from heedful.explain.views import view_module
from heedful.nn.modes import evaluating
from heedful.tasks.model_input import AnswerOptions, Axis

LAYER = {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 17}}
MODEL = {"kind": "encoder", "d_model": 12, "dropout": 0.0, "layer": LAYER, "n_layers": 2, "max_length": 23}
TOKENIZER = {"subwords": {"kind": "word"}, "text": {"lowercase": True}}
RECIPE = {"task": {"kind": "classification"}, "model": MODEL, "tokenizer": TOKENIZER}
ROWS = [{"text": text, "label": label} for text, label in [("the cat sat", "a"), ("a dog lay", "b")] * 2]
UNKNOWN = "The Zebra sat the Quagga"
VIEWS = ["occlusion", "replacement", "integrated-gradients"]


@pytest.fixture(scope="module")
def words_run(make_run, tmp_path_factory):
    """A classifier that does not know all words."""
    return load(make_run(tmp_path_factory.mktemp("words") / "run", RECIPE, ROWS), device="cpu")


def seen_by(run, given, *views, **options):
    with evaluating(run.model):
        return explain_input(run, given, maps=NO_MAPS, views=[*views], **options)


def drawn(seen, view):
    return view_module(view).drawings(seen, seen.views[view])


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("classification", "log-odds"),
        ("sets of labels", "log-odds"),
        ("tagging", "log-odds"),
        ("translation", "log-probability"),
        ("regression", "number"),
        ("images", "log-odds"),
    ],
)
@pytest.mark.parametrize("view", ["occlusion", "replacement"])
def test_titles_and_notes_say_that_a_positive_number_is_a_fall(explained, name, unit, view):
    run, given = explained(name)
    seen = seen_by(run, given, view)
    feature = "patch" if name == "images" else "word"
    shown = [each for each in drawn(seen, view) if "support it most" not in each.title]
    assert shown
    for drawing in shown:
        assert re.match(rf"Fall of the {unit}( .*)? if a {feature} is (left out|replaced)$", drawing.title)
        assert re.search(rf"positive: the {unit} (is|are) lower without the {feature}", drawing.note)
        assert drawing.title in on_terminal.lines(drawing, seen.axes)[0]


@pytest.mark.parametrize("view", VIEWS)
def test_unknown_words_are_marked_wherever_they_are_shown(words_run, view):
    seen = seen_by(words_run, UNKNOWN, view)
    values = seen.views[view]
    assert values["words"] == ["the", "Zebra", "sat", "the", "Quagga"]
    assert values["unknown"] == [1, 4]
    assert [row["unknown"] for row in seen.word_scores(view)] == [False, True, False, False, True]
    (strip, *tables) = drawn(seen, view)
    assert isinstance(strip, TokenValues)
    lines = "\n".join(on_terminal.lines(strip, seen.axes))
    assert re.findall(r"(\w+) \[unknown\]$", lines, re.MULTILINE) == ["Zebra", "Quagga"]
    assert "[unknown]: the model reads <unk> for the word" in strip.note
    figure = on_figure.figure([strip], seen.axes)
    labels = {label.get_text() for axes in figure.axes for label in axes.get_yticklabels()}
    assert {"Zebra [unknown]", "Quagga [unknown]", "sat"} <= labels
    assert on_page(seen)[0]["unknown"] == [1, 4]
    removed = " + ".join(str(row[0]) for table in tables for row in table.rows)
    for word in ("Zebra", "Quagga"):
        assert removed.count(word) == removed.count(f"{word} [unknown]")


def test_a_note_names_every_unknown_word_once(words_run):
    seen = seen_by(words_run, UNKNOWN + " Zebra", "occlusion")
    assert seen.answer["notes"] == ["3 of 6 words are unknown to this run ('zebra', 'quagga')"]


def test_words_of_attention_are_marked_if_they_are_unknown(words_run):
    with evaluating(words_run.model):
        matrix = summary_matrix(explain_input(words_run, UNKNOWN)).to_words()
    assert matrix.keys.tokens[1:-1] == ("the", "Zebra [unknown]", "sat", "the", "Quagga [unknown]")


def test_an_input_whose_words_are_known_has_no_marks(words_run):
    seen = seen_by(words_run, "the cat sat", *VIEWS)
    assert not any("unknown" in values for values in seen.views.values())
    assert not any(row["unknown"] for row in seen.word_scores("occlusion"))


def test_a_word_that_the_run_knows_as_unk_is_not_unknown(words_run):
    reading = prepare_input(words_run, "the cat sat")
    axis = reading.axes["input"]
    literal = replace(axis, tokens=("<cls>", "the", "<unk>", "sat", "<sep>"), surface=("the", "<unk>", "sat"))
    seen = replace(explain_input(words_run, "the cat sat"), axes={"input": literal})
    assert summary_matrix(seen).to_words().keys.tokens == literal.tokens


def test_words_that_occur_several_times_have_their_places(explained):
    run, _ = explained("translation")
    given, target = "the dog runs the dog", "DOG RED DOG"
    seen = seen_by(run, given, "occlusion", options=AnswerOptions(target=target))
    table, heat, removed = drawn(seen, "occlusion")
    assert isinstance(table, Table)
    names = [row[0] for row in table.rows]
    assert names[:3] == ["DOG (1)", "RED", "DOG (3)"]
    assert heat.columns == ["the (1)", "dog (2)", "runs", "the (4)", "dog (5)"]
    named = re.findall(r"(\w+(?: \(\d\))?) [-+]", "  ".join(f"{row[2]}  {row[3]}" for row in table.rows))
    assert named
    assert {*named} <= {*heat.columns}
    assert "(n): the n-th word" in table.note
    assert "(n): the n-th word" in removed.note
    scores = np.array(seen.views["occlusion"]["scores"])
    assert scores.shape == (len(names), 5)


def drawn_with(scores, view="occlusion"):
    return TokenValues(view, "input", scores, ["w"] * len(scores), unit="log-odds")


def test_equal_numbers_look_alike_and_noise_does_not_look_like_a_reason():
    strong, weak, other = drawn_with([4.0, -1.0]), drawn_with([0.5, -0.02]), TokenValues("x", "input", [0.1])
    shared = share_scales([strong, weak, other])
    assert [drawing.scale for drawing in shared] == [4.0, 4.0, None]
    (alone,) = share_scales([weak])
    assert alone.scale == 1.0
    axes = {"input": Axis(("w", "w"))}
    bars = [line.count(SHADES.bar) for line in on_terminal.lines(alone, axes)[1:]]
    assert bars == [5, 0]
    widths = [patch.get_width() for patch in on_figure.figure([alone], axes).axes[0].patches[:2]]
    (left, right) = on_figure.figure([alone], axes).axes[0].get_xlim()
    assert widths == pytest.approx([0.5, -0.02])
    assert left < -1
    assert right > 1


@pytest.mark.parametrize("name", ["classification", "translation"])
def test_the_page_and_the_terminal_draw_all_views_of_a_unit_on_one_scale(explained, name):
    run, given = explained(name)
    seen = seen_by(run, given, *VIEWS)
    largest = max(abs(score) for view in seen.views.values() for row in view["scores"] for score in row)
    scales = [drawing["scale"] for drawing in on_page(seen) if "scale" in drawing]
    assert scales == pytest.approx([max(1.0, largest)] * 3)


@pytest.mark.parametrize("baseline", [2.0, -2.0])
def test_of_a_text_of_mean_words_only_that_is_claimed(explained, baseline):
    run, given = explained("classification")
    seen = seen_by(run, given, "integrated-gradients")
    values = {**seen.views["integrated-gradients"], "baseline": [baseline]}
    note = view_module("integrated-gradients").drawings(seen, values)[0].note
    claim = "with the mean word at every place, it is the same, with probability 0.8808; what it is without"
    assert (claim in note) == (baseline > 0)
    assert "gives it without" not in note
