"""Recurrent encoder-decoder model, and its interface for training and decoding."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from heedful.models.base import Model
from heedful.nn.attention.recurrent import Encoded, FixedContext
from heedful.nn.attentive import AnyDecoder, AttentiveDecoder
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Tokens
from heedful.nn.recurrent import RecurrentStack
from heedful.nn.state import Cache, Memory, State


class RecurrentEncoderDecoder(Model):
    """Source tokens → recurrent encoder → decoder that reads its annotations or its final state.

    Args:
        source_embedding: called on packed source tokens.
        encoder: recurrences over the source.
        target_embedding: called on packed target tokens.
        decoder: called as ``decoder(x, layout, memories, caches)``, initialized from the encoder output.
        head: readouts to logits; reached by objectives and decoders as ``heads["token"]``.
        dropout: dropout rate of the readouts.
    """

    def __init__(
        self,
        source_embedding: nn.Module,
        encoder: RecurrentStack,
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

    def encode(self, source: Tokens) -> Encoded:
        """Return the annotations of all source tokens, and the final encoder states."""
        annotations, finals = self.encoder.run(self.source_embedding(source), source.layout)
        return Encoded(annotations, source.layout, finals, self.encoder.summary(finals))

    def forward(self, inputs: Tokens, source: Tokens) -> Float[Tensor, "T d"]:
        """Return the readouts of all target positions, with teacher forcing (Williams and Zipser 1989).

        Every step reads the given token instead of the model's prediction (S0); in decoding it reads its own
        predictions, which it never saw in training: exposure bias (Bengio et al. 2015).
        """
        memories, caches = self.decoder.begin(self.encode(source))
        return self._decode(inputs, memories, caches)

    def start(self, source: Tokens) -> State:
        """Encode the source; return the initial decoder state."""
        memories, caches = self.decoder.begin(self.encode(source))
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
