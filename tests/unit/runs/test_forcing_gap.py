"""The gap between teacher-forced and free-running decoding, from evaluation settings to scores."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from heedful.api.run import load
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate, with_evaluation
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schemas/evaluation.schema.json").read_text())
NAMES = [
    "token accuracy, forced",
    "token accuracy, free",
    "accuracy gap",
    "nats per token, forced",
    "nats per token, free",
    "nats per token gap",
]
LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 17}}
LANGUAGE_MODEL = {"kind": "language-model", "d_model": 12, "n_layers": 1, "context": 15, "layer": LAYER}
RUNS = {
    "transformer": ("translation", {"kind": "transformer", "d_model": 12, "n_layers": 1, "layer": LAYER}, {}),
    "recurrent": ("summarisation", {"kind": "recurrent", "d_embedding": 5, "d_hidden": 7}, {}),
    "language model": ("translation", LANGUAGE_MODEL, {}),
    "language model of all": ("translation", LANGUAGE_MODEL, {"loss_on": "all"}),
}


def trained(folder, task, model, objective):
    lines = ["a b c d", "b", "d c a", "c c a b d", "a", "b d d c a b"]
    (folder / "text").write_text("".join(line + "\n" for line in lines * 9))
    (folder / "test").write_text("".join(line + "\n" for line in (*lines, "a b c d a b c d a b c d a b")))
    texts = {
        name: {"kind": "files", "columns": {"source": name, "target": name}} for name in ("text", "test")
    }
    tree = {
        "task": {"kind": task},
        "data": {
            "train": texts["text"],
            "valid": texts["text"],
            "test": {"test": texts["test"]},
            "filter": {"max_length": {"source": 6, "target": 7}},
        },
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": model,
        "objective": objective,
        "schedule": {"kind": "constant", "peak": 1e-2},
        "decoding": {"kind": "greedy"},
        "training": {"max_updates": 2, "tokens_per_update": 90, "precision": "fp32"},
    }
    recipe = recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})
    train_run(recipe, folder / "run", device="cpu")
    return load(folder / "run", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_scores_are_reported_if_asked_for(tmp_path, name):
    run = trained(tmp_path, *RUNS[name])
    test = chosen_splits(run, "test", None)["test"]
    plain, asked = (
        evaluate(with_evaluation(run, overrides), "test", test) for overrides in ([], ["forcing_gap=true"])
    )
    assert asked.scores[: len(plain.scores)] == plain.scores
    added = {score.name: score for score in asked.scores[len(plain.scores) :]}
    assert list(added) == NAMES
    values = {score.name: score.value for score in asked.scores}
    assert values["nats per token, forced"] == pytest.approx(values["nats per token"], rel=1e-5)
    assert values["accuracy gap"] == values["token accuracy, forced"] - values["token accuracy, free"]
    assert 0 <= values["token accuracy, free"] <= 1
    # A reference that the model has no positions for is in neither pass.
    left_out = "language model" in name
    assert {score.counts["sentences"] for score in added.values()} == {7 - left_out}
    assert plain.notes == asked.notes
    report = {"version": 2, "run": "run", "splits": [asked.to_dict()]}
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(report, allow_nan=False)))
