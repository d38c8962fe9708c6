"""The section ``visible``: where it can be used, what it builds, and what it refuses."""

import pytest
import torch
from pydantic import ValidationError

from heedful.errors import RequestError
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.layout import Tokens
from heedful.nn.visibility import Blocks, GlobalTokens, Mask, Strided, Window

WINDOW = {"kind": "window", "size": 2}
SIZES = {"d_model": 8, "n_layers": 1, "dropout": 0.0}


def layer(visible):
    return {"mixer": {"n_heads": 2, "visible": visible}, "channels": {"d_ff": 5}}


def transformer(**sections):
    return TransformerConfig.model_validate({"kind": "transformer", **SIZES, **sections})


def patterns(config):
    """The patterns of the encoder, of the decoder, and of its cross-attention."""
    model = build_model(config, 7, 7)
    (encoder,), (decoder,) = model.encoder.blocks, model.decoder.blocks
    return encoder.mixer.part.pattern, decoder.mixer.part.pattern, decoder.cross_attention.part.pattern


def test_each_attention_of_an_encoder_decoder_has_its_own():
    shared = transformer(layer=layer(WINDOW))
    assert patterns(shared) == (Window(2), Window(2), None)
    changed = {"decoder_layer": {"mixer": {"visible": {"kind": "strided", "stride": 3}}}}
    cross = {"cross_attention": {"n_heads": 2, "visible": {"kind": "global", "size": 2}}}
    assert patterns(transformer(layer=layer(WINDOW), **changed, **cross)) == (
        Window(2),
        Strided(3),
        GlobalTokens(1, 2),
    )


def test_blocks_are_supported_where_tokens_see_both_ways():
    (encoder, *_) = patterns(transformer(layer=layer({"kind": "blocks", "size": 3, "earlier": 1})))
    assert encoder == Blocks(3, 1)


@torch.no_grad()
def test_a_window_over_the_source_follows_the_target():
    """With a window of two, target token i reads source tokens i - 1 to i + 1 and no others."""
    cross = {"n_heads": 2, "visible": WINDOW}
    only_itself = {"kind": "mask", "rows": ["".join("01"[i == j] for j in range(6)) for i in range(6)]}
    config = transformer(layer=layer(only_itself), cross_attention=cross, max_length=6)
    torch.manual_seed(0)
    model, targets = build_model(config, 7, 7).eval(), Tokens.of([[3, 4, 5, 6, 3, 4]])
    sources = [[3, 4, 5, 6, 3, 4], [3, 4, 5, 6, 5, 4]]
    first, second = (model(targets, Tokens.of([source])) for source in sources)
    changed = (first != second).any(-1)
    assert changed.tolist() == [False, False, False, True, True, True]


def test_a_mask_has_a_row_for_every_token_of_the_model():
    rows = ["100", "110", "011"]
    config = {"kind": "language-model", **SIZES, "layer": layer({"kind": "mask", "rows": rows})}
    model = build_model(LanguageModelConfig.model_validate({**config, "context": 3}), 7)
    assert model.stack.blocks[0].mixer.part.pattern == Mask(tuple(rows))
    with pytest.raises(RequestError, match=r"\(4 and 4\), got 3 and 3"):
        build_model(LanguageModelConfig.model_validate({**config, "context": 4}), 7)


@pytest.mark.parametrize(
    "visible, message",
    [
        ({"kind": "window"}, r"visible\.window\.size\n  Field required"),
        ({"kind": "mask", "rows": []}, "at least 1 item"),
        ({"kind": "mask", "rows": ["10", "1"]}, "rows must have the same length, got 1 and 2"),
        ({"kind": "mask", "rows": ["12"]}, "should match pattern"),
        ({"kind": "fixed", "size": 3, "summary": 4}, "summary must be at most size=3, got 4"),
        ({"kind": "tree", "branching": 1}, "greater than or equal to 2"),
    ],
)
def test_what_is_not_a_pattern_is_refused(visible, message):
    with pytest.raises(ValidationError, match=message):
        transformer(layer=layer(visible))


@pytest.mark.parametrize("visible", [WINDOW, "blocks", {"kind": "dilated", "size": 2, "step": 2}])
def test_a_class_token_that_sees_some_patches_only_is_refused(visible):
    sizes = {"kind": "vision", **SIZES, "image_size": 8, "patch_size": 4, "layer": layer(visible)}
    with pytest.raises(ValidationError, match="the class token sees only some patches"):
        VisionConfig.model_validate(sizes)
    assert VisionConfig.model_validate({**sizes, "pooling": "mean"}).pooling == "mean"
    sees_all = VisionConfig.model_validate({**sizes, "layer": layer({"kind": "global", "size": 2})})
    assert sees_all.pooling == "first"
