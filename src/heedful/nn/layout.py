"""Packed sequences: the boundaries of sequences concatenated along one axis.

Axes used throughout `heedful.nn`:

| letter | axis |
|---|---|
| T | all real tokens of a batch, sequences concatenated |
| B | sequences |
| S | padded length of the sequences |
| d | width of the model |

`heedful.nn.attention` lists those of queries, keys and heads.

Between blocks, activations are ``[T, d]``, without padding. Only modules that mix positions use the
`Layout`; those that need padded tensors convert with `Layout.pad` and `Layout.unpad`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedful.nn.lazy import lazy

Ids = Sequence[int] | np.ndarray
Value = TypeVar("Value")


class _Pad(torch.autograd.Function):
    """Scatter tokens into a zero-padded tensor; the gradient is `_Unpad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, n_slots: int) -> Tensor:
        ctx.save_for_backward(slots)
        return x.new_zeros(n_slots, *x.shape[1:]).index_copy_(0, slots, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (slots,) = ctx.saved_tensors
        return _Unpad.apply(grads[0], slots), None, None


class _Unpad(torch.autograd.Function):
    """Gather tokens from a padded tensor; the gradient is `_Pad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.n_slots = x.shape[0]
        return x.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (slots,) = ctx.saved_tensors
        return _Pad.apply(grads[0], slots, ctx.n_slots), None


_READ_WHEN_COMPILED = (
    *("n_sequences", "n_tokens", "max_length", "end", "is_rectangular", "is_new", "has_empty"),
    *("length_tensor", "start_tensor", "slots", "positions", "real"),
)


@dataclass(frozen=True, eq=False)
class Layout:
    """Lengths of the sequences packed in ``[T, ...]``.

    Args:
        lengths: number of tokens of each sequence; may be zero.
        starts: position of the first token of each sequence: zero in training; in decoding, the number of
            previous tokens of the sequence.
        device: device of the index tensors.

    A layout is immutable; derived values are computed on first use and cached.
    """

    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    device: torch.device

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        starts: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> "Layout":
        """Build a layout from lengths and, optionally, start positions."""
        lengths = tuple(int(n) for n in lengths)
        starts = (0,) * len(lengths) if starts is None else tuple(int(n) for n in starts)
        if len(starts) != len(lengths):
            raise ValueError(
                f"expected one start per length, got {len(lengths)} lengths, {len(starts)} starts"
            )
        if any(n < 0 for n in (*lengths, *starts)):
            raise ValueError("lengths and starts must not be negative")
        return cls(lengths, starts, torch.device(device))

    @lazy
    def n_sequences(self) -> int:
        """B, the number of sequences."""
        return len(self.lengths)

    @lazy
    def n_tokens(self) -> int:
        """T, the number of tokens."""
        return sum(self.lengths)

    @lazy
    def max_length(self) -> int:
        """S, the length of the longest sequence."""
        return max(self.lengths, default=0)

    @lazy
    def has_empty(self) -> bool:
        """Whether any sequence has no tokens."""
        return 0 in self.lengths

    @lazy
    def is_new(self) -> bool:
        """Whether every sequence starts at position 0."""
        return not any(self.starts)

    @lazy
    def end(self) -> int:
        """One more than the largest position, or 0 without tokens."""
        ends = (s + n for s, n in zip(self.starts, self.lengths, strict=True) if n)
        return self.max_length if self.is_new else max(ends, default=0)

    @lazy
    def is_rectangular(self) -> bool:
        """Whether all lengths are equal, so that padding is only a reshape."""
        return self.n_tokens == self.n_sequences * self.max_length

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    @lazy
    def length_tensor(self) -> Int[Tensor, " B"]:
        """The lengths as a tensor."""
        return self._tensor(self.lengths)

    @lazy
    def start_tensor(self) -> Int[Tensor, " B"]:
        """The starts as a tensor."""
        return self._tensor(self.starts)

    @lazy
    def offsets(self) -> Int[Tensor, " _"]:
        """Index of the first token of each sequence in ``[T]``, then T (``cu_seqlens`` of kernels)."""
        return self._tensor((0, *accumulate(self.lengths)))

    @lazy
    def sequence(self) -> Int[Tensor, " T"]:
        """For each token, the index of its sequence."""
        rows = torch.arange(self.n_sequences, device=self.device)
        return rows.repeat_interleave(self.length_tensor, output_size=self.n_tokens)

    @lazy
    def within(self) -> Int[Tensor, " T"]:
        """For each token, its index in its sequence, from 0."""
        return torch.arange(self.n_tokens, device=self.device) - self.offsets[self.sequence]

    @lazy
    def positions(self) -> Int[Tensor, " T"]:
        """For each token, its position: the start of its sequence plus its index in it."""
        if self.is_new:
            return self.within
        return self.within + self.start_tensor[self.sequence]

    @lazy
    def slots(self) -> Int[Tensor, " T"]:
        """For each token, its index in the flattened padded tensor ``[B * S]``."""
        return self.sequence * self.max_length + self.within

    @lazy
    def real(self) -> Bool[Tensor, "B S"]:
        """Which entries of the padded tensor are tokens (not padding)."""
        columns = torch.arange(self.max_length, device=self.device)
        return columns < self.length_tensor[:, None]

    @lazy
    def last(self) -> Int[Tensor, " B"]:
        """Index in ``[T]`` of the last token of each sequence (sequences must not be empty)."""
        if self.has_empty:
            raise ValueError("sequences must not be empty: an empty sequence has no last token")
        return self.offsets[1:] - 1

    @lazy
    def backwards(self) -> Int[Tensor, " T"]:
        """Index into ``[T]`` that reverses every sequence; it is its own inverse."""
        return (self.offsets[:-1] + self.offsets[1:] - 1)[self.sequence] - torch.arange(
            self.n_tokens, device=self.device
        )

    @property
    def with_past(self) -> "Layout":
        """Layout of all tokens from position 0 up to and including these."""
        return self if self.is_new else self.memo("with past", self._with_past)

    def _with_past(self) -> "Layout":
        lengths = tuple(s + n for s, n in zip(self.starts, self.lengths, strict=True))
        return Layout.of(lengths, device=self.device)

    def split_blocks(self, size: int) -> "Layout":
        """Split sequences into blocks of ``size`` tokens, each a sequence from position 0."""
        if not self.is_new:
            raise ValueError("sequences must start at position 0 to be split into blocks")
        if self.max_length <= size:
            return self
        return self.memo(("blocks", size), lambda: self._split_blocks(size))

    def _split_blocks(self, size: int) -> "Layout":
        blocks = [min(size, n - begin) for n in self.lengths for begin in range(0, n, size)]
        return Layout.of(blocks, device=self.device)

    def merge(self, width: int) -> "Layout":
        """Merge every ``width`` consecutive sequences into one (for example the beams of a sentence)."""
        if width == 1:
            return self
        if self.n_sequences % width:
            raise ValueError(f"number of sequences must be divisible by {width}, got {self.n_sequences}")
        return self.memo(("merge", width), lambda: self._merged(width))

    def _merged(self, width: int) -> "Layout":
        rows = range(0, self.n_sequences, width)
        return Layout.of([sum(self.lengths[r : r + width]) for r in rows], device=self.device)

    def prepare(self, *, ragged: bool = False) -> None:
        """Compute the values that a compiled model reads, so that its graph contains only tensors and counts.

        A graph that reads individual lengths would be recompiled for each combination of lengths.

        Args:
            ragged: treat the lengths as different even if they are equal, so that all batches use the same
                graph.
        """
        if ragged:
            self.__dict__["is_rectangular"] = False
        for name in _READ_WHEN_COMPILED:
            getattr(self, name)

    @lazy
    def acyclic(self) -> "Layout":
        """Equal layout for values that ``self`` caches to refer to, to avoid a reference cycle.

        In a cycle, masks and index tensors would stay in memory until the garbage collector runs.
        """
        return replace(self)

    @lazy
    def _cached(self) -> dict[Hashable, Any]:
        return {}

    def memo(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return ``make()``, cached under ``key``; within a compiled graph nothing is cached."""
        if torch.compiler.is_compiling():
            return make()
        if key not in self._cached:
            self._cached[key] = make()
        value: Value = self._cached[key]
        return value

    def pad(self, x: Tensor) -> Tensor:
        """Convert ``[T, ...]`` to ``[B, S, ...]``, padded with zeros."""
        shape = (self.n_sequences, self.max_length, *x.shape[1:])
        if self.is_rectangular:
            return x.reshape(shape)
        out: Tensor = _Pad.apply(x, self.slots, shape[0] * shape[1])
        return out.view(shape)

    def unpad(self, x: Tensor) -> Tensor:
        """Convert ``[B, S, ...]`` to ``[T, ...]``, dropping padding."""
        flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        if self.is_rectangular:
            return flat
        out: Tensor = _Unpad.apply(flat, self.slots)
        return out

    def select(self, sequences: Sequence[int]) -> "Layout":
        """Return the layout of the given sequences, in that order."""
        return Layout.of(
            [self.lengths[i] for i in sequences], [self.starts[i] for i in sequences], self.device
        )

    def to(self, device: torch.device | str) -> "Layout":
        """Return the layout with its tensors on ``device``."""
        return self if torch.device(device) == self.device else Layout.of(self.lengths, self.starts, device)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Packed token ids of several sequences, with their layout.

    Args:
        ids: the token ids.
        layout: boundaries of the sequences.
        segments: segment of each token in its sequence (first or second text of a pair), from 0; None if
            there is only one segment.
    """

    ids: Int[Tensor, " T"]
    layout: Layout
    segments: Int[Tensor, " T"] | None = None

    @classmethod
    def of(
        cls,
        sequences: Sequence[Ids],
        starts: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> "Tokens":
        """Pack sequences of ids, given as lists or arrays."""
        parts = [np.asarray(ids, dtype=np.int64) for ids in sequences]
        flat = torch.from_numpy(np.concatenate([*parts, np.zeros(0, dtype=np.int64)])).to(device)
        return cls(flat, Layout.of([len(part) for part in parts], starts, device))

    @classmethod
    def from_padded(cls, ids: Int[Tensor, "B S"], lengths: Sequence[int]) -> "Tokens":
        """Pack padded ids; entries beyond each length are ignored."""
        layout = Layout.of(lengths, device=ids.device)
        if layout.max_length > ids.shape[1]:
            raise ValueError(
                f"lengths must be at most the row length {ids.shape[1]}, got {layout.max_length}"
            )
        return cls(ids[torch.arange(ids.shape[1], device=ids.device) < layout.length_tensor[:, None]], layout)

    def split(self) -> list[list[int]]:
        """Return the ids of each sequence as a list."""
        return [part.tolist() for part in self.ids.split(list(self.layout.lengths))]

    def to(self, device: torch.device | str) -> "Tokens":
        """Return the tokens on ``device``."""
        segments = None if self.segments is None else self.segments.to(device, non_blocking=True)
        return Tokens(self.ids.to(device, non_blocking=True), self.layout.to(device), segments)
