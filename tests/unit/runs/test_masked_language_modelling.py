"""Masked language models as runs: trained, resumed, scored; what their recipes refuse."""

import json
import math

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.config import merged
from heedful.errors import DataError, RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.evaluation import EvaluationOptions
from heedful.tasks.masked_language_modelling.task import masked_batches
from heedful.tasks.registry import task_for
from heedful.text.specials import SPECIALS
from heedful.training.callbacks import JsonLines

TEXT = "the cat sat on the mat while the dog lay on the log and the bird sang in the tree\n" * 12


def plain(**sections):
    training = {"max_updates": 6, "tokens_per_update": 80, "validate_every": 3, "save_every": 2}
    model = {
        "kind": "encoder",
        "d_model": 12,
        "n_layers": 1,
        "max_length": 15,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    }
    return {
        "task": {"kind": "masked-language-modelling"},
        "data": {
            "train": {"kind": "text", "paths": "train.txt"},
            "valid": {"kind": "text", "paths": "valid.txt"},
            "test": {"test": {"kind": "text", "paths": "valid.txt", "documents": "line"}},
        },
        "tokenizer": {"subwords": {"kind": "bpe", "merges": 30}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "model": merged(model, sections.get("model", {})),
        "training": {**training, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def into(folder, **sections):
    (folder / "train.txt").write_text(TEXT)
    (folder / "valid.txt").write_text(TEXT[: len(TEXT) // 4])
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    return train_run(settings, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])


ALL = {
    "task": {"kind": "masked-language-modelling", "next_sentence": True},
    "objective": {"hide": "spans", "boundary": True},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(
        folder,
        **ALL,
        training={"max_updates": 4, "tokens_per_update": 300},
    )
    return folder / "run"


@pytest.fixture(scope="module")
def run(trained):
    return load(trained, device="cpu")


def test_a_run_says_what_it_is(trained):
    assert json.loads((trained / "run.json").read_text())["task"] == "masked-language-modelling"


@pytest.mark.slow
def test_what_neighbours_tell_is_learned(tmp_path):
    """Words in a fixed order: a hidden one is certain from those beside it."""
    (tmp_path / "train.txt").write_text("one two three four five six seven " * 40)
    (tmp_path / "valid.txt").write_text("one two three four five six seven " * 9)
    settings = recipe(
        tokenizer={"subwords": {"kind": "word"}},
        # A recurrence soon finds what stands beside a token; attention must first find out where to look.
        model={
            "d_model": 24,
            "dropout": 0.0,
            "layer": {
                "mixer": {"kind": "recurrent"},
                "channels": {"kind": "feed-forward", "d_ff": 48},
                "norm_placement": "pre",
            },
        },
        schedule={"kind": "constant", "peak": 3e-3},
        training={"max_updates": 400, "validate_every": 400, "save_every": 400, "tokens_per_update": 300},
    ).model_copy(update={"root": str(tmp_path)})
    train_run(settings, tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    found = evaluate(run, "valid", chosen_splits(run, "valid", None)["valid"])
    assert found.scores[1].value > 0.9
    (prediction,) = run.predict(["four five [MASK] seven one"])
    assert prediction.text == "four five six seven one"


def test_progress_is_in_rows(run, monkeypatch):
    monkeypatch.setattr("heedful.tasks.masked_language_modelling.task.BATCH_TOKENS", 40)
    done = []
    evaluate(run, "test", run.recipe.data.test["test"], EvaluationOptions(progress=done.append))
    assert sum(done) == 3  # lines
    assert len(done) > 3


def test_scores_are_those_of_hidden_tokens_and_pairs(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    assert [score.name for score in found.scores] == [
        "masked perplexity",
        "masked accuracy",
        "boundary perplexity",
        "next-sentence accuracy",
    ]
    again = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    assert [s.value for s in again.scores] == [s.value for s in found.scores]
    spans = "hide:spans|span_p:0.2|longest_span:10"
    pairs = f"{spans}|rate:0.15|length:15|seed:0|pairs:sentences|strangers:other-documents"
    assert found.scores[0].signature.startswith(f"{pairs}|tok:")
    assert found.scores[2].signature == found.scores[0].signature
    assert found.scores[3].signature == pairs
    one = evaluate(run, "valid", run.recipe.data.valid).scores[3]  # a file is one document
    assert one.signature == pairs.replace("other-documents", "same-document")
    assert one.counts["pairs"] > 5


@torch.no_grad()
def test_the_boundary_is_scored_over_every_token_of_a_span(run):
    """One by one: a softmax of what the head makes of the tokens on both sides and of its place."""
    score = evaluate(run, "valid", run.recipe.data.valid).scores[2]
    ids = np.array(run.processor.text.encode(TEXT[: len(TEXT) // 4]))
    make = masked_batches(run.recipe, run.processor, np.append(ids, SPECIALS.end), seed=0)
    batch = make(range(len(make.lengths)), 0)
    hidden, head = run.model(batch.inputs), run.model.heads["boundary"]
    places = batch.rows.tolist()
    costs = []
    for place, token in zip(places, batch.targets.tolist(), strict=True):
        first, last = place, place
        while first - 1 in places:
            first -= 1
        while last + 1 in places:
            last += 1
        read = torch.cat([hidden[first - 1], hidden[last + 1], head.positions[place - first]])
        logits = run.model.embedding.weight @ head.second(head.first(read)) + head.out.bias
        costs.append(-logits.log_softmax(0)[token].item())
    assert score.name == "boundary perplexity"
    assert score.counts == {"tokens": len(costs)}
    assert score.value == pytest.approx(math.exp(sum(costs) / len(costs)), rel=1e-4)


def test_a_model_without_a_boundary_has_no_such_score(tmp_path):
    into(tmp_path, objective={"hide": "spans"}, training={"max_updates": 1})
    run = load(tmp_path / "run", device="cpu")
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    assert [score.name for score in found.scores] == ["masked perplexity", "masked accuracy"]


def test_gaps_are_filled(run):
    first, second = run.predict(["the cat sat on the ___", "no gap"], gap="___", n_best=2)
    assert "___" not in first.text
    assert len(first.alternatives) == 1
    assert second.text == "no gap"


def test_every_head_is_there_for_what_is_asked(run):
    assert set(run.model.heads) == {"pooled", "token", "boundary", "next"}
    assert set(plain_model().heads) == {"pooled", "token"}


def plain_model():
    made = recipe()

    return task_for(made).build_model((31,))


@pytest.mark.slow
@pytest.mark.parametrize("hide", ["tokens", "words", "spans"])
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path, hide):
    sections = {"objective": {"hide": hide}, "task": ALL["task"]}
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder, n in ((straight, 11), (stopped, 5)):
        folder.mkdir()
        into(folder, **sections, training={"max_updates": n, "save_every": 3, "validate_every": 100})
    settings = recipe(**sections, training={"max_updates": 11, "save_every": 3, "validate_every": 100})
    settings = settings.model_copy(update={"root": str(stopped)})
    train_run(settings, stopped / "run", resume=True, device="cpu")
    one, other = (load(f / "run", device="cpu").model.state_dict() for f in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_words_that_cannot_be_told_are_refused_before_training(tmp_path):
    with pytest.raises(RequestError, match="requires tokens that show where words begin"):
        into(tmp_path, tokenizer={"subwords": {"kind": "character"}}, objective={"hide": "words"})
    assert not (tmp_path / "run").exists()


def test_a_text_of_unknown_tokens_is_refused_before_training(tmp_path):
    with pytest.raises(RequestError, match=r"data\.train: the tokenizer knows no token of the text"):
        into(tmp_path, tokenizer={"subwords": {"kind": "character", "min_frequency": 100_000}})


def test_a_text_of_one_token_is_refused(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    (tmp_path / "valid.txt").write_text("a")
    settings = recipe(tokenizer={"subwords": {"kind": "word"}}).model_copy(update={"root": str(tmp_path)})
    with pytest.raises(DataError, match="must have at least two tokens"):
        train_run(settings, tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"objective": {"masked": 0.9, "random": 0.2}}, "must not add up to more than 1"),
        ({"objective": {"boundary": True}}, "requires hide=spans"),
        ({"model": {"max_length": 3}}, "must be at least"),
        ({"task": ALL["task"], "model": {"segments": 1}}, "segments=2"),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)
