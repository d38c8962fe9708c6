"""Each published schema is sound, closed and versioned, and holds for what the code makes."""

import json
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator, ValidationError

from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import Prediction
from heedful.training.callbacks import JsonLines, Started, Stopped, StopReason, Updated, Validated

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
SCHEMAS = {path.name.removesuffix(".schema.json"): path for path in sorted(FOLDER.glob("*.json"))}


def schema(name: str) -> dict[str, Any]:
    return json.loads(SCHEMAS[name].read_text(encoding="utf-8"))


def check(name: str, value: Any) -> None:
    """After a trip through JSON, so that nothing passes that cannot be written."""
    Draft202012Validator(schema(name)).validate(json.loads(json.dumps(value, allow_nan=False)))


def objects(node: Any):
    """Every schema in a schema that lists properties."""
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield node
        for inner in node.values():
            yield from objects(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from objects(inner)


def test_all_schemas_are_there():
    made = {"metrics", "evaluation", "document", "prediction", "run", "ledger", "recipes", "explanation"}
    assert made <= set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_itself_and_says_what_it_is(name):
    own = schema(name)
    Draft202012Validator.check_schema(own)
    assert own["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert own["$id"] == SCHEMAS[name].name
    assert own["title"]
    assert own["description"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_version_is_required(name):
    own = schema(name)
    variants = (
        [own] if "properties" in own else [own["$defs"][v["$ref"].rpartition("/")[2]] for v in own["oneOf"]]
    )
    for variant in variants:
        assert "const" in variant["properties"]["version"]
        assert "version" in variant["required"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_object_is_closed(name):
    own = schema(name)
    # Into an embedding go the keys of its input, under the input of a prediction all of them.
    opened = {"embedding": [own], "prediction": []}.get(name, [])
    opened += [own["properties"]["input"]] if name in ("prediction", "embedding") else []
    closed = [node for node in objects(own) if not any(node is each for each in opened)]
    assert closed or opened
    assert all(node["additionalProperties"] is False for node in closed)


SCORE = {"name": "BLEU", "value": 1.5, "signature": "a:b", "details": {}, "counts": {"sentences": 3}}
ANSWER = {"output": "x", "score": -1.0, "tokens": ["x"], "log_probs": [-0.5, -0.5]}
GOOD: dict[str, Any] = {
    "metrics": {"version": 1, "event": "stopped", "update": 3, "reason": "updates", "elapsed": 2.5},
    "evaluation": {"version": 2, "run": "runs/x", "splits": [{"split": "test", "scores": [SCORE]}]},
    "prediction": {"version": 2, **ANSWER, "alternatives": [{**ANSWER}]},
    "embedding": {"version": 1, "text": "a b", "vector": [0.5, -1.0]},
    "document": {"version": 1, "document": "t.txt:1", "tokens": 7, "nll": 3.5},
    "census": {
        "version": 2,
        "task": "language-modelling",
        "run": "x",
        "inputs": 2,
        "threshold": 0.5,
        "table": [{"kind": "causal", "pattern": "previous token", "heads": 1, "share": 1.0, "beside": 0}],
        "recurrence": {"heads": 1, "previous": 1.0, "next": 0.0, "either": 1.0},
        "heads": [
            {
                "layer": 0,
                "kind": "causal",
                "head": 0,
                "pattern": "previous token",
                "score": 0.75,
                "chance": 0.2,
                "evidence": [{"input": 0, "query": 1, "key": 0, "tokens": ["b", "a"], "weight": 0.9}],
                "tap": "layers.0.weights",
                "others": [],
                "position": None,
                "entropy": 0.3,
                "confidence": 0.8,
                "matches": {
                    name: {
                        "score": 0.75,
                        "chance": 0.2,
                        "mass": 0.8,
                        "queries": 7,
                        "explained": 0.6,
                        "evenness": None,
                    }
                    for name in ("previous token", "neighbour")
                },
            }
        ],
    },
    "run": {
        "version": 1,
        "heedful": "0.1.0",
        "created": "2026-01-02T03:04:05+00:00",
        "task": "translation",
        "files": {"weights.safetensors": {"sha256": "0" * 64, "bytes": 7}},
    },
    "recipes": {
        "version": 1,
        "recipes": [
            {
                "name": "x",
                "description": "It trains.",
                "task": "translation",
                "data": "your own",
                "parameters": None,
                "minutes": 0.5,
                "scores": {"test BLEU": 1.5},
                "note": "",
            }
        ],
    },
    "explanation": {
        "version": 3,
        "run": "x",
        "task": "translation",
        "input": "q",
        "answer": {**ANSWER, "alternatives": [{**ANSWER}]},
        "sides": [{"name": "input", "tokens": ["q", "r"], "words": [0, 0], "surface": ["qr"]}],
        "maps": [
            {
                "tap": "stack.blocks.0.mixer.part.weights",
                "kind": "causal",
                "layer": 0,
                "queries": "input",
                "keys": "input",
                "heads": [1],
                "weights": [[[1.0, 0.0], [0.25, 0.75]]],
            }
        ],
        "more": {},
    },
    "ledger": {
        "version": 1,
        "name": "transformer-tiny",
        "total": 12,
        "trainable": 12,
        "layers": 0,
        "source_length": 3,
        "target_length": 5,
        "flops_per_token": 24,
        "training_flops_per_token": 72,
        "lines": [
            {
                "name": "output layer",
                "depth": 0,
                "formula": "d_model * V = 3 * 4",
                "each": 12,
                "times": 1,
                "parameters": 12,
                "flops_per_token": 24,
                "note": "",
            }
        ],
        "tokens": 5,
        "memory": {"weights": 48},
        "notes": [],
    },
    "lab": {
        "version": 1,
        "experiments": [
            {
                "name": "two-lookups",
                "title": "Two places at once",
                "claim": "One head averages.",
                "source": "S2",
                "items": [27],
                "changed": "The mean is asked for.",
                "results": [
                    {
                        "control": False,
                        "size": "short",
                        "verdict": "holds",
                        "expected": "holds",
                        "statement": "It does.",
                        "measured": [{"name": "left", "value": 50.5, "unit": "%", "expected": None}],
                        "table": [{"heads": 1, "looks at": "both"}],
                        "seconds": 0.5,
                    }
                ],
            }
        ],
    },
}


def changed(name: str, *path: Any, to: Any) -> Any:
    value = deepcopy(GOOD[name])
    here = value
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = to
    return value


@pytest.mark.parametrize("name", GOOD)
def test_a_good_object_passes_and_one_without_a_required_key_does_not(name):
    check(name, GOOD[name])
    for key in GOOD[name].keys() - {"text", "score", "tokens", "log_probs", "alternatives"}:
        value = {k: v for k, v in GOOD[name].items() if k != key}
        with pytest.raises(ValidationError):
            check(name, value)


WRONG = {
    "another version": changed("run", "version", to=2),
    "a hash of another length": changed("run", "files", "weights.safetensors", "sha256", to="0" * 63),
    "a path out of the folder": changed("run", "files", to={"/etc/x": {"sha256": "0" * 64, "bytes": 7}}),
    "an unknown key": changed("evaluation", "extra", to=1),
    "an unknown key of a score": changed("evaluation", "splits", 0, "scores", 0, "unit", to="%"),
    "a score of text": changed("evaluation", "splits", 0, "scores", 0, "value", to="high"),
    "an unknown event": changed("metrics", "event", to="paused"),
    "an unknown reason": changed("metrics", "reason", to="boredom"),
    "a probability above one": changed("prediction", "log_probs", to=[0.5]),
    "an output and an error": changed("prediction", "error", to="x"),
    "an unknown key of an answer": changed("prediction", "label", to="x"),
    "an unknown key of an alternative": changed("prediction", "alternatives", 0, "source", to="x"),
    "a vector of text": changed("embedding", "vector", to=["x"]),
    "a vector and an error": changed("embedding", "error", to="x.png: no such file"),
    "a document of half a token": changed("document", "tokens", to=0.5),
    "a head of an unknown pattern": changed("census", "heads", 0, "pattern", to="syntax"),
    "a match of what is no relation": changed("census", "heads", 0, "matches", to={"broad": {}}),
    "a census without heads": changed("census", "heads", to=[]),
    "a head of a census before the first": changed("census", "heads", 0, "head", to=-1),
    "a fraction of a parameter": changed("ledger", "total", to=1.5),
    "a layer before the first": changed("explanation", "maps", 0, "layer", to=-1),
    "attention of another kind": changed("explanation", "maps", 0, "kind", to="local"),
    "a weight above one": changed("explanation", "maps", 0, "weights", to=[[[1.5]]]),
    "an unknown key of a side": changed("explanation", "sides", 0, "ids", to=[1, 2]),
    "a view that is not what it says": changed("explanation", "more", to={"losses": {}}),
    "a recipe without parameters": changed("recipes", "recipes", 0, "parameters", to=0),
    "a recipe with a score of text": changed("recipes", "recipes", 0, "scores", to={"test BLEU": "high"}),
    "an experiment's verdict in other words": changed(
        "lab", "experiments", 0, "results", 0, "verdict", to="holds somewhat"
    ),
    "a figure without a name": changed("lab", "experiments", 0, "results", 0, "measured", 0, to={"value": 1}),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_objects_are_refused(case):
    value = WRONG[case]
    name = next(name for name, good in GOOD.items() if good.keys() <= value.keys())
    with pytest.raises(ValidationError):
        check(name, value)


def test_lines_of_a_training_hold(tmp_path):
    write = JsonLines(tmp_path / "metrics.jsonl")
    nan = float("nan")
    write(Started(0, max_updates=None, damaged=("a: b",)))
    write(Updated(1, 0, nan, {"token": nan, "z": 1.0}, 0.1, float("inf"), 97, 0.5, 0.5))
    write(Validated(1, {"loss": 2.0, "bleu": nan}, True, 0.7))
    write(Stopped(1, "failed", 0.9))
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    for line in lines:
        check("metrics", json.loads(line))


def test_the_schema_of_events_knows_their_fields_and_reasons():
    kinds = schema("metrics")["$defs"]
    for event in (Started, Updated, Validated, Stopped):
        own = kinds[event.__name__.lower()]
        names = {"version", "event", *(field.name for field in fields(event))}
        assert set(own["properties"]) == set(own["required"]) == names
    assert set(kinds["stopped"]["properties"]["reason"]["enum"]) == {*get_args(StopReason), "failed"}
    assert set(schema("run")["properties"]["stopped"]["enum"]) == set(get_args(StopReason))


def test_predictions_hold():
    second = Prediction("y", -2.0, ["y"], [-2.0])
    first = Prediction(
        "x", -1.0, ["x"], [-0.5, -0.5], [second], ["q", "r"], [[[[0.3, 0.7], [1.0, 0.0]]]], notes=("cut",)
    )
    captioned = Prediction("z", attention=[[[[0.1] * 6]]], grid=(2, 3))
    unread = Prediction("", error="x.png: no such file")
    aligned = Prediction("z y", alignment=[(0, 1), (2, 0)])
    for prediction in (first, second, captioned, unread, aligned, Prediction("", alignment=[])):
        check("prediction", prediction.to_dict({"source": "q r", "id": 7}))


def test_scores_hold():
    scores = [*classification_scores(["a", "a"], ["a", "b"]).values(), Score("perplexity", float("inf"), "")]
    splits = [{"split": "test", "scores": [score.to_dict() for score in scores]}]
    check("evaluation", {"version": 2, "run": "x", "splits": splits})
