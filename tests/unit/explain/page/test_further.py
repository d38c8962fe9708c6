"""Which drawings further views become."""

from dataclasses import replace

import numpy as np
import pytest
from constructed import translation

from heedful.explain.page.build import drawings
from heedful.explain.page.packing import pack_signed

QUESTIONS = {"side": "target", "places": [0, 2], "answers": ["naan", "farm"]}


def drawn(**more):
    return drawings(replace(translation(), views=more))


def test_what_says_its_kind_is_drawn_as_it_is():
    views = translation().views
    assert drawn(**views) == [*views.values()]


def test_the_lens_is_a_row_for_each_answer():
    depths = [
        {
            "log_probs": [-1.0, -2.0],
            "top": [
                [{"answer": "naan", "log_prob": -0.5}, {"answer": "b", "log_prob": -2.0}],
                [{"answer": "ar", "log_prob": None}],
            ],
        },
        {"log_probs": [-0.1, -0.2], "top": [[{"answer": "naan", "log_prob": -0.1}]] * 2},
    ]
    (found,) = drawn(lens={**QUESTIONS, "depths": depths})
    assert found["kind"] == "table"
    assert found["columns"] == ["answer", "embeddings", "layer 1"]
    bold = {"text": "naan", "bold": True}
    assert found["rows"] == [
        [
            "naan",
            {**bold, "probability": pytest.approx(0.606531)},
            {**bold, "probability": pytest.approx(0.904837)},
        ],
        ["farm", ["ar", 0.0], ["naan", pytest.approx(0.904837)]],
        ["mean log-probability", "-1.500", "-0.150"],
    ]
    assert drawn(lens={**QUESTIONS, "depths": []}) == []


def test_losses_stand_at_the_places_of_their_questions():
    view = {**QUESTIONS, "losses": [0.25, 1.5], "mean": 0.875, "perplexity": 2.39888}
    (found,) = drawn(losses={**view, "probabilities": [0.778801, 0.22313], "given": [False, False]})
    assert found["title"] == "Loss of each target token, in nats"
    assert found["note"] == "mean loss 0.8750, perplexity 2.399"
    assert found["values"] == [0.25, None, 1.5, None, None, None, None, None]


def test_losses_of_an_answer_about_the_whole_input_are_a_table():
    view = {
        "side": "source",
        "places": [],
        "answers": ["boot"],
        "losses": [0.25],
        "probabilities": [0.778801],
    }
    (found,) = drawn(losses={**view, "mean": 0.25, "perplexity": 1.284025})
    assert (found["kind"], found["columns"]) == ("table", ["answer", "probability", "loss (nats)"])
    assert found["rows"] == [["boot", 0.778801, 0.25]]


def test_gradients_have_a_drawing_for_each_side_there_is():
    sides = [{"name": name, "products": [1.0], "norms": [2.0]} for name in ("source", "elsewhere", "target")]
    found = drawn(gradients={"score": -1.0, "answers": ["naan"], "sides": sides})
    assert [(each["side"], each["values"]) for each in found] == [("source", [1.0]), ("target", [1.0])]


def test_what_is_not_known_is_left_out():
    assert drawn(unknown={"numbers": [1]}) == []


def test_patches_need_their_image_and_all_else_nothing():
    patches = {"title": "x", "kind": "patches", "side": "nowhere", "images": []}
    heat = {"title": "x", "kind": "heat", **pack_signed(np.array([[1.0]]))}
    assert drawn(one=patches, other=heat) == [heat]
