"""Classifiers of images as runs: trained, resumed, scored, carried on; what recipes and data refuse."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.api.run import load
from heedful.config import merged
from heedful.data.sources import FolderSource, TsvSource
from heedful.errors import DataError, RequestError
from heedful.model_summary.summary import describe
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import read_recipe, recipe_from
from heedful.runs.train import train_run
from heedful.training.callbacks import JsonLines, read_metrics

LABELS = ["across", "down", "flat"]
MODEL = {
    "kind": "vision",
    "image_size": 6,
    "channels": 1,
    "patch_size": 3,
    "d_model": 12,
    "n_layers": 1,
    "dropout": 0.0,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 3, "dropout": 0.0},
        "channels": {"kind": "feed-forward", "d_ff": 17},
    },
}
TRAINING = {"max_updates": 6, "tokens_per_update": 55, "validate_every": 3, "save_every": 2}


def image(label, draw):
    """Stripes across, stripes down, or none, with noise."""
    array = np.full((6, 6), 100)
    array[::2] += 90 * (label == "across")
    array[:, ::2] += 90 * (label == "down")
    return (array + draw.integers(0, 30, (6, 6))).astype(np.uint8)


def write(folder, n=10):
    draw = np.random.default_rng(0)
    for part in ("train", "valid", "test"):
        for label in LABELS:
            (folder / part / label).mkdir(parents=True)
            for i in range(n):
                Image.fromarray(image(label, draw)).save(folder / part / label / f"{i}.png")


def plain(**sections):
    return {
        "task": {"kind": "image-classification"},
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "data": {
            "train": {"kind": "folder", "path": "train"},
            "valid": {"kind": "folder", "path": "valid"},
            "test": {"test": {"kind": "folder", "path": "test"}},
            **sections.get("data", {}),
        },
        "model": merged(MODEL, sections.get("model", {})),
        "training": {**TRAINING, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def into(folder, name="run", log=lambda line: None, **sections):
    if not (folder / "train").exists():
        write(folder)
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    train_run(settings, folder / name, device="cpu", log=log, callbacks=lambda f: [JsonLines(f.metrics)])
    return load(folder / name, device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the run ``run``; nobody may change it."""
    folder = tmp_path_factory.mktemp("trained")
    into(folder, training={"max_updates": 60, "validate_every": 20, "save_every": 20})
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return load(folder / "run", device="cpu")


# Training --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_holds_its_labels_and_how_it_reads_images(folder, run):
    card = json.loads((folder / "run" / "run.json").read_text())
    assert set(card["files"]) == {"recipe.yaml", "images.json", "labels.json", "weights.safetensors"}
    report = json.loads((folder / "run" / "data.json").read_text())
    assert report["train"]["classes"] == dict.fromkeys(LABELS, 10)
    files = sorted((folder / "train").rglob("*.png"))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files]) / 255
    assert run.processor.reader.mean == pytest.approx([pixels.mean()])
    assert run.processor.reader.std == pytest.approx([pixels.std()])


def test_training_learns_and_validation_measures_accuracy(folder):
    validated = [x for x in read_metrics(folder / "run" / "metrics.jsonl") if x["event"] == "validated"]
    assert validated[-1]["metrics"]["accuracy"] > 0.9


def test_one_says_what_becomes_of_the_images_and_what_the_classes_are(tmp_path):
    said = []
    into(tmp_path, log=said.append, training={"max_updates": 1})
    assert "images: the first has 6 x 6 pixels in grey; all are brought to 6 x 6 pixels in grey" in said
    assert "3 labels: across, down, flat" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["attention", "mlp", "resnet"])
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path, kind):
    models = {
        "attention": {"dropout": 0.1},
        "mlp": {"layer": {"mixer": {"kind": "mlp", "d_tokens": 7}}, "pooling": "mean", "positions": "none"},
        "resnet": None,
    }
    model = models[kind]
    sections = {"augmentation": {"crop": {"area": [0.5, 1.0]}, "shift": 1, "flip": True, "erase": 0.5}}
    if model is not None:
        sections["model"] = model
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for part, n in ((straight, 11), (stopped, 5)):
        part.mkdir()
        write(part, 5)
        train_run(_of(part, kind, n, sections), part / "run", device="cpu")
    train_run(_of(stopped, kind, 11, sections), stopped / "run", resume=True, device="cpu")
    one, other = (load(f / "run", device="cpu").model.state_dict() for f in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def _of(folder, kind, n, sections):
    tree = plain(**sections, training={"max_updates": n, "save_every": 3, "validate_every": 100})
    if kind == "resnet":
        tree["model"] = {"kind": "resnet", "image_size": 6, "channels": 1, "n_blocks": [1, 1], "width": 4}
        tree["model"] |= {"n_groups": 2, "root_kernel": 3, "root_stride": 1, "root_pool": False}
    return recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})


# Use -------------------------------------------------------------------------------------------------------


def test_predictions_are_labels_with_their_probabilities(folder, run):
    draw = np.random.default_rng(9)
    paths = [str(folder / "test" / label / "3.png") for label in LABELS]
    found = run.predict([*paths, image("down", draw)], n_best=3)
    assert [p.text for p in found] == [*LABELS, "down"]
    for prediction in found:
        scores = [prediction.score, *(p.score for p in prediction.alternatives)]
        assert np.exp(scores).sum() == pytest.approx(1.0, abs=1e-5)


def test_scores_are_those_of_the_predictions(folder, run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    records = list(found.rows())
    assert [record["input"]["image"] for record in records[:3]] == [f"test/{label}/0.png" for label in LABELS]
    predicted = [p.text for p in run.predict([str(folder / r["input"]["image"]) for r in records])]
    assert [record["output"] for record in records] == predicted
    scores = {score.name: score for score in found.scores}
    right = [p == r["target"] for p, r in zip(predicted, records, strict=True)]
    assert scores["accuracy"].value == np.mean(right)
    assert scores["accuracy"].counts == {"examples": 30, "classes": 3}


@pytest.mark.parametrize("kind", ["folder", "tsv"])
def test_a_users_own_images_are_scored(folder, run, kind):
    path = folder / "test"
    if kind == "tsv":
        path = folder / "own.tsv"
        path.write_text("image\tlabel\n" + "".join(f"test/{x}/1.png\t{x}\n" for x in LABELS))
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    assert isinstance(source, FolderSource if kind == "folder" else TsvSource)
    assert evaluate(run, name, source).scores[0].counts["examples"] == (30 if kind == "folder" else 3)


def test_it_goes_on_at_another_resolution(folder, run):
    file = folder / "larger.yaml"
    tree = plain(start={"run": "run"}, training={"max_updates": 1})
    tree["schedule"] = {"kind": "constant", "peak": 1e-9}
    tree["model"] = {"image_size": 12}
    file.write_text(dump_yaml(tree))
    settings, _ = read_recipe(str(file))
    assert (settings.model.d_model, settings.model.n_tokens) == (12, 17)
    train_run(settings, folder / "larger", device="cpu")
    larger = load(folder / "larger", device="cpu")
    assert (larger.processor.reader.size, larger.processor.reader.mean) == (12, run.processor.reader.mean)
    table, old = (r.model.embedding.positions.positions.weight for r in (larger, run))
    assert table.shape == (17, 12)
    # The class token keeps its place; every old place has four new ones around it.
    torch.testing.assert_close(table[0], old[0], rtol=0, atol=1e-6)
    mean = table[1:].mean(0), old[1:].mean(0)
    torch.testing.assert_close(*mean, rtol=0, atol=1e-5)


def test_a_run_is_described(folder):
    ledger = describe(str(folder / "run"))
    assert ledger.total.parameters == sum(
        p.numel() for p in load(folder / "run", device="cpu").model.parameters()
    )
    assert any("an image becomes 5 tokens" in note for note in ledger.notes)


# Bad input -------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_named_or_dropped_and_counted(tmp_path):
    write(tmp_path, 4)
    for part in ("train", "test"):
        (tmp_path / part / "flat" / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"data.train: train/flat/bad.png: not an image"):
        into(tmp_path)
    assert not (tmp_path / "run").exists()
    run = into(tmp_path, data={"filter": {"unreadable": "drop"}})
    report = json.loads((tmp_path / "run" / "data.json").read_text())["train"]
    assert report["dropped"] == {"unreadable": {"count": 1, "examples": ["train/flat/bad.png"]}}
    assert (report["rows"], report["kept"], report["classes"]["flat"]) == (13, 12, 4)
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    assert found.scores[0].counts == {"examples": 12, "classes": 3, "unreadable": 1}
    assert found.notes == ("dropped, unreadable: 1 (test/flat/bad.png)",)
    assert found.to_dict()["notes"] == [*found.notes]
    strict = run.recipe.model_copy(update={"data": recipe().data})
    run.task.recipe = strict
    with pytest.raises(DataError, match=r"test: test/flat/bad.png: not an image"):
        evaluate(run, "test", chosen_splits(run, "test", None)["test"])


def test_missing_images_of_a_table_are_left_out_and_counted(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    images = [None if n == 4 else Image.new("L", (6, 6), 20 * n) for n in range(9)]
    table = datasets.Dataset.from_dict({"image": images, "label": [n % 2 for n in range(9)]}, features)
    table.save_to_disk(str(tmp_path / "saved"))
    source = {"kind": "datasets", "path": "saved", "columns": {"image": "image", "label": "label"}}
    data = {"train": source, "valid": source, "test": {"test": source}}
    with pytest.raises(DataError, match=r"saved\[train\]:5: the image is missing"):
        into(tmp_path, data=data)
    run = into(tmp_path, data={**data, "filter": {"unreadable": "drop"}})
    report = json.loads((tmp_path / "run" / "data.json").read_text())["train"]
    assert report["dropped"] == {"unreadable": {"count": 1, "examples": ["saved[train]:5"]}}
    found = evaluate(run, "test", run.recipe.data.test["test"])
    assert found.scores[0].counts == {"examples": 8, "classes": 2, "unreadable": 1}


def test_an_image_with_a_label_that_training_has_not_seen_counts_as_wrong(run, tmp_path):
    for label in ("flat", "slant"):
        (tmp_path / "own" / label).mkdir(parents=True)
        Image.fromarray(np.zeros((6, 6), dtype=np.uint8)).save(tmp_path / "own" / label / "1.png")
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "own"]).items()
    found = evaluate(run, name, source)
    (answer, _) = run.predict([np.zeros((6, 6), dtype=np.uint8)] * 2)
    assert found.scores[0].value == (answer.text == "flat") / 2
    assert found.scores[0].counts["unseen"] == 1
    assert "'slant' (1, first at " in found.notes[0]
    assert "own/slant/1.png" in found.notes[0]


def test_a_test_set_of_unknown_labels_alone_is_refused(folder, run, tmp_path):
    (tmp_path / "own" / "slant").mkdir(parents=True)
    Image.fromarray(np.zeros((6, 6), dtype=np.uint8)).save(tmp_path / "own" / "slant" / "1.png")
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "own"]).items()
    with pytest.raises(DataError, match=r"own/slant/1.png: unknown label 'slant'"):
        evaluate(run, name, source)


def test_a_run_that_reads_texts_is_no_start(folder, tmp_path):
    bare = recipe(start={"run": "run"}).model_copy(update={"root": str(folder)})
    (folder / "run" / "images.json").rename(tmp_path / "kept.json")
    try:
        with pytest.raises(RequestError, match="reads no images"):
            train_run(bare, tmp_path / "new", device="cpu")
    finally:
        (tmp_path / "kept.json").rename(folder / "run" / "images.json")


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"model": {"patch_size": 4}}, "patch_size must divide image_size=6, got 4"),
        ({"augmentation": {"erase": 1.5}}, "augmentation.erase: expected a number of at most 1.0"),
        ({"augmentation": {"flp": True}}, "did you mean 'flip'"),
        ({"augmentation": {"crop": {"area": [0.5, 1.5]}}}, "crop.area.1: expected a number of at most 1.0"),
        ({"augmentation": {"crop": {"area": [0.5, 0.1]}}}, "crop: .*the smaller number must come first"),
        ({"tokenizer": {}}, "tokenizer"),
        ({"training": {"metric": "accuracy", "direction": "lower"}}, "for which higher is better"),
        ({"data": {"filter": {"unreadable": "skip"}}}, "error"),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)


@pytest.mark.slow
def test_validation_measures_the_macro_f1_of_evaluate_if_it_selects_the_checkpoint(tmp_path):
    training = {"max_updates": 6, "tokens_per_update": 60, "validate_every": 3, "save_every": 3}
    training |= {"metric": "macro-f1", "direction": "higher", "precision": "fp32"}
    run = into(tmp_path, training=training)
    events = read_metrics(tmp_path / "run" / "metrics.jsonl")
    measured = [event["metrics"]["macro-f1"] for event in events if event["event"] == "validated"]
    scores = {score.name: score.value for score in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert max(measured) == pytest.approx(scores["macro F1"])
