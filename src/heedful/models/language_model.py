"""Causal language models: predict the next token at every position.

| preset | n_layers | d_model | n_heads | context | parameters |
|---|---|---|---|---|---|
| char-mini-cpu | 4 | 128 | 4 | 64 | 801,536 + 128 V |
| char-mini | 6 | 384 | 6 | 256 | 10,745,856 + 384 V |
| modern-mini | 6 | 384 | 6 | 256 | 9,442,176 + 384 V |
| gpt2 | 12 | 768 | 12 | 1024 | 85,842,432 + 768 V |
| gpt2-medium | 24 | 1024 | 16 | 1024 | 303,360,000 + 1024 V |
| gpt2-large | 36 | 1280 | 20 | 1024 | 709,701,120 + 1280 V |
| gpt2-xl | 48 | 1600 | 25 | 1024 | 1,477,200,000 + 1600 V |
| t-d | 5 | 512 | 8 | 4000 | 15,752,704 + 512 V |
| t-dmca | 5 | 512 | 8 | 11000 | 16,145,920 + 512 V |
| t-dmca-moe | 5 | 512 | 8 | 11000 | 282,940,416 + 512 V |

With V = 50,257 GPT-2 has 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200 parameters; its paper
(Radford et al. 2019, table 2) prints 117M, 345M, 762M and 1542M. The two character models have commonly used
sizes.

modern-mini has the architecture of current small language models: pre-norm RMS norms, rotary positions, 2 key
and value heads for 6 query heads, SwiGLU with 1024 hidden units, no biases, tied embeddings. With d = 384 and
heads of width 64, a layer has d (384 + 2 · 128) + 384 d + 3 · 1024 d + 2 d = 1,573,632 parameters, and the
last norm d.

The last three presets read a document and generate its summary (Liu et al. 2018, section 4.2): a
decoder-only model, T-D; one with alternating local and memory-compressed layers, T-DMCA; and the same with
128 experts in the middle layer. Contexts, the order of layers and the number of experts follow the paper.
Widths, heads, blocks of 256, pre-norm and sinusoids follow the base setting of its released code
(tensor2tensor, ``transformer_moe_base``), whose settings for long texts have width 1024 and separable
convolutions instead of feed-forward layers.

Attention may use sliding windows (``window``; Mistral 7B, Jiang et al. 2023, section 2), whose receptive
field grows with every layer, in all layers or with full layers in between (``full_every``; Gemma 2 and 3,
Gemma Team 2024 and 2025). Sequences longer than two windows are computed in blocks; stacks with windows are
not compiled.

The position mixer may also be a recurrence or a convolution, and the feed-forward layers may be omitted:
``mixer=recurrent`` with ``feed_forward=none`` is the classic recurrent language model (Mikolov et al. 2010;
Zaremba et al. 2014, with LSTMs), with a residual connection and a norm around each layer. Without biases, a
layer of an RNN, a GRU and an LSTM has 2, 6 and 8 d_model² weights; attention has 4, and a feed-forward with
4 d_model hidden units 8.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.config import Config
from heedful.models.attention_stack import (
    Layers,
    Positive,
    WindowedConfig,
    activation_of,
    compressed_attention,
    embedding_scale,
    feed_forward,
    in_layer,
    positions_of,
    self_attention,
    stack_of,
)
from heedful.models.base import Model
from heedful.models.cells import CELLS, CellName
from heedful.models.encoder import Encoder
from heedful.models.encoder_decoder import token_head
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.experts import Gate, MixtureOfExperts, NoisyTopKGate, TopKGate
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.layout import Tokens
from heedful.nn.mixers import Convolution, DepthwiseSeparableConvolution, ParallelConvolutions
from heedful.nn.pooling import LastPooling
from heedful.nn.positions import Added, LearnedPositions
from heedful.nn.recurrent import Recurrence
from heedful.nn.state import State

STD = 0.02
POSITIONS_STD = 0.01


class LanguageModel(Model):
    """Tokens → causal stack → hidden states; ``heads["token"]`` computes the logits of the next token.

    Args:
        embedding: called on packed tokens.
        stack: causal blocks.
        head: hidden states to logits.
    """

    lowers = True

    def __init__(self, embedding: nn.Module, stack: EncoderStack, head: nn.Module) -> None:
        super().__init__()
        self.embedding, self.stack = embedding, stack
        self.heads = nn.ModuleDict({"token": head})

    def forward(self, inputs: Tokens, source: Tokens | None = None) -> Float[Tensor, "T d"]:
        """Return the hidden states of all positions; ``source`` must be None (model interface)."""
        if source is not None:
            raise ValueError("a language model reads no source: put the whole prompt into the inputs")
        return self.stack(self.embedding(inputs), inputs.layout)

    def start(self, n: int) -> State:
        """Return the initial state of ``n`` empty sequences."""
        blocks: Any = self.stack.blocks
        return State([], [block.new_cache() for block in blocks], (0,) * n)

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Append the next tokens to every sequence; ``tokens.layout`` must be from `State.next_layout`."""
        hidden = self.stack(self.embedding(tokens), tokens.layout, state.caches)
        return hidden, state.advanced(tokens.layout.lengths)


Weight = Annotated[float, Field(ge=0)]

WITHOUT_ATTENTION = ("recurrent", "separable", "convolution", "parallel-convolutions")
"""Position mixers without attention."""


class ExpertsConfig(Config):
    """Mixture of experts instead of a feed-forward layer (`heedful.nn.experts`).

    Balance: ``max_load`` in metrics.jsonl is the number of tokens of the busiest expert over the mean (1 is
    best, n / k worst); ``heedful evaluate`` reports the share of tokens of each expert in each layer. Experts
    have no capacity limit, so no token is dropped.

    Args:
        n: number of experts, each a feed-forward network.
        k: number of experts per token.
        gate: with noise in training, or without.
        importance, load: weights of the loss terms that balance the experts; ``load`` requires noise and is
            equal to ``importance`` by default.
        layers: layers with experts, counted from 1; null: the middle layer.
    """

    n: Annotated[int, Field(ge=3, le=1000)] = 128
    k: Annotated[int, Field(ge=2)] = 2
    gate: Literal["noisy-top-k", "top-k"] = "noisy-top-k"
    importance: Weight = 0.1
    load: Weight | None = None
    layers: list[Positive] | None = None

    @model_validator(mode="after")
    def _fits(self) -> "ExpertsConfig":
        if self.k >= self.n:
            raise ValueError(f"experts.k must be smaller than experts.n (k={self.k}, n={self.n})")
        if self.gate == "top-k" and self.load is not None:
            raise ValueError("load requires gate=noisy-top-k, got gate=top-k; remove load")
        if self.layers is not None and len({*self.layers}) < max(1, len(self.layers)):
            raise ValueError("layers must contain each layer once and not be empty; or set experts=null")
        return self


class LanguageModelConfig(WindowedConfig):
    """Configuration of a language model, by default GPT-2 (Radford et al. 2019, section 2.3).

    Args:
        d_ff: number of hidden units of the feed-forward layers; 4 d_model by default.
        mixer: position mixer. Attention to all earlier tokens, or those within the ``window`` (``all``); to
            earlier tokens of the same block (``local``); to a compressed memory of all earlier blocks
            (``compressed``); ``local`` and ``compressed`` in alternating layers, the first one local
            (``alternating``). Or without attention: recurrence (``recurrent``); depthwise separable
            convolution (``separable``), full convolution (``convolution``), or convolutions of several
            widths in parallel (``parallel-convolutions``).
        cell: for ``recurrent``: the recurrent cell.
        kernel: for ``separable`` and ``convolution``: kernel width in tokens, including the token itself.
        widths: for ``parallel-convolutions``: kernel widths; each has an equal share of the d_model features.
        block: length of a block of local attention.
        earlier_blocks: number of previous blocks that are also visible.
        compression: number of tokens per slot of the compressed memory.
        feed_forward: ``gated`` with relu, gelu or silu is ReGLU, GEGLU or SwiGLU; ``none`` omits the
            feed-forward layers, as in recurrent networks.
        experts: mixture of experts in some layers; null: none.
        context: maximum number of tokens of a sequence, in training and inference.
        positions: position encoding; with ``none``, order is known only from the causal mask or the
            recurrence. ``rotary`` and ``alibi`` act inside attention.
        tie: whether the output layer shares the embedding table.
        scale_embedding: whether embeddings are multiplied by sqrt(d_model); null: only with the positions
            ``sinusoidal`` and ``constant``, which have size 1.
    """

    kind: Literal["language-model"] = "language-model"
    d_model: Positive = 768
    n_heads: Positive = 12
    n_layers: Layers = 12
    d_ff: Positive | None = None
    mixer: Literal[
        "all",
        "local",
        "compressed",
        "alternating",
        "recurrent",
        "separable",
        "convolution",
        "parallel-convolutions",
    ] = "all"
    cell: CellName = "lstm"
    kernel: Positive = 5
    widths: Annotated[list[Positive], Field(min_length=1)] = [3, 4, 5]  # noqa: RUF012
    block: Positive = 256
    earlier_blocks: Annotated[int, Field(ge=0)] = 0
    compression: Annotated[int, Field(ge=2)] = 3
    # A wider type than in the base class, which is safe because configurations are frozen.
    feed_forward: Literal["plain", "gated", "none"] = "plain"  # type: ignore[assignment]
    experts: ExpertsConfig | None = None
    context: Positive = 1024
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "gelu"
    norm_placement: Literal["post", "pre"] = "pre"
    positions: Literal["learned", "sinusoidal", "constant", "none", "rotary", "alibi"] = "learned"
    tie: bool = True
    scale_embedding: bool | None = None

    @model_validator(mode="after")
    def _pairs(self) -> "LanguageModelConfig":
        if self.positions not in {"rotary", "alibi"}:
            return self
        if self.mixer in WITHOUT_ATTENTION:
            raise ValueError(
                f"positions={self.positions} requires attention, got mixer={self.mixer}; choose other "
                "positions"
            )
        if self.mixer in {"compressed", "alternating"}:
            raise ValueError(
                f"positions={self.positions} is not supported with mixer={self.mixer}, whose memory slots "
                "have no single position; choose other positions"
            )
        return self

    @model_validator(mode="after")
    def _has_the_layers_of_its_experts(self) -> "LanguageModelConfig":
        if self.experts is not None and self.feed_forward == "none":
            raise ValueError("experts are feed-forwards: take feed_forward=plain or gated, or experts=null")
        beyond = [layer for layer in self.expert_layers if layer > self.n_layers]
        if beyond:
            raise ValueError(f"experts.layers: there is no layer {beyond[0]}, n_layers is {self.n_layers}")
        return self

    @model_validator(mode="after")
    def _has_windows(self) -> "LanguageModelConfig":
        if self.window is not None and self.mixer != "all":
            raise ValueError(
                f"window={self.window} is for attention to all that is before a token: with "
                f"mixer={self.mixer} there is none; take mixer=all, or window=null"
            )
        return self

    @model_validator(mode="after")
    def _has_features(self) -> "LanguageModelConfig":
        if len(self.widths) > self.d_model:
            raise ValueError(f"widths: {len(self.widths)} share the d_model={self.d_model} features")
        return self

    @model_validator(mode="after")
    def _has_blocks(self) -> "LanguageModelConfig":
        if self.earlier_blocks and self.mixer not in {"local", "alternating"}:
            raise ValueError(f"earlier_blocks is for local attention, and mixer={self.mixer} has none")
        return self

    @property
    def expert_layers(self) -> list[int]:
        """Layers with experts, counted from 1."""
        if self.experts is None:
            return []
        return [(self.n_layers + 1) // 2] if self.experts.layers is None else self.experts.layers

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a sequence, in training and inference."""
        return self.context


def _gpt2(n_layers: int, d_model: int, n_heads: int) -> LanguageModelConfig:
    return LanguageModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        activation="gelu-tanh",
        attention_dropout=0.1,
    )


def _summariser(**options: Any) -> LanguageModelConfig:
    return LanguageModelConfig(
        d_model=512,
        n_heads=8,
        n_layers=5,
        attention_bias=False,
        activation="relu",
        positions="sinusoidal",
        **options,
    )


PRESETS: dict[str, LanguageModelConfig] = {
    "char-mini-cpu": LanguageModelConfig(n_layers=4, d_model=128, n_heads=4, context=64, dropout=0.0),
    "char-mini": LanguageModelConfig(
        n_layers=6, d_model=384, n_heads=6, context=256, dropout=0.2, attention_dropout=0.2
    ),
    "modern-mini": LanguageModelConfig(
        n_layers=6,
        d_model=384,
        n_heads=6,
        n_kv_heads=2,
        d_ff=1024,
        context=256,
        norm="rms",
        feed_forward="gated",
        activation="silu",
        positions="rotary",
        attention_bias=False,
        feed_forward_bias=False,
        dropout=0.0,
    ),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "t-d": _summariser(context=4000),
    "t-dmca": _summariser(context=11000, mixer="alternating"),
    "t-dmca-moe": _summariser(context=11000, mixer="alternating", experts=ExpertsConfig()),
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("char-mini-cpu", "char-mini"), (65,)),
    "modern-mini": (8192,),
    **dict.fromkeys(("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"), (50_257,)),
    **dict.fromkeys(("t-d", "t-dmca", "t-dmca-moe"), (32_000,)),
}
"""The papers' (Radford et al. 2019, section 2.2; Liu et al. 2018, section 4.2); the characters are those of
Shakespeare's plays, modern-mini's is of a size for small corpora."""


def build(config: LanguageModelConfig, vocab_size: int) -> LanguageModel:
    """Build a model, initialized like GPT-2 (see `initialise`)."""
    table = nn.Parameter(torch.empty(vocab_size, config.d_model))
    positions = Added(positions_of(config.positions, config.context, config.d_model))
    model = LanguageModel(
        TokenEmbedding(table, positions, scale=embedding_scale(config), dropout=config.dropout),
        stack_of(config, (_layer(config, number) for number in range(1, config.n_layers + 1))),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )
    residuals_per_layer = 1 if config.feed_forward == "none" else 2
    initialise(
        model, n_residuals=residuals_per_layer * config.n_layers if config.norm_placement == "pre" else 1
    )
    return model


def build_reader(config: LanguageModelConfig, vocab_size: int) -> Encoder:
    """Build the same embedding and stack without output layer; the last token represents the text.

    Source: Radford et al. 2018, section 3.2.
    """
    model = build(config, vocab_size)
    return Encoder(model.embedding, model.stack, LastPooling())


def _layer(config: LanguageModelConfig, number: int) -> tuple[nn.Module, nn.Module | None]:
    """Build the position mixer of a layer, counted from 1, and its channel mixer, if any."""
    config, kind = in_layer(config, number), config.mixer
    if kind == "alternating":
        kind = "local" if number % 2 else "compressed"
    mixer = _MIXERS[kind](config)
    if config.feed_forward == "none":
        return mixer, None
    channels = experts if number in config.expert_layers else _feed_forward
    return mixer, channels(config)


_MIXERS: dict[str, Callable[[LanguageModelConfig], nn.Module]] = {
    "all": lambda c: self_attention(c, causal=True, window=c.window),
    "local": lambda c: self_attention(c, causal=True, block=c.block, earlier_blocks=c.earlier_blocks),
    "compressed": lambda c: compressed_attention(c, c.compression),
    "recurrent": lambda c: Recurrence(CELLS[c.cell](c.d_model, c.d_model)),
    "separable": lambda c: DepthwiseSeparableConvolution(c.d_model, c.kernel, causal=True),
    "convolution": lambda c: Convolution(c.d_model, c.kernel, causal=True, activation=activation_of(c)),
    "parallel-convolutions": lambda c: ParallelConvolutions(
        c.d_model, c.widths, causal=True, activation=activation_of(c)
    ),
}


def _feed_forward(config: LanguageModelConfig) -> FeedForward | GatedFeedForward:
    return feed_forward(config, config.d_ff or 4 * config.d_model)


def experts(config: LanguageModelConfig) -> MixtureOfExperts:
    """Build the experts of a layer and their gate."""
    options = config.experts
    assert options is not None
    sizes, importance = (config.d_model, options.n, options.k), options.importance
    if options.gate == "noisy-top-k":
        load = importance if options.load is None else options.load
        gate: Gate = NoisyTopKGate(*sizes, importance=importance, load=load)
    else:
        gate = TopKGate(*sizes, importance=importance)
    return MixtureOfExperts(gate, [_feed_forward(config) for _ in range(options.n)])


def initialise(model: LanguageModel, n_residuals: int) -> None:
    """Initialize weights like GPT-2: N(0, 0.02²), positions N(0, 0.01²), biases 0.

    Matrices that write to the residual stream are divided by sqrt(n_residuals), so that the variance of a
    pre-norm stack does not grow with its depth (Radford et al. 2019, section 2.3). The standard deviations
    are those of the released code; the paper gives none. Scores, compressions, gates, cells and convolutions
    keep their own initialization.
    """
    inner, last = [], []
    for part in model.modules():
        match part:
            case SelfAttention() | MemoryCompressedAttention():
                inner.append(part.qkv.weight)
                last.append(part.out.weight)
            case FeedForward():
                inner.append(part.up.weight)
                last.append(part.down.weight)
            case GatedFeedForward():
                inner.append(part.gate_up.weight)
                last.append(part.down.weight)
            case TokenEmbedding():
                inner.append(part.weight)
            case LearnedPositions():
                nn.init.normal_(part.weight, std=POSITIONS_STD)
    head: Any = model.heads["token"]
    for weight in inner if head.weight is inner[0] else [*inner, head.weight]:
        nn.init.normal_(weight, std=STD)
    for weight in last:
        nn.init.normal_(weight, std=STD / math.sqrt(n_residuals))
