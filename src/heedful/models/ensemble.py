"""An ensemble: several models with one vocabulary, whose probabilities of the next token are averaged.

    p(token | …) = 1/M sum_m p_m(token | …)

Its hidden states are those of the members side by side, ``[T, d_1 + … + d_M]``, and its head returns log p
instead of logits, whose softmax is p.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.models.base import Model
from heedful.nn.layout import Layout, Tokens


@runtime_checkable
class Member(Protocol):
    """What an ensemble needs of a model: a `Model`, or one prepared for decoding."""

    heads: Any

    def start(self, source: Any) -> Any:
        """See `Model.start`."""
        ...

    def extend(self, tokens: Tokens, state: Any) -> tuple[Tensor, Any]:
        """See `Model.extend`."""
        ...


@dataclass
class EnsembleState:
    """The state of each member, for the same hypotheses (`heedful.nn.state.State`)."""

    members: tuple[Any, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of tokens of each hypothesis."""
        lengths: tuple[int, ...] = self.members[0].lengths
        return lengths

    def next_layout(self, lengths: Sequence[int]) -> Layout:
        """See `State.next_layout`."""
        layout: Layout = self.members[0].next_layout(lengths)
        return layout

    def select(self, rows: Int[Tensor, " M"]) -> "EnsembleState":
        """See `State.select`."""
        return EnsembleState(tuple(state.select(rows) for state in self.members))

    def expand(self, width: int) -> "EnsembleState":
        """See `State.expand`."""
        return EnsembleState(tuple(state.expand(width) for state in self.members))

    def keep(self, sentences: Sequence[int]) -> "EnsembleState":
        """See `State.keep`."""
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


class MeanOfMembers:
    """The members, called together: ``start``, ``extend``, `step` and `log_probs`.

    Args:
        members: the models.

    Attributes:
        heads: the head ``token``, which computes log p of hidden states.
    """

    alignment_taps: tuple[str, ...] = ()
    """Empty: there is no attention of the ensemble."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(members)
        self.heads = {"token": self.log_probs}
        self._widths: list[int] = []

    def start(self, source: Any) -> EnsembleState:
        """Read the source with every member; see `Model.start`."""
        return EnsembleState(tuple(member.start(source) for member in self.members))

    def extend(self, tokens: Tokens, state: EnsembleState) -> tuple[Float[Tensor, "T d"], EnsembleState]:
        """Append the next tokens to every hypothesis of every member; see `Model.extend`."""
        pairs = zip(self.members, state.members, strict=True)
        extended = [member.extend(tokens, own) for member, own in pairs]
        return self.side_by_side([hidden for hidden, _ in extended]), EnsembleState(
            tuple(own for _, own in extended)
        )

    def step(
        self, ids: Int[Tensor, " N"], state: EnsembleState
    ) -> tuple[Float[Tensor, "N V"], EnsembleState]:
        """Append one token to every hypothesis; return log p of the next ones."""
        logits, states = list[Tensor](), list[Any]()
        for member, own in zip(self.members, state.members, strict=True):
            if (step := getattr(member, "step", None)) is not None:
                next_logits, next_state = step(ids, own)
            else:
                hidden, next_state = member.extend(Tokens(ids, own.next_layout((1,) * len(ids))), own)
                next_logits = member.heads["token"](hidden)
            logits.append(next_logits)
            states.append(next_state)
        return mean_of_probabilities(logits), EnsembleState(tuple(states))

    def side_by_side(self, hidden_states: Sequence[Float[Tensor, "T _"]]) -> Float[Tensor, "T d"]:
        """Return the hidden states of all members as one."""
        self._widths = [hidden.shape[-1] for hidden in hidden_states]
        return torch.cat(list(hidden_states), dim=-1)

    def log_probs(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, "T V"]:
        """Return log p, given hidden states of `extend` or `side_by_side`."""
        parts = hidden.split(self._widths, dim=-1)
        return mean_of_probabilities(
            [member.heads["token"](part) for member, part in zip(self.members, parts, strict=True)]
        )


def mean_of_probabilities(logits: Sequence[Float[Tensor, "T V"]]) -> Float[Tensor, "T V"]:
    """Return the logarithm of the mean of the probabilities that several logits give."""
    log_probs = torch.stack([each.float().log_softmax(-1) for each in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))


class _Head(nn.Module):
    def __init__(self, mean: MeanOfMembers) -> None:
        super().__init__()
        self.mean = mean

    def forward(self, hidden: Tensor) -> Tensor:
        return self.mean.log_probs(hidden)


class EnsembleModel(Model):
    """An ensemble as a model, which gives scores, likelihoods and outputs.

    Args:
        members: models with the same vocabulary and kinds of inputs.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.mean = MeanOfMembers(members)
        self.heads = nn.ModuleDict({"token": _Head(self.mean)})

    def forward(self, inputs: Any, source: Any = None) -> Float[Tensor, "T d"]:
        """Return the hidden states of all members, side by side."""
        arguments = (inputs,) if source is None else (inputs, source)
        return self.mean.side_by_side([member(*arguments) for member in self.members])

    def start(self, source: Any) -> Any:
        """See `MeanOfMembers.start`."""
        return self.mean.start(source)

    def extend(self, tokens: Tokens, state: Any) -> Any:
        """See `MeanOfMembers.extend`."""
        return self.mean.extend(tokens, state)

    def step(self, ids: Int[Tensor, " N"], state: EnsembleState) -> Any:
        """See `MeanOfMembers.step`."""
        return self.mean.step(ids, state)
