"""Recurrent encoder-decoders, with or without attention.

| preset | from | description | parameters |
|---|---|---|---|
| rnn-tiny | – | RNNsearch in miniature | 443,904 + 129 V |
| rnnsearch | Bahdanau et al. 2014 | bidirectional GRU, additive, maxout | 28,212,000 + 1,741 V |
| rnnencdec | Cho et al. 2014 (Bahdanau's sizes) | one fixed context at each step | 16,348,000 + 1,741 V |
| seq2seq | Sutskever et al. 2014 | 4 layers of LSTM, source reversed | 64,032,000 + 3,001 V |
| luong | Luong et al. 2015 | the same with general score, input feeding | 71,033,000 + 3,001 V |
| reverse-rnn | JoeyNMT's reversal task | bidirectional LSTM, general score, fed | 99,136 + 97 V |

V is the vocabulary size of each side. Gates, bridges, readouts and the output layer have one bias vector
each; the papers omit biases in their equations. The source is reversed by reading it from right to left:
annotations stay with their tokens, so alignments need not be reversed.
"""

import math
from collections.abc import Callable
from typing import Literal

from pydantic import model_validator
from torch import nn

from heedful.config import Config
from heedful.models.encoder_decoder import embedding_table, token_head
from heedful.models.mixers import CELLS, CellName
from heedful.models.recurrent_attention import Attention, attention_of
from heedful.models.recurrent_encoder_decoder import RecurrentEncoderDecoder
from heedful.models.sections import (
    AdditiveConfig,
    BilinearConfig,
    CosineConfig,
    DotConfig,
    Layers,
    Positive,
    Rate,
    ScaledDotConfig,
)
from heedful.nn.attentive import (
    AnyDecoder,
    AttendThenUpdate,
    AttentiveDecoder,
    FixedContextDecoder,
    UpdateThenAttend,
)
from heedful.nn.bridges import CopyBridge, ProjectedBridge, ZeroBridge
from heedful.nn.cells import Cell, StackedCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.positions import Added, NoPositions
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentLayer, RecurrentStack, ResidualRecurrence


class RecurrentConfig(Config):
    """Sizes and choices of a recurrent encoder-decoder.

    Args:
        cell: kind of cell in all layers.
        d_embedding, d_hidden: widths of embedded tokens and of states.
        n_layers: number of layers of the encoder, and of the decoder.
        direction: direction of the encoder; right-to-left is Sutskever's reversed source.
        decoder: bahdanau attends, then updates its state; luong updates, then attends; plain gets the source
            only through its initial state.
        attention: its score, or several heads; null: none, and a bahdanau decoder gets one fixed context at
            every step.
        bridge: initial state of the decoder: projected from the encoder's summary, copied from its final
            states, or zero.
        input_feeding: whether the cell also reads the previous readout.
        residual: whether layers after the first add their input to their output (encoder and plain
            decoder).
        d_readout: width of the readout; null: d_hidden.
        dropout: dropout rate of embeddings, between layers and of the readout.
        tie: three-way (both embeddings and the output layer), target (the last two) or none.
        scale_embedding: whether embedded tokens are multiplied by sqrt(d_embedding).
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: CellName = "gru"
    d_embedding: Positive = 620
    d_hidden: Positive = 1000
    n_layers: Layers = 1
    direction: Literal["left-to-right", "right-to-left", "both"] = "both"
    decoder: Literal["bahdanau", "luong", "plain"] = "bahdanau"
    attention: Attention | None = AdditiveConfig()
    bridge: Literal["project", "copy", "zero"] = "project"
    input_feeding: bool = False
    residual: bool = False
    d_readout: Positive | None = None
    dropout: Rate = 0.0
    tie: Literal["three-way", "target", "none"] = "none"
    scale_embedding: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "RecurrentConfig":
        if self._plain_with_more:
            raise ValueError(
                "decoder=plain does not support attention, input_feeding or d_readout; remove them"
            )
        if self.decoder == "luong" and self.attention is None:
            raise ValueError("decoder=luong needs an attention; without one, use bahdanau or plain")
        if self.attention is None and self.direction == "both":
            raise ValueError(
                "direction=both is not supported without attention: only the encoder's final state is read, "
                "and the left-to-right half would be unused; use left-to-right or right-to-left"
            )
        if self._widths_differ:
            raise ValueError(
                "this score needs annotations as wide as the states, but direction=both makes them twice as "
                "wide; use another direction, or attention=bilinear or additive"
            )
        if self.bridge == "copy" and self.direction == "both":
            raise ValueError("bridge=copy does not support direction=both; use bridge=project")
        if self.bridge == "zero" and self.decoder == "plain":
            raise ValueError(
                "decoder=plain with bridge=zero has no access to the source; use project or copy"
            )
        if self.tie != "none" and self.readout_width != self.d_embedding:
            raise ValueError(
                f"tie={self.tie} needs a readout as wide as the embedding, got "
                f"d_embedding={self.d_embedding} and readout width {self.readout_width}"
            )
        return self

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of a sequence; None: no limit."""
        return None

    @property
    def _plain_with_more(self) -> bool:
        more = self.attention is not None or self.input_feeding or self.d_readout is not None
        return self.decoder == "plain" and more

    @property
    def _widths_differ(self) -> bool:
        narrow = isinstance(self.attention, DotConfig | ScaledDotConfig | CosineConfig)
        return narrow and self.d_annotation != self.d_hidden

    @property
    def d_annotation(self) -> int:
        """Width of the annotations, the encoder's outputs."""
        return self.d_hidden * (2 if self.direction == "both" else 1)

    @property
    def readout_width(self) -> int:
        """Width of the readout, the input of the output layer."""
        return self.d_readout or self.d_hidden


PRESETS: dict[str, RecurrentConfig] = {
    "rnn-tiny": RecurrentConfig(
        d_embedding=64,
        d_hidden=128,
        d_readout=64,
        dropout=0.2,
        tie="target",
    ),
    "rnnsearch": RecurrentConfig(d_readout=500),
    "rnnencdec": RecurrentConfig(attention=None, direction="left-to-right", d_readout=500),
    "seq2seq": RecurrentConfig(
        cell="lstm",
        d_embedding=1000,
        n_layers=4,
        direction="right-to-left",
        decoder="plain",
        attention=None,
        bridge="copy",
    ),
    "luong": RecurrentConfig(
        cell="lstm",
        d_embedding=1000,
        n_layers=4,
        direction="right-to-left",
        decoder="luong",
        attention=BilinearConfig(),
        bridge="copy",
        input_feeding=True,
        dropout=0.2,
    ),
    "reverse-rnn": RecurrentConfig(
        cell="lstm",
        d_embedding=16,
        d_hidden=64,
        decoder="luong",
        attention=BilinearConfig(),
        bridge="zero",
        input_feeding=True,
        dropout=0.1,
    ),
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    "rnn-tiny": (100, 100),
    "rnnsearch": (30_000, 30_000),
    "rnnencdec": (30_000, 30_000),
    "seq2seq": (160_000, 80_000),
    "luong": (50_000, 50_000),
    "reverse-rnn": (54, 54),
}
"""Vocabulary sizes of source and target, from the papers (Bahdanau, section 4.1; Sutskever, section 3.1;
Luong, section 4.1); rnn-tiny has a few words, reverse-rnn 50 numbers and 4 special tokens."""


def build(config: RecurrentConfig, source_vocab: int, target_vocab: int) -> RecurrentEncoderDecoder:
    """Build an initialised model; with tie=three-way, both vocabulary sizes must be equal."""
    if config.tie == "three-way" and source_vocab != target_vocab:
        raise ValueError(
            f"tie=three-way needs one vocabulary for both sides, got sizes {source_vocab} and {target_vocab}"
        )
    source = embedding_table(source_vocab, config.d_embedding)
    target = source if config.tie == "three-way" else embedding_table(target_vocab, config.d_embedding)
    tied = None if config.tie == "none" else target
    return RecurrentEncoderDecoder(
        _embedding(config, source),
        encoder_stack(config),
        _embedding(config, target),
        decoder(config),
        token_head(config.readout_width, target_vocab, tied, bias=True),
        config.dropout,
    )


def _cell(config: RecurrentConfig, d_in: int) -> Cell:
    return CELLS[config.cell](d_in, config.d_hidden)


def _embedding(config: RecurrentConfig, weight: nn.Parameter) -> TokenEmbedding:
    scale = math.sqrt(config.d_embedding) if config.scale_embedding else 1.0
    positions = Added(NoPositions(config.d_embedding))
    return TokenEmbedding(weight, positions, scale=scale, dropout=config.dropout)


def encoder_stack(config: RecurrentConfig) -> RecurrentStack:
    """Build the encoder: ``n_layers`` of recurrence in the configured direction."""
    return _stack(config, config.direction, config.d_annotation)


def _stack(config: RecurrentConfig, direction: str, d_out: int) -> RecurrentStack:
    widths = [config.d_embedding] + [d_out] * (config.n_layers - 1)
    layers = [_layer(config, direction, d_in) for d_in in widths]
    if config.residual:
        layers = [layers[0], *(ResidualRecurrence(layer) for layer in layers[1:])]
    return RecurrentStack(layers, config.dropout)


def _layer(config: RecurrentConfig, direction: str, d_in: int) -> RecurrentLayer:
    if direction == "left-to-right":
        return Recurrence(_cell(config, d_in))
    backwards = Recurrence(_cell(config, d_in), reverse=True)
    return (
        backwards
        if direction == "right-to-left"
        else Bidirectional(Recurrence(_cell(config, d_in)), backwards)
    )


def decoder(config: RecurrentConfig) -> AnyDecoder:
    """Build the decoder with its bridge and, if it has them, attention and readout."""
    if config.decoder == "plain":
        stack = _stack(config, "left-to-right", config.d_hidden)
        return FixedContextDecoder(stack, _bridge(config, sum(stack.n_states)))
    cells = [_cell(config, config.d_hidden if i else config.d_embedding) for i in range(config.n_layers)]
    cell = cells[0] if len(cells) == 1 else StackedCell(cells, config.dropout)
    attention = attention_of(config.attention, config.d_hidden, config.d_annotation)
    sizes = (config.d_hidden, config.d_embedding, attention.d_context, config.readout_width)
    step = AttendThenUpdate if config.decoder == "bahdanau" else UpdateThenAttend
    readout = MaxoutReadout(*sizes) if config.decoder == "bahdanau" else TanhReadout(sizes[0], *sizes[2:])
    return AttentiveDecoder(
        step(cell, attention), readout, _bridge(config, cell.n_states), input_feeding=config.input_feeding
    )


_BRIDGES: dict[str, Callable[[int, int], nn.Module]] = {
    "project": lambda d_hidden, n_states: ProjectedBridge(d_hidden, d_hidden, n_states),
    "copy": lambda d_hidden, n_states: CopyBridge(),
    "zero": ZeroBridge,
}


def _bridge(config: RecurrentConfig, n_states: int) -> nn.Module:
    return _BRIDGES[config.bridge](config.d_hidden, n_states)
