"""Inputs and outputs of decoders, which are independent of the model.

Axes: B sentences; N hypotheses, ``width`` per sentence, hypothesis n belonging to sentence ``n // width``;
V the vocabulary; S positions of the longest source.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from heedful.config import Config
from heedful.decoding.constraints import ConstrainedRows, Constraint
from heedful.decoding.scoring import NotNegative

Width = Annotated[int, Field(ge=1, le=1000)]
"""Hypotheses per sentence; each step ranks this number times the vocabulary size."""


class MaxLength(Config):
    """Maximum number of generated tokens: ``int(ratio * source_length) + extra``, at most ``cap``.

    The end token counts. Without a source, ``source_length`` is 0: set ``extra``. A text that is cut here has
    ``finished: false`` and a note.

    Args:
        ratio: tokens per source token.
        extra: additional tokens.
        cap: upper limit; null: none, so that long sources have long outputs.
    """

    ratio: NotNegative = 2.0
    extra: int = Field(default=10, ge=0)
    cap: int | None = Field(default=None, ge=0)

    def of(self, source_length: int) -> int:
        """Return the maximum length for a source of ``source_length`` tokens."""
        scaled = int(self.ratio * source_length) + self.extra
        return scaled if self.cap is None else min(self.cap, scaled)


@runtime_checkable
class DecodingState(Protocol):
    """State between two steps (`heedful.nn.state.State` implements it)."""

    def expand(self, width: int) -> "DecodingState":
        """Repeat every hypothesis ``width`` times in adjacent rows."""
        ...

    def select(self, rows: Int[Tensor, " M"]) -> "DecodingState":
        """Select the hypotheses ``rows``, in that order; each within its own sentence."""
        ...

    def keep(self, sentences: Sequence[int]) -> "DecodingState":
        """Keep only these sentences (indices within the state), with their hypotheses."""
        ...


class StepOutput(NamedTuple):
    """Output of one step for N hypotheses."""

    logits: Float[Tensor, "N V"]
    """Logits of the next token."""
    state: DecodingState
    """State for the next step; the previous one must not be reused."""
    attention: Float[Tensor, "N S"] | None = None
    """Weights over the source with which ``logits`` were computed, if the model has any."""


StepFunction = Callable[[Tensor, DecodingState, Tensor | None], StepOutput]
"""Appends one token to each hypothesis and predicts the next: ``step(ids [N], state, parents [N] | None)``.

Row n continues row ``parents[n]`` with ``ids[n]`` (None: row n continues row n). ``parents`` stay within
their sentence, so ``state.select(parents)`` suffices.
"""

OnToken = Callable[[int, int], None]
"""Called as ``on_token(sentence, id)`` as soon as a token is chosen; not for the end token."""

OnStep = Callable[[], Collection[int]]
"""Called after every step; returns the ordinals of the sentences whose output nobody waits for any more."""


@dataclass(frozen=True, eq=False)
class Request:
    """Input of every decoder: B sentences, to be continued from their prefixes.

    Decoding updates the state in place, so a request can be decoded only once.

    Args:
        prefix_output: output for the prefixes, with a state of width 1 (N = B); a coverage penalty requires
            attention here and in every step.
        step: continues hypotheses.
        end: end token, which finishes a hypothesis.
        max_lengths: maximum number of generated tokens of each sentence, including the end token.
        forbidden: tokens never chosen (padding, start …); may contain ``end``.
        source_lengths: number of real source positions of each sentence; for a coverage penalty.
        ordinals: index of each sentence in the whole input, for sampling (None: 0 .. B-1).
        on_token: called with every token as soon as it is chosen; requires one hypothesis per sentence.
        on_step: called after every step. The sentences that it returns leave the batch, unfinished; the
            others do not change.
        constraints: of the output of each sentence; empty: none.
    """

    prefix_output: StepOutput
    step: StepFunction
    _: KW_ONLY
    end: int
    max_lengths: Sequence[int]
    forbidden: Sequence[int] = ()
    source_lengths: Sequence[int] | None = None
    ordinals: Sequence[int] | None = None
    on_token: OnToken | None = None
    on_step: OnStep | None = None
    constraints: Sequence[Sequence[Constraint]] = ()

    def __post_init__(self) -> None:
        n, size = self.prefix_output.logits.shape
        lists = {
            "maximum lengths": self.max_lengths,
            "source lengths": self.source_lengths,
            "ordinals": self.ordinals,
            "lists of constraints": self.constraints or None,
        }
        for name, values in lists.items():
            if values is not None and len(values) != n:
                raise ValueError(f"expected {n} {name}, one per sentence, got {len(values)}")
        if min(self.max_lengths, default=0) < 0:
            raise ValueError("maximum lengths must not be negative")
        invalid_ids = [i for i in (self.end, *self.forbidden) if not 0 <= i < size]
        if invalid_ids:
            raise ValueError(f"token ids must be below the vocabulary size {size}, got {invalid_ids[0]}")

    @cached_property
    def banned(self) -> Int[Tensor, " F"]:
        """Unique forbidden tokens, on the device of the logits."""
        ids = sorted(set(self.forbidden))
        return torch.tensor(ids, dtype=torch.int64, device=self.prefix_output.logits.device)

    def begin(self) -> tuple[list[int], StepOutput]:
        """Return the sentences with a maximum length above 0, and the output for their prefixes."""
        sentences = [b for b, max_length in enumerate(self.max_lengths) if max_length > 0]
        if len(sentences) in (0, len(self.max_lengths)):
            return sentences, self.prefix_output
        logits, state, attention = self.prefix_output
        kept_attention = None if attention is None else attention[sentences]
        return sentences, StepOutput(logits[sentences], state.keep(sentences), kept_attention)

    def wanted(self, sentences: Sequence[int], running: Sequence[int]) -> Sequence[int]:
        """Return which of the ``running`` indices into ``sentences`` go on after a step."""
        unwanted = () if self.on_step is None else self.on_step()
        if not unwanted:
            return running
        numbers = range(len(self.max_lengths)) if self.ordinals is None else self.ordinals
        return [i for i in running if numbers[sentences[i]] not in unwanted]

    def constrained(self, sentences: Sequence[int], width: int = 1) -> ConstrainedRows | None:
        """Return the states of the constraints of ``width`` hypotheses of each sentence; None without any."""
        if not any(self.constraints):
            return None
        return ConstrainedRows((self.constraints[b] for b in sentences for _ in range(width)), self.end)


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence, with the terms of its score.

    Args:
        ids: the generated tokens, without the prompt and without the end token.
        log_probs: natural logarithm of the model's probability of each generated token, including the end
            token if ``finished``; so ``len(log_probs) == len(ids) + finished``.
        finished: whether the end token was generated; otherwise truncated at the maximum length.
        score: the result of `heedful.decoding.scoring.score`.
        coverage_penalty: coverage term of the score, at most 0; 0 without a coverage penalty.
        violated: names of the constraints because of which the output is incomplete: those that it does not
            hold since it was cut, or that leave no token possible. Empty if ``finished``.
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finished: bool
    score: float
    coverage_penalty: float = 0.0
    violated: tuple[str, ...] = ()
