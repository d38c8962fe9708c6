"""Residual convolutional networks for images, as in BiT, the baseline of ViT.

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

from heedful.config import Config, Section
from heedful.models.base import Model, check_packed
from heedful.models.images import ImageConfig
from heedful.models.sections import Kernel, Layers, Width
from heedful.nn.convolutional import Bottleneck, GroupNorm, StandardisedConvolution
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.pooling import MeanPooling
from heedful.nn.taps import Tap

NARROWER = 4
"""Ratio of the outer to the inner width of a bottleneck block (He et al. 2016b, section 4)."""


class ResNet(Model):
    """Images → root → blocks → norm and ReLU → hidden states, one for each cell of the last grid.

    Cells are tokens, row by row, packed as in the other vision models, so that the same poolings, heads and
    objectives apply.

    Args:
        root: first convolution of the pixels.
        blocks: residual blocks.
        norm: norm of the last sum.
        size: height and width of the images in pixels, on which the grids of all blocks depend.
        n_tokens: number of cells of the last grid.
    """

    lowers = False  # filters are standardised in full precision: only the convolutions use bf16

    not_compilable: ClassVar[bool] = True
    """It has no stack of blocks for training to compile (`heedful.nn.declarations`)."""

    def __init__(
        self,
        root: nn.Sequential,
        blocks: nn.Sequential,
        norm: GroupNorm,
        size: tuple[int, int],
        n_tokens: int,
    ) -> None:
        super().__init__()
        self.root, self.blocks, self.norm = root, blocks, norm
        self.size, self.n_tokens = size, n_tokens
        self.output = Tap("hidden states of the cells")
        self.heads = nn.ModuleDict({"pooled": MeanPooling()})

    def forward(self, inputs: Images, source: Tokens | None = None) -> Float[Tensor, "T d"]:
        """Return the hidden states of all cells; ``source`` must be None (model interface)."""
        check_packed(inputs)
        if source is not None:
            raise ValueError("a vision model has no source")
        pixels = inputs.pixels.to(next(self.root.parameters()).dtype)
        x = functional.relu(self.norm(self.blocks(self.root(pixels))))
        n_tokens = x.shape[2] * x.shape[3]
        if inputs.layout.lengths != (n_tokens,) * len(x):
            raise ValueError(f"layout must have {n_tokens} tokens for each of the {len(x)} images")
        return self.output(x.flatten(2).mT.flatten(0, 1))


class ConvolutionsConfig(Config):
    """Sizes of the convolutions, by default those of BiT's R50x1.

    Args:
        n_blocks: number of blocks of each stage; every stage after the first starts by halving the grid.
        width: channels after the root; the first stage has 4 times as many outputs, and every later stage
            doubles them.
        n_groups: number of groups of the norms.
        root_kernel, root_stride: kernel size and stride of the first convolution.
        root_pool: whether 3 x 3 max pooling with stride 2 follows.
    """

    n_blocks: Annotated[list[Layers], Field(min_length=1, max_length=8)] = [3, 4, 6, 3]  # noqa: RUF012
    width: Width = 64
    n_groups: Width = 32
    root_kernel: Kernel = 7
    root_stride: Kernel = 2
    root_pool: bool = True

    @model_validator(mode="after")
    def _groups_fit(self) -> "ConvolutionsConfig":
        if self.width % self.n_groups:
            raise ValueError(f"n_groups must divide width={self.width}, got {self.n_groups}")
        if self.root_kernel % 2 == 0:
            raise ValueError(f"root_kernel must be odd, got {self.root_kernel}")
        return self

    @property
    def d_model(self) -> int:
        """Width of the hidden states."""
        return NARROWER * self.width * 2 ** (len(self.n_blocks) - 1)

    def grid_of(self, image_size: int) -> tuple[int, int]:
        """Return the numbers of rows and columns of the last grid: every stride rounds up."""
        side = -(-image_size // self.root_stride)
        for _ in range(len(self.n_blocks) - 1 + self.root_pool):
            side = -(-side // 2)
        return side, side

    def build(self, image_size: int, channels: int) -> ResNet:
        """Build a model for images of one size."""
        root = [StandardisedConvolution(channels, self.width, self.root_kernel, self.root_stride)]
        # The zero padding is included in the maximum, as in BiT's released code.
        pool = [nn.ConstantPad2d(1, 0.0), nn.MaxPool2d(3, 2)] if self.root_pool else []
        blocks, d_in = [], self.width
        for stage, n in enumerate(self.n_blocks):
            d_hidden = self.width * 2**stage
            for block in range(n):
                stride = 2 if stage and not block else 1
                d_out = NARROWER * d_hidden
                blocks.append(Bottleneck(d_in, d_hidden, d_out, stride=stride, n_groups=self.n_groups))
                d_in = d_out
        size, (rows, columns) = (image_size, image_size), self.grid_of(image_size)
        parts = (nn.Sequential(*root, *pool), nn.Sequential(*blocks), GroupNorm(d_in, self.n_groups))
        return ResNet(*parts, size, rows * columns)


class ResNetEncoderConfig(ConvolutionsConfig, Section):
    """Residual network as the encoder of a captioner: one hidden state for each cell of its last grid."""

    kind: Literal["resnet"] = "resnet"


class ResNetConfig(ConvolutionsConfig, ImageConfig):
    """Configuration of a residual network, by default BiT's R50x1.

    Args:
        image_size: height and width of the images in pixels; affects the number of tokens, but no
            parameter.
        dropout: dropout rate before the task head.
    """

    kind: Literal["resnet"] = "resnet"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and columns of the last grid."""
        return self.grid_of(self.image_size)

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image."""
        return self.grid[0] * self.grid[1]


PRESETS: dict[str, ResNetConfig] = {
    "bit-r50x1": ResNetConfig(),
    "resnet-mini": ResNetConfig(
        image_size=28, channels=1, n_blocks=[2, 2, 2], width=16, n_groups=8,
        root_kernel=3, root_stride=1, root_pool=False,
    ),
}  # fmt: skip

CLASSES: dict[str, int] = {"bit-r50x1": 1000, "resnet-mini": 10}
"""Number of classes of the head in parameter counts: ImageNet's, or ten (Fashion-MNIST, MNIST)."""


def build(config: ResNetConfig) -> ResNet:
    """Build a model."""
    return config.build(config.image_size, config.channels)
