"""Recurrent encoder-decoders, with or without attention.

| preset | from | description | parameters |
|---|---|---|---|
| rnn-tiny | – | RNNsearch in miniature | 443,904 + 129 V |
| rnnsearch | Bahdanau et al. 2015 | bidirectional GRU, additive, maxout | 28,212,000 + 1,741 V |
| rnnencdec | Cho et al. 2014 (Bahdanau's sizes) | one fixed context at each step | 16,348,000 + 1,741 V |
| seq2seq | Sutskever et al. 2014 | 4 layers of LSTM, source reversed | 64,032,000 + 3,001 V |
| luong | Luong et al. 2015 | the same with general score, input feeding | 71,033,000 + 3,001 V |
| reverse-rnn | JoeyNMT's reversal task | bidirectional LSTM, general score, fed | 99,136 + 97 V |

V is the vocabulary size of each side. Gates, bridges, readouts and the output layer have one bias vector
each; the papers omit biases in their equations. The source is reversed by reading it from right to left:
annotations stay with their tokens, so alignments need not be reversed.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config import Config, Section, by_kind
from heedful.models.base import Model, check_packed
from heedful.models.cells import CellConfig, GRUConfig, LSTMConfig
from heedful.models.sections import (
    SCORES,
    AdditiveConfig,
    BilinearConfig,
    CosineConfig,
    CustomScore,
    DotConfig,
    Heads,
    InnerWidth,
    Layers,
    Rate,
    ScaledDotConfig,
    ScoreSection,
    Width,
)
from heedful.models.stacks import embedding_table, token_head
from heedful.nn.attention.recurrent import (
    EncoderOutput,
    FixedContext,
    GivenAnnotations,
    RecurrentAttention,
)
from heedful.nn.attention.recurrent_heads import LocationFeatures, MultiHeadAdditiveAttention, resolutions
from heedful.nn.attentive import (
    AnyAttention,
    AnyDecoder,
    AttendThenUpdate,
    AttentiveDecoder,
    FixedContextDecoder,
    UpdateThenAttend,
)
from heedful.nn.bridges import CopyBridge, ProjectedBridge, ZeroBridge
from heedful.nn.cells import StackedCell
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.positions import Added, NoPositions
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentLayer, RecurrentStack, ResidualRecurrence
from heedful.nn.state import Cache, Memory, State


class RecurrentEncoderDecoder(Model):
    """Source → encoder → recurrent decoder that reads its annotations or its final state.

    Args:
        source_embedding: called on the source, packed tokens or images.
        encoder: recurrences over the source, or the embedded source as it is.
        target_embedding: called on packed target tokens.
        decoder: called as ``decoder(x, layout, memories, caches)``, initialised from the encoder output.
        head: readouts to logits; reached by objectives and decoders as ``heads["token"]``.
        dropout: dropout rate of the readouts.
    """

    def __init__(
        self,
        source_embedding: nn.Module,
        encoder: RecurrentStack | GivenAnnotations,
        target_embedding: nn.Module,
        decoder: AnyDecoder,
        head: nn.Module,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.source_embedding, self.encoder = source_embedding, encoder
        self.target_embedding, self.decoder = target_embedding, decoder
        self.dropout = Dropout(dropout)
        self.heads = nn.ModuleDict({"token": head})

    def encode(self, source: Tokens | Images) -> EncoderOutput:
        """Return the annotations of all source tokens, and the final encoder states or their mean."""
        annotations, finals = self.encoder.run(self.source_embedding(source), source.layout)
        return EncoderOutput(annotations, source.layout, finals, self.encoder.summary(finals))

    def forward(self, inputs: Tokens, source: Tokens | Images) -> Float[Tensor, "T d"]:
        """Return the readouts of all target positions, with teacher forcing (Williams and Zipser 1989).

        Every step reads the given token instead of the model's prediction (S0); in decoding it reads its own
        predictions, which it never saw in training: exposure bias (Bengio et al. 2015).
        """
        check_packed(inputs, source)
        memories, caches = self.decoder.initial_state(self.encode(source))
        return self._decode(inputs, memories, caches)

    def start(self, source: Tokens | Images) -> State:
        """Encode the source; return the initial decoder state."""
        memories, caches = self.decoder.initial_state(self.encode(source))
        return State(memories, caches, (0,) * source.layout.n_sequences)

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Append the next tokens to every hypothesis; ``tokens.layout`` must be from `State.next_layout`."""
        readouts = self._decode(tokens, state.memories, state.caches)
        return readouts, state.advanced(tokens.layout.lengths)

    def _decode(
        self, tokens: Tokens, memories: Sequence[Memory], caches: Sequence[Cache]
    ) -> Float[Tensor, "T d"]:
        return self.dropout(self.decoder(self.target_embedding(tokens), tokens.layout, memories, caches))

    @property
    def alignment_taps(self) -> Sequence[str]:
        """Names of the taps of attention weights over the source: one, or none without attention."""
        decoder = self.decoder
        attends = isinstance(decoder, AttentiveDecoder) and not isinstance(
            decoder.step.attention, FixedContext
        )
        return ["decoder.weights"] if attends else []


SHARPENING = 2.0
"""Factor of the scores of location-aware attention, for sharper alignments."""


class MultiHeadAttention(Section):
    """Multi-head additive attention; the defaults are those of ESPnet's recipes.

    Args:
        n_heads: number of heads.
        d_k, d_v: widths of the keys and values of one head.
    """

    kind: Literal["multi-head-additive"] = "multi-head-additive"
    n_heads: Heads = 4
    d_k: InnerWidth = 320
    d_v: InnerWidth = 320


class LocationAwareAttention(MultiHeadAttention):
    """Multi-head additive attention in which each head also reads its previous alignment.

    The filters have width 2 half_width + 1.

    Args:
        channels: number of filters per head.
        half_width: number of positions on each side of a filter.
    """

    kind: Literal["multi-head-location"] = "multi-head-location"  # type: ignore[assignment]
    channels: InnerWidth = 10
    half_width: InnerWidth = 100


class MultiResolutionAttention(LocationAwareAttention):
    """Location-aware attention whose last head has filters of width 2 half_width + 1; the widths of the
    others increase evenly up to it.

    Args:
        half_width: number of positions on each side of a filter of the last head.
    """

    kind: Literal["multi-head-multi-resolution"] = "multi-head-multi-resolution"  # type: ignore[assignment]


if TYPE_CHECKING:
    Attention = Section
else:
    Attention = by_kind(
        AdditiveConfig,
        *(score for score in SCORES if score is not AdditiveConfig),
        MultiHeadAttention,
        LocationAwareAttention,
        MultiResolutionAttention,
        custom=CustomScore,
    )


class RecurrentDecoderConfig(Config):
    """Sizes and choices of a recurrent decoder, and of what it shares with its encoder.

    Args:
        cell: cell of all layers.
        d_embedding, d_hidden: widths of embedded tokens and of states.
        n_layers: number of layers.
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

    kind: str
    cell: CellConfig = GRUConfig()
    d_embedding: Width = 620
    d_hidden: Width = 1000
    n_layers: Layers = 1
    decoder: Literal["bahdanau", "luong", "plain"] = "bahdanau"
    attention: Attention | None = AdditiveConfig()
    bridge: Literal["project", "copy", "zero"] = "project"
    input_feeding: bool = False
    residual: bool = False
    d_readout: Width | None = None
    dropout: Rate = 0.0
    tie: Literal["three-way", "target", "none"] = "none"
    scale_embedding: bool = False

    @model_validator(mode="after")
    def _decoder_fits(self) -> "RecurrentDecoderConfig":
        has_decoder_options = self.attention is not None or self.input_feeding or self.d_readout is not None
        if self.decoder == "plain" and has_decoder_options:
            raise ValueError(
                "decoder=plain does not support attention, input_feeding or d_readout; remove them"
            )
        if self.decoder == "luong" and self.attention is None:
            raise ValueError("decoder=luong needs an attention; without one, use bahdanau or plain")
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
    def d_annotation(self) -> int:
        """Width of the annotations, the encoder's outputs."""
        raise NotImplementedError

    @property
    def d_summary(self) -> int:
        """Width of the encoder's summary, from which the initial state is projected."""
        raise NotImplementedError

    @property
    def readout_width(self) -> int:
        """Width of the readout, the input of the output layer."""
        return self.d_readout or self.d_hidden


class RecurrentConfig(RecurrentDecoderConfig):
    """Sizes and choices of a recurrent encoder-decoder.

    Args:
        n_layers: number of layers of the encoder, and of the decoder.
        direction: direction of the encoder; right-to-left is Sutskever's reversed source.
        attention: its score, or several heads; null: none, and a bahdanau decoder gets one fixed context at
            every step. For the scores dot, scaled-dot and cosine, annotations of both directions are
            projected to keys as wide as the states.
    """

    kind: Literal["recurrent"] = "recurrent"
    direction: Literal["left-to-right", "right-to-left", "both"] = "both"

    @model_validator(mode="after")
    def _direction_fits(self) -> "RecurrentConfig":
        if self.attention is None and self.direction == "both":
            raise ValueError(
                "direction=both is not supported without attention: only the encoder's final state is read, "
                "and the left-to-right half would be unused; use left-to-right or right-to-left"
            )
        if self.bridge == "copy" and self.direction == "both":
            raise ValueError("bridge=copy does not support direction=both; use bridge=project")
        return self

    @property
    def d_annotation(self) -> int:
        """Width of the annotations: of the states of one direction or both."""
        return self.d_hidden * (2 if self.direction == "both" else 1)

    @property
    def d_summary(self) -> int:
        """Width of the encoder's final output."""
        return self.d_hidden


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
        cell=LSTMConfig(),
        d_embedding=1000,
        n_layers=4,
        direction="right-to-left",
        decoder="plain",
        attention=None,
        bridge="copy",
    ),
    "luong": RecurrentConfig(
        cell=LSTMConfig(),
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
        cell=LSTMConfig(),
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
        token_embedding(config, source),
        _stack(config, config.direction, config.d_annotation),
        token_embedding(config, target),
        decoder(config),
        token_head(config.readout_width, target_vocab, tied, bias=True),
        config.dropout,
    )


def token_embedding(config: RecurrentDecoderConfig, weight: nn.Parameter) -> TokenEmbedding:
    """Build the embedding of tokens, without positions."""
    scale = math.sqrt(config.d_embedding) if config.scale_embedding else 1.0
    positions = Added(NoPositions(config.d_embedding))
    return TokenEmbedding(weight, positions, scale=scale, dropout=config.dropout)


def _stack(config: RecurrentDecoderConfig, direction: str, d_out: int) -> RecurrentStack:
    """Build ``n_layers`` of recurrence with outputs of width ``d_out``."""

    def recurrence(d_in: int, *, reverse: bool) -> Recurrence:
        return Recurrence(config.cell.build(d_in, config.d_hidden), reverse=reverse)

    layers: list[RecurrentLayer] = []
    for d_in in [config.d_embedding] + [d_out] * (config.n_layers - 1):
        if direction == "both":
            right_to_left = recurrence(d_in, reverse=True)
            layer: RecurrentLayer = Bidirectional(recurrence(d_in, reverse=False), right_to_left)
        else:
            layer = recurrence(d_in, reverse=direction == "right-to-left")
        layers.append(ResidualRecurrence(layer) if config.residual and layers else layer)
    return RecurrentStack(layers, config.dropout)


def decoder(config: RecurrentDecoderConfig) -> AnyDecoder:
    """Build the decoder with its bridge and, if it has them, attention and readout."""
    if config.decoder == "plain":
        stack = _stack(config, "left-to-right", config.d_hidden)
        return FixedContextDecoder(stack, _bridge(config, sum(stack.n_states)))
    widths = [config.d_embedding] + [config.d_hidden] * (config.n_layers - 1)
    cells = [config.cell.build(d_in, config.d_hidden) for d_in in widths]
    cell = cells[0] if len(cells) == 1 else StackedCell(cells, config.dropout)
    attention = _attention(config)
    sizes = (config.d_hidden, config.d_embedding, attention.d_context, config.readout_width)
    step = AttendThenUpdate if config.decoder == "bahdanau" else UpdateThenAttend
    readout = MaxoutReadout(*sizes) if config.decoder == "bahdanau" else TanhReadout(sizes[0], *sizes[2:])
    return AttentiveDecoder(
        step(cell, attention), readout, _bridge(config, cell.n_states), input_feeding=config.input_feeding
    )


def _attention(config: RecurrentDecoderConfig) -> AnyAttention:
    """Build the attention module; without attention: a fixed context for all steps."""
    attention, d_state, d_annotation = config.attention, config.d_hidden, config.d_annotation
    if attention is None:
        return FixedContext(config.d_summary)
    if isinstance(attention, ScoreSection):
        needs_equal_widths = isinstance(attention, DotConfig | ScaledDotConfig | CosineConfig)
        d_key = d_state if needs_equal_widths and d_annotation != d_state else None
        return RecurrentAttention(attention.build(d_state, d_key or d_annotation), d_annotation, d_key)
    assert isinstance(attention, MultiHeadAttention)
    n_heads, location, scale = attention.n_heads, None, None
    if isinstance(attention, MultiResolutionAttention):
        location = LocationFeatures(
            resolutions(attention.half_width, n_heads), attention.channels, attention.d_k
        )
    elif isinstance(attention, LocationAwareAttention):
        location = LocationFeatures([attention.half_width] * n_heads, attention.channels, attention.d_k)
        scale = SHARPENING
    return MultiHeadAdditiveAttention(
        d_state, d_annotation, n_heads, d_k=attention.d_k, d_v=attention.d_v, scale=scale, location=location
    )


def _bridge(config: RecurrentDecoderConfig, n_states: int) -> nn.Module:
    match config.bridge:
        case "project":
            return ProjectedBridge(config.d_summary, config.d_hidden, n_states)
        case "copy":
            return CopyBridge()
        case "zero":
            return ZeroBridge(config.d_hidden, n_states)
