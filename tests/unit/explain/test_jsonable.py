"""Explanations as JSON: the published schema holds, and the numbers come back."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heedful.explain.jsonable import jsonable
from heedful.explain.look import look
from heedful.explain.page import page
from heedful.explain.points import points
from heedful.explain.summary import mean_of, word_alignment
from heedful.explain.view import Explanation, Side
from heedful.explain.views import views_of


def through_json(published, explanation):
    plain = json.loads(json.dumps(jsonable(explanation), allow_nan=False))
    published("explanation", plain)
    return plain


def test_every_explanation_is_what_the_schema_says(published, explained, every):
    run, given = explained(every)
    kinds = None if points(run.model) else ()
    views = views_of(run)
    seen = look(run, given, kinds=kinds, views=views)
    plain = through_json(published, seen)
    assert (plain["version"], plain["run"], plain["task"]) == (1, seen.run, seen.task)
    assert plain["answer"] == json.loads(json.dumps(seen.answer))
    assert plain["more"] == json.loads(json.dumps(seen.more))
    assert len(plain["maps"]) == len(seen.maps)
    for own, each in zip(plain["maps"], seen.maps, strict=True):
        np.testing.assert_allclose(own["weights"], each.weights, atol=5.01e-7, rtol=0)
        assert (own["kind"], own["layer"], own["tap"]) == (each.kind, each.layer + 1, each.tap)
        assert (own["queries"], own["keys"]) == (each.queries, each.keys)
        assert own["heads"] == [head + 1 for head in each.heads]
    for own, (name, side) in zip(plain["sides"], seen.sides.items(), strict=True):
        assert (own["name"], own["tokens"], own["words"]) == (name, [*side.tokens], [*side.words])
        assert ("written" in own) == (name in seen.written)


def test_weights_have_six_digits(explained):
    plain = jsonable(look(*explained("translation")))
    weights = [value for each in plain["maps"] for value in np.ravel(each["weights"])]
    assert all(value == round(value, 6) for value in weights)


def test_a_picture_is_a_png_in_base64(published, explained):
    run, given = explained("pictures")
    (side,) = through_json(published, look(run, given))["sides"]
    assert (side["grid"], side["before"]) == ([2, 2], 1)
    content = base64.b64decode(side["picture"])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("a text", "a text"), (("a", "b"), ["a", "b"]), (Path("x.png"), "x.png"), (np.zeros(3), None)],
)
def test_inputs_are_texts_paths_or_nothing(published, given, wanted):
    side = Side(("a",), (0,), ("a",))
    answer = {"text": "", "score": 0.0, "alternatives": []}
    seen = Explanation("x", "r", given, answer, {"input": side}, [], {"input": [-float("inf")]})
    plain = through_json(published, seen)
    assert plain["input"] == wanted
    assert plain["sides"][0]["written"] == [None]


@pytest.mark.parametrize("name", ["translation", "recurrent", "captions", "one text", "classification"])
def test_a_text_that_was_written_from_another_has_its_alignment(published, explained, name):
    seen = look(*explained(name))
    plain = through_json(published, seen)
    if name in ("translation", "recurrent"):
        assert plain["alignment"] == word_alignment(mean_of(seen))
        assert f">{plain['alignment']}<" in page(seen)
    else:
        assert "alignment" not in plain
        assert "Word alignment" not in page(seen)
