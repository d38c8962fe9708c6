"""An encoder, a decoder that attends to it, and the contract that training and decoding rely on."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.declarations import blind_to_constants
from heedful.nn.layout import Tokens
from heedful.nn.patches import Pictures
from heedful.nn.residual import PostNorm
from heedful.nn.state import KeyValueCache, State


class EncoderDecoder(nn.Module):
    """Source → encoder → memories; target prefix → decoder → hidden states.

    Args:
        source_embedding: called on what is read, packed tokens or pictures.
        encoder: blocks over the source.
        target_embedding: called on packed target tokens.
        decoder: causal blocks with cross-attention.
        head: hidden states to logits; reached by objectives and decoders as ``heads["token"]``.
    """

    lowers: ClassVar[bool] = True
    """Whether it can be trained on a copy of its weights in bf16."""

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

    def encode(self, source: Tokens | Pictures) -> Float[Tensor, "T_s d"]:
        """The encoder's top, packed."""
        return self.encoder(self.source_embedding(source), source.layout)

    def forward(self, inputs: Tokens, source: Tokens | Pictures) -> Float[Tensor, "T d"]:
        """Hidden states of all target positions at once, teacher forced."""
        memories = self.decoder.remember(self.encode(source), source.layout)
        return self.decoder(self.target_embedding(inputs), inputs.layout, memories)

    def start(self, source: Tokens | Pictures) -> State:
        """Encode the source once; nothing is written yet."""
        memories = self.decoder.remember(self.encode(source), source.layout)
        caches: list[Any] = [KeyValueCache() for _ in self.decoder.blocks]
        return State(list(memories), caches, (0,) * source.layout.n_sequences)

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Write the next tokens of every hypothesis; ``tokens.layout`` must be `State.next_layout`'s."""
        layout = tokens.layout
        hidden = self.decoder(self.target_embedding(tokens), layout, state.memories, state.caches)
        return hidden, state.advanced(layout.lengths)

    @property
    def without_gradient(self) -> dict[str, range]:
        """Biases at both ends of the encoder, where a vector added to all tokens there changes nothing."""
        return {**self._first_bias(), **self._last_bias()}

    def _first_bias(self) -> dict[str, range]:
        """What adds a vector to all tokens, undropped, that the norm before each part takes away again."""
        embedding: Any = self.source_embedding
        added = getattr(embedding, "adds_constant", {})
        kept = any(isinstance(part, PostNorm) for part in self.encoder.modules())
        if not added or kept or embedding.dropout.p > 0 or not blind_to_constants(self.encoder):
            return {}
        return {f"source_embedding.{name}": rows for name, rows in added.items()}

    def _last_bias(self) -> dict[str, range]:
        """The bias of the encoder's last norm, if a vector added to all of its output changes nothing.

        So it is where the decoder is blind to constants and its cross-attention scores by products: the
        vector then adds a constant to the scores of a query, and another to its result.
        """
        crosses = [part for part in self.decoder.modules() if isinstance(part, CrossAttention)]
        deaf = all(c.score.product_scale(c.d_k) is not None and c.dropout.p == 0 for c in crosses)
        norms = [n for n, part in self.encoder.named_modules() if hasattr(part, "couples_batch")]
        if not (deaf and norms and blind_to_constants(self.decoder)):
            return {}
        last = f"encoder.{norms[-1]}.bias"
        return {last: range(len(self.get_parameter(last)))}

    @property
    def alignment_taps(self) -> list[str]:
        """Names of the taps that see weights over the source, from the first layer to the last."""
        return [f"{name}.weights" for name, part in self.named_modules() if isinstance(part, CrossAttention)]


def embedding_table(n_tokens: int, d_model: int) -> nn.Parameter:
    """E with entries of variance 1 / d_model, so that sqrt(d_model) times a row has entries of size 1."""
    return nn.Parameter(torch.randn(n_tokens, d_model) * d_model**-0.5)


def token_head(d_model: int, n_tokens: int, tied: nn.Parameter | None, *, bias: bool = False) -> nn.Linear:
    """The output layer, with ``tied`` as its weight where one is given."""
    head = nn.Linear(d_model, n_tokens, bias=bias)
    if tied is None:
        nn.init.normal_(head.weight, std=d_model**-0.5)
    else:
        head.weight = tied
    if bias:
        nn.init.zeros_(head.bias)
    return head
