"""What a decoder remembers between steps, made explicit.

A `State` has two halves. The *source* half belongs to sentences and is kept once for each: the
memories that cross-attention reads. The *hypothesis* half belongs to the sequences being written:
keys and values of their own tokens, recurrent states, alignment histories. ``width`` hypotheses
share a sentence: hypothesis n writes about sentence ``n // width``. So the beams of a sentence are
``width`` queries on one source, and nothing of the source is copied for them.

A state that has been passed to a model is spent: caches are written in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.nn.layout import Layout


@runtime_checkable
class Cache(Protocol):
    """What one layer remembers of each hypothesis."""

    def select(self, rows: Int[Tensor, " M"]) -> Any:
        """The cache of the hypotheses ``rows``, in that order; a row may be asked for twice."""
        ...


@runtime_checkable
class Memory(Protocol):
    """What one layer reads of each sentence."""

    def select(self, sentences: Int[Tensor, " M"]) -> Any:
        """The memory of some of the sentences, in that order."""
        ...


@dataclass
class KeyValueCache:
    """Keys and values of the tokens so far: ``[N, G, capacity, d_k]`` and ``[N, G, capacity, d_v]``.

    Room is preallocated and doubled when it runs out. What lies beyond a row's length is zero or
    stale, and never visible.
    """

    keys: Float[Tensor, "N G C d_k"] | None = None
    values: Float[Tensor, "N G C d_v"] | None = None

    def append(
        self, keys: Float[Tensor, "N G S d_k"], values: Float[Tensor, "N G S d_v"], layout: Layout
    ) -> tuple[Float[Tensor, "N G K d_k"], Float[Tensor, "N G K d_v"]]:
        """Write the tokens of ``layout`` at their positions; return all that is visible so far."""
        length = layout.through.max_length
        self.keys = _with_room(self.keys, keys, length)
        self.values = _with_room(self.values, values, length)
        if len(set(layout.starts)) == 1 and layout.is_rectangular:
            span = slice(layout.starts[0], layout.starts[0] + layout.max_length)
            self.keys[:, :, span] = keys
            self.values[:, :, span] = values
        else:
            rows, places, positions = layout.sequence, layout.within, layout.positions
            self.keys[rows, :, positions] = keys[rows, :, places]
            self.values[rows, :, positions] = values[rows, :, places]
        return self.keys[:, :, :length], self.values[:, :, :length]

    def select(self, rows: Int[Tensor, " M"]) -> "KeyValueCache":
        """The cache of the hypotheses ``rows``."""
        if self.keys is None or self.values is None:
            return KeyValueCache()
        return KeyValueCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))


def _with_room(held: Tensor | None, new: Tensor, length: int) -> Tensor:
    """``held`` with at least ``length`` places, grown by doubling; zeros where nothing was written."""
    have = 0 if held is None else held.shape[2]
    if held is not None and have >= length:
        return held
    room = new.new_zeros(new.shape[0], new.shape[1], max(length, 2 * have, 16), new.shape[3])
    if held is not None:
        room[:, :, :have] = held
    return room


@dataclass
class State:
    """Everything between two steps of decoding.

    Args:
        memories: the source half, one entry for each layer that reads the source.
        caches: the hypothesis half, one entry for each layer that remembers.
        lengths: tokens so far of each hypothesis (N of them); the next token's position.
        width: hypotheses that share a sentence.
    """

    memories: list[Any]
    caches: list[Any]
    lengths: tuple[int, ...]
    width: int = 1

    def select(self, rows: Int[Tensor, " M"]) -> "State":
        """Reorder hypotheses (row n of the result continues row ``rows[n]``); sentences stay.

        Row n must belong to the same sentence as row ``rows[n]``.
        """
        return replace(
            self,
            caches=[cache.select(rows) for cache in self.caches],
            lengths=tuple(self.lengths[i] for i in rows.tolist()),
        )

    def widen(self, width: int) -> "State":
        """Repeat every hypothesis ``width`` times, side by side; the source half is shared."""
        rows = torch.arange(len(self.lengths)).repeat_interleave(width)
        rows = rows.to(self.device)
        return replace(self.select(rows), width=self.width * width)

    def keep(self, sentences: Sequence[int]) -> "State":
        """Drop all sentences but these, from both halves."""
        kept = torch.tensor(list(sentences), dtype=torch.int64, device=self.device)
        rows = kept[:, None] * self.width + torch.arange(self.width, device=self.device)
        state = self.select(rows.flatten())
        return replace(state, memories=[memory.select(kept) for memory in self.memories])

    @property
    def device(self) -> torch.device:
        """Where the caches live (the CPU while they are empty)."""
        for part in (*self.caches, *self.memories):
            for value in vars(part).values():
                if isinstance(value, Tensor):
                    return value.device
        return torch.device("cpu")

    def next_layout(self, lengths: Sequence[int]) -> Layout:
        """The layout of ``lengths`` further tokens for each hypothesis."""
        return Layout.of(lengths, self.lengths, self.device)

    def advanced(self, lengths: Sequence[int]) -> "State":
        """The state after ``lengths`` more tokens of each hypothesis were written to the caches."""
        after = tuple(a + b for a, b in zip(self.lengths, lengths, strict=True))
        return replace(self, lengths=after)
