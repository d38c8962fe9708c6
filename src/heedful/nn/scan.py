"""A loop over time in which finished sequences drop out.

Packed tokens ``[T, ...]`` lie sequence after sequence. A recurrence wants them step after step, with
the longest sequences first, so that those still running are always the first rows of the batch. No
padding exists in between, so nothing can leak from it, and no step computes what nobody reads.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from heedful.nn.layout import Layout

Carry = tuple[Tensor | None, ...]
Step = Callable[[tuple[Tensor, ...], Carry], tuple[Carry, Carry]]


class _Permute(torch.autograd.Function):
    """``x[order]`` for a permutation; the gradient is ``x[inverse]``, a gather and not a scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        order, inverse = ctx.saved_tensors
        return _Permute.apply(grads[0], inverse, order), None, None


@dataclass(frozen=True, eq=False)
class TimeMajor:
    """The order of a layout's tokens by steps, longest sequences first.

    Args:
        sizes: how many sequences are still running at each step.
        rows: the sequences in that order, and ``ranks`` the way back.
        tokens: the index that brings packed tokens into it, and ``places`` the way back.
    """

    sizes: tuple[int, ...]
    rows: Int[Tensor, " B"]
    ranks: Int[Tensor, " B"]
    tokens: Int[Tensor, " T"]
    places: Int[Tensor, " T"]

    @classmethod
    def of(cls, layout: Layout, *, reverse: bool = False) -> "TimeMajor":
        """The order for ``layout``, with every sequence read from its end where ``reverse``."""
        order = layout._memo("time major", lambda: cls._made(layout))
        return layout._memo("time major, reversed", lambda: order._reversed(layout)) if reverse else order

    @classmethod
    def _made(cls, layout: Layout) -> "TimeMajor":
        lengths = layout.lengths
        longest_first = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        rows = torch.tensor(longest_first, dtype=torch.int64, device=layout.device)
        ranks = torch.argsort(rows)
        tokens = torch.argsort(layout.within * len(lengths) + ranks[layout.sequence])
        ends = Counter(lengths)
        ended = accumulate(ends[length] for length in range(layout.max_length))
        sizes = tuple(len(lengths) - n for n in ended)
        return cls(sizes, rows, ranks, tokens, torch.argsort(tokens))

    def _reversed(self, layout: Layout) -> "TimeMajor":
        # layout.backwards is its own inverse, so it leads to the way back too.
        tokens, places = layout.backwards[self.tokens], self.places[layout.backwards]
        return TimeMajor(self.sizes, self.rows, self.ranks, tokens, places)

    @property
    def rows_stay(self) -> bool:
        """Whether all sequences have one length, and so keep their order."""
        return not self.sizes or self.sizes[0] == self.sizes[-1] == len(self.rows)

    @property
    def _tokens_stay(self) -> bool:
        return self.rows_stay and len(self.sizes) <= 1

    def enter(self, x: Tensor) -> Tensor:
        """Packed ``[T, ...]`` to steps ``[T, ...]``."""
        if self._tokens_stay:
            return x
        out: Tensor = _Permute.apply(x, self.tokens, self.places)
        return out

    def leave(self, x: Tensor) -> Tensor:
        """Steps ``[T, ...]`` back to packed ``[T, ...]``."""
        if self._tokens_stay:
            return x
        out: Tensor = _Permute.apply(x, self.places, self.tokens)
        return out


def scan(step: Step, order: TimeMajor, inputs: tuple[Tensor, ...], carry: Carry) -> tuple[Carry, Carry]:
    """Run ``step`` over time.

    Args:
        step: ``step(inputs_t, carry) -> (outputs, carry)`` for the n sequences that still run; all are
            tuples of tensors with n rows (in outputs and carry also None, which stays None).
        order: the steps.
        inputs: tensors ``[T, ...]`` in that order (`TimeMajor.enter`), T > 0.
        carry: what passes from step to step, with B rows, in the order of the layout.

    Returns:
        The outputs of all steps, ``[T, ...]``, in the order of steps; and every sequence's carry after
        its own last token, in the order of the layout. A sequence without tokens keeps its carry.
    """
    if not order.rows_stay:
        carry = _each(carry, lambda c: c.index_select(0, order.rows))
    finished: list[Carry] = []
    outputs: list[Carry] = []
    running = len(order.rows)
    for now in zip(*(x.split(list(order.sizes)) for x in inputs), strict=True):
        n = len(now[0])
        if n < running:
            finished.append(_each(carry, lambda c, n=n: c[n:]))
            carry, running = _each(carry, lambda c, n=n: c[:n]), n
        output, carry = step(now, carry)
        outputs.append(output)
    carry = _joined([carry, *reversed(finished)])
    if not order.rows_stay:
        carry = _each(carry, lambda c: c.index_select(0, order.ranks))
    return _joined(outputs), carry


def _each(values: Carry, change: Callable[[Tensor], Tensor]) -> Carry:
    return tuple(None if value is None else change(value) for value in values)


def _joined(parts: list[Carry]) -> Carry:
    """Join tuples of tensors along their rows, place by place."""
    if len(parts) == 1:
        return parts[0]
    joined = []
    for values in zip(*parts, strict=True):
        present = [value for value in values if value is not None]
        joined.append(torch.cat(present) if present else None)
    return tuple(joined)
