"""Multi-label classifications as runs: trained, scored, explained; what their data refuse."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.data.batch import Batch
from heedful.errors import DataError, RequestError
from heedful.explain.capture import explain_input
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.model_input import AnswerOptions
from heedful.tasks.multilabel_classification import BinaryCrossEntropy, labels_of

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
LABELS = {"two": "even", "four": "even", "six": "even", "three": "threes", "six ": "threes", "seven": "prime"}


def right(words):
    """Which kinds of numbers occur; none in "one" and "five"."""
    return sorted({label for word, label in LABELS.items() if word.strip() in words})


def rows(n, seed):
    draw = np.random.default_rng(seed)
    for _ in range(n):
        words = [str(word) for word in draw.choice(WORDS, draw.integers(1, 4))]
        yield right(words), " ".join(words)


def recipe(folder, form="lists", **sections):
    if form == "lists":
        source = {"kind": "jsonl", "columns": {"text": "text"}, "lists": {"label": "label"}}
    else:
        source = {"kind": "tsv", "columns": {"label": 0, "text": 1}}
    suffix = "jsonl" if form == "lists" else "tsv"
    tree = {
        "root": str(folder),
        "task": {"kind": "multilabel-classification", **sections.pop("task", {})},
        "data": {
            "train": {**source, "paths": f"train.{suffix}"},
            "valid": {**source, "paths": f"valid.{suffix}"},
            "test": {"test": {**source, "paths": f"test.{suffix}"}},
        },
        "tokenizer": {"subwords": {"kind": "word"}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "model": {
            "kind": "encoder",
            "d_model": 14,
            "n_layers": 1,
            "layer": {"mixer": {"n_heads": 2, "dropout": 0.0}, "channels": {"d_ff": 19}},
            "max_length": 13,
            "dropout": 0.0,
            "pooling": "max",
            "pooler": False,
        },
        "training": {
            "max_updates": 100,
            "tokens_per_update": 160,
            "validate_every": 50,
            "save_every": 50,
            "precision": "fp32",
            "metric": "accuracy",
            "direction": "higher",
            **sections.pop("training", {}),
        },
    }
    return recipe_from(Tree.of(tree, Mark("r")))


def write(folder, form="lists", separator=","):
    for seed, (name, n) in enumerate({"train": 97, "valid": 23, "test": 31}.items()):
        if form == "lists":
            lines = [json.dumps({"label": labels, "text": text}) for labels, text in rows(n, seed)]
        else:
            lines = [f"{separator.join(labels)}\t{text}" for labels, text in rows(n, seed)]
        suffix = "jsonl" if form == "lists" else "tsv"
        (folder / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write(folder)
    train_run(recipe(folder), folder / "run", device="cpu")
    return load(folder / "run", device="cpu")


def test_it_learns_sets_and_scores_are_those_of_the_predictions(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    truths, texts = zip(*rows(31, 2), strict=True)
    predicted = [set(each.labels) for each in run.predict(list(texts))]
    assert run.processor.labels == ("even", "prime", "threes")
    true = sum(len(p & set(t)) for p, t in zip(predicted, truths, strict=True))
    either = sum(len(p) + len(t) for p, t in zip(predicted, truths, strict=True))
    micro, _, exact, *_ = (score.value for score in found.scores)
    assert micro == pytest.approx(2 * true / either)
    assert micro > 0.9
    assert exact == pytest.approx(np.mean([p == {*t} for p, t in zip(predicted, truths, strict=True)]))
    records = list(found.rows())
    assert [record["target"] for record in records] == [*truths]
    assert [set(record["output"]) for record in records] == predicted


def test_a_label_is_predicted_above_the_threshold_alone(run):
    (found,) = run.predict(["two seven"])
    assert found.labels == [label for label, p in found.probabilities.items() if p > 0.5]
    assert found.text == ",".join(found.labels)
    assert {"even", "prime"} <= {*found.labels}


def test_each_predicted_label_is_a_question_with_its_probability(run):
    explained = explain_input(run, "two seven")
    (found,) = run.predict(["two seven"])
    given = run.task.model_input(run.model, "two seven", AnswerOptions(), found)
    assert given.targets.names == found.labels
    with torch.no_grad():
        scores = given.targets.scores(run.model(given.batch.inputs), given.batch)
    expected = [np.log(found.probabilities[label]) for label in found.labels]
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)
    assert explained.answer["output"] == found.labels
    with pytest.raises(RequestError, match=r"unknown label 'odd'; expected one of even, prime, threes"):
        explain_input(run, "two seven", options=AnswerOptions(target="even,odd"))


@pytest.mark.slow
def test_text_with_separators_is_the_same_data_as_lists(run, tmp_path):
    write(tmp_path, "text", ";")
    train_run(recipe(tmp_path, "text", task={"separator": ";"}), tmp_path / "run", device="cpu")
    other = load(tmp_path / "run", device="cpu")
    assert other.processor.labels == run.processor.labels
    texts = [text for _, text in rows(31, 2)]
    assert [p.probabilities for p in other.predict(texts)] == [p.probabilities for p in run.predict(texts)]


def test_labels_of_a_row_are_stripped_and_counted_once():
    assert labels_of({"label": " a, b,,a ,"}, ",") == ["a", "b"]
    assert labels_of({"label": ["b", " a", "b", ""]}, ",") == ["b", "a"]
    assert labels_of({"label": ""}, ",") == []


def test_one_label_is_not_enough(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.tsv").write_text("a\tone\n\ttwo\n")
    with pytest.raises(DataError, match="at least two different labels are needed, got 1"):
        train_run(recipe(tmp_path, "text"), tmp_path / "run", device="cpu")


def test_the_loss_is_the_mean_of_the_binary_cross_entropies_of_the_labels():
    torch.manual_seed(3)
    hidden, wanted = torch.randn(5, 7), (torch.rand(3, 11) < 0.4).float()
    batch = Batch.labelled([[[3]], [[4]], [[5]]], [0, 0, 0], classify=1, separate=2)
    head = torch.nn.Linear(7, 11)
    heads = torch.nn.ModuleDict({"class": head, "pooled": _Third()})
    loss, correct = BinaryCrossEntropy()(hidden, heads, replace(batch, values=wanted))
    p = head(hidden[:3]).sigmoid()
    by_hand = -(wanted * p.log() + (1 - wanted) * (1 - p).log()).mean(-1).sum()
    assert loss.sum.item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert correct.sum.item() == ((p > 0.5) == (wanted > 0)).all(-1).sum().item()
    assert (loss.count, correct.count, correct.weight) == (3, 3, 0.0)


class _Third(torch.nn.Module):
    def forward(self, hidden, layout):
        return hidden[:3]


@pytest.mark.parametrize("mark", [";", "#", " "])
def test_another_separator_is_named_and_the_advice_gives_the_scores(run, tmp_path, mark):
    found = {}
    for name, between in (("same", ","), ("other", mark)):
        path = tmp_path / f"{name}.csv"
        table = "".join(f'{text},"{between.join(labels)}"\n' for labels, text in rows(31, 2))
        path.write_text(f"text,label\n{table}")
        ((split, source),) = chosen_splits(run, "test", [path]).items()
        found[name] = evaluate(run, split, source)
    right = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    assert [s.value for s in found["same"].scores] == [s.value for s in right.scores]
    assert not any("consists of" in note for note in found["same"].notes)
    (note,) = (note for note in found["other"].notes if "consists of" in note)
    assert f"consists of known labels and {mark!r}, but this run separates labels by ','" in note
