"""Classifiers as runs: trained, resumed, scored; what their recipes and data refuse."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from heedful.api.run import load
from heedful.config import merged
from heedful.data.sources import JsonlSource, TsvSource
from heedful.errors import DataError, RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.prepare import rows_of
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.training.callbacks import JsonLines, read_metrics

WORDS = {"sweet": ["sugar", "honey", "cake"], "sour": ["lemon", "vinegar", "lime"], "salt": ["sea", "ham"]}


def rows(n, seed):
    """A label is the taste of the one telling word."""
    draw = np.random.default_rng(seed)
    for _ in range(n):
        label = str(draw.choice(list(WORDS)))
        words = [
            *draw.choice(["the", "a", "some", "eats", "likes"], draw.integers(1, 7)),
            draw.choice(WORDS[label]),
        ]
        yield label, " ".join(map(str, draw.permutation(words)))


def plain(pairs=False, **sections):
    columns = {"label": 0, "text": 1} | ({"pair": 2} if pairs else {})
    source = {"kind": "tsv", "columns": columns}
    training = {"max_updates": 6, "tokens_per_update": 80, "validate_every": 3, "save_every": 2}
    model = {
        "kind": "encoder",
        "d_model": 12,
        "n_layers": 1,
        "max_length": 13,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    }
    return {
        "task": {"kind": "classification", "pairs": pairs},
        "data": {
            "train": {**source, "paths": "train.tsv"},
            "valid": {**source, "paths": "valid.tsv"},
            "test": {"test": {**source, "paths": "test.tsv"}},
        },
        "tokenizer": {"subwords": {"kind": "word", "split": "space"}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "model": merged(model, sections.get("model", {})),
        "training": {**training, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def write(folder, pairs=False):
    for seed, (name, n) in enumerate({"train": 97, "valid": 23, "test": 31}.items()):
        lines = ["\t".join([*row, *(["again"] if pairs else [])]) for row in rows(n, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def into(folder, pairs=False, **sections):
    if not (folder / "train.tsv").exists():
        write(folder, pairs)
    settings = recipe(pairs=pairs, **sections).model_copy(update={"root": str(folder)})
    return train_run(settings, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(
        folder,
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}, "pooling": "mean", "pooler": False},
        training={"max_updates": 120, "validate_every": 40, "save_every": 40},
    )
    return folder / "run"


@pytest.fixture(scope="module")
def run(trained):
    return load(trained, device="cpu")


# Training --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_holds_its_labels_and_says_what_it_is(trained):
    card = json.loads((trained / "run.json").read_text())
    assert card["task"] == "classification"
    assert set(card["files"]) == {"recipe.yaml", "text.tokenizer.json", "labels.json", "weights.safetensors"}
    assert json.loads((trained / "labels.json").read_text())["labels"] == ["salt", "sour", "sweet"]


def test_training_learns_and_validation_measures_accuracy(trained):
    validated = [x for x in read_metrics(trained / "metrics.jsonl") if x["event"] == "validated"]
    assert validated[-1]["metrics"]["accuracy"] > 0.9
    assert validated[-1]["metrics"]["loss"] < validated[0]["metrics"]["loss"]


@pytest.mark.slow
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder, n in ((straight, 17), (stopped, 8)):
        folder.mkdir()
        into(folder, training={"max_updates": n, "save_every": 4, "validate_every": 100})
    settings = recipe(training={"max_updates": 17, "save_every": 4, "validate_every": 100})
    settings = settings.model_copy(update={"root": str(stopped)})
    ended = train_run(settings, stopped / "run", resume=True, device="cpu").result
    assert ended.state.epoch >= 1
    one, other = (load(f / "run", device="cpu").model.state_dict() for f in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_weights_of_labels_change_the_loss_of_training_alone(tmp_path):
    """The same data and model: the first validation, before weights could matter, is the same."""
    losses = {}
    for name, weights in {"plain": None, "weighted": {"sour": 5.0}}.items():
        (tmp_path / name).mkdir()
        options = {"max_updates": 1, "validate_every": 1, "tokens_per_update": 800}
        into(
            tmp_path / name,
            training=options,
            objective={"class_weights": weights},
            schedule={"kind": "constant", "peak": 1e-9},
        )
        events = read_metrics(tmp_path / name / "run" / "metrics.jsonl")
        losses[name] = [next(e for e in events if e["event"] == kind) for kind in ("updated", "validated")]
    plain_run, weighted_run = losses["plain"], losses["weighted"]
    assert plain_run[1]["metrics"]["loss"] == pytest.approx(weighted_run[1]["metrics"]["loss"], rel=1e-4)
    assert weighted_run[0]["loss"] > 1.5 * plain_run[0]["loss"]


def test_a_weight_of_an_unknown_label_is_refused_before_a_model_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.runs.train.build_module", lambda *args: pytest.fail("a model is built"))
    with pytest.raises(RequestError, match=r"objective\.class_weights: unknown label 'sweat' .*'sweet'"):
        into(tmp_path, objective={"class_weights": {"sweat": 2.0}})


def test_accuracy_must_be_followed_upwards():
    with pytest.raises(RequestError, match="for which higher is better"):
        recipe(training={"metric": "accuracy", "direction": "lower"})
    assert recipe(training={"metric": "accuracy"}).direction == "higher"


@pytest.mark.slow
def test_validation_measures_the_macro_f1_of_evaluate_if_it_selects_the_checkpoint(tmp_path):
    into(tmp_path, training={"metric": "macro-f1", "direction": "higher", "max_updates": 12})
    events = read_metrics(tmp_path / "run" / "metrics.jsonl")
    measured = [event["metrics"]["macro-f1"] for event in events if event["event"] == "validated"]
    run = load(tmp_path / "run", device="cpu")
    located = list(rows_of(run.recipe, run.recipe.data.valid))
    predicted = [prediction.text for prediction in run.predict([row.row["text"] for row in located])]
    expected = f1_score([row.row["label"] for row in located], predicted, average="macro")
    assert max(measured) == pytest.approx(expected)
    assert len({*measured}) > 1
    scores = {score.name: score.value for score in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert scores["macro F1"] == pytest.approx(expected)


def test_macro_f1_is_measured_only_if_it_is_asked_for(trained):
    validated = [x for x in read_metrics(trained / "metrics.jsonl") if x["event"] == "validated"]
    assert all(set(x["metrics"]) == {"loss", "accuracy"} for x in validated)
    assert recipe(training={"metric": "macro-f1"}).direction == "higher"


# Use -------------------------------------------------------------------------------------------------------


def test_predictions_are_labels_with_their_probabilities(run):
    first, second, third = run.predict(["the honey", "a lemon", ""], n_best=3)
    assert (first.text, second.text) == ("sweet", "sour")
    assert {p.text for p in (second, *second.alternatives)} == {"salt", "sour", "sweet"}
    assert (third.text, third.notes, third.alternatives) == ("", ("the input is empty",), [])
    for prediction in (first, second):
        scores = [prediction.score, *(p.score for p in prediction.alternatives)]
        assert np.exp(scores).sum() == pytest.approx(1.0, abs=1e-5)


def test_what_needs_a_search_is_refused(run):
    with pytest.raises(RequestError, match="beam=3: not supported"):
        run.predict(["a lemon"], beam=3)
    with pytest.raises(RequestError, match="does not support streaming"):
        next(run.stream("a lemon"))
    with pytest.raises(RequestError, match="not supported for task classification"):
        run.predict(["a lemon"], stop=["x"])


def test_scores_are_those_of_the_predictions(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    labels, texts = zip(*rows(31, 2), strict=True)
    predicted = [p.text for p in run.predict(list(texts))]
    scores = {score.name: score for score in found.scores}
    assert scores["accuracy"].value == np.mean([a == b for a, b in zip(predicted, labels, strict=True)])
    assert scores["accuracy"].counts == {"examples": 31, "classes": 3}
    records = list(found.rows())
    assert [r["output"] for r in records] == predicted
    assert [r["correct"] for r in records] == [a == b for a, b in zip(predicted, labels, strict=True)]


@pytest.mark.parametrize("kind", ["header.tsv", "as-trained.tsv", "own.jsonl"])
def test_a_users_own_table_is_scored(run, tmp_path, kind):
    pairs = list(rows(7, 5))
    path = tmp_path / kind
    if kind == "header.tsv":
        path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for label, text in pairs))
    elif kind == "as-trained.tsv":
        path.write_text("".join(f"{label}\t{text}\n" for label, text in pairs))
    else:
        path.write_text("".join(json.dumps({"text": t, "label": label}) + "\n" for label, t in pairs))
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    assert isinstance(source, JsonlSource if kind == "own.jsonl" else TsvSource)
    assert evaluate(run, name, source).scores[0].counts["examples"] == 7


def test_pairs_are_trained_and_read(tmp_path):
    into(tmp_path, pairs=True)
    run = load(tmp_path / "run", device="cpu")
    assert run.task.columns.inputs == ("text", "pair")
    assert len(run.predict([("the honey", "again"), ("a", "")])) == 2


# Bad input -------------------------------------------------------------------------------------------------


def test_a_label_in_validation_that_training_has_not_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "valid.tsv").write_text("sweet\tthe honey\nsweeet\tthe sugar\n")
    with pytest.raises(DataError, match=r"valid.tsv:2: unknown label 'sweeet'.*'sweet'"):
        into(tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_test_set_of_unknown_labels_alone_is_refused(run, tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("text\tlabel\nthe honey\tbitter\n")
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    with pytest.raises(DataError, match=r"own.tsv:2: unknown label 'bitter'"):
        evaluate(run, name, source)


def test_labels_that_training_has_not_seen_count_as_wrong(run, tmp_path, published):
    known = list(rows(6, 5))
    lines = [*known, ("bitter", known[0][1]), ("sweeet", known[1][1]), ("bitter", known[2][1])]
    path = tmp_path / "own.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for label, text in lines))
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    found = evaluate(run, name, source)
    predicted = [p.text for p in run.predict([text for _, text in lines])]
    right = [label == answer for (label, _), answer in zip(lines, predicted, strict=True)]
    accuracy = found.scores[0]
    assert accuracy.value == pytest.approx(np.mean(right))
    assert accuracy.counts == {"examples": 9, "classes": 5, "unseen": 3}
    (note,) = found.notes
    assert note.startswith("3 with a label that training has not seen count as wrong")
    assert f"'bitter' (2, first at {path}:8)" in note
    assert f"'sweeet' (1, first at {path}:9) (did you mean 'sweet'?)" in note
    assert [r["correct"] for r in found.rows()] == right
    published("evaluation", {"version": 2, "run": "r", "splits": [found.to_dict()]})


@pytest.mark.parametrize(
    "labels, message",
    [
        (["sweet", "sour", "salt", "bitter"], "no training row has the label 'bitter'"),
        (["sweet", "sour"], "the label 'salt' is not in task.labels"),
    ],
)
def test_labels_that_are_given_must_be_those_of_the_data(tmp_path, labels, message):
    with pytest.raises(DataError, match=message):
        into(tmp_path, task={"kind": "classification", "labels": labels})


def test_one_label_is_not_enough(tmp_path):
    write(tmp_path)
    (tmp_path / "train.tsv").write_text("sweet\tthe honey\nsweet\tthe sugar\n")
    with pytest.raises(DataError, match=r"two different labels are needed, got 1: \['sweet'\]"):
        into(tmp_path)


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"model": {"max_length": 2}}, "leaves no room"),
        ({"task": {"kind": "classification", "labels": ["a", "a"]}}, "'a' is listed twice"),
        (
            {"task": {"kind": "classification", "pairs": True}, "model": {"segments": 0}},
            "model.segments must be 2",
        ),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)


def test_lists_that_the_task_does_not_read_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": ["a", "b"], "label": "x"}\n')
    source = {
        "kind": "jsonl",
        "paths": "rows.jsonl",
        "columns": {"label": "label"},
        "lists": {"text": "text"},
    }
    for train in (source, {"kind": "chain", "sources": [source, source]}):
        settings = recipe(data={**plain()["data"], "train": train}).model_copy(update={"root": str(tmp_path)})
        with pytest.raises(DataError, match="the task classification needs a text in the column 'text'"):
            next(rows_of(settings, settings.data.train, training=True))


@pytest.mark.parametrize("part", ["valid", "test"])
def test_files_of_a_chain_are_looked_for_before_any_work(tmp_path, part):
    write(tmp_path)
    whole = plain()["data"]
    own = whole["test"]["test"] if part == "test" else whole["valid"]
    chained = {"kind": "chain", "sources": [own, {**own, "paths": "none.tsv"}]}
    change = {"test": {"test": chained}} if part == "test" else {"valid": chained}
    with pytest.raises(DataError, match=rf"data\.{part}(\.test)?: .*none\.tsv: no such file"):
        into(tmp_path, data={**whole, **change})
    assert not (tmp_path / "run").exists()


def test_a_list_is_one_text_but_no_label(tmp_path):
    lines = [
        {"text": ["a b", "c"], "label": 1},
        {"text": [], "label": True},
        {"text": "x", "label": ["x", "y"]},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {"text": "text", "label": "label"}}
    settings = recipe(data={**plain()["data"], "train": source}).model_copy(update={"root": str(tmp_path)})
    found = rows_of(settings, settings.data.train, training=True)
    assert next(found).row == {"text": "a b c", "label": "1"}
    assert next(found).row == {"text": "", "label": "true"}
    with pytest.raises(
        DataError, match=r"rows\.jsonl:3: column 'label' must have one label, got a list of 2"
    ):
        next(found)
