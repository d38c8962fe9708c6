"""Image captioning with a recurrent decoder: "Show, attend and tell" (Xu et al. 2015), as in lecture S4.

| preset | grid | d_annotation | d_embedding | d_hidden | parameters |
|---|---|---|---|---|---|
| show-attend-tell | 14 x 14 | 1024 | 512 | 1000 | 27,836,712 + 1,513 V |
| show-attend-tell-mini | 6 x 6 | 256 | 128 | 128 | 713,504 + 129 V |

V is the vocabulary size. Images have 224 x 224 and 48 x 48 pixels in colour; the 14 x 14 grid and the
vocabulary are the paper's, the other sizes are not. The annotations a_i are the cells of the last grid of a
residual network, each of which sees a part of the image; the paper uses VGG's cells of 512 features. At every
step the LSTM attends to all of them (soft attention), from the state before:

    e_ti = v tanh(W s_{t-1} + U a_i),   alpha_t = softmax(e_t),   z_t = sum_i alpha_ti a_i
    s_t, c_t = LSTM([E y_{t-1}; z_t], s_{t-1}, c_{t-1}),   s_0, c_0 = tanh(W_init mean_i a_i + b)

Decoder, scores and bridge are those of `heedful.models.recurrent`. Differences to the paper: the readout is
Bahdanau's maxout of s_{t-1}, E y_{t-1} and z_t (Xu et al. add s_t, E y_{t-1} and z_t); the context is not
gated (their beta_t), and the loss has no term that spreads the attention over all cells (their equation 14).
With ``decoder: plain`` and no attention, the image is only the initial state (near Vinyals et al. 2015).
"""

from typing import TYPE_CHECKING, Literal

from heedful.config import by_kind
from heedful.models.cells import CellConfig, LSTMConfig
from heedful.models.images import ImageConfig
from heedful.models.recurrent import (
    RecurrentDecoderConfig,
    RecurrentEncoderDecoder,
    decoder,
    token_embedding,
)
from heedful.models.resnet import ResNetEncoderConfig
from heedful.models.sections import Width
from heedful.models.stacks import embedding_table, token_head
from heedful.nn.attention.recurrent import GivenAnnotations

if TYPE_CHECKING:
    GridEncoderConfig = ResNetEncoderConfig
else:
    GridEncoderConfig = by_kind(ResNetEncoderConfig)


class RecurrentCaptionerConfig(RecurrentDecoderConfig, ImageConfig):
    """Sizes and choices of a captioner with a convolutional encoder and a recurrent decoder.

    Args:
        encoder: the residual network that reads the image; its last cells are the annotations.
        n_layers: number of layers of the decoder.
        attention: its score, or several heads; null: none, and a bahdanau decoder gets the mean of the
            annotations at every step. For the scores dot, scaled-dot and cosine, annotations are projected to
            keys as wide as the states if they differ in width.
        bridge: initial state of the decoder: projected from the mean of the annotations, or zero.
        residual: whether layers of a plain decoder after the first add their input to their output.
        tie: whether the output layer shares the embedding table (target) or not (none).
    """

    kind: Literal["recurrent-captioner"] = "recurrent-captioner"
    cell: CellConfig = LSTMConfig()
    d_embedding: Width = 512
    encoder: GridEncoderConfig = ResNetEncoderConfig()
    bridge: Literal["project", "zero"] = "project"
    tie: Literal["target", "none"] = "none"

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and columns of cells."""
        return self.encoder.grid_of(self.image_size)

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image: its cells."""
        return self.grid[0] * self.grid[1]

    @property
    def d_annotation(self) -> int:
        """Width of the annotations: channels of the last grid."""
        return self.encoder.d_model

    @property
    def d_summary(self) -> int:
        """Width of the mean of the annotations."""
        return self.d_annotation


PRESETS: dict[str, RecurrentCaptionerConfig] = {
    "show-attend-tell": RecurrentCaptionerConfig.model_validate({"encoder": {"n_blocks": [3, 4, 6]}}),
    "show-attend-tell-mini": RecurrentCaptionerConfig.model_validate(
        {
            "image_size": 48,
            "encoder": {
                "n_blocks": [2, 2], "width": 32, "n_groups": 8, "root_kernel": 5,
            },
            "d_embedding": 128,
            "d_hidden": 128,
            "dropout": 0.1,
            "tie": "target",
        }
    ),
}  # fmt: skip

VOCABULARIES: dict[str, tuple[int, ...]] = {
    "show-attend-tell": (10_000,),
    "show-attend-tell-mini": (1000,),
}
"""Vocabulary sizes: the paper's, and one for small corpora."""


def build(config: RecurrentCaptionerConfig, vocab_size: int) -> RecurrentEncoderDecoder:
    """Build an initialised model."""
    table = embedding_table(vocab_size, config.d_embedding)
    return RecurrentEncoderDecoder(
        config.encoder.build(config.image_size, config.channels),
        GivenAnnotations(),
        token_embedding(config, table),
        decoder(config),
        token_head(config.readout_width, vocab_size, None if config.tie == "none" else table, bias=True),
        config.dropout,
    )
