"""Encoders of images: published sizes, the parts that options choose, and what is refused."""

import pytest
import torch

from heedful.config import merged
from heedful.models.encoder import class_head
from heedful.models.vision import PRESETS, VisionConfig, build
from heedful.nn.layout import Tokens
from heedful.nn.mixers import PositionMLP
from heedful.nn.patches import Images, resize_positions
from heedful.nn.visibility import Window

SMALL = {
    "image_size": 12,
    "channels": 2,
    "patch_size": 4,
    "d_model": 14,
    "n_layers": 2,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 19},
    },
    "dropout": 0.0,
}

SIZES = {
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
    "mixer-s-16": 18_528_264,
    "mixer-b-16": 59_880_472,
    "mixer-l-16": 208_196_168,
    "mixer-h-14": 432_350_952,
}


def size(*models):
    return sum(p.numel() for model in models for p in model.parameters())


def vision(**options):
    torch.manual_seed(1)
    return build(VisionConfig(**merged(SMALL, options))).eval()


def images(model, b=3, seed=2):
    x = torch.randn(b, 2, 12, 12, generator=torch.Generator().manual_seed(seed))
    return Images.of(x, model.embedding.n_tokens)


@pytest.mark.parametrize("name", SIZES)
def test_published_sizes_with_a_head_for_1000_classes(name):
    config = PRESETS[name]
    with torch.device("meta"):
        model, head = build(config), class_head(config.d_model, 1000, config.dropout)
    assert size(model, head) == SIZES[name]


@pytest.mark.parametrize("name, wanted", [("vit-mini", 540_170), ("mixer-mini", 294_990)])
def test_small_presets_read_grey_images_of_28_pixels(name, wanted):
    config = PRESETS[name]
    model, head = build(config).eval(), class_head(config.d_model, 10, config.dropout).eval()
    assert size(model, head) == wanted
    inputs = Images.of(torch.randn(2, 1, 28, 28), config.n_tokens)
    hidden = model(inputs)
    assert hidden.shape == (2 * config.n_tokens, 128)
    assert head(model.heads["pooled"](hidden, inputs.layout)).shape == (2, 10)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    assert VisionConfig.model_validate(PRESETS[name].model_dump()) == PRESETS[name]


@pytest.mark.parametrize(
    "name, tokens", [("vit-b-16", 197), ("vit-h-14", 257), ("mixer-b-16", 196), ("mixer-mini", 49)]
)
def test_a_configuration_knows_its_tokens(name, tokens):
    assert PRESETS[name].n_tokens == tokens


def test_a_class_token_is_there_where_the_first_token_is_read():
    model = vision()
    inputs = images(model)
    hidden = model(inputs)
    assert hidden.shape == (30, 14)
    assert torch.equal(model.heads["pooled"](hidden, inputs.layout), hidden[::10])
    mean = vision(pooling="mean")
    inputs = images(mean)
    hidden = mean(inputs)
    assert hidden.shape == (27, 14)
    pooled = mean.heads["pooled"](hidden, inputs.layout)
    torch.testing.assert_close(pooled, hidden.view(3, 9, 14).mean(1))


def test_every_pixel_moves_the_class_token():
    model = vision()
    inputs = images(model, b=1)
    x = inputs.pixels.requires_grad_()
    model(Images(x, inputs.layout))[0].square().sum().backward()
    assert x.grad.abs().min() > 0


def test_without_positions_a_vision_transformer_does_not_see_where_patches_are():
    """The mean over patches is the same in any order of them; with positions it is not."""
    for positions, blind in (("none", True), ("learned", False)):
        model = vision(positions=positions, pooling="mean")
        inputs = images(model)
        patches = inputs.pixels.unfold(2, 4, 4).unfold(3, 4, 4)  # B, C, 3, 3, 4, 4
        moved = patches[:, :, [2, 0, 1]][:, :, :, [1, 0, 2]].transpose(3, 4).reshape(3, 2, 12, 12)
        one = model.heads["pooled"](model(inputs), inputs.layout)
        two = model.heads["pooled"](model(Images(moved, inputs.layout)), inputs.layout)
        assert torch.allclose(one, two, rtol=0, atol=1e-5) == blind


def test_a_mixer_has_one_network_along_the_patches_for_all_features():
    """MLP-Mixer, equation 1, image by image and feature by feature."""
    mixing = {"mixer": {"kind": "mlp", "d_tokens": 5}}
    model = vision(layer=mixing, positions="none", pooling="mean", n_layers=1)
    inputs = images(model)
    mixer = model.stack.blocks[0].mixer
    assert isinstance(mixer.part, PositionMLP)
    x = model.embedding(inputs).view(3, 9, 14)
    normed = mixer.norm(x)
    wanted = x.clone()
    for b in range(3):
        for c in range(14):
            hidden = mixer.part.activation(mixer.part.up.weight @ normed[b, :, c] + mixer.part.up.bias)
            wanted[b, :, c] += mixer.part.down.weight @ hidden + mixer.part.down.bias
    mixed = mixer(x.flatten(0, 1), inputs.layout)
    torch.testing.assert_close(mixed, wanted.flatten(0, 1), rtol=0, atol=1e-5)


def test_first_weights():
    model = vision(d_model=128, layer={"mixer": {"n_heads": 4}, "channels": {"d_ff": 256}})
    table = model.embedding.positions.positions.weight
    assert table.std().item() == pytest.approx(0.02, rel=0.1)
    assert not model.embedding.class_token.any()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name


def test_a_model_for_larger_images_takes_its_table_from_one_for_smaller():
    small, large = vision(), vision(image_size=20)
    state = small.state_dict()
    name = "embedding.positions.positions.weight"
    state[name] = resize_positions(state[name], (3, 3), (5, 5))
    large.load_state_dict(state)
    assert torch.equal(large.embedding.positions.positions.weight[0], small.state_dict()[name][0])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"patch_size": 5}, "patch_size must divide image_size=12, got 5"),
        (
            {"layer": {"mixer": {"kind": "convolution", "kernel": 3}}},
            r"layer\.mixer\.kind=convolution, in which .* set pooling=mean",
        ),
        ({"layer": {"mixer": "parallel-convolutions"}}, "set pooling=mean"),
        (
            {"layer": {"mixer": {"visible": {"kind": "window", "size": 3}}}},
            "sees only some patches; set pooling=mean, or a pattern",
        ),
        ({"positions": "grid"}, r"a multiple of 4 with positions\.kind=grid, got 14"),
        ({"positions": "sinusoidal"}, "not supported by kind=vision; expected one of learned, grid, none"),
        (
            {"layer": {"mixer": {"kind": "separable", "kernel": 4}}, "pooling": "mean"},
            "kernel must be odd, got 4",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        VisionConfig(**merged(SMALL, options))


def test_a_class_token_needs_one_layer_that_sees_all_patches():
    window = {"mixer": {"visible": {"kind": "window", "size": 3}}}
    config = VisionConfig(**merged(SMALL, {"layer": window, "pattern": [{}, {"mixer": {"visible": "all"}}]}))
    assert [block.mixer.part.pattern for block in build(config).stack.blocks] == [Window(3), None]
    convolution = {"mixer": {"kind": "convolution", "kernel": 3}}
    assert VisionConfig(**merged(SMALL, {"pattern": [convolution, {}]})).n_tokens == 10


def test_a_source_is_refused():
    model = vision()
    with pytest.raises(ValueError, match="has no source"):
        model(images(model), Tokens.of([[4]]))


@pytest.mark.parametrize("name", PRESETS)
def test_the_epsilon_of_the_norms_is_that_of_the_released_code(name):
    """flax's default, which ViT and MLP-Mixer keep; torch's in the two of our own."""
    wanted = 1e-5 if name.endswith("mini") else 1e-6
    with torch.device("meta"):
        model = build(PRESETS[name])
    assert {part.eps for part in model.modules() if isinstance(part, torch.nn.LayerNorm)} == {wanted}
