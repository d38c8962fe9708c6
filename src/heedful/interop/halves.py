"""A model whose features stand in another order, for libraries that lay out sinusoids in another way."""

import torch

from heedful.models.base import Model
from heedful.models.transformer import TransformerConfig, build

# Layers that output features (permute rows) and layers that read features (permute columns); the rows of
# the embedding are features too.
_OUTPUT_LAYERS = {"norm", "out", "down"}
_INPUT_LAYERS = {"source_embedding", "target_embedding", "qkv", "q", "kv", "up", "token"}


def in_halves(
    config: TransformerConfig, model: Model, sizes: tuple[int, int]
) -> tuple[TransformerConfig, Model]:
    """Permute the features of a model from interleaved to half-split sinusoids (all sines, then all cosines).

    The order of features is arbitrary: layer norms sum over all of them, and matrices can be permuted. So the
    result computes the same function up to rounding.
    """
    half_split = config.changed(positions={"interleaved": False})
    other = build(half_split, *sizes)
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    found = {}
    for name, tensor in model.state_dict().items():
        part, kind = name.split(".")[-2:]
        if part in _OUTPUT_LAYERS or (part in _INPUT_LAYERS and kind == "weight"):
            tensor = tensor[..., order] if part in _INPUT_LAYERS else tensor[order]
        found[name] = tensor
    other.load_state_dict(found)
    return half_split, other
