"""Bidirectional stacks with any position mixer, for text and vision encoders.

| mixer | description |
|---|---|
| attention | multi-head self-attention, to all tokens or in sliding windows |
| recurrent | RNN, LSTM or GRU: width d_model in one direction, or d_model / 2 in each |
| fourier | FNet (Lee-Thorp et al. 2021); no parameters |
| mlp | MLP-Mixer's network along the positions (Tolstikhin et al. 2021) |
| separable | depthwise separable convolution (Chollet 2017) |
| convolution | full 1-D convolution with the activation (Kim 2014) |
| parallel-convolutions | the same with several widths in parallel, as in Kim's network |
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


def _check_name(name: str) -> str:
    if name not in MIXERS:
        raise ValueError(f"unknown mixer {name!r}{nearest(name, MIXERS)}; expected {', '.join(MIXERS)}")
    return name


MixerName = Annotated[
    str, AfterValidator(_check_name), Field(json_schema_extra=lambda schema: schema.update(enum=list(MIXERS)))
]
"""A key of `MIXERS`."""


class MixerConfig(WindowedConfig):
    """Configuration of a bidirectional stack.

    Args:
        d_ff: number of hidden units of the feed-forward layers; 4 d_model by default.
        mixer: position mixer, a key of `MIXERS`.
        cell: for ``recurrent``: the recurrent cell.
        direction: for ``recurrent``: reading direction; with ``both``, each direction has width d_model / 2.
        kernel: for ``separable`` and ``convolution``: kernel width in tokens; odd.
        widths: for ``parallel-convolutions``: kernel widths, 3, 4 and 5 in Kim 2014, section 3.1. Each has an
            equal share of the d_model features. An even width sees one more token after than before.
        d_tokens: for ``mlp``: number of hidden units along the positions; half the number of positions by
            default.
    """

    d_ff: Positive | None = None
    mixer: MixerName = "attention"
    cell: CellName = "lstm"
    direction: Literal["left-to-right", "right-to-left", "both"] = "both"
    kernel: Positive = 5
    widths: Annotated[list[Positive], Field(min_length=1)] = [3, 4, 5]  # noqa: RUF012
    d_tokens: Positive | None = None

    @model_validator(mode="after")
    def _mixer_fits(self) -> "MixerConfig":
        if self.mixer == "recurrent" and self.direction == "both" and self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model} must be even with direction=both: each direction has half"
            )
        if self.mixer != "attention" and self.positions in {"rotary", "alibi"}:
            raise ValueError(f"positions={self.positions} requires mixer=attention, got {self.mixer}")
        if self.mixer != "attention" and self.window is not None:
            raise ValueError(f"window={self.window} requires mixer=attention, got {self.mixer}")
        if self.mixer in {"separable", "convolution"} and self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, got {self.kernel}")
        if len(self.widths) > self.d_model:
            raise ValueError(f"widths must have at most d_model={self.d_model} items, got {len(self.widths)}")
        return self


def mixer_stack(config: MixerConfig, n_positions: int) -> EncoderStack:
    """Build n_layers blocks of the mixer and a feed-forward, followed by a norm if pre-norm.

    Args:
        config: the configuration.
        n_positions: maximum number of tokens of a sequence.
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


def _recurrence(config: MixerConfig) -> RecurrentLayer:
    d_model, cell = config.d_model, CELLS[config.cell]
    if config.direction != "both":
        return Recurrence(cell(d_model, d_model), reverse=config.direction == "right-to-left")
    half = d_model // 2
    return Bidirectional(Recurrence(cell(d_model, half)), Recurrence(cell(d_model, half), reverse=True))


MIXERS: dict[str, Callable[[MixerConfig, int], nn.Module]] = {
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
"""Position mixers by their names in recipes; a mixer added here is available to all such stacks."""
