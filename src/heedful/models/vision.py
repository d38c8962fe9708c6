"""Vision encoders: stacks over image patches, with attention (ViT) or other mixers (MLP-Mixer).

| preset | n_layers | d_model | d_ff | n_heads, or d_tokens | parameters, with a head for 1000 classes |
|---|---|---|---|---|---|
| vit-b-16 | 12 | 768 | 3072 | 12 heads | 86,567,656 |
| vit-l-16 | 24 | 1024 | 4096 | 16 heads | 304,326,632 |
| vit-h-14 | 32 | 1280 | 5120 | 16 heads | 632,045,800 |
| mixer-s-16 | 8 | 512 | 2048 | d_tokens 256 | 18,528,264 |
| mixer-b-16 | 12 | 768 | 3072 | d_tokens 384 | 59,880,472 |
| mixer-l-16 | 24 | 1024 | 4096 | d_tokens 512 | 208,196,168 |
| mixer-h-14 | 32 | 1280 | 5120 | d_tokens 640 | 432,350,952 |
| vit-mini | 4 | 128 | 256 | 4 heads | 540,170 with 10 classes; for 28 x 28 grey pixels |
| mixer-mini | 4 | 128 | 256 | d_tokens 64 | 294,990 with 10 classes; for 28 x 28 grey pixels |

The number after the letter is the patch size. Sizes: Dosovitskiy et al. 2021, table 1; Tolstikhin et al.
2021, table 1, which prints 18, 59, 207 and 431 million, without the head. The ε of the norms is 1e-6 (the
default of flax, used by the released code of both papers), except in the two mini presets.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from heedful.models.attention_stack import Layers, Positive
from heedful.models.encoder import POOLINGS, Encoder
from heedful.models.mixers import MixerConfig, mixer_stack
from heedful.models.patches import PatchesConfig, patches_of


class VisionConfig(PatchesConfig, MixerConfig):
    """Configuration of a vision encoder, by default ViT-B/16 (Dosovitskiy et al. 2021), except the ε of its
    norms.

    Args:
        mixer: position mixer over the patches (`heedful.models.mixers`). Convolutions, recurrence and windows
            act on the flattened sequence of patches, in which the end of a row is next to the start of the
            next row.
        positions: position encoding of the patches: a learned table, or sinusoids of row and column
            (`heedful.nn.positions.GridPositions`); the mixer ``mlp`` needs none.
        pooling: pooling to one vector per image; ``first`` prepends a class token to the patches.
    """

    kind: Literal["vision"] = "vision"
    d_model: Positive = 768
    n_heads: Positive = 12
    n_layers: Layers = 12
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    positions: Literal["learned", "sinusoidal", "none"] = "learned"
    pooling: Literal["first", "mean"] = "first"

    @model_validator(mode="after")
    def _halves_are_pairs(self) -> "VisionConfig":
        if self.positions == "sinusoidal" and self.d_model % 4:
            raise ValueError(f"d_model must be a multiple of 4 with positions=sinusoidal, got {self.d_model}")
        return self

    @model_validator(mode="after")
    def _class_token_sees_all(self) -> "VisionConfig":
        if self.mixer in {"separable", "convolution", "parallel-convolutions"} and self.pooling == "first":
            raise ValueError(
                f"pooling=first is not supported with mixer={self.mixer}, in which a class token sees only "
                "its neighbours; set pooling=mean"
            )
        if self.window is not None and self.full_every is None and self.pooling == "first":
            raise ValueError(
                f"pooling=first is not supported with window={self.window}, in which the class token sees "
                "only the first patches; set pooling=mean, or full_every"
            )
        if self.mixer == "recurrent" and self.direction == "left-to-right" and self.pooling == "first":
            raise ValueError(
                "pooling=first is not supported with direction=left-to-right, in which the class token sees "
                "only itself; set pooling=mean, or another direction"
            )
        return self

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image: its patches, and the class token if there is one."""
        return self.grid[0] * self.grid[1] + (self.pooling == "first")


# MLP-Mixer has no heads: n_heads only needs to divide every width.
_MIXER = VisionConfig(mixer="mlp", n_heads=16, positions="none", pooling="mean", dropout=0.0, norm_eps=1e-6)
_MINI = {"image_size": 28, "channels": 1, "patch_size": 4, "d_model": 128, "d_ff": 256, "n_heads": 4}
_MINI |= {"n_layers": 4}

PRESETS: dict[str, VisionConfig] = {
    "vit-b-16": VisionConfig(norm_eps=1e-6),
    "vit-l-16": VisionConfig(norm_eps=1e-6, d_model=1024, n_heads=16, n_layers=24),
    "vit-h-14": VisionConfig(norm_eps=1e-6, patch_size=14, d_model=1280, n_heads=16, n_layers=32),
    "mixer-s-16": _MIXER.model_copy(update={"d_model": 512, "n_layers": 8, "d_tokens": 256}),
    "mixer-b-16": _MIXER.model_copy(update={"d_tokens": 384}),
    "mixer-l-16": _MIXER.model_copy(update={"d_model": 1024, "n_layers": 24, "d_tokens": 512}),
    "mixer-h-14": _MIXER.model_copy(
        update={"patch_size": 14, "d_model": 1280, "n_layers": 32, "d_tokens": 640}
    ),
    "vit-mini": VisionConfig.model_validate(_MINI),
    "mixer-mini": _MIXER.model_copy(update={**_MINI, "d_tokens": 64, "norm_eps": 1e-5}),
}

CLASSES: dict[str, int] = {**dict.fromkeys(PRESETS, 1000), "vit-mini": 10, "mixer-mini": 10}
"""Number of classes of the head in parameter counts: ImageNet's, or ten (Fashion-MNIST, MNIST)."""


def build(config: VisionConfig) -> Encoder:
    """Build a model, with the position table initialized to N(0, 0.02²) and the class token to 0.

    Patches are initialized as in `LinearPatches`, other matrices Xavier-uniform and biases 0, as in ViT's
    released code, except its feed-forward biases of size 1e-6. MLP-Mixer is initialized like ViT; its
    released code uses normals of variance 1 / fan-in.
    """
    class_token = nn.Parameter(torch.zeros(1, config.d_model)) if config.pooling == "first" else None
    embedding = patches_of(config, config.positions, class_token)
    return Encoder(embedding, mixer_stack(config, config.n_tokens), POOLINGS[config.pooling]())
