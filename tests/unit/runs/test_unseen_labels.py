"""Labels that ``data.split`` leaves in the validation rows alone: these rows are left out, in every task."""

import json
import random
import shutil

import numpy as np
import pytest
from PIL import Image

import heedful
from heedful.artifacts.run_folder import RunFolder
from heedful.data.splitting import PartSource
from heedful.errors import DataError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.prepare import check_rows, prepare, rows_of
from heedful.runs.reading import recipe_from
from heedful.tasks.registry import task_for

LAYER = {"mixer": {"kind": "attention", "n_heads": 1}, "channels": {"kind": "feed-forward", "d_ff": 4}}
TEXTS = {"kind": "encoder", "d_model": 4, "n_layers": 1, "layer": LAYER, "max_length": 19}
IMAGES = {"kind": "vision", "image_size": 4, "channels": 3, "patch_size": 2, "d_model": 4, "n_layers": 1}
TRAINING = {"max_updates": 1, "tokens_per_update": 64, "validate_every": 1, "save_every": 1}
SCORED = {"metric": "macro-f1", "direction": "higher", "precision": "fp32"}


def recipe(folder, kind, source, *, shares=None, valid=None, task=None):
    """A recipe whose validations read the text of their rows, but for images."""
    is_image = kind in ("image-classification", "segmentation")
    data = {"train": source, "split": {"valid": 0.3} if shares is None else shares}
    tree = {
        "task": {"kind": kind, **(task or {})},
        "data": data | ({"valid": valid} if valid else {}),
        "model": {**IMAGES, "layer": LAYER} if is_image else TEXTS,
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": TRAINING | ({} if is_image else SCORED),
        **({} if is_image else {"tokenizer": {"subwords": {"kind": "word", "split": "space"}}}),
    }
    return recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})


def classified(folder, draw):
    """Few common labels, and others that a row or two have."""
    labels = [*draw.choices("ab", k=25), *(f"rare{draw.randrange(40)}" for _ in range(20)), "", "1", "1.0"]
    (folder / "x.tsv").write_text("".join(f"{label}\tword {n}\n" for n, label in enumerate(labels)))
    return {"kind": "tsv", "paths": "x.tsv", "columns": {"label": 0, "text": 1}}, lambda row: [row["label"]]


def several(folder, draw):
    names = ["a", "b", *(f"rare{n}" for n in range(30))]
    sets = [draw.choices(names, [20, 20, *[1] * 30], k=draw.randrange(4)) for _ in range(40)]
    rows = [{"label": [*dict.fromkeys(labels)], "text": f"word {n}"} for n, labels in enumerate(sets)]
    (folder / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = {"columns": {"text": "text"}, "lists": {"label": "label"}}
    return {"kind": "jsonl", "paths": "x.jsonl", **columns}, lambda row: row["label"]


def tagged(folder, draw):
    names = ["A", "B", *(f"RARE{n}" for n in range(12))]
    sentences = [draw.choices(names, [20, 20, *[1] * 12], k=draw.randint(1, 4)) for _ in range(40)]
    lines = (
        "".join(f"w{n} {tag}\n" for tag in (*tags, tags[0])) + "\n" for n, tags in enumerate(sentences, 100)
    )
    (folder / "x.conll").write_text("".join(lines))
    return {"kind": "conll", "paths": "x.conll", "columns": {"words": 0, "tags": 1}}, lambda row: row["tags"]


def image(path, draw):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.frombuffer(draw.randbytes(48), np.uint8).reshape(4, 4, 3)).save(path)


def photos(folder, draw):
    labels = [*draw.choices("ab", k=25), *(f"rare{draw.randrange(40)}" for _ in range(20))]
    for n, label in enumerate(labels):
        image(folder / "x" / label / f"{n}.png", draw)
    return {"kind": "folder", "path": "x"}, lambda row: [row["label"]]


def masked(folder, draw):
    for n in range(30):
        image(folder / "x/images" / f"{n}.png", draw)
        mask = np.zeros((4, 4), np.uint8)
        mask[0], mask[1, 1] = 1, draw.choice([0, 0, draw.randint(2, 20)])
        (folder / "x/masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(folder / "x/masks" / f"{n}.png")
    return {"kind": "segmented-folder", "path": "x"}, lambda row: [*np.unique(row["mask"].numbers())]


FORMS = {
    "classification": classified,
    "multilabel-classification": several,
    "tagging": tagged,
    "image-classification": photos,
    "segmentation": masked,
}


def numbers(labels):
    return {"1" if label == "1.0" else label for label in labels if label != ""}


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_labels_that_training_rows_have_stay_and_others_are_left_out(tmp_path, kind, seed):
    """Whatever the rows are; and the same in a run that is resumed, with its stored data or without them."""
    source, labels_of = FORMS[kind](tmp_path, random.Random(seed))
    settings, folder, lines = recipe(tmp_path, kind, source), RunFolder(tmp_path / "run"), []
    folder.path.mkdir()
    known = numbers(
        label for row in rows_of(settings, settings.data.sets.train) for label in labels_of(row.row)
    )
    valid = [*rows_of(settings, settings.data.sets.valid)]
    seen = [row for row in valid if numbers(labels_of(row.row)) <= known]
    assert 0 < len(seen) < len(valid), "another seed"

    first = prepare(settings, folder, lines.append)
    stored = prepare(settings, folder, lines.append)
    report = json.loads(folder.data_report.read_text())
    name = "tag" if kind == "tagging" else "label"
    n_unseen = report["valid"]["dropped"][f"{name} not in the training rows"]["count"]
    assert n_unseen == len(valid) - len(seen)
    assert report["valid"]["rows"] == len(valid)
    (note,) = (line for line in lines if line.startswith("data.valid: ") and "left out" in line)
    assert note.startswith(f"data.valid: {n_unseen} of {len(valid)} (")
    assert len(note) < 500
    shutil.rmtree(folder.cache)
    again = prepare(settings, folder, lines.append)
    for data in (first, stored, again):
        assert len(data.valid) == report["valid"]["kept"]
        kept = [row.location for row in data.valid_rows]
        assert kept == [row.location for row in seen if first.task.keeps_rows]
    check_rows(settings, folder, "valid")


@pytest.mark.parametrize("kind", FORMS)
def test_if_no_validation_row_is_left_one_error_says_why(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("heedful.runs.left_out.N_SHOWN", 2)
    source, _ = FORMS[kind](tmp_path, random.Random(0))
    settings, folder = recipe(tmp_path, kind, source), RunFolder(tmp_path / "run")
    folder.path.mkdir()
    monkeypatch.setattr(type(task_for(settings)), "unseen_labels", lambda self, row: ["x", "y", "z"])
    name = "tag" if kind == "tagging" else "label"
    message = (
        rf"^data\.valid: no rows left: the \d+ that data\.split took have {name}s that do not occur in the "
        rf"training rows: 'x', 'y' and 1 more \(first at x[^ ]*\); if the {name}s are in another column, "
        rf"name it, else add rows with these {name}s, change data\.split, or give validation data in "
        r"data\.valid$"
    )
    with pytest.raises(DataError, match=message):
        prepare(settings, folder, lambda line: None)


@pytest.mark.parametrize("kind", ["classification", "multilabel-classification", "tagging"])
def test_validation_data_of_the_user_are_refused(tmp_path, kind):
    source, _ = FORMS[kind](tmp_path, random.Random(0))
    settings = recipe(tmp_path, kind, source)
    valid = settings.data.sets.valid
    assert isinstance(valid, PartSource)
    own = {"kind": "jsonl", "paths": "own.jsonl", "columns": {column: column for column in ("text",)}}
    if kind == "tagging":
        own |= {"columns": {"words": "words", "tags": "tags"}}
        row = {"words": "v w", "tags": "A NEW"}
    else:
        own["columns"]["label"] = "label"
        row = {"text": "a", "label": "NEW"}
    (tmp_path / "own.jsonl").write_text(json.dumps(row) + "\n")
    settings = recipe(tmp_path, kind, source, shares={}, valid=own)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    name = "tag" if kind == "tagging" else "label"
    message = (
        rf"^data\.valid: own\.jsonl:1: unknown {name} 'NEW', which does not occur in the training data.*; "
        r"expected one of .*; correct it, remove the row, or add training rows with it$"
    )
    with pytest.raises(DataError, match=message):
        prepare(settings, folder, lambda line: None)


def test_labels_of_the_recipe(tmp_path):
    """A label without training rows is an error, whose remedies work; of validation rows, it is left out."""
    source, _ = classified(tmp_path, random.Random(0))
    settings = recipe(tmp_path, "classification", source)
    train, valid = (
        {row.row["label"] for row in rows_of(settings, part)} - {""}
        for part in (settings.data.sets.train, settings.data.sets.valid)
    )
    rare = sorted(valid - train)
    assert rare

    def prepared(labels, name):
        made, lines = recipe(tmp_path, "classification", source, task={"labels": labels}), []
        (folder := RunFolder(tmp_path / name)).path.mkdir()
        prepare(made, folder, lines.append)
        return lines

    message = (
        rf"no training row has the label '{rare[0]}' of task\.labels: it cannot be learned; remove it from "
        r"task\.labels, or add rows with it, or change data\.split, which takes rows out of the training "
        r"data$"
    )
    with pytest.raises(DataError, match=message):
        prepared([*sorted(train), *rare], "refused")
    assert any(repr(rare[0]) in line and "left out" in line for line in prepared(sorted(train), "used"))


@pytest.mark.slow
def test_rows_of_python(tmp_path, capsys):
    draw = random.Random(0)
    labels = [*draw.choices("ab", k=60), *(f"rare{n}" for n in range(20))]
    rows = [{"text": f"word {n}", "label": label} for n, label in enumerate(labels)]
    made = {"training.max_updates": 1, "model.n_layers": 1}
    run = heedful.train("my-own-labels", tmp_path / "run", data={"train": rows}, overrides=made, device="cpu")
    valid = json.loads((tmp_path / "run/data.json").read_text())["valid"]
    n_unseen = valid["rows"] - valid["kept"]
    assert 0 < n_unseen < valid["rows"]
    assert f"data.valid: {n_unseen} of {valid['rows']} (" in "".join(capsys.readouterr())
    assert len(run.data_sets("valid")) == 1
