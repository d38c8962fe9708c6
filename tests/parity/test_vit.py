"""The encoder of images against ViT of `transformers`, with its weights copied over."""

import pytest
import torch

from heedful.models.encoder import class_head
from heedful.models.vision import VisionConfig, build
from heedful.nn.patches import Images, resize_positions

transformers = pytest.importorskip("transformers")

SIDE, CHANNELS, PATCH, D, FF, HEADS, LAYERS, CLASSES = 15, 2, 5, 22, 31, 2, 3, 7


def reference():
    torch.manual_seed(1)
    config = transformers.ViTConfig(
        image_size=SIDE, num_channels=CHANNELS, patch_size=PATCH, hidden_size=D, intermediate_size=FF,
        num_attention_heads=HEADS, num_hidden_layers=LAYERS, num_labels=CLASSES, layer_norm_eps=1e-5,
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def ours(theirs, side=SIDE):
    config = VisionConfig(
        image_size=side, channels=CHANNELS, patch_size=PATCH, d_model=D, n_layers=LAYERS,
        layer={"mixer": {"n_heads": HEADS}, "channels": {"d_ff": FF}},
    )  # fmt: skip
    model = build(config).eval()
    model.heads["class"] = class_head(D, CLASSES, 0.1).eval()
    vit, state = theirs.vit, {}
    table = vit.embeddings.position_embeddings[0]
    table = resize_positions(table, (SIDE // PATCH,) * 2, config.grid)
    state["embedding.positions.positions.weight"] = table
    state["embedding.class_token"] = vit.embeddings.cls_token[0]
    projection = vit.embeddings.patch_embeddings.projection
    state["embedding.patches.projection.weight"] = projection.weight.flatten(1)
    state["embedding.patches.projection.bias"] = projection.bias
    for name in ("weight", "bias"):
        state[f"stack.norm.{name}"] = getattr(vit.layernorm, name)
        state[f"heads.class.1.{name}"] = getattr(theirs.classifier, name)
        for i, layer in enumerate(vit.layers):
            block, own = f"stack.blocks.{i}", layer.attention
            qkv = [getattr(part, name) for part in (own.q_proj, own.k_proj, own.v_proj)]
            state[f"{block}.mixer.part.qkv.{name}"] = torch.cat(qkv)
            state[f"{block}.mixer.part.out.{name}"] = getattr(own.o_proj, name)
            state[f"{block}.mixer.norm.{name}"] = getattr(layer.layernorm_before, name)
            state[f"{block}.feed_forward.part.up.{name}"] = getattr(layer.mlp.fc1, name)
            state[f"{block}.feed_forward.part.down.{name}"] = getattr(layer.mlp.fc2, name)
            state[f"{block}.feed_forward.norm.{name}"] = getattr(layer.layernorm_after, name)
    model.load_state_dict(state)
    return model, config


@pytest.mark.parametrize("side", [SIDE, 25])
def test_hidden_states_and_logits_agree(side):
    """Also for larger images, to which both interpolate the positions."""
    theirs = reference()
    model, config = ours(theirs, side)
    pixels = torch.randn(3, CHANNELS, side, side)
    inputs = Images.of(pixels, config.n_tokens)
    with torch.no_grad():
        wanted = theirs.vit(pixels, interpolate_pos_encoding=True).last_hidden_state
        logits = theirs(pixels, interpolate_pos_encoding=True).logits
        hidden = model(inputs)
        pooled = model.heads["pooled"](hidden, inputs.layout)
    torch.testing.assert_close(hidden, wanted.flatten(0, 1), rtol=0, atol=1e-5)
    torch.testing.assert_close(model.heads["class"](pooled), logits, rtol=0, atol=1e-5)
