"""Encoder-decoder model with cross-attention, and its interface for training and decoding."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.models.base import Model
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.declarations import blind_to_constants
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.residual import PostNorm
from heedful.nn.state import KeyValueCache, State


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
        memories = self.decoder.remember(self.encode(source), source.layout)
        return self.decoder(self.target_embedding(inputs), inputs.layout, memories)

    def start(self, source: Tokens | Images) -> State:
        """Encode the source; return the initial decoder state."""
        memories = self.decoder.remember(self.encode(source), source.layout)
        caches: list[Any] = [KeyValueCache() for _ in self.decoder.blocks]
        return State(list(memories), caches, (0,) * source.layout.n_sequences)

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
        embedding: Any = self.source_embedding
        added = getattr(embedding, "adds_constant", {})
        kept = any(isinstance(part, PostNorm) for part in self.encoder.modules())
        if not added or kept or embedding.dropout.p > 0 or not blind_to_constants(self.encoder):
            return {}
        return {f"source_embedding.{name}": rows for name, rows in added.items()}

    def _last_bias(self) -> dict[str, range]:
        """The bias of the last encoder norm, if adding a vector to all of its outputs has no effect.

        This holds if the decoder is blind to constants and its cross-attention scores are products: the
        vector then adds a constant to the scores of a query, and another to its output.
        """
        crosses = [part for part in self.decoder.modules() if isinstance(part, CrossAttention)]
        ignores_constants = all(
            c.score.product_scale(c.d_k) is not None and c.dropout.p == 0 for c in crosses
        )
        norms = [n for n, part in self.encoder.named_modules() if hasattr(part, "couples_batch")]
        if not (ignores_constants and norms and blind_to_constants(self.decoder)):
            return {}
        last = f"encoder.{norms[-1]}.bias"
        return {last: range(len(self.get_parameter(last)))}

    @property
    def alignment_taps(self) -> Sequence[str]:
        """Names of the taps of attention weights over the source, from the first layer to the last."""
        return [f"{name}.weights" for name, part in self.named_modules() if isinstance(part, CrossAttention)]


def embedding_table(n_tokens: int, d_model: int) -> nn.Parameter:
    """Initialize E with variance 1 / d_model, so that sqrt(d_model) E has variance 1."""
    return nn.Parameter(torch.randn(n_tokens, d_model) * d_model**-0.5)


def token_head(d_model: int, n_tokens: int, tied: nn.Parameter | None, *, bias: bool = False) -> nn.Linear:
    """Build the output layer, with ``tied`` as its weight if given."""
    head = nn.Linear(d_model, n_tokens, bias=bias)
    if tied is None:
        nn.init.normal_(head.weight, std=d_model**-0.5)
    else:
        head.weight = tied
    if bias:
        nn.init.zeros_(head.bias)
    return head
