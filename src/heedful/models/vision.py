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

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import model_validator
from torch import nn

from heedful.models.encoder import POOLINGS, STD, Encoder, reads_left_to_right
from heedful.models.images import ImageConfig
from heedful.models.mixers import AttentionConfig
from heedful.models.positions import PositionsConfig
from heedful.models.sections import Layers, Pixels, Width
from heedful.models.stacks import StackConfig, stack
from heedful.nn.patches import ConvolutionPatches, LinearPatches, PatchEmbedding
from heedful.nn.positions import Added, GridPositions, LearnedPositions, Positions
from heedful.typing import JsonObject


class PatchesConfig(ImageConfig):
    """Configuration of image and patch sizes, by default those of ViT-B/16.

    Args:
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels; a divisor of ``image_size``.
        patches: patch projection: a linear map of extracted patches (``linear``), or a convolution with
            kernel size = stride. Both are equivalent and have the same weights, so a run can be continued
            with either.
    """

    patch_size: Pixels = 16
    patches: Literal["linear", "convolution"] = "linear"

    @model_validator(mode="after")
    def _patches_fit(self) -> "PatchesConfig":
        if self.reads_patches and self.image_size % self.patch_size:
            raise ValueError(f"patch_size must divide image_size={self.image_size}, got {self.patch_size}")
        return self

    @property
    def reads_patches(self) -> bool:
        """Whether the images are cut into patches."""
        return True

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and columns of patches."""
        side = self.image_size // self.patch_size
        return side, side


_PATCHES: dict[str, Callable[[int, int, int], LinearPatches | ConvolutionPatches]] = {
    "linear": LinearPatches,
    "convolution": ConvolutionPatches,
}


def patches_of(
    config: PatchesConfig,
    positions: PositionsConfig,
    class_token: nn.Parameter | None,
    *,
    d_model: int,
    dropout: float,
) -> PatchEmbedding:
    """Build the patch embedding; a learned position table is initialised to N(0, 0.02²).

    Args:
        config: the sizes.
        positions: position encoding.
        class_token: token prepended to the patches, or None.
        d_model: width of the tokens.
        dropout: dropout rate of the embedding.
    """
    rows, columns = config.grid
    patches = _PATCHES[config.patches](config.channels, config.patch_size, d_model)
    n_before = int(class_token is not None)
    encoding: Positions
    if positions.kind == "grid":
        encoding = GridPositions(rows, columns, d_model, n_before)
    else:
        encoding = positions.build(n_before + rows * columns, d_model)
    if isinstance(encoding, LearnedPositions):
        nn.init.normal_(encoding.weight, std=STD)
    size = (config.image_size, config.image_size)
    return PatchEmbedding(patches, size, class_token, Added(encoding), dropout=dropout)


class VisionConfig(PatchesConfig, StackConfig):
    """Configuration of a vision encoder, by default ViT-B/16 (Dosovitskiy et al. 2021), except the ε of its
    norms. Convolutions, recurrence and windows act on the flattened sequence of patches, in which the end
    of a row is next to the start of the next row.

    Args:
        positions: position encoding of the patches: ``learned``, sinusoids of row and column (``grid``), or
            ``none``, which suffices for the mixer ``mlp``.
        pooling: pooling to one vector per image; ``first`` prepends a class token to the patches.
    """

    default_sections: ClassVar[JsonObject] = {
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 12},
            "channels": {"kind": "feed-forward", "activation": "gelu"},
            "norm_placement": "pre",
        },
        "positions": {"kind": "learned"},
    }

    kind: Literal["vision"] = "vision"
    d_model: Width = 768
    n_layers: Layers = 12
    pooling: Literal["first", "mean"] = "first"

    @model_validator(mode="after")
    def _fits(self) -> "VisionConfig":
        self.refuse_positions("learned", "grid", "none")
        if self.positions.kind == "grid" and self.d_model % 4:
            raise ValueError(f"d_model must be a multiple of 4 with positions.kind=grid, got {self.d_model}")
        if self.pooling == "first":
            self._check_class_token()
        return self

    def _check_class_token(self) -> None:
        """Check that the class token sees all patches."""
        mixers = [layer.mixer for layer in self.layers]
        if all(mixer.local for mixer in mixers):
            raise ValueError(
                f"pooling=first is not supported with layer.mixer.kind={mixers[0].kind}, in which a class "
                "token sees only its neighbours; set pooling=mean"
            )
        attentions = [mixer for mixer in mixers if isinstance(mixer, AttentionConfig)]
        if len(attentions) == len(mixers) and all(attention.visible.local for attention in attentions):
            raise ValueError(
                f"pooling=first is not supported with layer.mixer.visible.kind={attentions[0].visible.kind}, "
                "in which the class token sees only some patches; set pooling=mean, or a pattern with layers "
                "that see all"
            )
        if reads_left_to_right(self):
            raise ValueError(
                "pooling=first is not supported with direction=left-to-right, in which the class token sees "
                "only itself; set pooling=mean, or another direction"
            )

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image: its patches, and the class token if there is one."""
        return self.grid[0] * self.grid[1] + (self.pooling == "first")


def _vit(n_layers: int, d_model: int, n_heads: int, patch_size: int = 16) -> VisionConfig:
    layer = {"mixer": {"n_heads": n_heads}, "norm": {"eps": 1e-6}}
    return VisionConfig.model_validate(
        {"n_layers": n_layers, "d_model": d_model, "patch_size": patch_size, "layer": layer}
    )


def _mixer(
    n_layers: int, d_model: int, d_tokens: int, patch_size: int = 16, **layer: JsonObject
) -> VisionConfig:
    return VisionConfig.model_validate(
        {
            "n_layers": n_layers,
            "d_model": d_model,
            "patch_size": patch_size,
            "positions": "none",
            "pooling": "mean",
            "dropout": 0.0,
            "layer": {"mixer": {"kind": "mlp", "d_tokens": d_tokens}, "norm": {"eps": 1e-6}, **layer},
        }
    )


_MINI: JsonObject = {"image_size": 28, "channels": 1, "patch_size": 4, "d_model": 128, "n_layers": 4}
_NARROW: JsonObject = {"channels": {"d_ff": 256}}

PRESETS: dict[str, VisionConfig] = {
    "vit-b-16": _vit(12, 768, 12),
    "vit-l-16": _vit(24, 1024, 16),
    "vit-h-14": _vit(32, 1280, 16, 14),
    "mixer-s-16": _mixer(8, 512, 256),
    "mixer-b-16": _mixer(12, 768, 384),
    "mixer-l-16": _mixer(24, 1024, 512),
    "mixer-h-14": _mixer(32, 1280, 640, 14),
    "vit-mini": VisionConfig.model_validate({**_MINI, "layer": {"mixer": {"n_heads": 4}, **_NARROW}}),
    "mixer-mini": _mixer(4, 128, 64, norm={"eps": 1e-5}, **_NARROW).changed(**_MINI),
}

CLASSES: dict[str, int] = {**dict.fromkeys(PRESETS, 1000), "vit-mini": 10, "mixer-mini": 10}
"""Number of classes of the head in parameter counts: ImageNet's, or ten (Fashion-MNIST, MNIST)."""


def build(config: VisionConfig) -> Encoder:
    """Build a model, with the position table initialised to N(0, 0.02²) and the class token to 0.

    Patches are initialised as in `LinearPatches`, other matrices Xavier-uniform and biases 0, as in ViT's
    released code, except its feed-forward biases of size 1e-6. MLP-Mixer is initialised like ViT; its
    released code uses normals of variance 1 / fan-in.
    """
    class_token = nn.Parameter(torch.zeros(1, config.d_model)) if config.pooling == "first" else None
    embedding = patches_of(
        config, config.positions, class_token, d_model=config.d_model, dropout=config.dropout
    )
    return Encoder(embedding, stack(config, config.n_tokens), POOLINGS[config.pooling]())
