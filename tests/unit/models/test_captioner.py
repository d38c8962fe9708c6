"""The captioner: its sizes by formula, what its halves are, and what is refused."""

import pytest
import torch

from heedful.config import merged
from heedful.models import transformer, vision
from heedful.models.captioner import PRESETS, CaptionerConfig, build
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
    """Patches, both stacks with their last norms, one table of words."""
    d, f, n = config.d_model, config.layer.channels.d_ff, config.n_tokens
    patches = config.channels * config.patch_size**2 * d + d + n * d
    attention, feed_forward, norm = 4 * d * d + 4 * d, 2 * d * f + f + d, 2 * d
    encoder = config.n_layers * (attention + feed_forward + 2 * norm) + norm
    layers = config.n_decoder_layers or config.n_layers
    return patches + encoder + layers * (2 * attention + feed_forward + 3 * norm) + norm


@pytest.mark.parametrize("config", [PRESETS["captioner-mini"], CaptionerConfig(n_decoder_layers=4)])
def test_parameters_by_formula(config):
    with torch.device("meta"):
        model = build(config, 1000)
    assert sum(p.numel() for p in model.parameters()) == formula(config) + 1000 * config.d_model


def test_the_preset_has_the_printed_size():
    config = PRESETS["captioner-mini"]
    assert formula(config) == 692_352
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


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match="must have 12 x 12 pixels, got 10 x 10"):
        captioner()(CAPTIONS, Images.of(torch.zeros(3, 2, 10, 10), 9))
