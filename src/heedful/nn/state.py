"""Decoder state between steps.

A `State` has two parts. The *source* part is stored once per sentence: the memories that cross-attention
reads. The *hypothesis* part belongs to the generated sequences: keys and values of their tokens, recurrent
states, alignment histories. ``width`` hypotheses share a sentence: hypothesis n reads sentence
``n // width``. The beams of a sentence are thus ``width`` queries on one source, which is not copied.

Do not reuse a state that was passed to a model: caches are updated in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.nn.layout import Layout


@runtime_checkable
class Cache(Protocol):
    """Cache of one layer, with a row per hypothesis."""

    def select(self, rows: Int[Tensor, " M"]) -> "Cache":
        """Return the cache of the hypotheses ``rows``, in that order; rows may repeat."""
        ...


@runtime_checkable
class Memory(Protocol):
    """Source memory of one layer, with a row per sentence."""

    def select(self, sentences: Int[Tensor, " M"]) -> "Memory":
        """Return the memory of the given sentences, in that order."""
        ...


@runtime_checkable
class CachingMixer(Protocol):
    """A position mixer that can continue sequences."""

    def new_cache(self) -> Cache:
        """Return an empty cache."""
        ...


@runtime_checkable
class MemoryMixer(Protocol):
    """A position mixer that reads a source."""

    def make_memory(self, encoded: Float[Tensor, "T_s d_s"], layout: Layout) -> Memory:
        """Return the memory of encoded sentences."""
        ...


@dataclass
class KeyValueCache:
    """Keys and values of the tokens so far: ``[N, G, capacity, d_k]`` and ``[N, G, capacity, d_v]``.

    Capacity is preallocated and doubled when exhausted. Entries beyond the length of a row are zero or
    stale, and never visible.
    """

    keys: Float[Tensor, "N G C d_k"] | None = None
    values: Float[Tensor, "N G C d_v"] | None = None

    def append(
        self, keys: Float[Tensor, "N G S d_k"], values: Float[Tensor, "N G S d_v"], layout: Layout
    ) -> tuple[Float[Tensor, "N G K d_k"], Float[Tensor, "N G K d_v"]]:
        """Write the tokens of ``layout`` at their positions; return all keys and values so far."""
        length = layout.with_past.max_length
        self.keys = _with_capacity(self.keys, keys, length)
        self.values = _with_capacity(self.values, values, length)
        if len(set(layout.starts)) == 1 and layout.is_rectangular:
            span = slice(layout.starts[0], layout.starts[0] + layout.max_length)
            self.keys[:, :, span] = keys
            self.values[:, :, span] = values
        else:
            rows, columns, positions = layout.sequence, layout.within, layout.positions
            self.keys[rows, :, positions] = keys[rows, :, columns]
            self.values[rows, :, positions] = values[rows, :, columns]
        return self.keys[:, :, :length], self.values[:, :, :length]

    def select(self, rows: Int[Tensor, " M"]) -> "KeyValueCache":
        """Return the cache of the hypotheses ``rows``."""
        if self.keys is None or self.values is None:
            return KeyValueCache()
        return KeyValueCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))


def _with_capacity(buffer: Tensor | None, new: Tensor, length: int) -> Tensor:
    """Return ``buffer`` with a capacity of at least ``length``, grown by doubling and filled with zeros."""
    capacity = 0 if buffer is None else buffer.shape[2]
    if buffer is not None and capacity >= length:
        return buffer
    grown = new.new_zeros(new.shape[0], new.shape[1], max(length, 2 * capacity, 16), new.shape[3])
    if buffer is not None:
        grown[:, :, :capacity] = buffer
    return grown


@dataclass
class State:
    """Decoder state between two steps.

    Args:
        memories: source part, one entry per layer that reads the source.
        caches: hypothesis part, one entry per layer with a cache.
        lengths: number of tokens so far of each of N hypotheses, which is the position of the next token.
        width: number of hypotheses per sentence.
    """

    memories: Sequence[Memory]
    caches: Sequence[Cache]
    lengths: tuple[int, ...]
    width: int = 1

    def select(self, rows: Int[Tensor, " M"]) -> "State":
        """Reorder hypotheses (row n of the result continues row ``rows[n]``); keep the sentences.

        Row n must belong to the same sentence as row ``rows[n]``.
        """
        return replace(
            self,
            caches=[cache.select(rows) for cache in self.caches],
            lengths=tuple(self.lengths[i] for i in rows.tolist()),
        )

    def expand(self, width: int) -> "State":
        """Repeat every hypothesis ``width`` times in adjacent rows; the source part is shared."""
        rows = torch.arange(len(self.lengths)).repeat_interleave(width)
        rows = rows.to(self.device)
        return replace(self.select(rows), width=self.width * width)

    def keep(self, sentences: Sequence[int]) -> "State":
        """Keep only these sentences, in both parts."""
        indices = torch.tensor(list(sentences), dtype=torch.int64, device=self.device)
        rows = indices[:, None] * self.width + torch.arange(self.width, device=self.device)
        state = self.select(rows.flatten())
        return replace(state, memories=[memory.select(indices) for memory in self.memories])

    @property
    def device(self) -> torch.device:
        """Device of the caches (the CPU while they are empty)."""
        for part in (*self.caches, *self.memories):
            for value in vars(part).values():
                if isinstance(value, Tensor):
                    return value.device
        return torch.device("cpu")

    def next_layout(self, lengths: Sequence[int]) -> Layout:
        """Return the layout of the next ``lengths`` tokens of each hypothesis."""
        return Layout.of(lengths, self.lengths, self.device)

    def advanced(self, lengths: Sequence[int]) -> "State":
        """Return the state after ``lengths`` more tokens of each hypothesis were written to the caches."""
        new_lengths = tuple(a + b for a, b in zip(self.lengths, lengths, strict=True))
        return replace(self, lengths=new_lengths)
