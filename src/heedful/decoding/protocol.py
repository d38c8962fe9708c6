"""What a decoder is given and what it gives back. Decoders never see a model.

Axes: B sentences; N hypotheses, ``width`` for each sentence, hypothesis n belonging to sentence
``n // width``; V the vocabulary; S positions of the longest source.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class DecodingState(Protocol):
    """What is remembered between two steps (`heedful.nn.state.State` is one)."""

    def widen(self, width: int) -> "DecodingState":
        """Repeat every hypothesis ``width`` times, side by side."""
        ...

    def select(self, rows: Int[Tensor, " M"]) -> "DecodingState":
        """The hypotheses ``rows``, in that order; each within its own sentence."""
        ...

    def keep(self, sentences: Sequence[int]) -> "DecodingState":
        """Drop all sentences but these (numbered within the state), with their hypotheses."""
        ...


class StepOutput(NamedTuple):
    """What follows the N hypotheses after one more token each."""

    logits: Float[Tensor, "N V"]
    """Of the next token."""
    state: DecodingState
    """For the next step; the one passed in is spent."""
    attention: Float[Tensor, "N S"] | None = None
    """Weights over the source with which ``logits`` were computed, where the model has such."""


@runtime_checkable
class StepFunction(Protocol):
    """Writes one token to each hypothesis and predicts the next."""

    def __call__(
        self, ids: Int[Tensor, " N"], state: DecodingState, parents: Int[Tensor, " N"] | None
    ) -> StepOutput:
        """Continue row ``parents[n]`` with ``ids[n]`` (None: row n continues row n).

        ``parents`` stay within their sentence, so ``state.select(parents)`` is all that they ask.
        """
        ...


OnToken = Callable[[int, int], None]
"""Called as ``on_token(sentence, id)`` as soon as a token is chosen; not for the end token."""


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence, with the terms from which its score can be recomputed.

    Args:
        ids: the generated tokens, without the prompt and without the end token.
        log_probs: natural logarithm of the model's probability of each generated token, the end
            token's included when ``finished``; so ``len(log_probs) == len(ids) + finished``.
        finished: whether the end token was generated; otherwise cut at the maximum length.
        score: ``scoring.score(log_probs, length_penalty, coverage_penalty)``.
        coverage_penalty: the coverage term of the score, at most 0; 0 where none was asked for.
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finished: bool
    score: float
    coverage_penalty: float = 0.0
