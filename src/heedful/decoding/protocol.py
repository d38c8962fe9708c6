"""What a decoder is given and what it gives back. Decoders never see a model.

Axes: B sentences; N hypotheses, ``width`` for each sentence, hypothesis n belonging to sentence
``n // width``; V the vocabulary; S positions of the longest source.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch
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


@dataclass(frozen=True, eq=False)
class Request:
    """What every decoder is given: B sentences, to be continued from their prefixes.

    Decoding spends the state, so a request is decoded once.

    Args:
        first: what follows the prefixes, with a state of width 1 (N = B); for a coverage penalty, with
            attention, as from every step.
        step: continues hypotheses.
        end: the token that finishes a hypothesis.
        max_lengths: for each sentence, the most tokens to generate, the end token included.
        forbidden: tokens never chosen (padding, start …); may hold ``end``.
        source_lengths: how many positions of each sentence's source are real; for a coverage penalty.
        ordinals: the number of each sentence in the whole input, for sampling (None: 0 .. B-1).
        on_token: told of every token as soon as it is chosen, where a sentence has one hypothesis alone.
    """

    first: StepOutput
    step: StepFunction
    _: KW_ONLY
    end: int
    max_lengths: Sequence[int]
    forbidden: Sequence[int] = ()
    source_lengths: Sequence[int] | None = None
    ordinals: Sequence[int] | None = None
    on_token: OnToken | None = None

    def __post_init__(self) -> None:
        n, size = self.first.logits.shape
        lists = {
            "maximum lengths": self.max_lengths,
            "source lengths": self.source_lengths,
            "ordinals": self.ordinals,
        }
        for name, each in lists.items():
            if each is not None and len(each) != n:
                raise ValueError(f"{n} sentences but {len(each)} {name}")
        if min(self.max_lengths, default=0) < 0:
            raise ValueError("a maximum length cannot be negative")
        outside = [i for i in (self.end, *self.forbidden) if not 0 <= i < size]
        if outside:
            raise ValueError(f"token {outside[0]} is not in a vocabulary of {size}")

    @cached_property
    def banned(self) -> Int[Tensor, " F"]:
        """The forbidden tokens, each once, where the logits are."""
        ids = sorted(set(self.forbidden))
        return torch.tensor(ids, dtype=torch.int64, device=self.first.logits.device)

    def begin(self) -> tuple[list[int], StepOutput]:
        """The sentences that may be given a token at all, and what follows their prefixes."""
        sentences = [b for b, most in enumerate(self.max_lengths) if most > 0]
        if len(sentences) in (0, len(self.max_lengths)):
            return sentences, self.first
        logits, state, attention = self.first
        seen = None if attention is None else attention[sentences]
        return sentences, StepOutput(logits[sentences], state.keep(sentences), seen)


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
