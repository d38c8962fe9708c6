"""ViT without transformers: configurations, how images are read, round trips, refusals."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder, write_json, write_text
from heedful.config import merged
from heedful.errors import RequestError
from heedful.interop.conversion import export_run, import_run
from heedful.interop.names import write_weights
from heedful.interop.vit import table
from heedful.models.registry import build_model
from heedful.models.vision import PRESETS, VisionConfig
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml
from heedful.runs.reading import recipe_from
from heedful.runs.train import seal
from heedful.tasks.image_task import ImageProcessor
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.registry import task_for

LABELS = ("cat", "dog", "none of them")
SIZES = {
    "kind": "vision",
    "d_model": 14,
    "n_layers": 2,
    "image_size": 15,
    "patch_size": 5,
    "channels": 3,
    "dropout": 0.0,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 17},
        "norm": {"eps": 1e-12},
    },
}


@pytest.fixture
def own_run(tmp_path):
    """Makes a run of heedful's with such a model."""

    def make(**model):
        columns = {"image": "image", "label": "label"}
        data = {
            part: {"kind": "tsv", "paths": "x", "columns": columns, "header": True}
            for part in ("train", "valid")
        }
        plain = {"task": {"kind": "image-classification"}, "data": data, "model": merged(SIZES, model)}
        recipe = recipe_from(Tree.of({**plain, "training": {"max_updates": 1}}, Mark("here")))
        channels, side = recipe.model.channels, recipe.model.image_size
        reader = ImageReader(side, channels, (0.25, 0.5, 0.75)[:channels], (0.5, 0.25, 0.125)[:channels])
        processor, folder = ImageProcessor(reader, LABELS), RunFolder(tmp_path / "run")
        folder.path.mkdir()
        write_json(folder.environment, {})
        write_text(folder.recipe, dump_yaml(recipe.model_dump(mode="json")))
        processor.save(folder)
        torch.manual_seed(3)
        net = task_for(recipe).build_model(processor.sizes)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter += 0.2 * torch.randn_like(parameter)
        seal(folder, recipe, net, {})
        return folder.path

    return make


@pytest.fixture
def vit(own_run, tmp_path):
    """A folder that can be imported."""
    return export_run(own_run(), "vit", tmp_path / "their-vit")


def change(folder, name, **values):
    """Give a file of a folder other values; None takes a key away."""
    path = folder / name
    held = {**json.loads(path.read_text("utf-8")), **values}
    path.write_text(json.dumps({k: v for k, v in held.items() if v is not None}), "utf-8")
    return folder


@pytest.mark.parametrize("channels", [1, 3])
def test_a_run_comes_back_bit_for_bit(own_run, tmp_path, channels):
    run, lines = own_run(channels=channels), []
    out = export_run(run, "vit", log=lines.append)
    assert len(lines) == 1
    again = import_run(out, tmp_path / "again", lines.append)
    assert any(line.endswith("parameters, 3 labels") for line in lines)
    assert not any(line.startswith("note: ") for line in lines)
    before, after = load(run), load(again.path)
    assert after.recipe.model == before.recipe.model
    assert after.processor == before.processor
    for name, tensor in before.model.state_dict().items():
        assert torch.equal(tensor, after.model.state_dict()[name]), name
    images = list(np.random.default_rng(1).integers(0, 256, (3, 20, 15, 3), dtype=np.uint8))
    first, second = (run.predict(images) for run in (before, after))
    assert [p.text for p in first] == [p.text for p in second]


def test_a_configuration_becomes_a_model(vit, tmp_path):
    change(
        vit, "config.json", hidden_act="relu", layer_norm_eps=1e-3, hidden_dropout_prob=0.25,
        attention_probs_dropout_prob=0.5, image_size=[15, 15], my_own_key=1,
    )  # fmt: skip
    lines = []
    run = load(import_run(vit, tmp_path / "again", lines.append).path)
    layer = {"mixer": {"dropout": 0.5}, "channels": {"activation": "relu"}, "norm": {"eps": 1e-3}}
    assert run.recipe.model == VisionConfig.model_validate(merged(SIZES, {"dropout": 0.25, "layer": layer}))
    assert any("not read: config.json: my_own_key" in line for line in lines)


def test_how_images_are_read_is_told_or_usual(vit, tmp_path):
    (vit / "preprocessor_config.json").unlink()
    lines = []
    reader = load(import_run(vit, tmp_path / "usual", lines.append).path).processor.reader
    assert (reader.mean, reader.std) == ((0.5,) * 3, (0.5,) * 3)
    assert any("non-square images are cropped here" in line for line in lines)
    told = {"do_normalize": False, "size": {"height": 15, "width": 15}, "resample": 3}
    (vit / "preprocessor_config.json").write_text(json.dumps(told), "utf-8")
    reader = load(import_run(vit, tmp_path / "told", lines.append).path).processor.reader
    assert (reader.mean, reader.std) == ((0.0,) * 3, (1.0,) * 3)
    assert any("resample=3: heedful uses bilinear resampling" in line for line in lines)


@pytest.mark.parametrize("size", [{"shortest_edge": 17}, {"height": 17, "width": 17}, 17])
def test_a_crop_from_a_larger_image_is_told(vit, tmp_path, size):
    change(vit, "preprocessor_config.json", size=size)
    lines = []
    import_run(vit, tmp_path / "again", lines.append)
    (note,) = [line for line in lines if line.startswith("note: ")]
    assert f"preprocessor_config.json: size={size}, of which transformers takes a centre crop" in note


@pytest.mark.parametrize(
    "values, message",
    [
        ({"do_rescale": False}, "do_rescale: False: must be true: heedful scales pixels to [0, 1]"),
        (
            {"rescale_factor": 1 / 127},
            "rescale_factor: must be 1/255 (pixels are scaled to [0, 1]), got 0.00787",
        ),
        ({"do_resize": False}, "do_resize: False: must be true: heedful resizes images to the model's size"),
        ({"crop_size": {"height": 16, "width": 16}}, "crop_size: must equal the"),
        ({"image_mean": [0.5]}, "image_mean: expected 3 numbers, one per channel, got [0.5]"),
        ({"image_std": [0.5, 0, 1]}, "image_std: must be above 0, got [0.5, 0.0, 1.0]"),
    ],
)
def test_other_ways_to_read_images_are_refused(vit, tmp_path, values, message):
    change(vit, "preprocessor_config.json", **values)
    with pytest.raises(RequestError) as error:
        import_run(vit, tmp_path / "again")
    assert message in str(error.value)
    assert "preprocessor_config.json: " in str(error.value)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"qkv_bias": False}, "qkv_bias: False: must be true: heedful's attention has biases"),
        ({"patch_size": 4}, "patch_size: 4 does not divide image_size=15"),
        ({"image_size": [15, 20]}, "image_size: expected two equal sides (images are square), got [15, 20]"),
        ({"num_attention_heads": 3}, "num_attention_heads: 3 does not divide hidden_size=14"),
        ({"architectures": ["ViTForMaskedImageModeling"]}, "ViTForMaskedImageModeling: this head"),
        ({"problem_type": "regression"}, "problem_type: 'regression': "),
        ({"num_channels": 1}, "expected 1 numbers, one per channel"),
        ({"patch_size": 3}, "projection.weight has shape [14, 3, 5, 5] in the file, expected [14, 3, 3, 3]"),
        ({"num_hidden_layers": 3}, "missing: vit.encoder.layer.2."),
        ({"id2label": {"0": "a", "1": "b"}}, "classifier.weight has shape [3, 14] in the file"),
    ],
)
def test_what_heedful_cannot_express_is_refused_by_its_key(vit, tmp_path, values, message):
    with pytest.raises(RequestError) as error:
        import_run(change(vit, "config.json", **values), tmp_path / "again")
    assert message in str(error.value)
    assert not (tmp_path / "again").exists()


def test_a_model_without_a_classifier_is_one_to_start_from(vit, tmp_path):
    path = vit / "model.safetensors"
    held = {
        name.removeprefix("vit."): tensor
        for name, tensor in load_file(path).items()
        if "classifier" not in name
    }
    held |= {"pooler.dense.weight": torch.ones(14, 14), "pooler.dense.bias": torch.ones(14)}
    save_file(held, path)
    lines = []
    run = load(import_run(vit, tmp_path / "again", lines.append).path)
    assert any("the source has no classifier" in line for line in lines)
    assert any("the pooler is not imported" in line for line in lines)
    assert torch.equal(run.model.embedding.class_token[None], held["embeddings.cls_token"])


WINDOW = {"mixer": {"visible": {"kind": "window", "size": 4}}}


@pytest.mark.parametrize(
    "model, message",
    [
        (
            {"layer": {"norm_placement": "post"}},
            "model.layer.norm_placement=post: not supported by ViT: its norms",
        ),
        ({"layer": {"mixer": "fourier"}}, "model.layer.mixer.kind=fourier: "),
        ({"layer": WINDOW, "pooling": "mean"}, "model.layer.mixer.visible.kind=window: "),
        ({"pattern": [WINDOW, {}]}, "model.pattern=[…]: not supported by ViT: its layers are alike"),
        ({"pooling": "mean"}, "model.pooling=mean: "),
        ({"positions": "none"}, "model.positions.kind=none: "),
        ({"layer": {"norm": "rms"}}, "model.layer.norm.kind=rms: "),
        ({"layer": {"channels": "gated"}}, "model.layer.channels.kind=gated: "),
        ({"layer": {"mixer": {"d_k": 5}}}, "model.layer.mixer.d_k=5: "),
    ],
)
def test_what_vit_has_not_is_refused_by_the_recipes_key(own_run, tmp_path, model, message):
    run = own_run(**model)
    with pytest.raises(RequestError) as error:
        export_run(run, "vit")
    assert message in str(error.value)
    assert not (tmp_path / "run-vit").exists()


@pytest.mark.parametrize("name, n", [("vit-b-16", 12), ("vit-l-16", 24), ("vit-h-14", 32)])
def test_the_table_knows_every_name_of_the_published_sizes(name, n):
    patch = PRESETS[name].patch_size
    layer = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 3}}
    own = PRESETS[name].changed(d_model=4, layer=layer, channels=1, image_size=2 * patch)
    written = write_weights(table(own, set()), build_model(own))
    assert len(written) == 4 + 16 * n + 2
    assert written["vit.embeddings.patch_embeddings.projection.weight"].shape == (4, 1, patch, patch)
