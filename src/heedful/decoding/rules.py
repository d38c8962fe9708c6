"""Settings of all decoders that constrain the tokens of an output: its minimum length and repetitions.

Only generated tokens count, not a source or prompt.
"""

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from heedful.config import Config
from heedful.decoding.constraints import Blocked, Constraint
from heedful.decoding.protocol import MaxLength


class OutputRules(Config):
    """What all decoders have in common: the lengths of outputs, and rules about repetitions.

    Args:
        max_length: maximum number of generated tokens.
        min_length: number of generated tokens before the end token is allowed; it does not count itself.
        repetition_penalty: divisor of positive logits of tokens that the output already has, and factor of
            negative ones (Keskar et al. 2019, section 4.1); 1: none. Log-probabilities and scores are those
            after the penalty.
        no_repeat_ngram: no sequence of so many tokens occurs twice in the output (Paulus et al. 2018,
            section 2.5); null: any may. In transformers: ``no_repeat_ngram_size``.
    """

    kind: str
    max_length: MaxLength = MaxLength()
    min_length: int = Field(default=0, ge=0)
    repetition_penalty: float = Field(default=1.0, gt=0)
    no_repeat_ngram: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _lengths_fit(self) -> "OutputRules":
        cap = self.max_length.cap
        if cap is not None and self.min_length > cap:
            raise ValueError(f"min_length must be at most max_length.cap ({cap}), got {self.min_length}")
        return self

    def constraints(self) -> list[Constraint]:
        """Return the constraints of these settings; those that change nothing are left out."""
        rules: list[Constraint] = []
        if self.min_length:
            rules.append(MinLength(self.min_length))
        if self.repetition_penalty != 1:
            rules.append(RepetitionPenalty(self.repetition_penalty))
        if self.no_repeat_ngram is not None:
            rules.append(NoRepeatedNgram(self.no_repeat_ngram))
        return rules


class MinLength(Constraint):
    """The output has at least ``n`` tokens. The state is their number."""

    def __init__(self, n: int) -> None:
        self.n, self.name = n, f"min_length={n}"

    def start(self) -> int:
        """Return 0."""
        return 0

    def advance(self, state: int, token: int) -> int:
        """Count the token."""
        return state + 1

    def is_met(self, state: int) -> bool:
        """Return whether there are enough tokens."""
        return state >= self.n


class RepetitionPenalty(Constraint):
    """Tokens that the output already has are less probable. The state is the set of them."""

    def __init__(self, penalty: float) -> None:
        self.penalty, self.name = penalty, f"repetition_penalty={penalty:g}"

    def start(self) -> frozenset[int]:
        """Return the empty set."""
        return frozenset()

    def advance(self, state: frozenset[int], token: int) -> frozenset[int]:
        """Add the token."""
        return state if token in state else state | {token}

    def adjust(self, logits: Float[Tensor, " V"], state: frozenset[int]) -> None:
        """Divide positive logits by the penalty, and multiply negative ones."""
        if state:
            ids = logits.new_tensor(sorted(state)).long()
            values = logits[ids]
            changed = torch.where(values < 0, values * self.penalty, values / self.penalty)
            limits = torch.finfo(values.dtype)
            logits[ids] = changed.clamp(limits.min, limits.max).where(values.isfinite(), values)


class NoRepeatedNgram(Constraint):
    """No sequence of ``n`` tokens occurs twice. The state is all tokens."""

    def __init__(self, n: int) -> None:
        self.n, self.name = n, f"no_repeat_ngram={n}"

    def start(self) -> tuple[int, ...]:
        """Return no tokens."""
        return ()

    def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """Append the token."""
        return (*state, token)

    def block(self, state: tuple[int, ...], blocked: Blocked) -> None:
        """Block the tokens that followed earlier occurrences of the last ``n - 1`` tokens."""
        n_before = self.n - 1
        if len(state) < self.n:
            return
        ids = np.asarray(state)
        if not n_before:
            blocked[ids] = True
            return
        windows = np.lib.stride_tricks.sliding_window_view(ids, n_before)
        starts = np.flatnonzero((windows[:-1] == windows[-1]).all(axis=1))
        blocked[ids[starts + n_before]] = True
