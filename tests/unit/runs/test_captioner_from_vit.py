"""A captioner that begins as a classifier of images was left: what is taken, told and refused."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn import functional

from heedful.api.run import load
from heedful.data.images import LazyImage
from heedful.errors import RequestError
from heedful.models.registry import build_model
from heedful.models.vision import VisionConfig
from heedful.nn.patches import Images
from heedful.runs.reading import read_recipe
from heedful.runs.train import build_module, train_run
from heedful.tasks.captioning.task import CaptionProcessor
from heedful.tasks.registry import task_for
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

COLOURS = {"red": (255, 0, 30), "green": (10, 160, 0), "blue": (0, 70, 255)}
CLASSES = """
task: {kind: image-classification}
data:
  train: {kind: folder, path: images}
  valid: {kind: folder, path: images}
model:
  kind: vision
  image_size: 12
  patch_size: 4
  d_model: 12
  n_layers: 2
  layer: {mixer: {n_heads: 3}}
  POOLING
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 5, tokens_per_update: 90, validate_every: 5, save_every: 5, precision: fp32}
"""
CAPTIONS = """
task: {kind: captioning}
start: {run: vit}
data:
  train: {kind: captioned-folder, path: images}
  valid: {kind: captioned-folder, path: images}
tokenizer: {subwords: {kind: word}}
model: {kind: captioner, n_decoder_layers: 1}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 3, tokens_per_update: 90, validate_every: 3, save_every: 3, precision: fp32}
"""


def made(folder, pooling):
    """Images, which are captioned and have labels, and a classifier of them."""
    draw = np.random.default_rng(0)
    for colour, rgb in COLOURS.items():
        (folder / "images" / colour).mkdir(parents=True)
        for i in range(3):
            array = np.clip(np.array(rgb) + draw.integers(-40, 40, (12, 12, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(array).save(folder / "images" / colour / f"{i}.png")
    names = sorted(str(path.relative_to(folder / "images")) for path in folder.rglob("*.png"))
    (folder / "classes.yaml").write_text(CLASSES.replace("POOLING", f"pooling: {pooling}"))
    train_run(read_recipe(str(folder / "classes.yaml"))[0], folder / "vit", device="cpu")
    (folder / "images" / "captions.txt").write_text("".join(f"{n}\tall {n[:3]}\n" for n in names))
    (folder / "captions.yaml").write_text(CAPTIONS)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a ViT that has no class token; nobody may change it."""
    return made(tmp_path_factory.mktemp("mean"), "mean")


@pytest.fixture(scope="module")
def with_class_token(tmp_path_factory):
    return made(tmp_path_factory.mktemp("first"), "first")


def recipe_of(folder, *overrides):
    return read_recipe(str(folder / "captions.yaml"), overrides)[0]


def begun(folder, *overrides):
    """A captioner before its first update, its recipe, and what is said."""
    recipe, said = recipe_of(folder, *overrides), []
    processor = CaptionProcessor(train_tokenizer(WordConfig(kind="word"), ["all red gre blu"]))
    model = build_module(task_for(recipe, processor), torch.device("cpu"), said.append).model.eval()
    return model, recipe, said


def images_of(folder):
    return [LazyImage.of(path) for path in sorted((folder / "images").rglob("*.png"))]


def read(reader, images, n_tokens):
    return Images.of(reader.normalised(np.stack([reader.pixels(each) for each in images])), n_tokens)


def test_the_encoder_computes_what_the_vit_does(folder):
    """Though each reads images around a mean of its own."""
    vit, (model, recipe, said) = load(folder / "vit", device="cpu"), begun(folder)
    images = images_of(folder)
    theirs, ours = read(vit.processor.reader, images, 9), read(recipe.reader, images, 9)
    assert not torch.allclose(theirs.pixels, ours.pixels, atol=0.1)
    with torch.no_grad():
        wanted, found = vit.model(theirs), model.encode(ours)
    assert found.shape == (9 * 9, 12)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert said == [
        "starting from the weights of vit; newly initialised parts: decoder, target_embedding; "
        "not used: the head class"
    ]


def test_without_its_class_token_a_vit_is_one_that_never_had_one(with_class_token):
    """All else is taken; that the token and its place are not is told."""
    vit, (model, recipe, said) = load(with_class_token / "vit", device="cpu"), begun(with_class_token)
    without = build_model(VisionConfig.model_validate({**vit.recipe.model.model_dump(), "pooling": "mean"}))
    held = {name: x for name, x in vit.model.state_dict().items() if not name.startswith("heads.")}
    del held["embedding.class_token"]
    held["embedding.positions.positions.weight"] = held["embedding.positions.positions.weight"][1:]
    without.load_state_dict(held)
    images = images_of(with_class_token)
    with torch.no_grad():
        wanted = without.eval()(read(vit.processor.reader, images, 9))
        found = model.encode(read(recipe.reader, images, 9))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert said[0].endswith("not used: the class token and its place, the head class")


def test_sizes_are_those_of_the_vit_and_the_decoder_has_its_own(folder):
    recipe, vit = recipe_of(folder), load(folder / "vit", device="cpu").recipe
    taken = ("image_size", "patch_size", "channels", "d_model", "n_layers")
    assert all(getattr(recipe.model, name) == getattr(vit.model, name) for name in taken)
    assert recipe.model.layer == vit.model.layer
    assert (recipe.model.layer.mixer.n_heads, recipe.model.layer.channels.d_ff) == (3, None)
    assert recipe.model.n_decoder_layers == 1
    assert (recipe.model.kind, recipe.model.positions.kind) == ("captioner", "sinusoidal")


def test_images_of_another_size_have_a_table_of_places_between_the_old_ones(with_class_token):
    old = load_file(with_class_token / "vit" / "weights.safetensors")["embedding.positions.positions.weight"]
    table = begun(with_class_token, "model.image_size=24")[0].source_embedding.positions.positions.weight
    assert (tuple(old.shape), tuple(table.shape)) == ((10, 12), (36, 12))
    grid = old[1:].T.reshape(1, 12, 3, 3)
    wanted = functional.interpolate(grid, size=(6, 6), mode="bicubic", align_corners=False)
    torch.testing.assert_close(table, wanted.reshape(12, 36).T, rtol=0, atol=1e-6)


@pytest.mark.parametrize("frozen", ["none", "encoder"])
def test_it_trains_and_its_run_needs_the_vit_no_more(folder, tmp_path, frozen):
    recipe = recipe_of(folder, f"start.frozen={frozen}")
    train_run(recipe, tmp_path / "run", device="cpu")
    first = begun(folder)[0].state_dict()
    moved = recipe.model_copy(update={"start": recipe.start.model_copy(update={"run": "gone"})})
    run = load(tmp_path / "run", device="cpu")
    task = task_for(moved)
    task.load(run.folder)
    assert task.processor.caption.vocab_size > 3
    changed = {name for name, x in run.model.state_dict().items() if not torch.equal(x, first[name])}
    encoder = {name for name in first if name.startswith(("source_embedding.", "encoder."))}
    assert bool(changed & encoder) == (frozen == "none")
    assert {name.split(".")[0] for name in changed} >= {"decoder", "target_embedding"}
    assert len(run.predict([str(folder / "images" / "red" / "0.png")])) == 1
    assert set(json.loads((tmp_path / "run" / "run.json").read_text())["files"]) >= {"caption.tokenizer.json"}


@pytest.mark.parametrize(
    "override, message",
    [
        ("model.d_model=18", r"does not fit: of source_embedding\..*remove the sizes of the model"),
        ("model.n_layers=3", r"does not fit: of encoder\.blocks\.2\..*it has none"),
        ("model.patch_size=6", r"does not fit: of source_embedding\.patches\.projection\.weight"),
        ("model.channels=1", "reads 3 channels, but the recipe needs 1"),
        ("model.encoder=resnet", r"does not fit: of source_embedding\.network\.root\.0\.weight.*it has none"),
        (
            "start.frozen=body model.tie=false",
            "start.frozen=body: target_embedding and decoder are newly initialised and must be trained",
        ),
        ("start.frozen=embedding", "must be trained; start.frozen=encoder freezes what was loaded"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(folder, override, message):
    with pytest.raises(RequestError, match=message):
        begun(folder, *override.split())


def test_blocks_that_are_not_taken_are_told(folder):
    assert begun(folder, "model.n_layers=1")[2][0].endswith("the head class, encoder.blocks.1")


@pytest.mark.parametrize(
    "model, message",
    [
        (
            "{kind: vision, layer: {mixer: mlp}}",
            "other has layer.mixer.kind=mlp, but the encoder of a captioner requires attention",
        ),
        (
            "{kind: vision, layer: {mixer: {visible: {kind: window, size: 3}}}, pooling: mean}",
            r"other has layer\.mixer\.visible\.kind=window, but the encoder of a captioner",
        ),
        ("{kind: vision, positions: none}", "other has no learned positions"),
        (
            "{kind: resnet}",
            "is of the kind resnet, and captioning needs one of the kind captioner or recurrent-captioner or "
            "vision",
        ),
    ],
)
def test_models_that_have_no_such_encoder_are_refused(folder, tmp_path, model, message):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recipe.yaml").write_text(f"model: {model}\n")
    text = CAPTIONS.replace("run: vit", "run: other").replace(
        "model: {kind: captioner, n_decoder_layers: 1}", ""
    )
    (tmp_path / "captions.yaml").write_text(text)
    with pytest.raises(RequestError, match=rf"captions.yaml:3.*start\.run: the model of .*{message}"):
        recipe_of(tmp_path)


def test_settings_of_an_old_version_are_explained_with_file_and_line(folder, tmp_path):
    (tmp_path / "other").mkdir()
    recipe = tmp_path / "other" / "recipe.yaml"
    recipe.write_text("model:\n  kind: vision\n  n_heads: 3\n  d_ff: x\n  n_layers: two\n")
    (tmp_path / "captions.yaml").write_text(CAPTIONS.replace("run: vit", "run: other"))
    with pytest.raises(RequestError) as refused:
        recipe_of(tmp_path)
    assert str(refused.value).split("\n") == [
        f"{recipe}:3: model.n_heads: unknown key (did you mean 'model.layer.mixer.n_heads'?)",
        f"{recipe}:4: model.d_ff: unknown key (did you mean 'model.layer.channels.d_ff'?)",
        f"{recipe}:5: model.n_layers: expected a whole number, got 'two'",
    ]


def test_an_encoder_of_texts_has_no_part_of_that_name_to_freeze(folder, monkeypatch):
    monkeypatch.chdir(folder)
    recipe = read_recipe(str(folder / "classes.yaml"), ["start={run: vit, frozen: encoder}"])[0]
    with pytest.raises(
        RequestError, match=r"start\.frozen=encoder: this model has no encoder below a decoder"
    ):
        train_run(recipe, folder / "never", device="cpu")
