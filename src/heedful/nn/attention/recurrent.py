"""Attention inside a recurrence: one query for each hypothesis and step, over all of a sentence.

    e_ti = score(s, h_i),   alpha_ti = softmax_i e_ti,   c_t = sum_i alpha_ti h_i

S0 asks what can run in parallel: alpha_ti over i at one t can; over t it cannot, since s waits for the
context before it. So attention with a memory of past alignments costs nothing extra here, and the
contract provides for it: ``attend(query, memory, history) -> (context, weights, history)``.

Error in the lectures: S0 calls the encoder's final state "annotation". Bahdanau's annotations are
all the h_i (Bahdanau et al. 2014, section 3.2); the final state is the fixed-length vector that
attention replaces.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.nn.attention.scores import Score
from heedful.nn.layout import Layout

States = tuple[Tensor, ...]


class Encoded(NamedTuple):
    """What an encoder hands to a decoder."""

    annotations: Float[Tensor, "T_s d_annotation"]
    """Every h_i, packed."""
    layout: Layout
    """Of the source."""
    finals: list[States]
    """The final states of every layer of the encoder (`RecurrentStack.run`)."""
    summary: Float[Tensor, "B d_hidden"]
    """The final output of the last layer: h_T, or where it reads both ways, the right-to-left state at
    the first token (`RecurrentStack.summary`)."""


class Annotations:
    """What attention reads of each sentence: all h_i, and their keys, prepared for the score.

    (An attention with heads keeps their values in place of h_i.) The rectangle is zero where there is no
    token, and hidden there (None: it is full). It keeps its width S when sentences leave, so that a history
    may have a column for each source position.
    """

    def __init__(
        self,
        vectors: Float[Tensor, "B *H S d_annotation"],
        keys: Float[Tensor, "B *H S d_key"],
        hidden: Bool[Tensor, "B 1 S"] | None,
    ) -> None:
        self.vectors, self.keys, self.hidden = vectors, keys, hidden

    def select(self, sentences: Int[Tensor, " M"]) -> "Annotations":
        """Some of the sentences."""
        hidden = None if self.hidden is None else self.hidden.index_select(0, sentences)
        return Annotations(
            self.vectors.index_select(0, sentences), self.keys.index_select(0, sentences), hidden
        )

    def first(self, n: int) -> "Annotations":
        """The first ``n`` sentences, as a view."""
        if n == len(self.vectors):
            return self
        return Annotations(self.vectors[:n], self.keys[:n], None if self.hidden is None else self.hidden[:n])


class ContextVector:
    """What a decoder without attention reads of each sentence: one vector."""

    def __init__(self, vectors: Float[Tensor, "B d"]) -> None:
        self.vectors = vectors

    def select(self, sentences: Int[Tensor, " M"]) -> "ContextVector":
        """Some of the sentences."""
        return ContextVector(self.vectors.index_select(0, sentences))

    def first(self, n: int) -> "ContextVector":
        """The first ``n`` sentences, as a view."""
        return self if n == len(self.vectors) else ContextVector(self.vectors[:n])


SourceMemory = Annotations | ContextVector


class Attended(NamedTuple):
    """The result of one step of attention for N hypotheses."""

    context: Float[Tensor, "N d_context"]
    weights: Float[Tensor, "N *H S"] | None
    """Over the source; with an axis for heads where there are several."""
    history: Tensor | None


def masked_softmax(
    scores: Float[Tensor, "*rows S"], hidden: Bool[Tensor, "*visible S"] | None
) -> Float[Tensor, "*rows S"]:
    """Weights over what is not hidden; exact zeros where nothing is left."""
    if hidden is None:
        return torch.softmax(scores, dim=-1)
    # The lowest finite number and not -inf: a sentence without tokens must stay finite.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(hidden, lowest), dim=-1).masked_fill(hidden, 0.0)


class RecurrentAttention(nn.Module):
    """``alpha_t = softmax_i score(query, h_i)``, ``c_t = sum_i alpha_ti h_i``, one query a hypothesis.

    N hypotheses read B sentences, hypothesis n sentence ``n // (N / B)``: the hypotheses of a sentence
    are queries on one set of keys, and nothing of the source is copied for them.

    ``history`` is what an attention remembers of its past alignments, a tensor with N rows or None.
    This one has none; a subclass that has overrides ``begin`` and ``forward``.
    """

    def __init__(self, score: Score, d_annotation: int) -> None:
        super().__init__()
        self.score, self.d_context = score, d_annotation

    def remember(self, encoded: Encoded) -> Annotations:
        """Pad the annotations and prepare the keys, once for a sentence."""
        layout, annotations = encoded.layout, encoded.annotations
        keys = layout.pad(self.score.prepare(annotations))
        hidden = None if layout.is_rectangular else ~layout.real[:, None]
        return Annotations(layout.pad(annotations), keys, hidden)

    def begin(self, memory: SourceMemory) -> Tensor | None:
        """The history of each of B hypotheses that have written nothing."""
        return None

    def forward(
        self, query: Float[Tensor, "N d_query"], memory: Annotations, history: Tensor | None
    ) -> Attended:
        """Attend once; a sentence without tokens gives exactly 0."""
        weights = self.weigh(query, memory)
        return Attended(self.blend(weights, memory), weights, history)

    def weigh(self, query: Float[Tensor, "N d_query"], memory: Annotations) -> Float[Tensor, "N S"]:
        """Weights over the source."""
        scores = self.score(query.unflatten(0, (len(memory.keys), -1)), memory.keys)
        return masked_softmax(scores, memory.hidden).flatten(0, 1)

    def blend(self, weights: Float[Tensor, "N S"], memory: Annotations) -> Float[Tensor, "N d_annotation"]:
        """The weighted sum of the annotations."""
        return (weights.unflatten(0, (len(memory.keys), -1)) @ memory.vectors).flatten(0, 1)


class FixedContext(nn.Module):
    """No attention: ``c_t = c = h_T`` at every step (Cho et al. 2014).

    Bahdanau et al. (section 3.1 and appendix A) get the RNN Encoder-Decoder from their model by this
    very replacement. c is `Encoded.summary`.
    """

    def __init__(self, d_context: int) -> None:
        super().__init__()
        self.d_context = d_context

    def remember(self, encoded: Encoded) -> ContextVector:
        """Keep c."""
        return ContextVector(encoded.summary)

    def begin(self, memory: SourceMemory) -> Tensor | None:
        """No history."""
        return None

    def forward(
        self, query: Float[Tensor, "N d_query"], memory: ContextVector, history: Tensor | None
    ) -> Attended:
        """The same context whatever the query."""
        width = len(query) // len(memory.vectors)
        return Attended(memory.vectors.repeat_interleave(width, dim=0), None, history)
