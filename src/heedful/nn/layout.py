"""Packed sequences: which of the tokens in one long row belong together.

Axes used throughout `heedful.nn`:

| letter | axis |
|---|---|
| T | all real tokens of a batch, one sequence after another |
| B | sequences |
| S, Q, K | positions of the longest sequence; of the longest row of queries; of keys |
| H, G | heads; heads of keys and values (G divides H) |
| d, d_k, d_v | width of the model, of a query or key, of a value |

Between blocks, activations are ``[T, d]`` and no padding exists. Only a part that mixes positions
looks at the `Layout`; one that needs a rectangle makes it with `Layout.pad` and leaves it with
`Layout.unpad`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedful.nn.lazy import lazy
from heedful.nn.visibility import Visibility

Ids = Sequence[int] | np.ndarray


class _Pad(torch.autograd.Function):
    """Scatter tokens into a zeroed rectangle; the gradient is the gather, and the other way about."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, n_slots: int) -> Tensor:
        ctx.save_for_backward(slots)
        return x.new_zeros(n_slots, *x.shape[1:]).index_copy_(0, slots, x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (slots,) = ctx.saved_tensors
        return _Unpad.apply(grads[0], slots), None, None


class _Unpad(torch.autograd.Function):
    """Gather tokens out of a rectangle; the gradient is `_Pad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.n_slots = x.shape[0]
        return x.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (slots,) = ctx.saved_tensors
        return _Pad.apply(grads[0], slots, ctx.n_slots), None


_READ_WHEN_COMPILED = (
    *("n_sequences", "n_tokens", "max_length", "end", "is_rectangular", "is_new", "has_empty"),
    *("length_tensor", "start_tensor", "slots", "positions", "real"),
)


@dataclass(frozen=True, eq=False)
class Layout:
    """The lengths of the sequences that lie one after another in ``[T, ...]``.

    Args:
        lengths: tokens of each sequence; zero is allowed.
        starts: the position of each sequence's first token. Zero in training; in decoding, how many
            tokens of that sequence came before.
        device: where the index tensors live.

    Everything derived is computed once, on first use, and kept: a layout never changes.
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
        """Make a layout from plain lengths (and the positions at which the sequences start)."""
        lengths = tuple(int(n) for n in lengths)
        starts = (0,) * len(lengths) if starts is None else tuple(int(n) for n in starts)
        if len(starts) != len(lengths):
            raise ValueError(f"{len(lengths)} lengths but {len(starts)} starts")
        if any(n < 0 for n in (*lengths, *starts)):
            raise ValueError("lengths and starts cannot be negative")
        return cls(lengths, starts, torch.device(device))

    @lazy
    def n_sequences(self) -> int:
        """B."""
        return len(self.lengths)

    @lazy
    def n_tokens(self) -> int:
        """T."""
        return sum(self.lengths)

    @lazy
    def max_length(self) -> int:
        """S."""
        return max(self.lengths, default=0)

    @lazy
    def has_empty(self) -> bool:
        """Whether some sequence has no token."""
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
        """Whether all lengths agree, so that padding is a mere change of shape."""
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
        """Where each sequence begins in ``[T]``; the last entry is T (the kernels' ``cu_seqlens``)."""
        return self._tensor((0, *accumulate(self.lengths)))

    @lazy
    def sequence(self) -> Int[Tensor, " T"]:
        """For each token, the number of its sequence."""
        rows = torch.arange(self.n_sequences, device=self.device)
        return rows.repeat_interleave(self.length_tensor, output_size=self.n_tokens)

    @lazy
    def within(self) -> Int[Tensor, " T"]:
        """For each token, its place in its sequence, from 0."""
        return torch.arange(self.n_tokens, device=self.device) - self.offsets[self.sequence]

    @lazy
    def positions(self) -> Int[Tensor, " T"]:
        """For each token, its position: the start of its sequence plus its place within."""
        if self.is_new:
            return self.within
        return self.within + self.start_tensor[self.sequence]

    @lazy
    def slots(self) -> Int[Tensor, " T"]:
        """For each token, its slot in the flattened rectangle ``[B * S]``."""
        return self.sequence * self.max_length + self.within

    @lazy
    def real(self) -> Bool[Tensor, "B S"]:
        """Which slots of the rectangle hold a token."""
        places = torch.arange(self.max_length, device=self.device)
        return places < self.length_tensor[:, None]

    @lazy
    def last(self) -> Int[Tensor, " B"]:
        """The index in ``[T]`` of each sequence's last token (sequences must not be empty)."""
        if self.has_empty:
            raise ValueError("an empty sequence has no last token")
        return self.offsets[1:] - 1

    @lazy
    def backwards(self) -> Int[Tensor, " T"]:
        """The index that reverses every sequence in place; applying it twice changes nothing."""
        return (self.offsets[:-1] + self.offsets[1:] - 1)[self.sequence] - torch.arange(
            self.n_tokens, device=self.device
        )

    @property
    def through(self) -> "Layout":
        """The layout of everything up to and including these tokens, from position 0."""
        return self if self.is_new else self._memo("through", self._through)

    def _through(self) -> "Layout":
        lengths = tuple(s + n for s, n in zip(self.starts, self.lengths, strict=True))
        return Layout.of(lengths, device=self.device)

    def cut(self, size: int) -> "Layout":
        """The same tokens, every stretch of ``size`` of a sequence as one of its own, from position 0 on."""
        if not self.is_new:
            raise ValueError("only sequences from position 0 on can be cut into blocks")
        return self if self.max_length <= size else self._memo(("cut", size), lambda: self._cut(size))

    def _cut(self, size: int) -> "Layout":
        pieces = [min(size, n - begin) for n in self.lengths for begin in range(0, n, size)]
        return Layout.of(pieces, device=self.device)

    def merge(self, width: int) -> "Layout":
        """Join every ``width`` neighbouring sequences into one (the beams of a sentence, say)."""
        if width == 1:
            return self
        if self.n_sequences % width:
            raise ValueError(f"{self.n_sequences} sequences cannot be joined {width} by {width}")
        return self._memo(("merge", width), lambda: self._merged(width))

    def _merged(self, width: int) -> "Layout":
        rows = range(0, self.n_sequences, width)
        return Layout.of([sum(self.lengths[r : r + width]) for r in rows], device=self.device)

    def sees(
        self,
        keys: "Layout",
        *,
        causal: bool = False,
        window: int | None = None,
        block: int | None = None,
        allowed: Bool[Tensor, "..."] | None = None,
        earlier_blocks: int = 0,
        key_stride: int = 1,
    ) -> Visibility:
        """Which of ``keys`` each token of this layout, as a query, sees; kept for the next caller."""
        reach = (causal, window, block, allowed, earlier_blocks, key_stride)
        if torch.compiler.is_compiling():  # the copies would have to count everything anew
            return Visibility(self, keys, *reach)
        make = lambda: Visibility(self._copy, keys._copy, *reach)  # noqa: E731
        if allowed is not None:
            return make()
        return self._memo(("sees", None if keys is self else keys, *reach), make)

    def prepare(self, *, ragged: bool = False) -> None:
        """Compute now what a compiled model reads, so that only tensors and counts enter its graph.

        Lengths as such must not be read there: a graph would be made for each combination of them.

        Args:
            ragged: treat the layout as one whose lengths differ, even if they happen to agree, so that one
                graph serves all.
        """
        if ragged:
            self.__dict__["is_rectangular"] = False
        for name in _READ_WHEN_COMPILED:
            getattr(self, name)

    @lazy
    def _copy(self) -> "Layout":
        """An equal layout for what is kept here, so that nothing kept here holds this one.

        In a cycle, masks and index tensors would stay in memory until the garbage collector looks.
        """
        return replace(self)

    @lazy
    def _kept(self) -> dict[Any, Any]:
        return {}

    def _memo(self, key: Any, make: Any) -> Any:
        if torch.compiler.is_compiling():
            return make()
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def pad(self, x: Tensor) -> Tensor:
        """``[T, ...] -> [B, S, ...]``, zero where there is no token."""
        shape = (self.n_sequences, self.max_length, *x.shape[1:])
        if self.is_rectangular:
            return x.reshape(shape)
        out: Tensor = _Pad.apply(x, self.slots, shape[0] * shape[1])
        return out.view(shape)

    def unpad(self, x: Tensor) -> Tensor:
        """``[B, S, ...] -> [T, ...]``, the inverse of `pad` on real tokens."""
        flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        if self.is_rectangular:
            return flat
        out: Tensor = _Unpad.apply(flat, self.slots)
        return out

    def select(self, sequences: Sequence[int]) -> "Layout":
        """The layout of some of the sequences, in the order asked for."""
        return Layout.of(
            [self.lengths[i] for i in sequences], [self.starts[i] for i in sequences], self.device
        )

    def to(self, device: torch.device | str) -> "Layout":
        """The same layout with its tensors on another device."""
        return self if torch.device(device) == self.device else Layout.of(self.lengths, self.starts, device)


@dataclass(frozen=True, eq=False)
class Tokens:
    """The ids of several sequences, packed: ``ids: [T]`` and the layout that tells them apart.

    Args:
        ids: the tokens.
        layout: which of them belong together.
        segments: which part of its sequence each token belongs to (the first or the second text of a
            pair), from 0; None where there is but one.
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
        """Pack sequences of ids: lists, or arrays as a token store gives them."""
        parts = [np.asarray(ids, dtype=np.int64) for ids in sequences]
        flat = torch.from_numpy(np.concatenate([*parts, np.zeros(0, dtype=np.int64)])).to(device)
        return cls(flat, Layout.of([len(part) for part in parts], starts, device))

    @classmethod
    def from_padded(cls, ids: Int[Tensor, "B S"], lengths: Sequence[int]) -> "Tokens":
        """Pack a rectangle of ids; what lies beyond each length is dropped unread."""
        layout = Layout.of(lengths, device=ids.device)
        if layout.max_length > ids.shape[1]:
            raise ValueError(f"a length of {layout.max_length} in rows of {ids.shape[1]}")
        return cls(ids[torch.arange(ids.shape[1], device=ids.device) < layout.length_tensor[:, None]], layout)

    def split(self) -> list[list[int]]:
        """Back to lists of ids."""
        return [part.tolist() for part in self.ids.split(list(self.layout.lengths))]

    def to(self, device: torch.device | str) -> "Tokens":
        """The same tokens on another device."""
        segments = None if self.segments is None else self.segments.to(device, non_blocking=True)
        return Tokens(self.ids.to(device, non_blocking=True), self.layout.to(device), segments)
