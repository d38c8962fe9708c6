"""Sentence embeddings as runs: trained on pairs or by dropout, scored, and what their data refuse."""

import json

import numpy as np
import pytest
from scipy import stats

from heedful.api.run import load
from heedful.config import merged
from heedful.errors import DataError, HeedfulError, RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run

WORDS = {name: name.upper() for name in ["one", "two", "three", "four", "five", "six", "seven", "eight"]}
"""A language whose words are translated one by one."""


def rows(n, seed, **more):
    draw = np.random.default_rng(seed)
    for number in range(n):
        words = [str(word) for word in draw.choice(list(WORDS), 3, replace=False)]
        row = {"text": " ".join(words), "pair": " ".join(WORDS[word] for word in reversed(words))}
        yield row | {name: make(number) for name, make in more.items()}


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def recipe(folder, columns=("text", "pair"), **sections):
    def source(name):
        return {"kind": "jsonl", "paths": f"{name}.jsonl", "columns": {column: column for column in columns}}

    model = {
        "kind": "encoder",
        "d_model": 24,
        "n_layers": 1,
        "max_length": 13,
        "dropout": 0.0,
        "pooling": "mean",
        "pooler": False,
        "layer": {"mixer": {"n_heads": 3, "dropout": 0.0}, "channels": {"d_ff": 17}},
    }
    training = {"max_updates": 4, "tokens_per_update": 300, "validate_every": 2, "save_every": 2}
    tree = {
        "task": {"kind": "sentence-embedding", **sections.pop("task", {})},
        "data": {"train": source("train"), "valid": source("valid"), "test": {"test": source("test")}},
        "tokenizer": {"subwords": {"kind": "word"}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "model": merged(model, sections.pop("model", {})),
        "training": {**training, "precision": "fp32", **sections.pop("training", {})},
        **sections,
    }
    return recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})


def trained(folder, *, more=None, n=97, log=lambda line: None, **sections):
    """Train on the rows of these columns, if there are no others already."""
    for seed, (name, n_rows) in enumerate({"train": n, "valid": 23, "test": 31}.items()):
        if not (folder / f"{name}.jsonl").exists():
            write(folder / f"{name}.jsonl", rows(n_rows, seed, **(more or {})))
    columns = ("text", "pair", *(more or {}))
    train_run(recipe(folder, columns, **sections), folder / "run", device="cpu", log=log)
    return load(folder / "run", device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    training = {"max_updates": 60, "validate_every": 30, "save_every": 30}
    return trained(tmp_path_factory.mktemp("pairs"), training=training)


def scores_of(run, split="test", files=None):
    ((name, source),) = chosen_splits(run, split, files).items()
    return evaluate(run, name, source)


@pytest.mark.slow
def test_pairs_are_found_after_a_training_and_not_before(run, tmp_path):
    untrained = trained(tmp_path, training={"max_updates": 1, "validate_every": 1, "save_every": 1})
    before, after = (
        {score.name: score.value for score in scores_of(each).scores} for each in (untrained, run)
    )
    assert before.keys() == after.keys() == {"accuracy@1", "MRR"}
    assert before["accuracy@1"] < 0.7
    assert after["accuracy@1"] > 0.9
    assert after["MRR"] >= after["accuracy@1"]


def test_scores_and_predictions_are_those_of_the_vectors(run):
    found = scores_of(run)
    texts, pairs = zip(*((row["text"], row["pair"]) for row in rows(31, 2)), strict=True)
    vectors, answers = run.embed(texts), run.embed(pairs)
    vectors, answers = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, answers))
    predicted = run.predict(list(zip(texts, pairs, strict=True)))
    np.testing.assert_allclose([p.value for p in predicted], (vectors * answers).sum(1), atol=1e-6)
    assert [p.text for p in predicted] == [f"{p.value:.4f}" for p in predicted]
    assert "vectors" not in predicted[0].to_dict()
    nearest = [pairs[i] for i in (vectors @ answers.T).argmax(1)]
    assert found.scores[0].value == pytest.approx(np.mean(np.array(nearest) == np.array(pairs)))
    records = list(found.rows())
    assert np.mean([record["scores"]["rank"] == 1 for record in records]) == pytest.approx(
        found.scores[0].value
    )
    assert [record["output"] for record in records] == pytest.approx([p.value for p in predicted])


def test_given_similarities_are_correlated_and_other_rows_are_retrieved(run, tmp_path):
    given = list(rows(20, 7, similarity=lambda number: number % 5))
    write(tmp_path / "rated.jsonl", given)
    pearson, spearman = scores_of(run, files=[tmp_path / "rated.jsonl"]).scores
    predicted = [p.value for p in run.predict([(row["text"], row["pair"]) for row in given])]
    numbers = [row["similarity"] for row in given]
    assert pearson.value == pytest.approx(stats.pearsonr(predicted, numbers).statistic, abs=1e-6)
    assert spearman.value == pytest.approx(stats.spearmanr(predicted, numbers).statistic, abs=1e-6)
    write(tmp_path / "wrong.jsonl", [{**row, "similarity": "high"} for row in given])
    with pytest.raises(DataError, match=r"wrong.jsonl:1: expected a number as similarity, got 'high'"):
        scores_of(run, files=[tmp_path / "wrong.jsonl"])


def test_pairs_below_the_least_similarity_are_no_positives(tmp_path):
    lines = []
    run = trained(
        tmp_path,
        more={"similarity": lambda number: number % 5},
        task={"min_similarity": 3},
        training={"metric": "spearman", "direction": "higher"},
        log=lines.append,
    )
    report = json.loads((tmp_path / "run" / "data.json").read_text())
    assert report["train"]["kept"] == sum(number % 5 >= 3 for number in range(97))
    assert any("similarity below 3" in line for line in lines)
    assert [score.name for score in scores_of(run).scores] == ["Pearson", "Spearman"]


def test_hard_negatives_are_read_in_training_alone(tmp_path):
    for seed, name in enumerate(("valid", "test"), 1):
        write(tmp_path / f"{name}.jsonl", rows(23, seed))
    settings = recipe(tmp_path, ("text", "pair"), task={"hard_negatives": True}).model_dump(mode="json")
    settings["data"]["train"]["columns"]["negative"] = "negative"
    write(tmp_path / "train.jsonl", rows(40, 0, negative=lambda number: "EIGHT ONE"))
    train_run(recipe_from(Tree.of(settings, Mark("r"))), tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    assert run.task.columns.training == ("negative",)
    assert np.isfinite(run.embed(["one two"])).all()
    assert [score.name for score in scores_of(run).scores] == ["accuracy@1", "MRR"]


@pytest.mark.slow
def test_without_pairs_another_dropout_mask_is_the_positive(tmp_path):
    for seed, name in enumerate(("train", "valid", "test")):
        write(tmp_path / f"{name}.jsonl", ({"text": row["text"]} for row in rows(60, seed)))
    settings = recipe(tmp_path, ("text",), task={"positives": "dropout"}, model={"dropout": 0.1})
    train_run(settings, tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    write(tmp_path / "pairs.jsonl", rows(20, 5))
    found = scores_of(run, files=[tmp_path / "pairs.jsonl"])
    assert [score.name for score in found.scores] == ["accuracy@1", "MRR"]
    with pytest.raises(
        DataError, match=r"test.jsonl:1: no column 'pair', which the evaluation of pairs requires"
    ):
        scores_of(run)


def test_scores_of_pairs_need_validation_rows_with_pairs(tmp_path):
    for name in ("train", "valid", "test"):
        write(tmp_path / f"{name}.jsonl", ({"text": row["text"]} for row in rows(23, 0)))
    sections = {"task": {"positives": "dropout"}, "model": {"dropout": 0.1}}
    training = {"metric": "mrr", "direction": "higher"}
    message = r"training\.metric=mrr cannot be computed: it requires the column 'pair' in data\.valid"
    with pytest.raises(RequestError, match=message):
        train_run(recipe(tmp_path, ("text",), training=training, **sections), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_few_negatives_are_noted(tmp_path):
    lines = []
    trained(tmp_path, training={"tokens_per_update": 40}, log=lines.append)
    assert any("a micro-batch has about 4 examples" in line for line in lines)


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"task": {"positives": "dropout"}}, "task.positives=dropout requires dropout"),
        ({"task": {"positives": "dropout", "hard_negatives": True}}, "hard_negatives is not supported with"),
        ({"task": {"positives": "dropout", "min_similarity": 0}}, "min_similarity is not supported with"),
        ({"objective": {"temperature": 0}}, "temperature"),
        ({"objective": {"loss": "triplet"}}, "unknown loss 'triplet'"),
        ({"training": {"metric": "spearman", "direction": "lower"}}, "higher is better"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, sections, message):
    with pytest.raises(HeedfulError, match=message):
        recipe(tmp_path, **sections)


def test_one_text_has_a_vector_but_no_similarity(run):
    with pytest.raises(
        RequestError, match=r"input 1: expected a tuple of 2 texts \(text, pair\), got a text"
    ):
        run.predict(["one two"])
    with pytest.raises(RequestError, match="input 1: expected a text, got a tuple of 2"):
        run.embed([("one two", "ONE")])
