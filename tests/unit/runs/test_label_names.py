"""Labels as people write them, from the file to the scores: one name in several forms is one label."""

import json
import unicodedata

import numpy as np
import pytest
from PIL import Image

from heedful.api.run import load
from heedful.errors import DataError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run

LAYER = {"mixer": {"kind": "attention", "n_heads": 1}, "channels": {"kind": "feed-forward", "d_ff": 4}}
TEXTS = {"kind": "encoder", "d_model": 4, "n_layers": 1, "layer": LAYER, "max_length": 9}
IMAGES = {"kind": "vision", "image_size": 4, "channels": 3, "patch_size": 2, "d_model": 4, "n_layers": 1}
TRAINING = {"max_updates": 1, "tokens_per_update": 64, "validate_every": 1, "save_every": 1}


def trained(folder, task, source, **data):
    """A run of a task, of one update, and what was logged."""
    is_image = task["kind"] == "image-classification"
    sources = {name: source(name) for name in ("train", "valid")} | {"test": {"test": source("test")}}
    tree = {
        "task": task,
        "data": sources | data,
        "model": {**IMAGES, "layer": LAYER} if is_image else TEXTS,
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {**TRAINING, "precision": "fp32"},
        **({} if is_image else {"tokenizer": {"subwords": {"kind": "word", "split": "space"}}}),
    }
    recipe = recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})
    lines = []
    train_run(recipe, folder / "run", device="cpu", log=lines.append)
    return load(folder / "run", device="cpu"), lines


def table(**columns):
    return lambda name: {"kind": "tsv", "paths": f"{name}.tsv", "columns": columns}


def scores_of(run):
    return evaluate(run, "test", chosen_splits(run, "test", None)["test"])


def write(folder, **lines):
    for name, rows in lines.items():
        (folder / f"{name}.tsv").write_text("".join(f"{row}\n" for row in rows), "utf-8")


def decomposed(text):
    return unicodedata.normalize("NFD", text)


CLASSIFIED = ["café\ta b", "thé\tc d", "café\ta c"]
SETS = ["café;thé\ta b", "thé\tc d", "café\ta c"]
TAGGED = ["café thé\ta b", "thé thé\tc d", "café café\ta c"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "test"), [(str, decomposed), (decomposed, lambda row: row.replace("\t", "\u00a0 \t"))]
)
@pytest.mark.parametrize(
    ("task", "rows", "columns"),
    [
        ({"kind": "classification"}, CLASSIFIED, {"label": 0, "text": 1}),
        ({"kind": "classification", "labels": ["the\u0301", "café"]}, CLASSIFIED, {"label": 0, "text": 1}),
        ({"kind": "multilabel-classification", "separator": ";"}, SETS, {"label": 0, "text": 1}),
        ({"kind": "tagging"}, TAGGED, {"tags": 0, "words": 1}),
    ],
)
def test_a_label_in_another_unicode_form_is_the_same(tmp_path, task, rows, columns, train, test):
    write(tmp_path, train=map(train, rows), valid=map(test, rows), test=map(test, rows))
    run, _ = trained(tmp_path, task, table(**columns))
    assert sorted(run.task.processor.labels) == ["café", "thé"]
    found = scores_of(run)
    assert not [note for note in found.notes if "training has not seen" in note]


@pytest.mark.slow
@pytest.mark.parametrize("train", [str, decomposed])
def test_the_names_of_folders_are_labels_in_any_form(tmp_path, train):
    draw = np.random.default_rng(0)
    for name, form in (("train", train), ("valid", str), ("test", decomposed)):
        for label in ("café", "thé"):
            folder = tmp_path / name / form(label)
            folder.mkdir(parents=True)
            for n in range(2):
                Image.fromarray(draw.integers(0, 255, (4, 4, 3), dtype=np.uint8)).save(folder / f"{n}.png")
    run, lines = trained(
        tmp_path, {"kind": "image-classification"}, lambda name: {"kind": "folder", "path": name}
    )
    assert run.task.processor.labels == ("café", "thé")
    assert not [note for note in scores_of(run).notes if "training has not seen" in note]
    assert "  classes: café 2, thé 2" in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "empty"),
    [("classification", ""), ("classification", " \u00a0"), ("regression", "")],
)
def test_a_row_without_a_label_is_dropped_as_one_without_a_text(tmp_path, task, empty):
    rows = ["1\ta b", f"{empty}\tc d", "2\t", "2\ta c"]
    write(tmp_path, train=rows, valid=rows, test=rows)
    run, lines = trained(tmp_path, {"kind": task}, table(label=0, text=1))
    dropped = json.loads((tmp_path / "run/data.json").read_text())["train"]["dropped"]
    assert dropped == {
        "empty label": {"count": 1, "examples": ["train.tsv:2"]},
        "empty text": {"count": 1, "examples": ["train.tsv:3"]},
    }
    assert "  dropped, empty label: 1 (train.tsv:2)" in lines
    assert [note for note in scores_of(run).notes if "empty label" in note and "test.tsv:2" in note]


def test_a_row_without_a_label_is_refused_if_the_recipe_says_so(tmp_path):
    write(tmp_path, train=["1\ta b", "\tc d", "2\ta c"], valid=["1\ta"], test=["1\ta"])
    with pytest.raises(DataError, match=r"train.tsv:2: label is empty \(set `empty: drop` to drop such rows"):
        trained(tmp_path, {"kind": "classification"}, table(label=0, text=1), filter={"empty": "error"})


@pytest.mark.slow
def test_labels_are_counted_before_training(tmp_path):
    write(
        tmp_path,
        train=[*(f"{n}\ta b" for n in range(23)), *["7\tc"] * 4],
        valid=["1\ta"],
        test=["01\ta", "1.0\tb"],
    )
    run, lines = trained(tmp_path, {"kind": "classification"}, table(label=0, text=1))
    assert run.task.processor.labels == tuple(map(str, range(23)))  # in the order of numbers
    others = ", ".join(f"{n} 1" for n in range(20) if n != 7)
    assert f"  classes: 7 5, {others}, and 3 more with 3" in lines
    found = scores_of(run)
    assert not [note for note in found.notes if "training has not seen" in note]
    assert [record["target"] for record in found.records()] == ["1", "1"]
