"""Language models that write one text for another: translation and summarisation with a separator."""

import json
import math

import pytest

from heedful import describe
from heedful.api.run import load
from heedful.errors import RequestError
from heedful.nn.layout import Tokens
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.generation import reference_scores
from heedful.tasks.generation.generator import score_targets
from heedful.text.specials import SPECIALS
from heedful.training.callbacks import Validated

LINES = [" ".join(words) for words in (["a", "b"], ["b", "a", "c"], ["c"], ["a", "c", "c"], ["b"])] * 7


def plain(**sections):
    files = {"kind": "files", "columns": {"source": "text", "target": "text"}}
    limits = {"max_length": {"source": 6, "target": 7}}
    return {
        "task": {"kind": "translation"},
        "data": {"train": files, "valid": files, "test": {"test": files}, "filter": limits},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {
            "kind": "language-model",
            "d_model": 12,
            "n_layers": 1,
            "context": 15,
            "dropout": 0.0,
            "layer": {
                "mixer": {"kind": "attention", "n_heads": 3},
                "channels": {"kind": "feed-forward", "d_ff": 17},
            },
        },
        "schedule": {"kind": "constant", "peak": 1e-2},
        "decoding": {"kind": "greedy"},
        "training": {
            "max_updates": 60,
            "tokens_per_update": 150,
            "validate_every": 30,
            "save_every": 30,
            "precision": "fp32",
        },
        **sections,
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def into(folder, callback=lambda event: None, **sections):
    (folder / "text").write_text("\n".join(LINES) + "\n")
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    train_run(settings, folder / "run", device="cpu", callbacks=lambda run_folder: [callback])
    return load(folder / "run", device="cpu")


@pytest.fixture(scope="module")
def copier(tmp_path_factory):
    return into(tmp_path_factory.mktemp("copier"), training={**plain()["training"], "max_updates": 200})


@pytest.mark.slow
def test_it_learns_to_copy_what_stands_before_the_separator(copier):
    predictions = copier.predict(["b a c", "c", "a c c"])
    assert [p.text for p in predictions] == ["b a c", "c", "a c c"]


@pytest.mark.parametrize("tokens", [1, 23, 10_000])
def test_the_perplexity_is_the_same_however_much_is_read_at_a_time(copier, monkeypatch, tokens):
    whole = evaluate(copier, "test", chosen_splits(copier, "test", None)["test"]).scores
    monkeypatch.setattr(reference_scores, "BATCH_TOKENS", tokens)
    seen = []

    def observed(model, batch):
        seen.append(batch.inputs.layout.n_tokens)
        return score_targets(model, batch)

    monkeypatch.setattr(reference_scores, "score_targets", observed)
    again = evaluate(copier, "test", chosen_splits(copier, "test", None)["test"]).scores
    (one,), (two,) = ([s for s in scores if s.name == "perplexity"] for scores in (whole, again))
    assert one.value == pytest.approx(two.value, rel=1e-5)
    longest = max(2 * len(line.split()) + 2 for line in LINES)
    assert max(seen) <= max(tokens, longest)


def test_a_run_with_one_text_is_described_with_the_vocabulary_that_is_asked_for(copier):
    own, other = (describe(str(copier.folder.path), **asked) for asked in ({}, {"vocab_size": 1009}))
    added = (1009 - copier.processor.target.vocab_size) * copier.recipe.model.d_model
    assert other.total.parameters - own.total.parameters == added  # embedding and output share their table


def test_perplexity_is_of_the_targets_alone(copier):
    found = evaluate(copier, "test", chosen_splits(copier, "test", None)["test"])
    scores = {score.name: score for score in found.scores}
    nll = n = 0.0
    for line in LINES:
        ids = copier.processor.target.encode(line)
        (result,) = score_targets(copier.model, copier.recipe.sequence_format.collate_scored([ids], [ids]))
        nll, n = nll - float(result.log_probs.double().sum()), n + len(result.log_probs)
    assert scores["perplexity"].value == pytest.approx(math.exp(nll / n), rel=1e-4)
    assert scores["BLEU"].counts["sentences"] == len(LINES)
    assert not any(name.startswith("source") for name in scores)


@pytest.mark.slow
def test_a_loss_on_all_tokens_is_another_training_and_scores_both_halves_apart(tmp_path):
    run = into(tmp_path, objective={"loss_on": "all"})
    assert not run.recipe.sequence_format.answers_only
    assert [p.text for p in run.predict(["b", ""])][1] == ""
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    scores = {score.name: score for score in found.scores}
    nll, n = {"": 0.0, "source ": 0.0}, {"": 0, "source ": 0}
    for line in LINES:
        ids, special = run.processor.target.encode(line), SPECIALS
        text = [special.start, *ids, special.separate, *ids, special.end]
        logits = run.model.heads["token"](run.model(Tokens.of([text[:-1]]))).log_softmax(-1)
        for place, wanted in enumerate(text[1:]):
            half = "source " if place <= len(ids) else ""
            nll[half] -= logits[place, wanted].item()
            n[half] += 1
    for half in nll:
        assert scores[f"{half}perplexity"].value == pytest.approx(math.exp(nll[half] / n[half]), rel=1e-4)
        assert scores[f"{half}nats per token"].counts["tokens"] == n[half]


@pytest.mark.slow
def test_a_summariser_is_scored_with_rouge(tmp_path):
    run = into(tmp_path, task={"kind": "summarisation"})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["task"] == "summarisation"
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    assert [score.name for score in found.scores][:3] == ["ROUGE-1", "ROUGE-2", "ROUGE-L"]
    assert len(list(found.rows())) == len(LINES)


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"tokenizer": {"subwords": {"kind": "word"}, "shared": False}}, "tokenizer.shared=true"),
        ({"pretrained": {"source": "v.txt"}}, "no source embedding"),
        ({"decoding": {"kind": "beam", "coverage": 0.2}}, "no attention over a source"),
        ({"data": {**plain()["data"], "filter": {}}}, "together at most 13"),
        ({"data": {**plain()["data"], "filter": {"max_length": 7}}}, "together at most 13"),
        (
            {
                "model": {
                    "kind": "transformer",
                    "d_model": 4,
                    "layer": {"mixer": {"kind": "attention", "n_heads": 2}},
                },
                "objective": {"loss_on": "all"},
            },
            "does not predict its source",
        ),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)


def test_the_longest_source_leaves_room_for_the_longest_target():
    assert recipe().max_source == 15 - 2 - 7


@pytest.mark.slow
def test_rouge_is_to_the_nearest_of_several_references(tmp_path):
    sections = {"task": {"kind": "summarisation"}}
    rows = [{"text": line, "summaries": ["z z z", line[::-1], line]} for line in LINES]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    several = {
        "kind": "jsonl",
        "paths": "rows.jsonl",
        "columns": {"source": "text", "target": "summaries.0"},
        "lists": {"references": "summaries"},
    }
    first = {**several, "lists": {}}
    data = {**plain()["data"], "valid": several, "test": {"several": several, "first": first}}
    events = []
    run = into(tmp_path, events.append, **sections, data=data, validation={"decode": len(rows)})
    found = {split: evaluate(run, split, chosen_splits(run, split, None)[split]) for split in data["test"]}
    assert found["first"].scores[0].value == 0
    assert found["several"].scores[0].value > 20
    assert "refs:3" in found["several"].scores[0].signature
    validations = [event.metrics["rouge-1"] for event in events if isinstance(event, Validated)]
    assert pytest.approx(found["several"].scores[0].value) in validations
    # The likelihood is that of the target alone.
    assert found["several"].scores[3] == found["first"].scores[3]
    assert next(iter(found["several"].rows()))["target"] == rows[0]["summaries"]
