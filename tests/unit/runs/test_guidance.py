"""Guided attention from recipe to run: what is asked of data and models, and what training sees."""

import json

import pytest
import torch

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.data.links import ALIGNMENT
from heedful.errors import DataError, RequestError
from heedful.objectives.guided import Guidance
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.prepare import prepare
from heedful.runs.reading import recipe_from
from heedful.runs.train import new_module, train_run
from heedful.tasks.evaluation import EvaluationOptions
from heedful.tasks.generation.guidance import GuidedConfig
from heedful.tasks.registry import task_for
from heedful.training.callbacks import JsonLines

WORDS = ["a", "b", "c d", "b a", "c a b", "d c b a", "a d"] * 5
MODEL = {
    "kind": "transformer",
    "d_model": 12,
    "n_layers": 2,
    "dropout": 0.0,
    "layer": {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 17}},
}


def plain(guided=None, model=MODEL, **sections):
    texts = {"source": "source", "target": "target"}
    return {
        "task": {"kind": "translation"},
        "data": {
            "train": {"kind": "files", "columns": {**texts, ALIGNMENT: "links"}},
            "valid": {"kind": "files", "columns": texts},
        },
        "tokenizer": {"subwords": {"kind": "character"}},
        "model": model,
        "objective": {"guided": {} if guided is None else guided},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {
            "max_updates": 4,
            "tokens_per_update": 90,
            "validate_every": 2,
            "save_every": 2,
            "precision": "fp32",
        },
        **sections,
    }


def recipe(*given, **sections):
    return recipe_from(Tree.of(plain(*given, **sections), Mark("r")))


@pytest.fixture
def corpus(tmp_path):
    """A text and its words in reverse order."""
    words = [line.split() for line in WORDS]
    (tmp_path / "source").write_text("".join(" ".join(w) + "\n" for w in words))
    (tmp_path / "target").write_text("".join(" ".join(reversed(w)) + "\n" for w in words))
    links = [" ".join(f"{i}-{len(w) - 1 - i}" for i in range(len(w))) for w in words]
    (tmp_path / "links").write_text("".join(line + "\n" for line in links))
    return tmp_path


def into(folder, settings, name="run", **how):
    settings = settings.model_copy(update={"root": str(folder)})
    return train_run(
        settings, folder / name, device="cpu", callbacks=lambda run: [JsonLines(run.metrics)], **how
    )


def test_training_sees_the_links_and_tells_the_term(corpus):
    logged = []
    into(corpus, recipe(), log=logged.append)
    events = [json.loads(line) for line in (corpus / "run" / "metrics.jsonl").read_text().splitlines()]
    terms = [event["terms"] for event in events if event["event"] == "updated"]
    assert terms
    assert all(term["alignment"] > 0 for term in terms)
    validated = [event["metrics"] for event in events if event["event"] == "validated"]
    assert all(set(each) == {"loss", "perplexity"} for each in validated)
    # Only the training data have alignments, and the run needs none to be used.
    run = load(corpus / "run", device="cpu")
    files = [corpus / "source", corpus / "target"]
    ((name, source),) = chosen_splits(run, "test", files).items()
    assert evaluate(run, name, source, EvaluationOptions(limit=3)).scores
    assert len(run.predict(["a b"])) == 1


def test_batches_have_the_links_of_their_rows(corpus):
    settings = recipe().model_copy(update={"root": str(corpus)})
    (corpus / "run").mkdir()
    prepared = prepare(settings, RunFolder(corpus / "run"), lambda line: None)
    assert [*prepared.train[0]] == ["source", "target", ALIGNMENT]
    assert [*prepared.valid[0]] == ["source", "target"]
    feed = prepared.task.training_data(prepared)
    batch = feed.collate([4, 0], 0)
    # "c a b" and "b a c", in characters and blanks; a blank belongs to the word after it.
    places = {0: [0], 1: [1, 2], 2: [3, 4]}
    wanted = {(0, t, s) for i in places for t in places[2 - i] for s in places[i]} | {(1, 0, 0)}
    found = zip(
        *(x.tolist() for x in (batch.links.sequence, batch.links.query, batch.links.key)), strict=True
    )
    assert set(found) == wanted
    assert batch.links.n_tokens == 6


@pytest.mark.slow
def test_a_guided_run_goes_on_where_it_was_stopped(corpus):
    whole = recipe()
    into(corpus, whole, "whole")
    half = whole.model_copy(update={"training": whole.training.model_copy(update={"max_updates": 2})})
    into(corpus, half, "halves")
    into(corpus, whole, "halves", resume=True)
    weights = [(corpus / name / "weights.safetensors").read_bytes() for name in ("whole", "halves")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("guided", "layer", "head"), [({}, 0, 0), ({"layer": 2, "head": 3}, 1, 2), ({"weight": 0.25}, 0, 0)]
)
def test_the_recipe_says_which_head_and_how_much(guided, layer, head):
    settings = recipe(guided)
    step = new_module(task_for(settings), (17, 17), torch.device("cpu"))
    (own,) = [each for each in step.auxiliary if isinstance(each, Guidance)]
    assert own.taps == [step.model.alignment_taps[layer]]
    assert (own.head, own.weight) == (head, guided.get("weight", 0.05))


def test_without_it_nothing_listens_and_no_alignment_is_asked_for():
    settings = recipe_from(Tree.of({**plain(), "objective": {}}, Mark("r")))
    assert not any(
        isinstance(each, Guidance)
        for each in new_module(task_for(settings), (17, 17), torch.device("cpu")).auxiliary
    )
    assert task_for(settings).columns.training == ()


@pytest.mark.parametrize(("n", "layer"), [(1, 0), (2, 0), (3, 1), (6, 4)])
def test_by_default_it_is_the_last_layer_but_one(n, layer):
    assert GuidedConfig().layer_index(n) == layer
    assert GuidedConfig(layer=n).layer_index(n) == n - 1


LM = {
    "kind": "language-model",
    "d_model": 4,
    "n_layers": 1,
    "context": 32,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 3}},
}
RNN = {"kind": "recurrent", "d_embedding": 3, "d_hidden": 5}
SHORT = {"data": {**plain()["data"], "filter": {"max_length": {"source": 9, "target": 9}}}}
TWO = {"tokenizer": {"subwords": {"kind": "character"}, "shared": False}}


@pytest.mark.parametrize(
    ("guided", "sections", "message"),
    [
        ({"layer": 3}, {}, "objective.guided.layer=3: must be at most 2 in this model (counted from 1)"),
        ({"head": 4}, {}, "objective.guided.head=4: must be at most 3 in this model (counted from 1)"),
        (
            {"layer": 2},
            {"model": {**MODEL, "n_decoder_layers": 1}},
            "objective.guided.layer=2: must be at most 1",
        ),
        ({"head": 2}, {"model": RNN}, "objective.guided.head=2: must be at most 1"),
        (
            {},
            {"model": LM, **SHORT},
            "objective.guided: not supported by this model, which has no attention over a source",
        ),
        (
            {},
            {"model": {**RNN, "decoder": "plain", "attention": None, "direction": "left-to-right"}},
            "objective.guided: not supported by this model, which has no attention over a source",
        ),
        ({"layer": 0}, {}, "objective.guided.layer"),
        ({"weight": -1}, {}, "objective.guided.weight"),
        ({"weigth": 1}, {}, "weight"),
    ],
)
def test_heads_that_are_not_there_are_refused(guided, sections, message):
    with pytest.raises(RequestError) as caught:
        recipe(guided, **sections)
    assert message in str(caught.value)


def test_recurrent_attention_can_be_guided(corpus):
    heads = {"kind": "multi-head-additive", "n_heads": 2, "d_k": 3, "d_v": 4}
    into(corpus, recipe({"head": 2}, {**RNN, "attention": heads}, **TWO))
    events = [json.loads(line) for line in (corpus / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(event["terms"]["alignment"] > 0 for event in events if event["event"] == "updated")


def test_training_data_without_alignments_are_refused(corpus):
    settings = plain()
    del settings["data"]["train"]["columns"][ALIGNMENT]
    with pytest.raises(DataError, match=r"data\.train: source:1: no column 'alignment'"):
        into(corpus, recipe_from(Tree.of(settings, Mark("r"))))
    assert not (corpus / "run").exists()


def test_a_link_outside_of_its_sentence_is_named_with_file_and_line(corpus):
    lines = (corpus / "links").read_text().splitlines()
    lines[3] = "0-1 2-0"
    (corpus / "links").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as caught:
        into(corpus, recipe())
    message = "data.train: source:4: alignment: link 2-0 is outside its sentence pair, which has 2"
    assert str(caught.value).startswith(message)
    assert not (corpus / "run").exists()
