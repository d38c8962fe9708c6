"""The encoder-decoder Transformer of Vaswani et al. 2017.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| transformer-tiny | 4 + 4 | 128 | 256 | 4 | 1,325,056 + 128 V |
| transformer-small | 6 + 6 | 512 | 1024 | 4 | 31,543,296 + 512 V |
| transformer-base | 6 + 6 | 512 | 2048 | 8 | 44,101,632 + 512 V |
| transformer-big | 6 + 6 | 1024 | 4096 | 16 | 176,283,648 + 1024 V |

Base and big follow the paper: no attention biases, post-norm, sinusoids, embeddings and output layer tied.
With V = 37,000 the totals are 63.05M and 214.2M; the paper prints 65M and 213M.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from heedful.models.base import Model, check_packed
from heedful.models.sections import Positive
from heedful.models.stacks import (
    DecoderConfig,
    TokenStackConfig,
    decoder_stack,
    embedding_table,
    stack,
    token_head,
)
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.declarations import ignores_constants
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.residual import PostNorm
from heedful.nn.state import KeyValueCache, State
from heedful.typing import JsonObject


class EncoderDecoder(Model):
    """Source → encoder → memories; target prefix → decoder → hidden states.

    Args:
        source_embedding: called on the source, packed tokens or images.
        encoder: blocks over the source.
        target_embedding: called on packed target tokens.
        decoder: causal blocks with cross-attention.
        head: hidden states to logits; reached by objectives and decoders as ``heads["token"]``.
    """

    lowers = True

    def __init__(
        self,
        source_embedding: nn.Module,
        encoder: EncoderStack,
        target_embedding: nn.Module,
        decoder: DecoderStack,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.source_embedding, self.encoder = source_embedding, encoder
        self.target_embedding, self.decoder = target_embedding, decoder
        self.heads = nn.ModuleDict({"token": head})

    def encode(self, source: Tokens | Images) -> Float[Tensor, "T_s d"]:
        """Return the encoder output, packed."""
        return self.encoder(self.source_embedding(source), source.layout)

    def forward(self, inputs: Tokens, source: Tokens | Images) -> Float[Tensor, "T d"]:
        """Return the hidden states of all target positions, with teacher forcing."""
        check_packed(inputs, source)
        memories = self.decoder.make_memory(self.encode(source), source.layout)
        return self.decoder(self.target_embedding(inputs), inputs.layout, memories)

    def start(self, source: Tokens | Images) -> State:
        """Encode the source; return the initial decoder state."""
        memories = self.decoder.make_memory(self.encode(source), source.layout)
        caches = [KeyValueCache() for _ in self.decoder.blocks]
        return State(memories, caches, (0,) * source.layout.n_sequences)

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Append the next tokens to every hypothesis; ``tokens.layout`` must be from `State.next_layout`."""
        layout = tokens.layout
        hidden = self.decoder(self.target_embedding(tokens), layout, state.memories, state.caches)
        return hidden, state.advanced(layout.lengths)

    @property
    def without_gradient(self) -> dict[str, range]:
        """Biases at both ends of the encoder for which adding a vector to all tokens has no effect."""
        return {**self._first_bias(), **self._last_bias()}

    def _first_bias(self) -> dict[str, range]:
        """Biases that add a vector to all tokens, without dropout, which the pre-norms subtract again."""
        embedding = self.source_embedding
        constant_rows = getattr(embedding, "adds_constant", {})
        is_post_norm = any(isinstance(part, PostNorm) for part in self.encoder.modules())
        dropout = getattr(embedding, "dropout", None)
        drops = isinstance(dropout, Dropout) and dropout.p > 0
        if not constant_rows or is_post_norm or drops or not ignores_constants(self.encoder):
            return {}
        return {f"source_embedding.{name}": rows for name, rows in constant_rows.items()}

    def _last_bias(self) -> dict[str, range]:
        """The bias of the last encoder norm, if adding a vector to all of its outputs has no effect.

        This holds if the decoder is blind to constants and its cross-attention scores are products: the
        vector then adds a constant to the scores of a query, and another to its output.
        """
        crosses = [part for part in self.decoder.modules() if isinstance(part, CrossAttention)]
        are_products = all(c.score.product_scale(c.d_k) is not None and c.dropout.p == 0 for c in crosses)
        norms = [n for n, part in self.encoder.named_modules() if hasattr(part, "couples_batch")]
        if not (are_products and norms and ignores_constants(self.decoder)):
            return {}
        name = f"encoder.{norms[-1]}.bias"
        return {name: range(len(self.get_parameter(name)))}

    @property
    def alignment_taps(self) -> Sequence[str]:
        """Names of the taps of attention weights over the source, from the first layer to the last."""
        return [f"{name}.weights" for name, part in self.named_modules() if isinstance(part, CrossAttention)]


class TransformerConfig(TokenStackConfig, DecoderConfig):
    """Configuration of an encoder-decoder Transformer.

    Args:
        positions: position encoding. With ``alibi`` the encoder knows distances but cannot distinguish a
            source from its reverse.
        max_length: maximum number of tokens for ``learned`` and ``one-hot`` positions, and divisor of
            ``constant`` positions; not used by others.
        tie: share one matrix between both embeddings and the output layer (``three-way``), between the target
            embedding and the output layer (``target``), or not (``none``).
        head_bias: whether the output layer has a bias, as in Marian models.
    """

    default_sections: ClassVar[JsonObject] = {
        "layer": {"channels": {"kind": "feed-forward", "d_ff": 2048}},
        "positions": {"kind": "sinusoidal"},
    }

    untied: ClassVar[str] = "tie=none"

    kind: Literal["transformer"] = "transformer"
    max_length: Positive = 1024
    tie: Literal["three-way", "target", "none"] = "three-way"
    head_bias: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
        self.check_combination(is_tied=self.tie != "none")
        return self

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of a sequence, including special tokens; None: no limit."""
        return self.max_length if self.positions.kind in {"learned", "one-hot"} else None


def _sized(d_model: int, d_ff: int, n_heads: int, n_layers: int, **options: object) -> TransformerConfig:
    layer = {"mixer": {"n_heads": n_heads}, "channels": {"d_ff": d_ff}}
    return TransformerConfig.model_validate(
        {"d_model": d_model, "n_layers": n_layers, "layer": layer, **options}
    )


# Base and big have no attention biases.
_AS_PUBLISHED: JsonObject = {"layer": {"mixer": {"bias": False}}}

PRESETS: dict[str, TransformerConfig] = {
    "transformer-tiny": _sized(128, 256, 4, 4, dropout=0.3),
    "transformer-small": _sized(512, 1024, 4, 6, dropout=0.3),
    "transformer-base": _sized(512, 2048, 8, 6).changed(**_AS_PUBLISHED),
    "transformer-big": _sized(1024, 4096, 16, 6, dropout=0.3).changed(**_AS_PUBLISHED),
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("transformer-tiny", "transformer-small"), (10_000, 10_000)),
    **dict.fromkeys(("transformer-base", "transformer-big"), (37_000, 37_000)),
}
"""Vocabulary sizes of source and target: the paper's English-German (section 5.1), or for small corpora."""


def build(config: TransformerConfig, source_vocab: int, target_vocab: int) -> EncoderDecoder:
    """Build a model; with tie=three-way, both sides must share one vocabulary."""
    if config.tie == "three-way" and source_vocab != target_vocab:
        raise ValueError(
            f"tie=three-way needs one vocabulary for both sides, not {source_vocab} and {target_vocab}"
        )
    width = config.d_embedding
    source = embedding_table(source_vocab, width)
    target = source if config.tie == "three-way" else embedding_table(target_vocab, width)
    tied = None if config.tie == "none" else target
    return EncoderDecoder(
        _embedding(config, source),
        stack(config, config.longest or 0),
        _embedding(config, target),
        decoder_stack(config),
        token_head(config.d_model, target_vocab, tied, bias=config.head_bias),
    )


def _embedding(config: TransformerConfig, weight: nn.Parameter) -> TokenEmbedding:
    return TokenEmbedding(
        weight, config.build_positions(), scale=math.sqrt(config.d_model), dropout=config.dropout
    )
