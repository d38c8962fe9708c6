"""Answers that are held back: of empty inputs, and below a threshold."""

import math

import pytest
from jsonschema import Draft202012Validator
from tiny_runs import TASKS, make

import heedful
from heedful.errors import RequestError
from heedful.files import parse_json
from heedful.tasks.metrics.accuracy_thresholds import AccuracyThreshold, Kept
from heedful.tasks.prediction import Prediction
from heedful.tasks.tagging import Tagged

THRESHOLDS = {"classification", "tagging", "image-classification"}


@pytest.fixture(scope="module", params=TASKS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("abstaining") / "runs"
    make(request.param, folder)
    return heedful.load(folder / "finished", device="cpu")


@pytest.fixture(scope="module")
def schema():
    from pathlib import Path

    path = Path(__file__).parents[3] / "docs" / "schemas" / "prediction.schema.json"
    return Draft202012Validator(parse_json(path.read_bytes()))


def inputs_of(run):
    if run.recipe.task.kind == "image-classification":
        return [run.folder.path.parent / f"{n}.png" for n in range(4)]
    return ["a b c", "c c a", "b", "a a b b"]


def test_every_answer_is_what_the_schema_says_with_its_row_or_without(run, schema):
    for prediction in run.predict(inputs_of(run)):
        schema.validate(prediction.to_dict())
        row = {"id": 7, "text": None, "deep": {"a": [1, {"b": "ä"}]}}
        record = prediction.to_dict(row)
        schema.validate(record)
        assert record["input"] == row
        assert not [key for key, value in record.items() if value in (None, [], {}) and key != "output"]


def test_an_empty_input_has_no_answer_and_says_why(run, schema):
    if run.recipe.task.kind in ("image-classification", "language-modelling"):
        return
    for otherwise in (None, "unsure"):
        (empty,) = run.predict([""], otherwise=otherwise)
        assert empty.text == (otherwise or "")
        assert empty.notes == ("the input is empty",)
        record = empty.to_dict()
        schema.validate(record)
        assert empty.held_back == "empty input"
        assert record == {
            "version": 2,
            "output": otherwise,
            "held_back": "empty input",
            "notes": ["the input is empty"],
        }
        assert empty.score is None
        assert empty.confidence is None
        assert empty.label_probabilities() == {}
        assert (empty.tokens, empty.log_probs, empty.alternatives) == ([], [], [])
        assert math.isnan(getattr(empty, "value", math.nan))
        assert not any(getattr(empty, name, None) for name in ("labels", "probabilities", "interval"))


# A row, and what is empty in another.
SCORED = {
    "translation": ({"source": "a", "target": "a"}, {"source": ""}),
    "classification": ({"text": "a"}, {"text": ""}),
    "multilabel-classification": ({"text": "a"}, {"text": ""}),
    "regression": ({"text": "a", "label": 1}, {"text": ""}),
    "tagging": ({"words": ["a"], "tags": ["A"]}, {"words": [], "tags": []}),
}


def test_an_evaluation_counts_empty_inputs(run):
    kind = run.recipe.task.kind
    if kind not in SCORED:
        return
    row, empty = SCORED[kind]
    if kind.endswith("classification"):
        row = {**row, "label": run.task.processor.labels[0]}
    notes = run.evaluate(data=[row, {**row, **empty}, row]).notes
    assert [note for note in notes if "empty" in note] == [
        "1 of 3 inputs are empty and are scored too, the first in data['data']:2"
    ]


def test_answers_below_a_threshold_are_held_back_and_no_others(run, schema):
    if run.recipe.task.kind not in THRESHOLDS:
        with pytest.raises(RequestError, match="have no probability to compare with it"):
            run.predict(inputs_of(run), threshold=0.5)
        return
    plain = run.predict(inputs_of(run))
    if isinstance(plain[0], Tagged):
        probabilities = [math.exp(value) for answer in plain for value in answer.log_probs]
        threshold = sorted(probabilities)[len(probabilities) // 2]
        held = run.predict(inputs_of(run), threshold=threshold, otherwise="_")
        tags = [tag for answer in held for tag in answer.tags]
        assert [tag == "_" for tag in tags] == [p < threshold for p in probabilities]
        for before, after in zip(plain, held, strict=True):
            is_held = "_" in after.tags
            assert after.held_back == ("below threshold" if is_held else None)
            assert after.suggestion == (before.tags if is_held else None)
            schema.validate(after.to_dict())
        with pytest.raises(RequestError, match="tags also need otherwise"):
            run.predict(inputs_of(run), threshold=1.0)
        return
    probabilities = [answer.confidence for answer in plain]
    threshold = sorted(probabilities)[2]
    held = run.predict(inputs_of(run), threshold=threshold, otherwise="unsure")
    for before, after in zip(plain, held, strict=True):
        if before.confidence >= threshold:
            assert after == before
            continue
        assert (after.text, after.to_dict()["output"]) == ("unsure", "unsure")
        assert (after.held_back, after.suggestion) == ("below threshold", before.text)
        assert after.to_dict()["suggestion"] == before.text
        assert after.to_dict()["confidence"] == before.confidence
        assert after.notes[-1].startswith(f"less probable than {threshold:g}: {before.text!r}")
        # The probabilities stay, so that another threshold may be tried.
        assert after.to_dict()["probabilities"] == before.label_probabilities()
        schema.validate(after.to_dict())
    assert [p.to_dict()["output"] for p in run.predict(inputs_of(run), threshold=1.0)] == [None] * 4
    for wrong in (-0.1, 1.5, float("nan"), {"threshold": 0.5}, "0.5", True):
        with pytest.raises(RequestError, match="threshold: expected a number from 0 to 1"):
            run.predict(inputs_of(run), threshold=wrong)
    known = AccuracyThreshold(0.9, Kept(threshold, 2, 2, 4), None)
    assert run.predict(inputs_of(run), threshold=known) == run.predict(inputs_of(run), threshold=threshold)
    unknown = AccuracyThreshold(0.9, None, Kept(threshold, 2, 2, 4), rows_needed=1600)
    with pytest.raises(RequestError, match=r"none is known to keep an accuracy of 0.9 .*; about 1,600 rows"):
        run.predict(inputs_of(run), threshold=unknown)


def test_an_error_stays_what_it_is():
    record = Prediction("", error="x.png: no such file").to_dict({"image": "x.png"})
    assert record == {"version": 2, "input": {"image": "x.png"}, "error": "x.png: no such file"}
