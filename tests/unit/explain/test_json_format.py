"""Explanations as JSON: the published schema holds, and the numbers come back."""

import base64
import io
import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heedful.explain.attention_map import AttentionMap
from heedful.explain.attention_sites import Selection, find_sites
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.drawing.on_figure import figure
from heedful.explain.drawing.on_terminal import lines
from heedful.explain.explanation import Explanation
from heedful.explain.json_format import json_pieces
from heedful.explain.page.build import page
from heedful.explain.summary import summary_matrix, word_alignment
from heedful.explain.views import view_module, views_of
from heedful.files import json_text
from heedful.tasks.model_input import AnswerOptions, Axis


def jsonable(seen):
    return json.loads("".join(json_pieces(seen)))


def through_json(published, explanation):
    plain = jsonable(explanation)
    published("explanation", plain)
    return plain


@pytest.mark.slow
def test_every_explanation_is_what_the_schema_says(published, explained, others, every):
    run, given = explained(every)
    kinds = None if find_sites(run.model) else ()
    views = views_of(run)
    seen = explain_input(run, given, maps=Selection(kinds=kinds), views=views, others=others(every))
    plain = through_json(published, seen)
    assert "".join(json_pieces(seen)) == json_text(jsonable(seen))
    assert (plain["version"], plain["run"], plain["task"]) == (3, seen.run, seen.task)
    assert plain["answer"] == json.loads(json.dumps(seen.answer))
    assert plain["more"] == json.loads(json.dumps(seen.views))
    assert len(plain["maps"]) == len(seen.maps)
    for own, each in zip(plain["maps"], seen.maps, strict=True):
        np.testing.assert_allclose(own["weights"], each.weights, atol=5.01e-7, rtol=0)
        assert (own["kind"], own["layer"], own["tap"]) == (each.kind, each.layer, each.tap)
        assert (own["queries"], own["keys"]) == (each.queries, each.keys)
        assert own["heads"] == [*each.heads]
    for own, (name, side) in zip(plain["sides"], seen.axes.items(), strict=True):
        assert (own["name"], own["tokens"], own["words"]) == (name, [*side.tokens], [*side.words])
        assert ("written" in own) == (name in seen.log_probs)


def test_weights_have_six_digits(explained):
    plain = jsonable(explain_input(*explained("translation")))
    weights = [value for each in plain["maps"] for value in np.ravel(each["weights"])]
    assert all(value == round(value, 6) for value in weights)


def test_an_image_is_a_png_in_base64(published, explained):
    run, given = explained("images")
    (side,) = through_json(published, explain_input(run, given))["sides"]
    assert (side["grid"], side["before"]) == ([2, 2], 1)
    content = base64.b64decode(side["image"])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("a text", "a text"), (("a", "b"), ["a", "b"]), (Path("x.png"), "x.png"), (np.zeros(3), None)],
)
def test_inputs_are_texts_paths_or_nothing(published, given, wanted):
    side = Axis(("a",), (0,), ("a",))
    answer = {"output": "", "score": 0.0}
    seen = Explanation("x", "r", given, answer, {"input": side}, [], {"input": [-float("inf")]})
    plain = through_json(published, seen)
    assert plain["input"] == wanted
    assert plain["sides"][0]["written"] == [None]


def test_an_answer_of_probability_0_is_null(published, explained):
    """A given token that the model excludes has the log-probability -inf and an infinite loss."""
    run, given = explained("translation")
    options = AnswerOptions(target="BLUE DOG")
    first = prepare_input(run, given, options).targets.answers[0]

    def exclude(module, args, logits):
        return logits.index_fill(-1, first, -math.inf)

    hook = run.model.heads["token"].register_forward_hook(exclude)
    try:
        seen = explain_input(run, given, options=options, views=["losses", "lens"])
    finally:
        hook.remove()
    assert seen.answer["log_probs"][0] == seen.answer["score"] == -math.inf
    plain = through_json(published, seen)
    assert plain["answer"]["score"] is None
    assert [value is None for value in plain["answer"]["log_probs"]].index(True) == 0
    assert None not in plain["answer"]["log_probs"][1:2]
    losses = plain["more"]["losses"]
    assert (losses["losses"][0], losses["probabilities"][0], losses["mean"]) == (None, 0.0, None)
    assert plain["more"]["lens"]["depths"][-1]["log_probs"][0] is None
    _, drawing = view_module("losses").drawings(seen, seen.views["losses"])
    shown = lines(drawing, seen.axes)
    assert shown[2].split()[0] == "inf"
    assert shown[-1] == "  mean loss inf, perplexity inf"
    (table,) = view_module("lens").drawings(seen, seen.views["lens"])
    assert table.rows[-1][-1] == "-inf"
    bars = figure([drawing], seen.axes).axes[0].patches
    assert bars[0].get_width() == max(bar.get_width() for bar in bars)
    assert "probability 0.0000" in page(seen)


@pytest.mark.parametrize("name", ["translation", "recurrent", "captions", "one text", "classification"])
def test_a_text_that_was_written_from_another_has_its_alignment(published, explained, name):
    seen = explain_input(*explained(name))
    plain = through_json(published, seen)
    if name in ("translation", "recurrent", "one text"):
        assert plain["alignment"] == word_alignment(summary_matrix(seen))
        assert f">{plain['alignment']}<" in page(seen)
    else:
        assert "alignment" not in plain
        assert "Word alignment" not in page(seen)


# In pieces


ANSWER = {"output": "", "score": 0.0}


def with_weights(*weights, given="a text"):
    """An explanation of one side, a layer for each of the weights [heads, n, n]."""
    n = weights[0].shape[1] if weights else 1
    heads = [tuple(range(len(each))) for each in weights]
    maps = [
        AttentionMap(f"tap.{i}", "self", i, "input", "input", own, each)
        for i, (own, each) in enumerate(zip(heads, weights, strict=True))
    ]
    return Explanation("x", "r", given, ANSWER, {"input": Axis(("a",) * n, (0,) * n, ("a",))}, maps)


@pytest.mark.parametrize(
    "seen",
    [
        with_weights(),
        with_weights(np.zeros((0, 1, 1), np.float32)),
        with_weights(np.zeros((2, 0, 0), np.float32)),
        with_weights(np.full((1, 3, 3), 1 / 3, np.float32), given="\u00fc"),
        with_weights(np.full((1, 1, 1), 1e-9, np.float32), given="half of a pair: \udcff, and \u00fc"),
    ],
)
def test_pieces_of_nothing_and_of_other_signs(seen):
    assert "".join(json_pieces(seen)) == json_text(jsonable(seen))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(bad):
    weights = np.full((1, 2, 2), 0.5, np.float32)
    weights[0, 1, 1] = bad
    with pytest.raises(ValueError, match=r"tap\.1: a weight is not finite"):
        next(json_pieces(with_weights(np.full((1, 2, 2), 0.5, np.float32), weights)))
    with pytest.raises(ValueError, match="Out of range float"):
        next(json_pieces(replace(with_weights(), views={"x": bad})))


@pytest.mark.slow
def test_many_weights_are_never_numbers_of_python_together():
    """A row of them at a time: beside the weights there is less than a tenth of them."""
    rng = np.random.default_rng(5)
    seen = with_weights(*(rng.dirichlet(np.ones(160), (8, 160)).astype(np.float32) for _ in range(3)))
    taken = sum(each.weights.nbytes for each in seen.maps)
    tracemalloc.start()
    try:
        n_signs = sum(map(len, json_pieces(seen)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_signs > taken
    assert most < taken / 10
