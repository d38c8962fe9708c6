"""Stacks of blocks that see whole sequences, with any position mixer: for encoders of texts and of pictures.

| mixer | what it is |
|---|---|
| attention | multi-head self-attention, to all tokens or in sliding windows |
| recurrent | an RNN, LSTM or GRU: of d_model in one direction, or of d_model / 2 in each |
| fourier | FNet (Lee-Thorp et al. 2021); no parameters |
| mlp | MLP-Mixer's network along the positions (Tolstikhin et al. 2021) |
| separable | depthwise separable convolution (Chollet 2017) |
| convolution | full 1-D convolution with the activation (Kim 2014) |
| parallel-convolutions | the same with several widths side by side, as in Kim's network |
"""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from torch import nn

from heedful.errors import nearest
from heedful.models.attention_stack import (
    Positive,
    WindowedConfig,
    activation_of,
    feed_forward,
    in_layer,
    last_norm,
    residual,
    self_attention,
)
from heedful.models.cells import CELLS, CellName
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.mixers import (
    Convolution,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentLayer


def _known(word: str) -> str:
    if word not in MIXERS:
        raise ValueError(f"no mixer is called {word!r}{nearest(word, MIXERS)}; there are {', '.join(MIXERS)}")
    return word


MixerName = Annotated[
    str, AfterValidator(_known), Field(json_schema_extra=lambda schema: schema.update(enum=list(MIXERS)))
]
"""A key of `MIXERS`."""


class MixingConfig(WindowedConfig):
    """Sizes and choices of a stack that sees whole sequences.

    Args:
        d_ff: hidden units of the feed-forwards; 4 d_model by default.
        mixer: what mixes across positions: a key of `MIXERS`.
        cell: of the mixer ``recurrent``.
        direction: in which the mixer ``recurrent`` reads; with ``both``, each is d_model / 2 wide.
        kernel: of the mixers ``separable`` and ``convolution``, how many tokens they see; odd.
        widths: of the mixer ``parallel-convolutions``, how many tokens each of those side by side sees: 3, 4
            and 5 in Kim 2014, section 3.1. Each makes an equal share of the d_model features. One of an even
            width sees one token more after its own than before it.
        d_tokens: of the mixer ``mlp``, hidden units along the positions; half as many as these by default.
    """

    d_ff: Positive | None = None
    mixer: MixerName = "attention"
    cell: CellName = "lstm"
    direction: Literal["left-to-right", "right-to-left", "both"] = "both"
    kernel: Positive = 5
    widths: Annotated[list[Positive], Field(min_length=1)] = [3, 4, 5]  # noqa: RUF012
    d_tokens: Positive | None = None

    @model_validator(mode="after")
    def _mixer_fits(self) -> "MixingConfig":
        if self.mixer == "recurrent" and self.direction == "both" and self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model} must be even: with direction=both, each direction has half"
            )
        if self.mixer != "attention" and self.positions in {"rotary", "alibi"}:
            raise ValueError(
                f"positions={self.positions} act inside attention, and mixer={self.mixer} has none"
            )
        if self.mixer != "attention" and self.window is not None:
            raise ValueError(f"window={self.window} is for attention, and mixer={self.mixer} has none")
        if self.mixer in {"separable", "convolution"} and self.kernel % 2 == 0:
            raise ValueError(f"kernel={self.kernel} has no middle: take an odd one")
        if len(self.widths) > self.d_model:
            raise ValueError(f"widths: {len(self.widths)} share the d_model={self.d_model} features")
        return self


def mixing_stack(config: MixingConfig, n_positions: int) -> EncoderStack:
    """n_layers of the mixer and a feed-forward, then the norm that pre-norm stacks need.

    Args:
        config: the options.
        n_positions: the most tokens of a sequence.
    """
    d_ff = config.d_ff or 4 * config.d_model
    blocks = [
        EncoderBlock(
            residual(config, MIXERS[config.mixer](in_layer(config, number), n_positions)),
            residual(config, feed_forward(config, d_ff)),
        )
        for number in range(1, config.n_layers + 1)
    ]
    return EncoderStack(blocks, last_norm(config))


def _recurrence(config: MixingConfig) -> RecurrentLayer:
    d_model, cell = config.d_model, CELLS[config.cell]
    if config.direction != "both":
        return Recurrence(cell(d_model, d_model), reverse=config.direction == "right-to-left")
    half = d_model // 2
    return Bidirectional(Recurrence(cell(d_model, half)), Recurrence(cell(d_model, half), reverse=True))


MIXERS: dict[str, Callable[[MixingConfig, int], nn.Module]] = {
    "attention": lambda c, n: self_attention(c, causal=False, window=c.window),
    "recurrent": lambda c, n: _recurrence(c),
    "fourier": lambda c, n: FourierMixer(),
    "mlp": lambda c, n: PositionMLP(c.d_model, n, c.d_tokens or max(1, n // 2)),
    "separable": lambda c, n: DepthwiseSeparableConvolution(c.d_model, c.kernel),
    "convolution": lambda c, n: Convolution(c.d_model, c.kernel, activation=activation_of(c)),
    "parallel-convolutions": lambda c, n: ParallelConvolutions(
        c.d_model, c.widths, activation=activation_of(c)
    ),
}
"""Each mixer by its word in recipes: one line here makes it known to every family of such stacks."""
