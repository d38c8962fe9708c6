"""FLOPs of one training step, by the same formula for every contender.

Only matrix products count, each multiply-add as two, and only for real tokens: neither padding nor
causally masked keys. The backward pass needs two products for each one forward.

With t target tokens, s source tokens in all, and per sentence n_t, n_s of them:

| part | multiply-adds, forward |
|---|---|
| encoder layer | s (4 d² + 2 d d_ff) + sum 2 d n_s² |
| decoder layer | t (6 d² + 2 d d_ff) + s 2 d² + sum d n_t (n_t + 1) + sum 2 d n_t n_s |
| layer of a language model | t (4 d² + 2 d d_ff) + sum d n_t (n_t + 1) |
| output | t d V |
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batches.

    Args:
        n_layers: of the encoder and of the decoder each, or of the language model.
        d_model: width.
        d_ff: inner width of the feed-forward.
        n_heads: heads of attention.
        vocab: tokens in the vocabulary, shared and tied.
        batch: sequences in a batch.
        length: the longest sequence.
        shortest: the shortest sequence; lengths are uniform between the two.
        smoothing: label smoothing.
    """

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    vocab: int
    batch: int
    length: int
    shortest: int
    smoothing: float = 0.0


def encoder_decoder(shape: Shape, source: Sequence[int], target: Sequence[int]) -> int:
    """Return the FLOPs of forward and backward over sentences of these lengths."""
    d, ff, s, t = shape.d_model, shape.d_ff, sum(source), sum(target)
    encoder = s * (4 * d * d + 2 * d * ff) + sum(2 * d * n * n for n in source)
    decoder = (
        t * (6 * d * d + 2 * d * ff)
        + s * 2 * d * d
        + sum(d * n * (n + 1) for n in target)
        + sum(2 * d * n * m for n, m in zip(target, source, strict=True))
    )
    return 3 * 2 * (shape.n_layers * (encoder + decoder) + t * d * shape.vocab)


def language_model(shape: Shape, lengths: Sequence[int]) -> int:
    """Return the FLOPs of forward and backward over sequences of these lengths."""
    d, t = shape.d_model, sum(lengths)
    layer = t * (4 * d * d + 2 * d * shape.d_ff) + sum(d * n * (n + 1) for n in lengths)
    return 3 * 2 * (shape.n_layers * layer + t * d * shape.vocab)
