"""Language models: a stack of causal self-attention that foretells the next token at every position.

| preset | n_layers | d_model | n_heads | context | parameters |
|---|---|---|---|---|---|
| char-mini-cpu | 4 | 128 | 4 | 64 | 801,536 + 128 V |
| char-mini | 6 | 384 | 6 | 256 | 10,745,856 + 384 V |
| modern-mini | 6 | 384 | 6 | 256 | 9,442,176 + 384 V |
| gpt2 | 12 | 768 | 12 | 1024 | 85,842,432 + 768 V |
| gpt2-medium | 24 | 1024 | 16 | 1024 | 303,360,000 + 1024 V |
| gpt2-large | 36 | 1280 | 20 | 1024 | 709,701,120 + 1280 V |
| gpt2-xl | 48 | 1600 | 25 | 1024 | 1,477,200,000 + 1600 V |

With V = 50,257 GPT-2 has 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200 parameters; its paper
(Radford et al. 2019, table 2) prints 117M, 345M, 762M and 1542M. The two for characters have the
sizes that are commonly taken for them.

modern-mini has the parts of small language models of today: RMS norms before each part, rotary positions,
2 heads of keys and values for 6 of queries, SwiGLU with 1024 hidden units, no biases, tied embeddings. With
d = 384 and heads of 64, a layer has d (384 + 2 · 128) + 384 d + 3 · 1024 d + 2 d = 1,573,632 parameters, and
the last norm d.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from heedful.models.attention_stack import Positive, StackConfig, positions_of, self_attention_stack
from heedful.models.encoder_decoder import token_head
from heedful.nn.attention.heads import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.layout import Tokens
from heedful.nn.positions import Added, LearnedPositions
from heedful.nn.state import KeyValueCache, State

STD = 0.02
POSITIONS_STD = 0.01


class LanguageModel(nn.Module):
    """Tokens → causal stack → hidden states; ``heads["token"]`` makes logits of the next token of them.

    Args:
        embedding: called on packed tokens.
        stack: causal blocks.
        head: hidden states to logits.
    """

    lowers: ClassVar[bool] = True
    """Whether it can be trained on a copy of its weights in bf16."""

    alignment_taps: tuple[str, ...] = ()
    """There is no source to look at."""

    def __init__(self, embedding: nn.Module, stack: EncoderStack, head: nn.Module) -> None:
        super().__init__()
        self.embedding, self.stack = embedding, stack
        self.heads = nn.ModuleDict({"token": head})

    def forward(self, inputs: Tokens, source: Tokens | None = None) -> Float[Tensor, "T d"]:
        """Hidden states of all positions at once; ``source`` is there for the model contract alone."""
        if source is not None:
            raise ValueError("a language model reads no source: put all that it should read into the inputs")
        return self.stack(self.embedding(inputs), inputs.layout)

    def start(self, n: int) -> State:
        """The state of ``n`` sequences of which nothing is written yet."""
        caches: list[Any] = [KeyValueCache() for _ in self.stack.blocks]
        return State([], caches, (0,) * n)

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Write the next tokens of every sequence; ``tokens.layout`` must be `State.next_layout`'s."""
        hidden = self.stack(self.embedding(tokens), tokens.layout, state.caches)
        return hidden, state.advanced(tokens.layout.lengths)


class LanguageModelConfig(StackConfig):
    """Sizes and choices of a language model, by default those of GPT-2 (Radford et al. 2019, section 2.3).

    Args:
        d_ff: hidden units of the feed-forwards; 4 d_model by default.
        context: the most tokens that are read at once, in training as in use.
        positions: what tells the tokens' places; ``none`` leaves it to the causal mask. ``rotary`` and
            ``alibi`` act inside attention.
        tie: whether the output layer is the embedding table.
    """

    kind: Literal["language-model"] = "language-model"
    d_model: Positive = 768
    n_heads: Positive = 12
    n_layers: Positive = 12
    d_ff: Positive | None = None
    context: Positive = 1024
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "gelu"
    norm_placement: Literal["post", "pre"] = "pre"
    positions: Literal["learned", "sinusoidal", "constant", "none", "rotary", "alibi"] = "learned"
    tie: bool = True

    @model_validator(mode="after")
    def _pairs(self) -> "LanguageModelConfig":
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions come in pairs: d_model={self.d_model} must be even")
        return self

    @property
    def longest(self) -> int:
        """The most tokens that a sequence may have: no more are ever trained on."""
        return self.context


def _gpt2(n_layers: int, d_model: int, n_heads: int) -> LanguageModelConfig:
    return LanguageModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        activation="gelu-tanh",
        attention_dropout=0.1,
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
}


def build(config: LanguageModelConfig, vocab_size: int) -> LanguageModel:
    """The model, freshly initialised as GPT-2 (see `initialise`)."""
    table = nn.Parameter(torch.empty(vocab_size, config.d_model))
    positions = Added(positions_of(config.positions, config.context, config.d_model))
    # Sines, cosines and constants are of size 1, and would drown a table of size 0.02.
    scale = math.sqrt(config.d_model) if config.positions in {"sinusoidal", "constant"} else 1.0
    model = LanguageModel(
        TokenEmbedding(table, positions, scale=scale, dropout=config.dropout),
        self_attention_stack(config, config.d_ff or 4 * config.d_model, causal=True),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )
    initialise(model, n_residuals=2 * config.n_layers if config.norm_placement == "pre" else 1)
    return model


def initialise(model: LanguageModel, n_residuals: int) -> None:
    """First weights of GPT-2: N(0, 0.02²), positions N(0, 0.01²), biases 0.

    The matrices that end in a residual sum are divided by sqrt(n_residuals), so that a pre-norm stack of
    that many sums leaves its result at a size that does not grow with its depth (Radford et al. 2019,
    section 2.3). The standard deviations are those of the released code, for the paper gives none. A
    score's own matrices start as the score says.
    """
    inner, last = [], []
    for part in model.modules():
        match part:
            case SelfAttention():
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
