"""A model whose features stand in another order, for libraries that lay out sinusoids in another way."""

import torch
from torch import nn

from heedful.models.transformer import TransformerConfig, build

# Features are what is left by these (rows), and read by those (columns). The embedding's rows hold them.
_LEAVE_FEATURES = {"norm", "out", "down"}
_MAKE_FEATURES = {"source_embedding", "target_embedding", "qkv", "q", "kv", "up", "token"}


def in_halves(
    config: TransformerConfig, model: nn.Module, sizes: tuple[int, int]
) -> tuple[TransformerConfig, nn.Module]:
    """The same model with its features in another order: those that get sines first, then the cosines.

    Features are numbered as one likes: a layer norm sums over all of them, and matrices can be reordered.
    So a model with interleaved sinusoids is one with half-split ones, to rounding.
    """
    turned = config.model_copy(update={"positions": "half-split"})
    other = build(turned, *sizes)
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    found = {}
    for name, tensor in model.state_dict().items():
        part, kind = name.split(".")[-2:]
        if part in _LEAVE_FEATURES or (part in _MAKE_FEATURES and kind == "weight"):
            tensor = tensor[..., order] if part in _MAKE_FEATURES else tensor[order]
        found[name] = tensor
    other.load_state_dict(found)
    return turned, other
