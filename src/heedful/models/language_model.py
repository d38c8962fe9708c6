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

Attention may use sliding windows (``visible: {kind: window, size: 256}``; Mistral 7B, Jiang et al. 2023,
section 2), whose receptive field grows with every layer, in all layers or, with a ``pattern``, with full
layers in between (Gemma 2 and 3, Gemma Team 2024 and 2025). Sequences longer than two windows are computed
in blocks; stacks with windows are not compiled.

The position mixer may also be a recurrence or a convolution, and the channel mixer may be omitted: the mixer
``recurrent`` with the channels ``none`` is the classic recurrent language model (Mikolov et al. 2010;
Zaremba et al. 2014, with LSTMs), with a residual connection and a norm around each layer. Without biases, a
layer of an RNN, a GRU and an LSTM has 2, 6 and 8 d_model² weights; attention has 4, and a feed-forward with
4 d_model hidden units 8.
"""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from heedful.models.base import Model, check_packed
from heedful.models.encoder import Encoder
from heedful.models.sections import Layers, Positive, Width
from heedful.models.stacks import TokenStackConfig, embedding_scale, stack, token_head
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.layout import Tokens
from heedful.nn.pooling import LastPooling
from heedful.nn.positions import LearnedPositions
from heedful.nn.state import State
from heedful.typing import JsonObject

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
        check_packed(inputs)
        if source is not None:
            raise ValueError("a language model has no source; pass the whole prompt as inputs")
        return self.stack(self.embedding(inputs), inputs.layout)

    def start(self, n: int) -> State:
        """Return the initial state of ``n`` empty sequences."""
        return State([], [block.new_cache() for block in self.stack.block_list], (0,) * n)

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Append the next tokens to every sequence; ``tokens.layout`` must be from `State.next_layout`."""
        hidden = self.stack(self.embedding(tokens), tokens.layout, state.caches)
        return hidden, state.advanced(tokens.layout.lengths)


class LanguageModelConfig(TokenStackConfig):
    """Configuration of a language model, by default GPT-2 (Radford et al. 2019, section 2.3).

    Args:
        context: maximum number of tokens of a sequence, in training and inference.
        tie: whether the output layer shares the embedding table.
        scale_embedding: whether embeddings are multiplied by sqrt(d_model); null: only with the positions
            ``sinusoidal`` and ``constant``, which have size 1.
    """

    causal: ClassVar[bool] = True
    default_sections: ClassVar[JsonObject] = {
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 12},
            "channels": {"kind": "feed-forward", "activation": "gelu"},
            "norm_placement": "pre",
        },
        "positions": {"kind": "learned"},
    }

    limit_key: ClassVar[str] = "context"

    kind: Literal["language-model"] = "language-model"
    d_model: Width = 768
    n_layers: Layers = 12
    context: Positive = 1024
    tie: bool = True
    scale_embedding: bool | None = None

    @model_validator(mode="after")
    def _positions_fit(self) -> "LanguageModelConfig":
        self.check_combination(is_tied=self.tie)
        return self

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a sequence, in training and inference."""
        return self.context


def _gpt2(n_layers: int, d_model: int, n_heads: int) -> LanguageModelConfig:
    layer = {"mixer": {"n_heads": n_heads, "dropout": 0.1}, "channels": {"activation": "gelu-tanh"}}
    return LanguageModelConfig.model_validate({"n_layers": n_layers, "d_model": d_model, "layer": layer})


def _character_model(
    n_layers: int, d_model: int, n_heads: int, context: int, dropout: float
) -> LanguageModelConfig:
    return LanguageModelConfig.model_validate(
        {
            "n_layers": n_layers,
            "d_model": d_model,
            "context": context,
            "dropout": dropout,
            "layer": {"mixer": {"n_heads": n_heads, "dropout": dropout}},
        }
    )


_HEADS: JsonObject = {"n_heads": 8, "bias": False}
_LOCAL: JsonObject = {"mixer": {"kind": "attention", **_HEADS, "visible": {"kind": "blocks", "size": 256}}}
_COMPRESSED: JsonObject = {"mixer": {"kind": "compressed-attention", **_HEADS}}
_EXPERTS: JsonObject = {"channels": {"kind": "experts"}}


def _summariser(context: int, pattern: list[JsonObject] | None = None) -> LanguageModelConfig:
    return LanguageModelConfig.model_validate(
        {
            "d_model": 512,
            "n_layers": 5,
            "context": context,
            "positions": "sinusoidal",
            "layer": {"mixer": _HEADS, "channels": {"activation": "relu"}},
            "pattern": pattern,
        }
    )


PRESETS: dict[str, LanguageModelConfig] = {
    "char-mini-cpu": _character_model(4, 128, 4, 64, 0.0),
    "char-mini": _character_model(6, 384, 6, 256, 0.2),
    "modern-mini": LanguageModelConfig.model_validate(
        {
            "n_layers": 6,
            "d_model": 384,
            "context": 256,
            "dropout": 0.0,
            "positions": "rotary",
            "layer": {
                "mixer": {"n_heads": 6, "n_kv_heads": 2, "bias": False},
                "channels": {"kind": "gated", "d_ff": 1024, "activation": "silu", "bias": False},
                "norm": "rms",
            },
        }
    ),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "t-d": _summariser(4000),
    "t-dmca": _summariser(11000, [_LOCAL, _COMPRESSED]),
    "t-dmca-moe": _summariser(11000, [_LOCAL, _COMPRESSED, {**_LOCAL, **_EXPERTS}, _COMPRESSED, _LOCAL]),
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
    """Build a model, initialised like GPT-2 (see `initialise`)."""
    table = nn.Parameter(torch.empty(vocab_size, config.d_embedding))
    scale = embedding_scale(config, config.scale_embedding)
    model = LanguageModel(
        TokenEmbedding(table, config.build_positions(), scale=scale, dropout=config.dropout),
        stack(config, config.context),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )
    # Sums of pre-norm layers are not normalised: they grow with each layer.
    summed = [layer for layer in config.layers if layer.norm_placement == "pre"]
    residuals = sum(1 if layer.channels.kind == "none" else 2 for layer in summed)
    initialise(model, n_residuals=max(1, residuals))
    return model


def build_reader(config: LanguageModelConfig, vocab_size: int) -> Encoder:
    """Build the same embedding and stack without output layer; the last token represents the text.

    Source: Radford et al. 2018, section 3.2.
    """
    model = build(config, vocab_size)
    return Encoder(model.embedding, model.stack, LastPooling())


def initialise(model: LanguageModel, n_residuals: int) -> None:
    """Initialise weights like GPT-2: N(0, 0.02²), positions N(0, 0.01²), biases 0.

    Matrices that write to the residual stream are divided by sqrt(n_residuals), so that the variance of a
    pre-norm stack does not grow with its depth (Radford et al. 2019, section 2.3). The standard deviations
    are those of the released code; the paper gives none. Scores, compressions, gates, cells and convolutions
    keep their own initialisation.
    """
    input_weights, output_weights = [], []
    for part in model.modules():
        match part:
            case SelfAttention() | MemoryCompressedAttention():
                input_weights.append(part.qkv.weight)
                output_weights.append(part.out.weight)
            case FeedForward():
                input_weights.append(part.up.weight)
                output_weights.append(part.down.weight)
            case GatedFeedForward():
                input_weights.append(part.gate_up.weight)
                output_weights.append(part.down.weight)
            case TokenEmbedding():
                input_weights.append(part.weight)
            case LearnedPositions():
                nn.init.normal_(part.weight, std=POSITIONS_STD)
    head = model.heads["token"]
    assert isinstance(head, nn.Linear)
    for weight in input_weights if head.weight is input_weights[0] else [*input_weights, head.weight]:
        nn.init.normal_(weight, std=STD)
    for weight in output_weights:
        nn.init.normal_(weight, std=STD / math.sqrt(n_residuals))
