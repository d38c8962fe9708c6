"""What remains of an answer without words: compared with predictions for texts without them."""

from itertools import combinations

import numpy as np
import pytest
import torch

from heedful.errors import DataError
from heedful.explain.attention_sites import NO_MAPS
from heedful.explain.attribution import replacements
from heedful.explain.attribution.features import tokens_by_word
from heedful.explain.attribution.removal import CHOICES, _choices
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.drawings import Table
from heedful.explain.views import VIEWS, view_module
from heedful.nn.modes import evaluating
from heedful.tasks.model_input import AnswerOptions

JUDGED = [name for name, view in VIEWS.items() if view.judges]
TEXT = "the cat lay on a mat the dog sat"
TARGET = "SLEEPS DOG RED"


def removal_of(run, given, view, options=None):
    with evaluating(run.model):
        seen = explain_input(run, given, maps=NO_MAPS, views=[view], options=options or AnswerOptions())
    return seen.views[view]


@pytest.mark.parametrize("name", ["classification", "sets of labels", "translation"])
def test_the_removed_words_are_those_ranked_first_and_values_are_those_of_predictions(explained, name):
    run, _ = explained(name)
    is_written = name == "translation"
    text = "red dog runs the cat" if is_written else TEXT
    options = AnswerOptions(target=TARGET if is_written else None)
    words = text.split()

    def measured(removed):
        shorter = " ".join(word for i, word in enumerate(words) if i not in removed)
        if is_written:
            (scored,) = run.score([(shorter, TARGET)])
            return scored.score
        return run.predict([shorter])[0].label_probabilities()[part["answer"]]

    view = removal_of(run, text, "replacement", options)
    removal = view["removal"]
    assert view["words"] == words
    assert removal["judge"] == "leaving out"
    scores = np.array(view["scores"])
    if is_written:
        (part,) = removal["parts"]
        assert (part["answer"], removal["measure"]) == ("", "mean log-probability")
        rows, n_parts = [scores.sum(0)], len(view["answers"])
    else:
        assert removal["measure"] == "probability"
        assert [part["answer"] for part in removal["parts"]] == view["answers"]
        rows, n_parts = scores, 1
    for row, part in zip(rows, removal["parts"], strict=True):
        assert part["value"] * n_parts == pytest.approx(measured(()), rel=1e-4)
        supporting = int((row > 0).sum())
        assert part["supporting"] == supporting > 0
        sizes = [len(step["words"]) for step in part["steps"]]
        most = min(supporting, len(words) - 1)
        assert sizes == sorted({min(size, most) for size in (1, 3, -(-len(words) // 5))})
        for size, step in zip(sizes, part["steps"], strict=True):
            assert step["words"] == np.argsort(-row, kind="stable")[:size].tolist()
            assert step["value"] * n_parts == pytest.approx(measured(step["words"]), rel=1e-4)
            others = [i for i in range(len(words)) if i not in step["words"]]
            choices = [*combinations(others, size)]
            assert step["choices"] == min(len(choices), CHOICES)
            if not choices:
                assert step["random"] is None
            elif len(choices) <= CHOICES:
                random = np.mean([measured(each) for each in choices])
                assert step["random"] * n_parts == pytest.approx(random, rel=1e-4)
            if name == "classification":
                shorter = " ".join(word for i, word in enumerate(words) if i not in step["words"])
                (new,) = run.predict([shorter])
                assert step["label"]["output"] == new.text
                assert step["label"]["probability"] == pytest.approx(new.confidence, rel=1e-4)
            else:
                assert "label" not in step


@pytest.mark.parametrize("view", JUDGED)
def test_a_span_keeps_its_ends_and_its_probability_is_that_of_its_score(explained, view):
    run, given = explained("answers")
    (predicted,) = run.predict([given])
    found = removal_of(run, given, view)
    removal = found["removal"]
    (part,) = removal["parts"]
    assert part["answer"] == predicted.text
    assert part["value"] == pytest.approx(predicted.confidence, rel=1e-4)
    for step in part["steps"]:
        assert 0 <= step["value"] <= 1
        assert step["random"] is None or 0 <= step["random"] <= 1
    removed = {index for step in part["steps"] for index in step["words"]}
    assert removed or not any(part["supporting"] for part in removal["parts"])
    reading = prepare_input(run, given)
    words = tokens_by_word(reading.axes["input"])
    for end in reading.targets.answers.tolist():
        (word,) = (number for number, tokens in words.items() if end in tokens)
        assert [*words].index(word) not in removed
    assert "the first and the last word of the answer are not removed" in removal["note"]


def test_a_number_is_judged_as_a_number(explained):
    run, given = explained("regression")
    view = removal_of(run, given, "replacement")
    (part,) = view["removal"]["parts"]
    assert view["removal"]["measure"] == "number"
    assert part["value"] == pytest.approx(view["values"][0], abs=1e-5)


@pytest.mark.parametrize("name", ["tagging", "masks"])
@pytest.mark.parametrize("view", JUDGED)
def test_answers_about_words_or_patches_are_not_judged(explained, name, view):
    assert "removal" not in removal_of(*explained(name), view)


def test_a_single_word_is_not_judged_and_of_few_not_all_are_removed(explained):
    run, _ = explained("classification")
    assert "removal" not in removal_of(run, "cat", "replacement")
    view = removal_of(run, "the cat sat", "replacement")
    (part,) = view["removal"]["parts"]
    n = sum(score > 0 for score in view["scores"][0])
    assert [len(step["words"]) for step in part["steps"]] == [*range(1, min(n, 2) + 1)]


def test_choices_are_different_and_never_have_the_removed_words():
    others = np.array([0, 2, 3, 5, 6, 7, 9, 11, 12])
    assert sorted(_choices(others, 1)) == [[i] for i in others]
    assert sorted(_choices(others, 2)) == [[*pair] for pair in combinations(others, 2)]
    many = _choices(others, 4)
    assert many == _choices(others, 4)
    assert len({tuple(each) for each in many}) == len(many) == CHOICES
    for each in many:
        assert len({*each}) == 4
        assert {*each} <= {*others}
    assert _choices(others, 10) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_only_words_that_support_the_answer_are_removed(explained, monkeypatch, sign):
    run, _ = explained("classification")
    words = TEXT.split()
    scores = np.array([sign * (i % 3 == 0) - 0.5 for i in range(len(words))])
    monkeypatch.setattr(
        "heedful.explain.views.occlusion.occlusion", lambda measured: torch.tensor(scores)[:, None]
    )
    seen = explain_input(run, TEXT, maps=NO_MAPS, views=["occlusion"])
    (part,) = seen.views["occlusion"]["removal"]["parts"]
    removed = [step["words"] for step in part["steps"]]
    table = view_module("occlusion").drawings(seen, seen.views["occlusion"])[-1]
    if sign < 0:
        assert (part["supporting"], removed) == (0, [])
        assert "none of the words supports it" in table.note
        assert len(table.rows) == 1
    else:
        assert part["supporting"] == 3
        assert removed == [[0], [0, 3], [0, 3, 6]]
        assert "3 of the words support it" in table.note


def test_a_given_label_is_compared_with_the_one_that_is_predicted(explained):
    run, _ = explained("classification")
    (prediction,) = run.predict([TEXT])
    other = min(prediction.label_probabilities().items(), key=lambda pair: pair[1])[0]
    seen = explain_input(run, TEXT, maps=NO_MAPS, views=["occlusion"], options=AnswerOptions(target=other))
    (part,) = seen.views["occlusion"]["removal"]["parts"]
    assert part["answer"] == other
    assert part["label"]["output"] == prediction.text


@pytest.mark.parametrize("view", JUDGED)
def test_the_judge_removes_words_in_another_way_than_the_view(explained, view):
    expected = "leaving out" if view == "replacement" else "replacement"
    removal = removal_of(*explained("classification"), view)["removal"]
    assert removal["judge"] == expected
    assert "note" not in removal


def test_without_training_data_words_are_left_out_unless_the_view_does_it_itself(explained, monkeypatch):
    def missing(run):
        raise DataError("x: no such file")

    replacements._READ.clear()
    monkeypatch.setattr(replacements, "_training_inputs", missing)
    run, given = explained("classification")
    assert "removal" not in removal_of(run, given, "occlusion")
    view = removal_of(run, given, "integrated-gradients")
    assert view["removal"]["judge"] == "leaving out"
    assert "cannot be read here" in view["removal"]["note"]


@pytest.mark.parametrize("name", ["classification", "sets of labels", "regression", "translation", "images"])
@pytest.mark.parametrize("view", JUDGED)
def test_every_medium_has_a_table_with_all_its_numbers(explained, name, view):
    run, given = explained(name)
    given = TEXT if name in ("classification", "sets of labels") else given
    seen = explain_input(run, given, maps=NO_MAPS, views=[view])
    removal = seen.views[view]["removal"]
    tables = view_module(view).drawings(seen, seen.views[view])[-len(removal["parts"]) :]
    for table, part in zip(tables, removal["parts"], strict=True):
        assert isinstance(table, Table)
        assert table.media == {"page", "terminal", "image"}
        found = [[np.nan if cell == "-" else float(cell) for cell in row[1:3]] for row in table.rows]
        steps = [
            (step["value"], np.nan if step["random"] is None else step["random"]) for step in part["steps"]
        ]
        np.testing.assert_allclose(found, [(part["value"],) * 2, *steps], rtol=1e-3, atol=6e-5)
        labels = [each["label"]["output"] for each in (part, *part["steps"]) if "label" in each]
        assert [row[3].rpartition(" ")[0] for row in table.rows if len(row) > 3] == labels
        assert ("left out" in table.note) == (removal["judge"] == "leaving out")
