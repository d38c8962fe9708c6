"""Residual convolutional networks for pictures, as BiT has them: what ViT was measured against.

| preset | blocks of the stages | channels at the end | parameters |
|---|---|---|---|
| bit-r50x1 | 3, 4, 6, 3 | 2048 | 25,549,352, with a head for 1000 classes |
| resnet-mini | 2, 2, 2 | 256 | 219,194, with a head for 10 classes; for 28 x 28 grey pixels |

Source: He et al. 2016b (pre-activation); Kolesnikov et al. 2020 (BiT: group norms and standardised weights).
"""

from typing import Annotated, ClassVar, Literal

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.config import Config
from heedful.models.attention_stack import Layers, Positive
from heedful.nn.convolutional import Bottleneck, GroupNorm, StandardisedConvolution
from heedful.nn.layout import Tokens
from heedful.nn.patches import Pictures
from heedful.nn.pooling import MeanPooling

NARROWER = 4
"""How many times the middle of a block is narrower than its ends (He et al. 2016b, section 4)."""


class ResNet(nn.Module):
    """Pictures → root → blocks → norm and ReLU → hidden states, one for each place of the last grid.

    Places are tokens, row by row, packed as those of the other models of pictures; so the same poolings,
    heads and objectives serve them.

    Args:
        root: makes the first channels of the pixels.
        blocks: called one after another.
        norm: of the last sum.
        size: height and width of the pictures in pixels, on which the grids of all blocks depend.
    """

    lowers: ClassVar[bool] = False
    """Filters are standardised from all bits of their weights: bf16 is for the convolutions alone."""

    eager: ClassVar[bool] = True
    """It has no stack of blocks, which is what training compiles (`heedful.nn.declarations`)."""

    alignment_taps: tuple[str, ...] = ()
    """There is no source to look at."""

    def __init__(
        self, root: nn.Sequential, blocks: nn.Sequential, norm: GroupNorm, size: tuple[int, int]
    ) -> None:
        super().__init__()
        self.root, self.blocks, self.norm, self.size = root, blocks, norm, size
        self.heads = nn.ModuleDict({"pooled": MeanPooling()})

    def forward(self, inputs: Pictures, source: Tokens | None = None) -> Float[Tensor, "T d"]:
        """Hidden states of all places; ``source`` is there for the model contract alone."""
        if source is not None:
            raise ValueError("a network of pictures reads no source")
        x = functional.relu(self.norm(self.blocks(self.root(inputs.pixels))))
        n_tokens = x.shape[2] * x.shape[3]
        if inputs.layout.lengths != (n_tokens,) * len(x):
            raise ValueError(f"each of the {len(x)} pictures becomes {n_tokens} tokens")
        return x.flatten(2).mT.flatten(0, 1)


class ResNetConfig(Config):
    """Sizes and choices of a residual network, by default those of BiT's R50x1.

    Args:
        picture_size: pixels along each side; no parameter depends on it, but the number of tokens does.
        channels: numbers of a pixel: 3 for colours, 1 for grey.
        n_blocks: blocks of each stage; every stage after the first begins by halving the grid.
        width: channels after the root; the first stage ends with 4 times as many, each other with twice as
            many as the one before.
        n_groups: of the norms.
        root_kernel, root_stride: of the first convolution.
        root_pool: whether the greatest of 3 x 3 neighbours follows, at every other place.
        dropout: before the head that a task puts on top.
    """

    kind: Literal["resnet"] = "resnet"
    picture_size: Positive = 224
    channels: Positive = 3
    n_blocks: Annotated[list[Layers], Field(min_length=1)] = [3, 4, 6, 3]  # noqa: RUF012
    width: Positive = 64
    n_groups: Positive = 32
    root_kernel: Positive = 7
    root_stride: Positive = 2
    root_pool: bool = True
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _groups_fit(self) -> "ResNetConfig":
        if self.width % self.n_groups:
            raise ValueError(f"n_groups={self.n_groups} does not divide width={self.width}")
        if self.root_kernel % 2 == 0:
            raise ValueError(f"root_kernel={self.root_kernel} has no middle: take an odd one")
        return self

    @property
    def d_model(self) -> int:
        """Width of the hidden states."""
        return NARROWER * self.width * 2 ** (len(self.n_blocks) - 1)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the places at the end: every stride rounds up."""
        side = -(-self.picture_size // self.root_stride)
        for _ in range(len(self.n_blocks) - 1 + self.root_pool):
            side = -(-side // 2)
        return side, side

    @property
    def n_tokens(self) -> int:
        """Tokens of a picture."""
        return self.grid[0] * self.grid[1]


PRESETS: dict[str, ResNetConfig] = {
    "bit-r50x1": ResNetConfig(),
    "resnet-mini": ResNetConfig(
        picture_size=28, channels=1, n_blocks=[2, 2, 2], width=16, n_groups=8,
        root_kernel=3, root_stride=1, root_pool=False,
    ),
}  # fmt: skip

CLASSES: dict[str, int] = {"bit-r50x1": 1000, "resnet-mini": 10}
"""Of the head that a count includes: ImageNet's; ten kinds of clothes or digits."""


def build(config: ResNetConfig) -> ResNet:
    """The model, freshly initialised."""
    root = [StandardisedConvolution(config.channels, config.width, config.root_kernel, config.root_stride)]
    # Zeros around the grid take part in the maximum, as in BiT's released code.
    pool = [nn.ConstantPad2d(1, 0.0), nn.MaxPool2d(3, 2)] if config.root_pool else []
    blocks, d_in = [], config.width
    for stage, n in enumerate(config.n_blocks):
        d_hidden = config.width * 2**stage
        for block in range(n):
            stride = 2 if stage and not block else 1
            d_out = NARROWER * d_hidden
            blocks.append(Bottleneck(d_in, d_hidden, d_out, stride=stride, n_groups=config.n_groups))
            d_in = d_out
    size = (config.picture_size, config.picture_size)
    norm = GroupNorm(d_in, config.n_groups)
    return ResNet(nn.Sequential(*root, *pool), nn.Sequential(*blocks), norm, size)
