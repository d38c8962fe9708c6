"""Answers read out at every depth, and losses: what is drawn is what the views say."""

import math
from dataclasses import replace

import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import NO_MAPS
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.views import view_module


def drawn(seen, view):
    return view_module(view).drawings(seen, seen.views[view])


@pytest.mark.parametrize("name", ["translation", "language model", "classification", "masked", "captions"])
def test_the_table_has_the_most_probable_answer_of_every_depth(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["lens"])
    values = seen.views["lens"]
    (table,) = drawn(seen, "lens")
    *rows, means = table.rows
    assert [row[0] for row in rows] == list(values["answers"])
    for column, depth in enumerate(values["depths"], 1):
        for row, top, answer in zip(rows, depth["top"], values["answers"], strict=True):
            cell = row[column]
            assert cell.text == top[0]["answer"]
            assert cell.is_emphasised == (top[0]["answer"] == answer)
            assert cell.probability == pytest.approx(math.exp(top[0]["log_prob"]), rel=1e-5)
        mean = sum(depth["log_probs"]) / len(depth["log_probs"])
        assert means[column] == f"{mean:.3f}"
    n = len(values["depths"])
    assert table.columns == ["answer", "embeddings", *(f"layer {i}" for i in range(1, n))]


@pytest.mark.parametrize("name", ["translation", "language model", "captions"])
def test_every_answer_has_its_loss_and_probability(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["losses"])
    values = seen.views["losses"]
    page, answers = drawn(seen, "losses")
    assert (page.media, answers.media) == ({"page"}, {"terminal", "image"})
    rows = answers.rows(seen.axes)
    assert [row.label for row in rows] == list(values["answers"])
    assert [row.value for row in rows] == values["losses"]
    assert [row.is_muted for row in rows] == values["given"]
    assert [row.others for row in rows] == [[share] for share in values["probabilities"]]
    shown = {place: loss for place, loss in enumerate(page.values) if loss is not None}
    assert shown == dict(zip(values["places"], values["losses"], strict=True))
    note = f"mean loss {values['mean']:.4f}, perplexity {values['perplexity']:.4g}"
    assert page.note == answers.note
    assert page.note.endswith(note)
    assert ("given tokens" in page.note) == any(values["given"])


@pytest.mark.parametrize("name", ["masked", "tagging", "masks"])
def test_answers_that_are_not_the_tokens_have_their_token(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["losses"])
    values = seen.views["losses"]
    tokens = seen.axes[values["side"]].tokens
    pairs = zip(values["places"], values["answers"], strict=True)
    wanted = [answer if tokens[place] == answer else f"{tokens[place]}: {answer}" for place, answer in pairs]
    assert drawn(seen, "losses")[1].labels == wanted
    assert any(":" in label for label in wanted)


def test_an_answer_about_the_whole_input_is_a_table(explained):
    run, given = explained("classification")
    seen = explain_input(run, given, maps=NO_MAPS, views=["losses"])
    values = seen.views["losses"]
    (table,) = drawn(seen, "losses")
    assert table.rows == [[values["answers"][0], values["probabilities"][0], values["losses"][0]]]


@pytest.mark.parametrize("name", ["lens", "losses"])
def test_nothing_and_too_much_are_refused(explained, name):
    run, _ = explained("masked")
    seen = explain_input(run, "the cat", maps=NO_MAPS, views=[name])
    with pytest.raises(RequestError, match=r"the answer is empty.* so there is nothing to draw"):
        figure_of(seen)
    run, given = explained("translation")
    seen = explain_input(run, given, maps=NO_MAPS, views=[name])
    long = {key: value * 99 if isinstance(value, list) else value for key, value in seen.views[name].items()}
    if name == "lens":
        long["depths"] = [
            {key: value * 99 for key, value in depth.items()} for depth in seen.views[name]["depths"]
        ]
    with pytest.raises(RequestError, match=r"at most 120 .*, got"):
        figure_of(replace(seen, views={name: long}))


@pytest.mark.parametrize("name", ["classification", "sets of labels", "tagging", "translation", "images"])
def test_scores_of_words_are_those_of_the_view_in_rows_for_tables(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["occlusion"])
    view, rows = seen.views["occlusion"], seen.word_scores("occlusion")
    n = len(view["words"])
    assert [row["score"] for row in rows] == [score for scores in view["scores"] for score in scores]
    assert [row["word"] for row in rows] == view["words"] * len(view["answers"])
    assert [row["index"] for row in rows] == [*range(n)] * len(view["answers"])
    assert [row["answer"] for row in rows[::n]] == view["answers"]
    assert [row["about"] for row in rows[::n]] == (view["about"] or [""] * len(view["answers"]))
    with pytest.raises(RequestError, match=r"no scores of words by view 'lens'; it has occlusion"):
        seen.word_scores("lens")


def test_words_that_take_their_tag_with_them_are_explained_in_every_medium(explained):
    run, given = explained("tagging")
    for view, is_gone in (("occlusion", True), ("replacement", False)):
        seen = explain_input(run, given, maps=NO_MAPS, views=[view])
        drawings = drawn(seen, view)
        assert {medium for drawing in drawings for medium in drawing.media} == {"page", "terminal", "image"}
        for drawing in drawings:
            assert ("takes this part of the answer with it" in drawing.note) == is_gone
