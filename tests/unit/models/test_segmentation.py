"""Sections of decoders: what they build for a model, and what they refuse."""

import pytest

from heedful.models.resnet import PRESETS as RESNETS
from heedful.models.segmentation import (
    LinearDecoderConfig,
    MaskTransformerConfig,
    PixelDecoderConfig,
    segmentation_head,
)
from heedful.models.vision import PRESETS

VIT, RESNET = PRESETS["vit-mini"], RESNETS["resnet-mini"]


@pytest.mark.parametrize("model", [VIT, RESNET])
@pytest.mark.parametrize("decoder", [LinearDecoderConfig(), PixelDecoderConfig(), MaskTransformerConfig()])
def test_a_head_knows_the_grid_of_its_model(model, decoder):
    decoder.check(model)
    head = segmentation_head(decoder, model, 5)
    assert (head.grid, head.size, head.n_before) == ((7, 7), (28, 28), model.n_tokens - 49)


def test_parameters_are_those_of_the_formula():
    d = VIT.d_model
    n = {
        "linear": sum(p.numel() for p in LinearDecoderConfig().build(VIT, 5).parameters()),
        "pixels": sum(p.numel() for p in PixelDecoderConfig().build(VIT, 5).parameters()),
    }
    assert n == {"linear": 5 * (d + 1), "pixels": 4**2 * 5 * (d + 1)}


@pytest.mark.parametrize(
    ("decoder", "model", "message"),
    [
        (MaskTransformerConfig(n_heads=3), VIT, "d_model=128 must be divisible by task.decoder.n_heads=3"),
        (
            PixelDecoderConfig(),
            RESNET.changed(image_size=30),
            "image_size=30 must be a multiple of the 8 rows",
        ),
    ],
)
def test_what_does_not_fit_is_refused(decoder, model, message):
    with pytest.raises(ValueError, match=message):
        decoder.check(model)
