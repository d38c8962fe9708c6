"""Decoders of patches: compared with plain torch, and with loops over patches and pixels."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from heedful.models.segmentation import MaskTransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.layout import Layout
from heedful.nn.segmentation import LinearDecoder, SegmentationHead

B, D, K, GRID, PATCH = 2, 7, 3, (5, 4), 3
SIZE, N = (GRID[0] * PATCH, GRID[1] * PATCH), GRID[0] * GRID[1]


def hidden(n_before=0, d=D, n=N):
    torch.manual_seed(1)
    return torch.randn(B * (n_before + n), d), Layout.of([n_before + n] * B)


def linear(cells=1):
    torch.manual_seed(2)
    decoder = LinearDecoder(D, K, cells)
    nn.init.normal_(decoder.layer.bias)
    return decoder


def test_the_linear_decoder_is_a_linear_layer_and_torchs_interpolation():
    x, layout = hidden()
    decoder = linear()
    scores = SegmentationHead(decoder, GRID, SIZE)(x, layout)
    weight, bias = decoder.layer.weight, decoder.layer.bias
    maps = torch.stack([(image @ weight.T + bias).T.reshape(K, *GRID) for image in x.view(B, N, D)])
    expected = functional.interpolate(maps, size=SIZE, mode="bilinear", align_corners=False)
    torch.testing.assert_close(scores, expected.permute(0, 2, 3, 1))


def test_interpolation_keeps_a_constant_and_the_scores_at_the_centres_of_patches():
    x, layout = hidden()
    head = SegmentationHead(linear(), GRID, SIZE)
    scores = head(x, layout)
    centres = scores[:, PATCH // 2 :: PATCH, PATCH // 2 :: PATCH].flatten(1, 2)
    torch.testing.assert_close(centres, head.patch_scores(x, layout))
    same = head(x[:1].expand(B * N, -1), layout)
    torch.testing.assert_close(same, same[:1, :1, :1].expand_as(same))


def test_the_decoder_of_pixels_has_scores_of_its_own_for_each_pixel_of_a_patch():
    x, layout = hidden()
    decoder = linear(cells=PATCH)
    head = SegmentationHead(decoder, GRID, SIZE)
    scores = head(x, layout)
    assert scores.shape == (B, *SIZE, K)
    for image in range(B):
        for row in range(SIZE[0]):
            for column in range(SIZE[1]):
                patch = (row // PATCH) * GRID[1] + column // PATCH
                cell = (row % PATCH) * PATCH + column % PATCH
                rows = slice(cell * K, (cell + 1) * K)
                state = x.view(B, N, D)[image, patch]
                expected = decoder.layer.weight[rows] @ state + decoder.layer.bias[rows]
                torch.testing.assert_close(scores[image, row, column], expected)
    by_patch = scores.unflatten(2, (GRID[1], PATCH)).unflatten(1, (GRID[0], PATCH)).mean((2, 4))
    torch.testing.assert_close(head.patch_scores(x, layout), by_patch.flatten(1, 2))


def test_tokens_before_the_patches_are_not_read():
    x, layout = hidden(n_before=2)
    decoder = linear()
    scores = SegmentationHead(decoder, GRID, SIZE, n_before=2)(x, layout)
    patches = x.view(B, N + 2, D)[:, 2:].reshape(B * N, D)
    without = SegmentationHead(decoder, GRID, SIZE)(patches, Layout.of([N] * B))
    torch.testing.assert_close(scores, without)
    with pytest.raises(ValueError, match="layout must have 20 tokens for each image"):
        SegmentationHead(decoder, GRID, SIZE)(x, layout)


def mask_transformer(n_classes, n_layers=2, d=12, n_heads=3):
    model = VisionConfig.model_validate(
        {"d_model": d, "n_layers": 1, "layer": {"mixer": {"n_heads": 3}, "channels": {"d_ff": 11}}}
    )
    config = MaskTransformerConfig(n_layers=n_layers, n_heads=n_heads, d_ff=17, dropout=0.0)
    torch.manual_seed(3)
    decoder = config.build(model, n_classes)
    for parameter in decoder.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return decoder


def plain(decoder, patches, n_heads=3):
    """The scores by torch's own Transformer with the same weights, an image at a time."""
    d = patches.shape[2]
    layers = []
    for block in decoder.blocks:
        attention, feed_forward = block.mixer.part, block.feed_forward.part
        layer = nn.TransformerEncoderLayer(
            d, n_heads, feed_forward.up.out_features, 0.0, "gelu", batch_first=True, norm_first=True
        )
        layer.load_state_dict(
            {
                "self_attn.in_proj_weight": attention.qkv.weight,
                "self_attn.in_proj_bias": torch.zeros(3 * d),
                "self_attn.out_proj.weight": attention.out.weight,
                "self_attn.out_proj.bias": torch.zeros(d),
                "linear1.weight": feed_forward.up.weight,
                "linear1.bias": feed_forward.up.bias,
                "linear2.weight": feed_forward.down.weight,
                "linear2.bias": feed_forward.down.bias,
                **{f"norm1.{name}": p for name, p in block.mixer.norm.named_parameters()},
                **{f"norm2.{name}": p for name, p in block.feed_forward.norm.named_parameters()},
            }
        )
        layers.append(layer)
    scores = []
    for image in patches:
        x = torch.cat([image, decoder.classes])[None]
        for layer in layers:
            x = layer(x)
        x = functional.layer_norm(x[0], (d,), decoder.norm.weight, decoder.norm.bias)
        z = x[: len(image)] @ decoder.patch_projection.weight.T
        c = x[len(image) :] @ decoder.class_projection.weight.T
        scores.append(decoder.scale * functional.cosine_similarity(z[:, None], c[None], dim=-1))
    return torch.stack(scores)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_mask_transformer_is_torchs_transformer_with_cosines_behind(n_classes):
    decoder, patches = mask_transformer(n_classes), torch.randn(B, N, 12)
    scores = decoder(patches)
    assert scores.shape == (B, N, 1, n_classes)
    torch.testing.assert_close(scores[:, :, 0], plain(decoder, patches), atol=1e-5, rtol=1e-5)


def test_the_images_of_a_batch_do_not_see_each_other():
    decoder, patches = mask_transformer(K), torch.randn(B, N, 12)
    torch.testing.assert_close(decoder(patches), torch.cat([decoder(one[None]) for one in patches]))


def test_every_parameter_of_a_mask_transformer_has_a_gradient_also_for_two_classes():
    decoder, patches = mask_transformer(2), torch.randn(B, N, 12)
    decoder(patches).softmax(-1)[..., 0].square().sum().backward()
    assert [name for name, p in decoder.named_parameters() if not p.grad.any()] == []
