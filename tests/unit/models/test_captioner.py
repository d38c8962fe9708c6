"""The captioner: its sizes by formula, what its halves are, and what is refused."""

import pytest
import torch

from heedful.config import merged
from heedful.models import captioner as captioner_page
from heedful.models import transformer, vision
from heedful.models.captioner import PRESETS, CaptionerConfig, build
from heedful.models.resnet import ResNetConfig
from heedful.models.resnet import build as build_resnet
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import recording

SIZES = {
    "d_model": 14,
    "n_layers": 2,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 19},
    },
    "dropout": 0.0,
}
SMALL = {"image_size": 12, "channels": 2, "patch_size": 4, **SIZES}
V = 23
CAPTIONS = Tokens.of([[1, 5, 9], [1], [1, 7, 8, 3, 4]])


def captioner(**options):
    torch.manual_seed(1)
    return build(CaptionerConfig(**merged(SMALL, options)), V).eval()


def images(b=3):
    x = torch.randn(b, 2, 12, 12, generator=torch.Generator().manual_seed(2))
    return Images.of(x, 9)


def formula(config):
    """Patches or cells, both stacks with their last norms, one table of words."""
    d, f, n = config.d_model, config.layer.channels.d_ff, config.n_tokens
    attention, feed_forward, norm = 4 * d * d + 4 * d, 2 * d * f + f + d, 2 * d
    if config.encoder.kind == "resnet":
        patches = resnet_formula(config) + config.encoder.d_model * d + d + n * d
        encoder = norm
    else:
        patches = config.channels * config.patch_size**2 * d + d + n * d
        encoder = config.n_layers * (attention + feed_forward + 2 * norm) + norm
    layers = config.n_decoder_layers or config.n_layers
    return patches + encoder + layers * (2 * attention + feed_forward + 3 * norm) + norm


def resnet_formula(config):
    """Of a residual network without its head, whose own formula is in `test_resnet.py`."""
    sizes = config.encoder.model_dump(exclude={"kind"})
    network = ResNetConfig(image_size=config.image_size, channels=config.channels, **sizes)
    with torch.device("meta"):
        return sum(p.numel() for p in build_resnet(network).parameters())


@pytest.mark.parametrize("config", [*PRESETS.values(), CaptionerConfig(n_decoder_layers=4)])
def test_parameters_by_formula(config):
    with torch.device("meta"):
        model = build(config, 1000)
    assert sum(p.numel() for p in model.parameters()) == formula(config) + 1000 * config.d_model


@pytest.mark.parametrize("name, wanted", [("captioner-mini", 692_352), ("captioner-resnet", 640_032)])
def test_presets_have_the_printed_sizes(name, wanted):
    config = PRESETS[name]
    assert formula(config) == wanted
    assert f"| {name} |" in captioner_page.__doc__
    assert f" {wanted:,} + 128 V |" in captioner_page.__doc__
    assert (config.grid, config.n_tokens) == ((6, 6), 36)
    assert CaptionerConfig.model_validate(config.model_dump()) == config


def test_it_is_vits_encoder_under_a_transformers_decoder():
    """With the weights of both copied over, the whole computes what its halves compute."""
    model = captioner()
    patches = vision.build(VisionConfig(**{**SMALL, "pooling": "mean"})).eval()
    patches.embedding.load_state_dict(model.source_embedding.state_dict())
    patches.stack.load_state_dict(model.encoder.state_dict())
    options = merged(
        SIZES, {"tie": "target", "layer": {"channels": {"activation": "gelu"}, "norm_placement": "pre"}}
    )
    words = transformer.build(TransformerConfig(**options), 5, V).eval()
    words.target_embedding.load_state_dict(model.target_embedding.state_dict())
    words.decoder.load_state_dict(model.decoder.state_dict())
    source = images()
    memories = words.decoder.make_memory(patches(source), source.layout)
    wanted = words.decoder(words.target_embedding(CAPTIONS), CAPTIONS.layout, memories)
    torch.testing.assert_close(model(CAPTIONS, source), wanted, rtol=0, atol=1e-6)


def test_every_word_looks_at_every_patch():
    model = captioner(n_decoder_layers=3)
    assert len(model.alignment_taps) == 3
    with recording(model, model.alignment_taps) as seen:
        model(CAPTIONS, images())
    for name in model.alignment_taps:
        (weights,) = seen[name]
        assert weights.shape == (3, 2, 5, 9)
        torch.testing.assert_close(weights[2].sum(-1), torch.ones(2, 5))
        assert (weights[2] > 0).all()


GRID = {"kind": "resnet", "n_blocks": [1, 2], "width": 3, "n_groups": 3, "root_kernel": 3, "root_stride": 1}
CONVOLUTIONAL = {
    "image_size": 13,
    "patch_size": 5,
    "encoder": GRID,
}  # 4 x 4 cells; the patch size is not used


def photographs(b=3):
    x = torch.randn(b, 2, 13, 13, generator=torch.Generator().manual_seed(2))
    return Images.of(x, 16)


def residual_network(model):
    """A classifier with the weights of a captioner's network."""
    sizes = {key: size for key, size in GRID.items() if key != "kind"}
    network = build_resnet(ResNetConfig(image_size=13, channels=2, **sizes)).eval()
    network.load_state_dict(model.source_embedding.network.state_dict())
    return network


@torch.no_grad()
def test_with_a_residual_network_its_cells_are_projected_and_have_positions():
    """Then come the last norm of the encoder, which has no blocks, and the Transformer's decoder."""
    model, source = captioner(**CONVOLUTIONAL), photographs()
    model.source_embedding.projection.bias.uniform_(-1, 1)
    cells = residual_network(model)(source).view(3, 16, 24)
    projection = model.source_embedding.projection
    places = model.source_embedding.positions.positions.weight
    embedded = cells @ projection.weight.T + projection.bias + places
    wanted = torch.nn.functional.layer_norm(
        embedded, (14,), model.encoder.norm.weight, model.encoder.norm.bias
    )
    assert len(model.encoder.blocks) == 0
    torch.testing.assert_close(model.encode(source).view(3, 16, 14), wanted, rtol=0, atol=1e-5)
    with recording(model, model.alignment_taps) as seen:
        hidden = model(CAPTIONS, source)
    assert hidden.shape == (9, 14)
    for name in model.alignment_taps:
        (weights,) = seen[name]
        assert weights.shape == (3, 2, 5, 16)
        assert (weights[2] > 0).all()


def test_the_layers_are_those_of_the_decoder_with_a_residual_network():
    config = CaptionerConfig(**merged(SMALL, CONVOLUTIONAL))
    assert (config.layers, len(config.decoder_layers), config.grid, config.n_tokens) == ((), 2, (4, 4), 16)
    assert CaptionerConfig.model_validate(config.model_dump()) == config
    patches = config.changed(encoder="patches", patch_size=13)
    assert (len(patches.layers), patches.grid) == (2, (1, 1))


def test_flat_keys_of_a_vit_work_without_the_section():
    assert CaptionerConfig(**SMALL) == CaptionerConfig(**SMALL, encoder="patches")


def test_first_weights():
    model = captioner(d_model=128, layer={"mixer": {"n_heads": 4}})
    assert model.source_embedding.positions.positions.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.heads["token"].weight is model.target_embedding.weight
    assert captioner(tie=False).heads["token"].weight.shape == (V, 14)


@pytest.mark.parametrize("positions, longest", [("sinusoidal", None), ("none", None), ("learned", 11)])
def test_only_a_table_of_positions_ends(positions, longest):
    assert CaptionerConfig(**SMALL, positions=positions, max_length=11).longest == longest


def test_patches_that_do_not_fill_the_image_are_refused():
    with pytest.raises(ValueError, match="patch_size must divide image_size=12, got 5"):
        CaptionerConfig(**{**SMALL, "patch_size": 5})


def test_widths_that_no_groups_divide_are_refused():
    with pytest.raises(ValueError, match="n_groups must divide width=3, got 2"):
        CaptionerConfig(**merged(SMALL, {**CONVOLUTIONAL, "encoder": {**GRID, "n_groups": 2}}))


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match="must have 12 x 12 pixels, got 10 x 10"):
        captioner()(CAPTIONS, Images.of(torch.zeros(3, 2, 10, 10), 9))
