"""Segmentation as runs: trained, resumed, scored, carried on from a classifier; what data refuse."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.api.run import load
from heedful.config import merged
from heedful.data.sources import SegmentedFolderSource, TsvSource
from heedful.errors import DataError
from heedful.explain.capture import explain_input
from heedful.model_summary.summary import describe
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import read_recipe, recipe_from
from heedful.runs.train import train_run
from heedful.tasks.inputs.masks import restored
from heedful.tasks.registry import task_for
from heedful.training.callbacks import JsonLines, read_metrics

pytestmark = pytest.mark.slow

SIZE, LABELS = 12, ["ground", "disc", "bar"]
MODEL = {
    "kind": "vision",
    "image_size": SIZE,
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
RESNET = {"kind": "resnet", "image_size": SIZE, "channels": 1, "n_blocks": [1, 1], "width": 4}
RESNET |= {"n_groups": 2, "root_kernel": 3, "root_stride": 1, "root_pool": False}
TRAINING = {"max_updates": 6, "tokens_per_update": 55, "validate_every": 3, "save_every": 2}
TRANSFORMER = {"kind": "mask-transformer", "n_layers": 1, "n_heads": 3, "d_ff": 11}


def drawn(draw, size=(SIZE, SIZE)):
    """A bright square or a dark bar on grey, and its mask."""
    pixels, mask = np.full(size, 120), np.zeros(size, np.uint8)
    kind, (top, left) = draw.integers(1, 3), draw.integers(0, SIZE // 2, 2)
    window = (slice(top, top + 6), slice(left, left + (6 if kind == 1 else 3)))
    pixels[window], mask[window] = (230, 1) if kind == 1 else (10, 2)
    return np.clip(pixels + draw.integers(-9, 10, size), 0, 255).astype(np.uint8), mask


def write(folder, n=12, size=(SIZE, SIZE)):
    draw = np.random.default_rng(0)
    for part in ("train", "valid", "test"):
        for kind in ("images", "masks"):
            (folder / part / kind).mkdir(parents=True)
        for i in range(n):
            pixels, mask = drawn(draw, size)
            Image.fromarray(pixels).save(folder / part / "images" / f"{i}.png")
            Image.fromarray(mask).save(folder / part / "masks" / f"{i}.png")


def plain(**sections):
    return {
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "task": {"kind": "segmentation", "labels": LABELS, "decoder": "pixels", **sections.get("task", {})},
        "data": {
            "train": {"kind": "segmented-folder", "path": "train"},
            "valid": {"kind": "segmented-folder", "path": "valid"},
            "test": {"test": {"kind": "segmented-folder", "path": "test"}},
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
    training = {"max_updates": 120, "validate_every": 40, "save_every": 40, "tokens_per_update": 200}
    into(folder, training={**training, "metric": "mean-iou", "direction": "higher"})
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return load(folder / "run", device="cpu")


def confusion(pairs):
    """Of pairs of predicted and true masks, pixel by pixel."""
    matrix = np.zeros((3, 3), np.int64)
    for predicted, target in pairs:
        for p, t in zip(predicted.flat, target.flat, strict=True):
            if 255 not in (p, t):
                matrix[t, p] += 1
    return matrix


def iou(matrix):
    return [matrix[k, k] / (matrix[k].sum() + matrix[:, k].sum() - matrix[k, k]) for k in range(3)]


# Training --------------------------------------------------------------------------------------------------


def test_a_run_holds_its_labels_and_how_it_reads_images(folder):
    card = json.loads((folder / "run" / "run.json").read_text())
    assert set(card["files"]) == {"recipe.yaml", "images.json", "labels.json", "weights.safetensors"}
    report = json.loads((folder / "run" / "data.json").read_text())
    assert report["train"]["classes"]["ground"] == 12
    assert report["train"]["classes"]["disc"] + report["train"]["classes"]["bar"] == 12


def test_training_learns_and_validation_measures_the_mean_iou_of_evaluate(folder, run):
    events = read_metrics(folder / "run" / "metrics.jsonl")
    validated = [event["metrics"] for event in events if event["event"] == "validated"]
    assert validated[-1].keys() == {"loss", "accuracy", "mean-iou"}
    best = max(metrics["mean-iou"] for metrics in validated)
    assert best > 0.7
    scores = {score.name: score.value for score in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert scores["mean IoU"] == pytest.approx(best, abs=1e-6)


METRIC = {"metric": "mean-iou", "direction": "higher", "max_updates": 3}


def test_classes_outside_of_the_square_that_is_read_are_classes(tmp_path):
    write(tmp_path, n=3, size=(SIZE, 3 * SIZE))
    for part in ("train", "valid"):
        for path in (tmp_path / part / "masks").iterdir():
            mask = np.array(Image.open(path))
            mask[:, 0] = 7
            Image.fromarray(mask).save(path)
    run = into(tmp_path, task={"labels": None}, training=METRIC)
    assert "7" in run.processor.labels
    (score, *_) = evaluate(run, "valid", run.recipe.data.valid).scores
    assert score.details["classes"] == list(run.processor.labels)


def test_masks_that_cannot_be_read_are_dropped_wherever_they_are_scored(tmp_path):
    write(tmp_path, n=4)
    for part in ("valid", "test"):
        (tmp_path / part / "masks" / "2.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"2\.png: not an image"):
        into(tmp_path, "strict", training=METRIC)
    run = into(tmp_path, data={"filter": {"unreadable": "drop"}}, training=METRIC)
    found = evaluate(run, "test", run.recipe.data.test["test"])
    assert found.scores[0].counts["images"] == 3
    assert any("unreadable masks" in note and "1" in note for note in found.notes)


def test_one_says_what_becomes_of_the_images_and_which_labels_cannot_be_learned(tmp_path):
    said = []
    into(tmp_path, log=said.append, training={"max_updates": 1}, task={"labels": [*LABELS, "cat"]})
    assert "images: the first has 12 x 12 pixels in grey; all are brought to 12 x 12 pixels in grey" in said
    assert "4 labels: ground, disc, bar, cat" in said
    assert "no training pixel has the label cat: it cannot be learned" in said


@pytest.mark.parametrize("decoder", ["linear", TRANSFORMER, "resnet"])
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path, decoder):
    augmentation = {"crop": {"area": [0.5, 1.0]}, "shift": 1, "flip": True, "erase": 0.5}
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"

    def of(part, n):
        task = {} if decoder == "resnet" else {"decoder": decoder}
        training = {"max_updates": n, "save_every": 3, "validate_every": 100}
        tree = plain(task=task, augmentation=augmentation, training=training)
        tree["model"] = RESNET if decoder == "resnet" else tree["model"]
        return recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(part)})

    for part, n in ((straight, 11), (stopped, 5)):
        part.mkdir()
        write(part, 5)
        train_run(of(part, n), part / "run", device="cpu")
    train_run(of(stopped, 11), stopped / "run", resume=True, device="cpu")
    one, other = (load(f / "run", device="cpu").model.state_dict() for f in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


# Use -------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_pixels_of_the_predictions(folder, run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    records = list(found.rows())
    assert [record["input"]["image"] for record in records[:2]] == ["test/images/0.png", "test/images/1.png"]
    predicted = [p.mask for p in run.predict([str(folder / r["input"]["image"]) for r in records])]
    targets = [np.asarray(Image.open(folder / r["target"])) for r in records]
    matrix = confusion(zip(predicted, targets, strict=True))
    scores = {score.name: score for score in found.scores}
    assert scores["mean IoU"].value == pytest.approx(np.mean(iou(matrix)))
    assert scores["mean IoU"].details["confusion"] == matrix.tolist()
    assert scores["pixel accuracy"].value == np.trace(matrix) / matrix.sum()
    assert scores["mean IoU"].counts == {"images": 12, "pixels": 12 * SIZE**2, "classes": 3}
    for record, one, other in zip(records, predicted, targets, strict=True):
        assert record["scores"]["accuracy"] == pytest.approx((one == other).mean())
        assert sum(record["shares"].values()) == pytest.approx(1)


def test_images_of_any_size_are_scored_in_their_own_and_only_where_they_are_read(run, tmp_path):
    write(tmp_path, 3, size=(24, 37))
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "test"]).items()
    assert isinstance(source, SegmentedFolderSource)
    (scores, *_) = evaluate(run, name, source).scores
    assert scores.counts["pixels"] == 3 * 24**2
    files = sorted((tmp_path / "test" / "images").iterdir())
    masks = [np.asarray(Image.open(tmp_path / "test" / "masks" / file.name)) for file in files]
    predicted = [prediction.mask for prediction in run.predict([str(file) for file in files])]
    assert all(mask.shape == (24, 37) for mask in predicted)
    matrix = confusion(zip(predicted, masks, strict=True))
    assert scores.details["confusion"] == matrix.tolist()


@pytest.mark.parametrize("size", [(SIZE, SIZE), (24, 37), (9, 14)])
def test_predicted_masks_are_scored_as_right_when_they_are_read_back(run, tmp_path, size):
    write(tmp_path, 3, size)
    for file in (tmp_path / "test" / "images").iterdir():
        (prediction,) = run.predict([str(file)])
        (tmp_path / "test" / "masks" / file.name).write_bytes(prediction.image_file())
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "test"]).items()
    assert [score.value for score in evaluate(run, name, source).scores] == [1.0, 1.0]


def test_a_table_of_paths_is_scored(folder, run):
    path = folder / "own.tsv"
    path.write_text("image\tmask\n" + "".join(f"test/images/{i}.png\ttest/masks/{i}.png\n" for i in range(3)))
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    assert isinstance(source, TsvSource)
    assert evaluate(run, name, source).scores[0].counts["images"] == 3


def test_a_mask_with_another_number_or_size_is_named(folder, run, tmp_path):
    write(tmp_path, 2)
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "test"]).items()
    mask = tmp_path / "test" / "masks" / "1.png"
    Image.fromarray(np.full((SIZE, SIZE), 9, np.uint8)).save(mask)
    with pytest.raises(DataError, match=r"test/masks/1.png: the class number 9 \(144 pixels\) has no label"):
        evaluate(run, name, source)
    Image.fromarray(np.zeros((9, SIZE), np.uint8)).save(mask)
    with pytest.raises(DataError, match=r"test/masks/1.png: expected 12 x 12 pixels, .* got 12 x 9"):
        evaluate(run, name, source)


def test_attention_is_over_the_patches_and_views_are_those_of_image_models(folder, run):
    seen = explain_input(run, str(folder / "test" / "images" / "0.png"), views=["all"])
    assert seen.axes["input"].grid == (4, 4)
    assert len(seen.axes["input"].tokens) == 17
    assert {"lens", "losses", "gradients", "rollout", "class-token", "filters"} <= seen.views.keys()
    assert len(seen.views["losses"]["answers"]) == 16
    assert seen.views["losses"]["places"] == list(range(1, 17))


@pytest.mark.parametrize("decoder", ["linear", "pixels", TRANSFORMER])
def test_a_run_is_described(folder, decoder):
    file = folder / "described.yaml"
    file.write_text(dump_yaml(plain(task={"decoder": decoder})))
    summary = describe(str(file))
    settings, _ = read_recipe(str(file))
    model = task_for(settings).build_model([3])
    assert summary.total.parameters == sum(p.numel() for p in model.parameters())
    assert any("an image becomes 17 tokens" in note for note in summary.notes)
    assert "head mask" in str(summary)


# Warm starts -----------------------------------------------------------------------------------------------


def test_it_starts_from_an_image_classifier_at_another_size(tmp_path):
    write(tmp_path)
    for label in ("a", "b"):
        (tmp_path / "classes" / label).mkdir(parents=True)
        for i in range(3):
            pixels = np.random.default_rng(i).integers(0, 256, (SIZE, SIZE), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "classes" / label / f"{i}.png")
    source = {"kind": "folder", "path": "classes"}
    tree = plain(data={"train": source, "valid": source, "test": {}}) | {
        "task": {"kind": "image-classification"}
    }
    classifier = recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(tmp_path)})
    train_run(classifier, tmp_path / "classifier", device="cpu")
    carried = plain(start={"run": "classifier"}, task={"decoder": TRANSFORMER}, training={"max_updates": 1})
    carried["schedule"], carried["model"] = {"kind": "constant", "peak": 1e-9}, {"image_size": 24}
    (tmp_path / "masks.yaml").write_text(dump_yaml(carried))
    settings, _ = read_recipe(str(tmp_path / "masks.yaml"))
    said = []
    train_run(settings, tmp_path / "masks", device="cpu", log=said.append)
    assert any("newly initialised heads: mask; not used: class" in line for line in said)
    old, new = (load(tmp_path / name, device="cpu") for name in ("classifier", "masks"))
    assert new.processor.reader.mean == old.processor.reader.mean
    assert new.model.heads["mask"].size == (24, 24)
    for name, parameter in old.model.named_parameters():
        if not name.startswith("heads.") and "positions" not in name:
            torch.testing.assert_close(new.model.get_parameter(name), parameter, rtol=0, atol=1e-6)


def test_only_the_decoder_is_trained_on_a_frozen_body(folder):
    run = load(folder / "run", device="cpu")
    settings = recipe(start={"run": "run", "frozen": "body"}, task={"decoder": "linear"})
    train_run(settings.model_copy(update={"root": str(folder)}), folder / "frozen", device="cpu")
    trained = load(folder / "frozen", device="cpu").model
    same = {
        n
        for n, p in run.model.named_parameters()
        if torch.equal(p, dict(trained.named_parameters()).get(n, p * 0))
    }
    assert {n for n, _ in trained.named_parameters()} - same == {
        "heads.mask.decoder.layer.weight", "heads.mask.decoder.layer.bias"
    }  # fmt: skip


# Bad input -------------------------------------------------------------------------------------------------


def test_a_number_without_a_label_stops_the_training(tmp_path):
    write(tmp_path, 4)
    with pytest.raises(
        DataError, match=r"data.valid: valid/masks/\d.png: the class number 2 .* has no label: "
    ):
        into(tmp_path, task={"labels": ["ground", "disc"]})
    assert not (tmp_path / "run").exists() or not (tmp_path / "run" / "run.json").exists()


def test_restored_masks_are_those_of_the_run(run, folder):
    (prediction,) = run.predict([str(folder / "test" / "images" / "0.png")])
    assert np.array_equal(prediction.mask, restored(prediction.indices, (SIZE, SIZE)))
