"""Loop over time that removes finished sequences from the batch.

Packed tokens ``[T, ...]`` are ordered by sequence. A recurrence reads them by step, with the longest
sequences first, so that running sequences are always the first rows of the batch. There is no padding that
could leak into the results, and no wasted computation.
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
"""State from step to step, as in ``jax.lax.scan``."""
Step = Callable[[tuple[Tensor, ...], Carry], tuple[Carry, Carry]]


class _Permute(torch.autograd.Function):
    """Compute ``x[order]`` for a permutation; the gradient is a gather by ``inverse``, not a scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        order, inverse = ctx.saved_tensors
        return _Permute.apply(grads[0], inverse, order), None, None


@dataclass(frozen=True, eq=False)
class TimeMajor:
    """Tokens of a layout ordered by step, longest sequences first.

    Args:
        sizes: number of running sequences at each step.
        rows: the sequences in that order; ``ranks`` is the inverse.
        tokens: index that brings packed tokens into that order; ``positions`` is the inverse.
    """

    sizes: tuple[int, ...]
    rows: Int[Tensor, " B"]
    ranks: Int[Tensor, " B"]
    tokens: Int[Tensor, " T"]
    positions: Int[Tensor, " T"]

    @classmethod
    def of(cls, layout: Layout, *, reverse: bool = False) -> "TimeMajor":
        """Build the order of ``layout``; if ``reverse``, every sequence is read from its end."""
        order = layout.memo("time major", lambda: cls._made(layout))
        return layout.memo("time major, reversed", lambda: order._reversed(layout)) if reverse else order

    @classmethod
    def _made(cls, layout: Layout) -> "TimeMajor":
        lengths = layout.lengths
        longest_first = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        rows = torch.tensor(longest_first, dtype=torch.int64, device=layout.device)
        ranks = torch.argsort(rows)
        tokens = torch.argsort(layout.within * len(lengths) + ranks[layout.sequence])
        ends = Counter(lengths)
        n_ended = accumulate(ends[length] for length in range(layout.max_length))
        sizes = tuple(len(lengths) - n for n in n_ended)
        return cls(sizes, rows, ranks, tokens, torch.argsort(tokens))

    def _reversed(self, layout: Layout) -> "TimeMajor":
        # layout.backwards is its own inverse, so it also gives the inverse order.
        tokens, inverse = layout.backwards[self.tokens], self.positions[layout.backwards]
        return TimeMajor(self.sizes, self.rows, self.ranks, tokens, inverse)

    @property
    def equal_lengths(self) -> bool:
        """Whether all sequences have the same length, and so keep their order."""
        return not self.sizes or self.sizes[0] == self.sizes[-1] == len(self.rows)

    @property
    def _keeps_order(self) -> bool:
        return self.equal_lengths and len(self.sizes) <= 1

    def to_time_major(self, x: Tensor) -> Tensor:
        """Reorder packed tokens ``[T, ...]`` by step."""
        if self._keeps_order:
            return x
        out: Tensor = _Permute.apply(x, self.tokens, self.positions)
        return out

    def to_packed(self, x: Tensor) -> Tensor:
        """Reorder values by step ``[T, ...]`` to packed tokens."""
        if self._keeps_order:
            return x
        out: Tensor = _Permute.apply(x, self.positions, self.tokens)
        return out


def scan(step: Step, order: TimeMajor, inputs: tuple[Tensor, ...], carry: Carry) -> tuple[Carry, Carry]:
    """Run ``step`` over time.

    Args:
        step: ``step(inputs_t, carry) -> (outputs, carry)`` for the n running sequences; all are tuples of
            tensors with n rows (outputs and carry may contain None, which stays None).
        order: order of the steps.
        inputs: tensors ``[T, ...]`` in that order (`TimeMajor.to_time_major`), T > 0.
        carry: initial carry, with B rows, in the order of the layout.

    Returns:
        The outputs of all steps, ``[T, ...]``, ordered by step; and the carry of every sequence after its
        last token, in the order of the layout. A sequence without tokens keeps its carry.
    """
    if not order.equal_lengths:
        carry = _map_tensors(carry, lambda c: c.index_select(0, order.rows))
    finished: list[Carry] = []
    outputs: list[Carry] = []
    running = len(order.rows)
    for inputs_t in zip(*(x.split(list(order.sizes)) for x in inputs), strict=True):
        n = len(inputs_t[0])
        if n < running:
            finished.append(_map_tensors(carry, lambda c, n=n: c[n:]))
            carry, running = _map_tensors(carry, lambda c, n=n: c[:n]), n
        output, carry = step(inputs_t, carry)
        outputs.append(output)
    carry = _concatenate([carry, *reversed(finished)])
    if not order.equal_lengths:
        carry = _map_tensors(carry, lambda c: c.index_select(0, order.ranks))
    return _concatenate(outputs), carry


def _map_tensors(values: Carry, function: Callable[[Tensor], Tensor]) -> Carry:
    return tuple(None if value is None else function(value) for value in values)


def _concatenate(parts: list[Carry]) -> Carry:
    """Concatenate tuples of tensors elementwise along their rows."""
    if len(parts) == 1:
        return parts[0]
    concatenated = []
    for values in zip(*parts, strict=True):
        present = [value for value in values if value is not None]
        concatenated.append(torch.cat(present) if present else None)
    return tuple(concatenated)
