"""Attention for recurrent decoders: one query per hypothesis and step, over all source tokens.

    e_ti = score(s, h_i),   alpha_ti = softmax_i e_ti,   c_t = sum_i alpha_ti h_i

with s the decoder state that the decoder passes: s_{t-1} (Bahdanau et al. 2015, section A.1.2) or s_t (Luong
et al. 2015, section 3.1). Within a step, all alpha_ti are computed in parallel. Steps cannot be if s
depends on the previous context, as s_{t-1} does, and s_t with input feeding. So attention that also reads
past alignments costs no parallelism, and the interface has a place for them:
``forward(query, memory, history) -> AttentionResult``.

Error in the lectures: S0 calls the encoder's final state "annotation". Bahdanau's annotations are
all the h_i (Bahdanau et al. 2015, section 3.2); the final state is the fixed-length vector that
attention replaces.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.nn.attention.scores import ScoreFunction
from heedful.nn.layout import Layout
from heedful.nn.pooling import MeanPooling

States = tuple[Tensor, ...]


class EncoderOutput(NamedTuple):
    """Output of the encoder of a recurrent decoder."""

    annotations: Float[Tensor, "T_s d_annotation"]
    """All h_i, packed."""
    layout: Layout
    """Layout of the source."""
    finals: list[States]
    """Final states of every encoder layer (`RecurrentStack.run`)."""
    summary: Float[Tensor, "B d_summary"]
    """Final output of the last layer: h_T, or for a bidirectional layer the right-to-left state at the
    first token (`RecurrentStack.summary`); of images the mean of the annotations (`GivenAnnotations`)."""


class GivenAnnotations(nn.Module):
    """Encoder whose annotations are its inputs, without recurrence: the cells of a convolutional network.

    The summary is the mean of the annotations, from which Xu et al. 2015 (section 3.1.2) project the initial
    state of the decoder. Annotations are at least fp32, as those of a recurrent encoder under autocast.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pooling = MeanPooling()

    def run(
        self, x: Float[Tensor, "T d_annotation"], layout: Layout
    ) -> tuple[Float[Tensor, "T d_annotation"], list[States]]:
        """Return the annotations, and their means as the final state of the one layer."""
        annotations = x.to(torch.promote_types(x.dtype, torch.float32))
        return annotations, [(self.pooling(annotations, layout),)]

    def summary(self, finals: Sequence[States]) -> Float[Tensor, "B d_annotation"]:
        """Return the means."""
        return finals[-1][0]


class Annotations:
    """Source memory of attention: all h_i of each sentence, and their keys, prepared for the score.

    Multi-head attention stores the values of the heads instead of h_i. Padding is zero and marked in
    ``masked`` (None: no padding). The width S does not change when sentences are removed, so that a history
    can have one column per source position.
    """

    def __init__(
        self,
        vectors: Float[Tensor, "B *H S d_annotation"],
        keys: Float[Tensor, "B *H S d_key"],
        masked: Bool[Tensor, "B 1 S"] | None,
    ) -> None:
        self.vectors, self.keys, self.masked = vectors, keys, masked

    def select(self, sentences: Int[Tensor, " M"]) -> "Annotations":
        """Select sentences."""
        masked = None if self.masked is None else self.masked.index_select(0, sentences)
        return Annotations(
            self.vectors.index_select(0, sentences), self.keys.index_select(0, sentences), masked
        )

    def first(self, n: int) -> "Annotations":
        """Return the first ``n`` sentences, as a view."""
        if n == len(self.vectors):
            return self
        return Annotations(self.vectors[:n], self.keys[:n], None if self.masked is None else self.masked[:n])


class ContextVector:
    """Source memory of a decoder without attention: one vector per sentence."""

    def __init__(self, vectors: Float[Tensor, "B d"]) -> None:
        self.vectors = vectors

    def select(self, sentences: Int[Tensor, " M"]) -> "ContextVector":
        """Select sentences."""
        return ContextVector(self.vectors.index_select(0, sentences))

    def first(self, n: int) -> "ContextVector":
        """Return the first ``n`` sentences, as a view."""
        return self if n == len(self.vectors) else ContextVector(self.vectors[:n])


SourceMemory = Annotations | ContextVector


class AttentionResult(NamedTuple):
    """Result of one attention step for N hypotheses."""

    context: Float[Tensor, "N d_context"]
    weights: Float[Tensor, "N *H S"] | None
    """Over the source; multi-head attention has an axis for heads."""
    history: Tensor | None


def masked_softmax(
    scores: Float[Tensor, "*rows S"], masked: Bool[Tensor, "*visible S"] | None
) -> Float[Tensor, "*rows S"]:
    """Compute softmax over visible entries; fully masked rows are exactly zero."""
    if masked is None:
        return torch.softmax(scores, dim=-1)
    # The lowest finite number instead of -inf: a sentence without tokens must stay finite.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(masked, lowest), dim=-1).masked_fill(masked, 0.0)


class RecurrentAttention(nn.Module):
    """``alpha_t = softmax_i score(query, h_i)``, ``c_t = sum_i alpha_ti h_i``, one query per hypothesis.

    Of N hypotheses and B sentences, hypothesis n reads sentence ``n // (N / B)``: the hypotheses of a
    sentence share its keys, and the source is not copied.

    ``history`` holds past alignments, as a tensor with N rows, or is None. This class has no history;
    subclasses with one override ``initial_history`` and ``forward``.

    Args:
        score: score function of decoder states (queries) and keys.
        d_annotation: width of h_i, and of the context.
        d_key: width of the keys ``k_i = W_k h_i``, for scores that need keys as wide as the states; None: the
            keys are the annotations.

    Raises:
        ValueError: the score takes keys of another width.
    """

    def __init__(self, score: ScoreFunction, d_annotation: int, d_key: int | None = None) -> None:
        super().__init__()
        self.score, self.d_context, self.d_key = score, d_annotation, d_key or d_annotation
        score.check_widths(self.d_key)
        self.key = None if d_key is None else nn.Linear(d_annotation, d_key, bias=False)
        if self.key is not None:
            nn.init.xavier_uniform_(self.key.weight)

    def make_memory(self, encoded: EncoderOutput) -> Annotations:
        """Pad the annotations and prepare the keys, once per sentence."""
        layout, annotations = encoded.layout, encoded.annotations
        keys = layout.pad(self.score.prepare(annotations if self.key is None else self.key(annotations)))
        masked = None if layout.is_rectangular else ~layout.real[:, None]
        return Annotations(layout.pad(annotations), keys, masked)

    def check_query(self, d_query: int) -> None:
        """Raise ValueError if the score takes queries of another width; decoders call it once."""
        self.score.check_widths(self.d_key, d_query)

    def initial_history(self, memory: SourceMemory) -> Tensor | None:
        """Return the initial history of B hypotheses."""
        return None

    def forward(
        self, query: Float[Tensor, "N d_query"], memory: Annotations, history: Tensor | None
    ) -> AttentionResult:
        """Attend once; the context of a sentence without tokens is exactly 0."""
        weights = self.attention_weights(query, memory)
        return AttentionResult(self.weighted_sum(weights, memory), weights, history)

    def attention_weights(
        self, query: Float[Tensor, "N d_query"], memory: Annotations
    ) -> Float[Tensor, "N S"]:
        """Compute the weights over the source."""
        scores = self.score(query.unflatten(0, (len(memory.keys), -1)), memory.keys)
        return masked_softmax(scores, memory.masked).flatten(0, 1)

    def weighted_sum(
        self, weights: Float[Tensor, "N S"], memory: Annotations
    ) -> Float[Tensor, "N d_annotation"]:
        """Compute the weighted sum of the annotations."""
        return (weights.unflatten(0, (len(memory.keys), -1)) @ memory.vectors).flatten(0, 1)


class FixedContext(nn.Module):
    """No attention: ``c_t = c``, the encoder's summary, at every step (Cho et al. 2014, without tanh(V ·)).

    Bahdanau et al. (section 3.1 and appendix A) obtain the RNN Encoder-Decoder from their model by this
    replacement. c is `EncoderOutput.summary`.
    """

    def __init__(self, d_context: int) -> None:
        super().__init__()
        self.d_context = d_context

    def make_memory(self, encoded: EncoderOutput) -> ContextVector:
        """Return c as the memory."""
        return ContextVector(encoded.summary)

    def check_query(self, d_query: int) -> None:
        """Accept queries of any width: they are not used."""

    def initial_history(self, memory: SourceMemory) -> Tensor | None:
        """Return None: there is no history."""
        return None

    def forward(
        self, query: Float[Tensor, "N d_query"], memory: ContextVector, history: Tensor | None
    ) -> AttentionResult:
        """Return the same context for every query."""
        n_hypotheses = len(query) // len(memory.vectors)  # of each sentence
        return AttentionResult(memory.vectors.repeat_interleave(n_hypotheses, dim=0), None, history)
