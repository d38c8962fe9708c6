"""ViT of transformers: what it saves is imported, what is exported it loads, and both compute the same."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from explained import explained, same_attention
from fine_tuned import fine_tune
from PIL import Image
from safetensors.torch import load_file
from torch.nn import functional

from heedful.api.run import load
from heedful.interop.conversion import export_run, import_run
from heedful.nn.patches import Images
from heedful.tasks.registry import task_for

transformers = pytest.importorskip("transformers")

D, FF, HEADS, LAYERS, SIDE, PATCH = 22, 31, 2, 3, 15, 5
LABELS = {0: "cat", 1: "dog", 2: "none of them"}
MEAN, STD = [0.2, 0.3, 0.7], [0.5, 0.25, 0.125]

CASES = {
    "as published": {},
    "wide epsilon, relu": {"layer_norm_eps": 1e-2, "hidden_act": "relu"},
    "grey, sides told twice": {"num_channels": 1, "image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]},
}


def make(kind, folder, **options):
    """A folder that transformers saved, and the model."""
    torch.manual_seed(1)
    sizes = {"num_channels": 3, "image_size": SIDE, "patch_size": PATCH, **options}
    config = transformers.ViTConfig(
        hidden_size=D, intermediate_size=FF, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        id2label=LABELS, label2id={name: i for i, name in LABELS.items()}, **sizes,
    )  # fmt: skip
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    channels = sizes["num_channels"]
    reader = {"image_mean": MEAN[:channels], "image_std": STD[:channels], "size": SIDE, "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(reader), "utf-8")
    return model


def close(ours, theirs):
    """Whole tensors, in fp32, relative to the largest number."""
    scale = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-5 * scale)


def agrees(run, model):
    config = run.recipe.model
    pixels = torch.randn(4, config.channels, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    inputs = Images.of(pixels, config.n_tokens)
    with torch.no_grad():
        out, hidden = model(pixels), run.model(inputs)
        if "logits" in out:
            pooled = run.model.heads["pooled"](hidden, inputs.layout)
            close(run.model.heads["class"](pooled), out.logits)
        else:
            close(hidden, out.last_hidden_state.flatten(0, 1))


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ViTModel"])
def test_both_compute_the_same_in_both_directions(kind, options, tmp_path):
    model, lines = make(kind, tmp_path / "their", **options), []
    run = load(import_run(tmp_path / "their", tmp_path / "run", lines.append).path)
    assert run.processor.labels == tuple(LABELS.values())
    assert any("the source has no classifier" in line for line in lines) == (kind == "ViTModel")
    agrees(run, model)
    out = export_run(tmp_path / "run", "vit")
    again, told = getattr(transformers, kind).from_pretrained(out, output_loading_info=True)
    if kind == "ViTForImageClassification":
        assert not any(told.values()), told
        assert again.config.id2label == LABELS
        theirs, ours = (load_file(f / "model.safetensors") for f in (tmp_path / "their", out))
        assert theirs.keys() == ours.keys()
        assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    agrees(run, again.eval())


def patches(channels):
    draw = np.random.default_rng(5)
    shape = (SIDE, SIDE) if channels == 1 else (SIDE, SIDE, channels)
    return [Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)) for _ in range(3)]


@pytest.mark.parametrize("options", [{}, {"num_channels": 1}])
def test_images_get_the_same_labels(options, tmp_path):
    """Images of the model's own size: nothing is resized."""
    model = make("ViTForImageClassification", tmp_path / "their", **options)
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    channels = run.recipe.model.channels
    images = patches(channels)
    processor = transformers.AutoImageProcessor.from_pretrained(
        export_run(tmp_path / "run", "vit"), use_fast=False
    )
    if channels == 3:
        theirs = processor(images, return_tensors="pt").pixel_values
        ours = run.processor.reader.normalised(np.stack([np.asarray(p).transpose(2, 0, 1) for p in images]))
        close(ours, theirs)
    pixels = torch.stack([torch.from_numpy(np.asarray(p, np.float32)) / 255 for p in images])
    pixels = pixels[:, None] if channels == 1 else pixels.permute(0, 3, 1, 2)
    mean, std = (torch.tensor(each[:channels])[:, None, None] for each in (MEAN, STD))
    with torch.no_grad():
        wanted = model((pixels - mean) / std).logits
    found = run.predict(images)
    assert [p.text for p in found] == [LABELS[i] for i in wanted.argmax(-1).tolist()]
    close(torch.tensor([p.score for p in found]), wanted.log_softmax(-1).amax(-1))


def test_what_was_exported_cuts_the_middle_as_heedful_does(tmp_path):
    make("ViTForImageClassification", tmp_path / "their")
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    out = export_run(tmp_path / "run", "vit")
    processor = transformers.AutoImageProcessor.from_pretrained(out, use_fast=False)
    wide = Image.fromarray(np.random.default_rng(7).integers(0, 256, (SIDE, 2 * SIDE + 1, 3), dtype=np.uint8))
    ours = run.processor.reader.normalised(np.asarray(wide)[None, :, 8 : 8 + SIDE].transpose(0, 3, 1, 2))
    close(ours, processor([wide], return_tensors="pt").pixel_values)


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ViTModel"])
def test_an_imported_run_explains_with_the_attention_of_vit(kind, tmp_path):
    make(kind, tmp_path / "their")
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    (image, *_) = patches(3)
    image.save(tmp_path / "p.png")
    found = explained(tmp_path / "run", tmp_path / "p.png", "--view", "class-token")
    model = getattr(transformers, kind).from_pretrained(tmp_path / "their", attn_implementation="eager")
    pixels = run.processor.reader.normalised(np.asarray(image).transpose(2, 0, 1)[None])
    theirs = model.eval()(pixels, output_attentions=True).attentions
    same_attention(found, "self", theirs)
    n = SIDE // PATCH
    for layer, (weights,) in zip(found["more"]["class-token"]["layers"], theirs, strict=True):
        wanted = weights.mean(dim=0)[0, 1:].reshape(n, n).detach().numpy()
        np.testing.assert_allclose(layer["weights"], wanted, atol=1e-5)


def test_training_on_own_images_begins_where_vit_is(tmp_path):
    """With labels of one's own; the first loss is that of `ViTForImageClassification` with the same head."""
    make("ViTForImageClassification", tmp_path / "their")
    import_run(tmp_path / "their", tmp_path / "run")
    images, labels = patches(3), ["round", "square", "round"]
    rows = [{"image": f"{i}.png", "label": label} for i, label in enumerate(labels)]
    for row, image in zip(rows, images, strict=True):
        image.save(tmp_path / row["image"])
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    columns = {"image": "image", "label": "label"}
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": columns}
    tuned = fine_tune(tmp_path, source, task={"kind": "image-classification"})
    assert "starting from the weights of run; newly initialised heads: class" in tuned.said
    theirs = transformers.ViTForImageClassification.from_pretrained(
        tmp_path / "their", num_labels=2, ignore_mismatched_sizes=True
    )
    pixels = torch.stack([torch.from_numpy(np.asarray(p, np.float32)) / 255 for p in images])
    mean, std = (torch.tensor(each)[:, None, None] for each in (MEAN, STD))
    wanted = torch.tensor([tuned.run.processor.labels.index(label) for label in labels])
    with torch.no_grad():
        theirs.classifier.load_state_dict(tuned.first.heads["class"][1].state_dict())
        loss = theirs.eval()((pixels.permute(0, 3, 1, 2) - mean) / std, labels=wanted).loss.item()
    assert tuned.losses[0] == pytest.approx(loss, rel=1e-5)
    assert tuned.losses[2] < tuned.losses[0]
    assert {answer.text for answer in tuned.run.predict(images)} <= {"round", "square"}


def test_segmentation_begins_where_vit_is(tmp_path):
    """The first loss is that of the patches of transformers' ViT, with the same linear decoder on them."""
    make("ViTForImageClassification", tmp_path / "their")
    import_run(tmp_path / "their", tmp_path / "run")
    images, masks = patches(3), np.random.default_rng(5).integers(0, 2, (3, SIDE, SIDE)).astype(np.uint8)
    masks[:, :4] = 255
    rows = [{"image": f"{i}.png", "mask": f"mask{i}.png"} for i in range(3)]
    for row, image, mask in zip(rows, images, masks, strict=True):
        image.save(tmp_path / row["image"])
        Image.fromarray(mask).save(tmp_path / row["mask"])
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {"image": "image", "mask": "mask"}}
    tuned = fine_tune(tmp_path, source, task={"kind": "segmentation", "labels": ["sky", "sea"]})
    started = "starting from the weights of run; newly initialised heads: mask; not used: class"
    assert any(line.startswith(started) for line in tuned.said)
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "their").eval().vit
    pixels = torch.stack([torch.from_numpy(np.asarray(p, np.float32)) / 255 for p in images])
    mean, std = (torch.tensor(each)[:, None, None] for each in (MEAN, STD))
    n = SIDE // PATCH
    with torch.no_grad():
        states = theirs((pixels.permute(0, 3, 1, 2) - mean) / std).last_hidden_state[:, 1:]
        maps = tuned.first.heads["mask"].decoder.layer(states).mT.unflatten(2, (n, n))
        scores = functional.interpolate(maps, (SIDE, SIDE), mode="bilinear", align_corners=False)
        targets = torch.from_numpy(masks).long()
        loss = functional.cross_entropy(scores, targets, ignore_index=255).item()
    assert tuned.losses[0] == pytest.approx(loss, rel=1e-5)
    assert tuned.losses[2] < tuned.losses[0]


def test_patches_by_a_convolution_are_the_same_model(tmp_path):
    """Of a run with the other word the weights fit as they are, and compute what transformers does."""
    model = make("ViTForImageClassification", tmp_path / "their")
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    config = run.recipe.model.model_copy(update={"patches": "convolution"})
    recipe = run.recipe.model_copy(update={"model": config})
    other = task_for(recipe).build_model(run.processor.sizes).eval()
    assert type(other.embedding.patches).__name__ == "ConvolutionPatches"
    other.load_state_dict(run.model.state_dict())
    agrees(SimpleNamespace(recipe=recipe, model=other), model)
