"""Classifiers and regressions whose texts a language model reads to their end."""

import json
from itertools import pairwise

import numpy as np
import pytest

from heedful.api.run import load
from heedful.errors import RequestError
from heedful.explain.capture import explain_input
from heedful.interop.conversion import export_run, import_run
from heedful.model_summary.summary import describe
from heedful.models.language_model import build
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import evaluate
from heedful.runs.reading import read_recipe, recipe_from
from heedful.runs.train import train_run
from heedful.training.callbacks import JsonLines, read_metrics

MODEL = {
    "kind": "language-model",
    "d_model": 12,
    "n_layers": 2,
    "context": 11,
    "dropout": 0.0,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 3, "dropout": 0.0},
        "channels": {"kind": "feed-forward", "d_ff": 17},
    },
}
TRAINING = {"max_updates": 1, "tokens_per_update": 160, "validate_every": 30, "save_every": 30}


def recipe(root=".", task=None, pairs=False, training=None, **model):
    columns = {"label": 0, "text": 1} | ({"pair": 2} if pairs else {})
    source = {"kind": "tsv", "columns": columns}
    tree = {
        "root": str(root),
        "task": {"kind": "classification", **(task or {}), "pairs": pairs},
        "data": {part: {**source, "paths": f"{part}.tsv"} for part in ("train", "valid")},
        "tokenizer": {"subwords": {"kind": "word", "split": "space"}},
        "model": {key: value for key, value in {**MODEL, **model}.items() if value is not None},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {**TRAINING, "precision": "fp32", **(training or {})},
    }
    return recipe_from(Tree.of(tree, Mark("r")))


def one_text(draw):
    """The label is the first word: what reads the last token must have seen it."""
    words = draw.choice(["x", "y", "z"], draw.integers(1, 9))
    return words[0], " ".join(words)


def two_texts(draw):
    return draw.choice(["same", "other"]), " ".join(draw.choice(["x", "y"], draw.integers(1, 5))), "x"


def write(folder, row):
    for seed, (name, n) in enumerate({"train": 120, "valid": 40}.items()):
        draw = np.random.default_rng(seed)
        lines = ("\t".join(map(str, row(draw))) for _ in range(n))
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def into(folder, **sections):
    made = recipe(folder, **sections)
    train_run(made, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])
    return load(folder / "run", device="cpu")


@pytest.mark.slow
def test_a_language_model_learns_to_label(tmp_path):
    write(tmp_path, one_text)
    run = into(tmp_path, n_layers=1, training={"max_updates": 60})
    events = [x for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if x["event"] == "validated"]
    assert events[-1]["metrics"]["accuracy"] > 0.9
    lines = (tmp_path / "valid.tsv").read_text().splitlines()
    labels, texts = zip(*(line.split("\t") for line in lines), strict=True)
    answers = run.predict(texts)
    # Validation, evaluation and prediction read the same.
    right = np.mean([answer.text == label for answer, label in zip(answers, labels, strict=True)])
    assert right == evaluate(run, "valid", run.recipe.data.valid).scores[0].value
    assert right == pytest.approx(events[-1]["metrics"]["accuracy"])
    alone = [run.predict([text])[0].score for text in texts[:5]]
    assert alone == pytest.approx([answer.score for answer in answers[:5]], abs=1e-5)


def test_texts_lie_before_it_as_documents(tmp_path):
    """With the end token before and after each, in training as in use; what is too long is cut."""
    write(tmp_path, two_texts)
    run = into(tmp_path, pairs=True)
    seen = []
    run.model.embedding.register_forward_hook(lambda _, given, __: seen.append(given[0].ids.tolist()))
    x, y = (run.processor.text.encode(word)[0] for word in "xy")
    (answer,) = run.predict([("x x y", "y")])
    assert seen.pop() == [2, x, x, y, 2, y, 2]
    assert not answer.notes
    (answer,) = run.predict([(" ".join("x" * 20), "y y")])
    assert seen.pop() == [2, *[x] * 6, 2, y, y, 2]
    assert "cut from 22 to 8 tokens" in "; ".join(answer.notes)
    batch = run.task.synthetic_batch(run.processor.sizes, 3, 8, 0)
    sequences = [part.tolist() for part in batch.inputs.ids.split(list(batch.inputs.layout.lengths))]
    assert [[ids[0], ids.count(2), ids[-1]] for ids in sequences] == [[2, 3, 2]] * 3


def test_texts_may_lie_bare_before_it(tmp_path):
    """With nothing around them, in training as in use; of an empty one the end token stands there."""
    write(tmp_path, one_text)
    run = into(tmp_path, task={"add_special_tokens": False}, training={"max_updates": 2, "validate_every": 2})
    seen = []
    run.model.embedding.register_forward_hook(lambda _, given, __: seen.append(given[0].ids.tolist()))
    x, y = (run.processor.text.encode(word)[0] for word in "xy")
    for text, wanted, note in [
        ("x x y", [x, x, y], ""),
        ("", [2], "the input is empty"),
        (" ".join("x" * 20), [x] * 11, "cut from 20 to 11 tokens"),
    ]:
        (answer,) = run.predict([text])
        assert (seen.pop(), "; ".join(answer.notes)) == (wanted, note)
    batch = run.task.synthetic_batch(run.processor.sizes, 3, 8, 0)
    assert set(batch.inputs.layout.lengths) == {7, 8, 9}
    events = [x for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if x["event"] == "validated"]
    (score, *_) = evaluate(run, "valid", run.recipe.data.valid).scores
    assert score.value == pytest.approx(events[-1]["metrics"]["accuracy"])
    (found, *_) = explain_input(run, "x x y").maps
    assert found.weights.shape[-2:] == (3, 3)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"pairs": True}, "not supported for pairs"),
        ({"kind": "encoder", "context": None, "max_length": 11}, "not supported by encoders"),
    ],
)
def test_what_must_be_framed_is_refused_bare(changes, message):
    with pytest.raises(RequestError, match=rf"task\.add_special_tokens=false is {message}"):
        recipe(task={"add_special_tokens": False}, **changes)


def test_a_number_for_a_text(tmp_path):
    """Its squared error is validation's, in the unit of the data."""
    write(tmp_path, lambda draw: (n := int(draw.integers(1, 8)), " ".join("x" * n)))
    run = into(tmp_path, task={"kind": "regression"}, training={"max_updates": 8, "validate_every": 8})
    (*_, last) = [x for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if x["event"] == "validated"]
    scores = {score.name: score.value for score in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert scores["MSE"] == pytest.approx(
        last["metrics"]["loss"] * run.processor.scale.deviation**2, rel=1e-4
    )


TAGGING = {"kind": "tsv", "columns": {"words": 0, "tags": 1}}


def tagged(folder, **sections):
    """A run whose tags hang on the word before, and on the end of the word itself."""
    for seed, (name, n) in enumerate({"train": 150, "valid": 40}.items()):
        draw = np.random.default_rng(seed)
        lines = []
        for _ in range(n):
            words = [str(word) for word in draw.choice(["xa", "xb", "yaa", "yab"], draw.integers(1, 4))]
            tags = [f"{before[0]}{word[-1]}" for before, word in pairwise(["-", *words])]
            lines.append(f"{' '.join(words)}\t{' '.join(tags)}\n")
        (folder / f"{name}.tsv").write_text("".join(lines))
    tree = {
        "root": str(folder),
        "task": {"kind": "tagging"},
        "data": {part: {**TAGGING, "paths": f"{part}.tsv"} for part in ("train", "valid")},
        "tokenizer": {"subwords": {"kind": "byte"}},
        "model": {**MODEL, "context": 23},
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "training": {**TRAINING, "precision": "fp32", **sections.get("training", {})},
    }
    made = recipe_from(Tree.of(tree, Mark("r")))
    train_run(made, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])
    return load(folder / "run", device="cpu")


@pytest.mark.slow
def test_a_language_model_tags_each_word_at_its_last_token(tmp_path):
    training = {"max_updates": 90, "tokens_per_update": 400, "validate_every": 30, "save_every": 90}
    run = tagged(tmp_path, training=training)
    events = [x for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if x["event"] == "validated"]
    assert events[-1]["metrics"]["accuracy"] > 0.95
    (score, *_) = evaluate(run, "valid", run.recipe.data.valid).scores
    assert score.value == pytest.approx(events[-1]["metrics"]["accuracy"])
    seen = []
    run.model.embedding.register_forward_hook(lambda _, given, __: seen.append(given[0].ids.tolist()))
    (alone,) = run.predict(["yab xa"])
    assert seen == [[2, *run.processor.text.encode("yab xa"), 2]]
    assert alone.tags == ["-b", "ya"]
    # Nothing that follows changes a tag.
    (longer,) = run.predict(["yab xa xb"])
    assert longer.log_probs[:2] == pytest.approx(alone.log_probs, abs=1e-5)
    (found, *_) = explain_input(run, "yab xa").maps
    assert found.weights.shape[-2:] == (8, 8)
    assert describe(tmp_path / "run").parameters == sum(p.numel() for p in run.model.parameters())
    batch = run.task.synthetic_batch(run.processor.sizes, 2, 8, 0)
    assert batch.inputs.ids[0] == 2


def test_a_tagger_goes_on_from_a_language_model(tmp_path):
    """With its weights, and its tokens: the blank before a word belongs to it."""
    (tmp_path / "plain.txt").write_text("xa xb yaa yab\n" * 20)
    source = {"kind": "text", "paths": "plain.txt"}
    tree = {
        "root": str(tmp_path),
        "task": {"kind": "language-modelling"},
        "data": {"train": source, "valid": source},
        "tokenizer": {"subwords": {"kind": "byte-bpe", "merges": 9, "split": "gpt2"}},
        "model": {**MODEL, "context": 23},
        "training": {**TRAINING, "precision": "fp32"},
    }
    train_run(recipe_from(Tree.of(tree, Mark("r"))), tmp_path / "plain", device="cpu")
    import_run(export_run(tmp_path / "plain", "gpt2"), tmp_path / "gpt2")
    (tmp_path / "rows.tsv").write_text("xa yaab\tA B\n")
    tree = {
        "start": {"run": "gpt2"},
        "task": {"kind": "tagging"},
        "data": {part: {**TAGGING, "paths": "rows.tsv"} for part in ("train", "valid")},
        "training": {**TRAINING, "precision": "fp32"},
    }
    first = []
    (tmp_path / "fine.yaml").write_text(json.dumps(tree))
    read, _ = read_recipe(str(tmp_path / "fine.yaml"))
    train_run(read, tmp_path / "fine", device="cpu", log=first.append)
    assert any("newly initialised heads: tag; not used: token" in line for line in first)
    assert len(load(tmp_path / "fine").predict(["xa xb yaab"])[0].tags) == 3


def test_it_is_described_with_its_head_and_without_an_output_layer(tmp_path):
    write(tmp_path, one_text)
    run = into(tmp_path, tie=False)
    size, n_labels = run.processor.sizes
    body = sum(
        parameter.numel() for name, parameter in run.model.named_parameters() if not name.startswith("heads")
    )
    assert body == sum(p.numel() for p in build(run.recipe.model, size).parameters()) - 12 * size
    assert describe(tmp_path / "run").parameters == body + (12 + 1) * n_labels


@pytest.mark.parametrize("pairs, context", [(False, 2), (True, 3)])
def test_a_context_without_room_is_refused(pairs, context):
    with pytest.raises(RequestError, match=f"model.context={context} leaves no room for a text"):
        recipe(pairs=pairs, context=context)


def test_experts_are_balanced_here_too(tmp_path):
    write(tmp_path, one_text)
    expert = {"d_ff": 17, "activation": "gelu"}
    experts = {"channels": {"kind": "experts", "n": 3, "k": 2, "expert": expert}}
    into(tmp_path, pattern=[experts, {}], training={"max_updates": 2, "validate_every": 2})
    events = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert any("importance" in str(event) for event in events)


def test_bert_cannot_hold_it(tmp_path):
    write(tmp_path, one_text)
    into(tmp_path)
    with pytest.raises(
        RequestError,
        match=r"^model\.kind=language-model: not supported by BERT: its attention is bidirectional",
    ):
        export_run(tmp_path / "run", "bert")
