"""Decoding state of the native engine (compare `heedful.nn.state`).

Reordering beams copies no keys and values: every hypothesis writes to its own cache line, and a table of
ancestors maps each position to the line that holds it. Removing a sentence removes its rows from the tables;
its cache lines remain, unused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32

from heedful.engine.running import Numbers, Room, Rows
from heedful.nn.layout import Layout


@dataclass
class Hypotheses:
    """N hypotheses, ``width`` per sentence. A state must not be used after it was passed to another step.

    Args:
        own: keys and values of their tokens.
        source: keys and values of the sources, one line per source.
        positions: number of tokens of each hypothesis.
        places: the cache line that each hypothesis writes.
        ancestors: ``[N, capacity]``: the cache line that holds each position.
        sources, source_lengths: the source line that each hypothesis reads, and its length.
        width: number of hypotheses per sentence.
    """

    own: Room
    source: Room | None
    positions: Numbers
    places: Numbers
    ancestors: Int32[np.ndarray, "N C"]
    sources: Numbers
    source_lengths: Numbers
    width: int = 1

    def __post_init__(self) -> None:
        self.rows: Rows | None = None
        """The rows of single steps, reused while the hypotheses stay the same."""
        self.longest = int(self.positions.max(initial=0))
        """Number of positions in use."""

    @property
    def n(self) -> int:
        """Return the number of hypotheses N."""
        return len(self.positions)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of tokens of each hypothesis."""
        return tuple(self.positions.tolist())

    @property
    def device(self) -> torch.device:
        """Return the CPU device."""
        return torch.device("cpu")

    def next_layout(self, lengths: Sequence[int]) -> Layout:
        """Return the layout of ``lengths`` further tokens for each hypothesis."""
        return Layout.of(lengths, self.lengths)

    def advance(self, lengths: Int32[np.ndarray, " N"] | int) -> None:
        """Count tokens appended to each hypothesis."""
        self.positions += lengths
        self.longest = (
            self.longest + lengths if isinstance(lengths, int) else int(self.positions.max(initial=0))
        )

    def select(self, rows: Any) -> "Hypotheses":
        """Make row n continue row ``rows[n]``, which must belong to the same sentence."""
        parents = np.asarray(rows)
        if len(parents) != self.n:
            raise ValueError(f"expected {self.n} parents, got {len(parents)}; use `keep` to remove sentences")
        used = self.longest
        # In place: the rows of the next step refer to these arrays.
        self.ancestors[:, :used] = self.ancestors[parents, :used]
        self.positions[:] = self.positions[parents]
        return self

    def widen(self, width: int) -> "Hypotheses":
        """Repeat every hypothesis ``width`` times in succession; all but the first get new cache lines."""
        if width == 1:
            return self
        n, lines = self.n, self.own.lines
        places = np.empty((n, width), np.int32)
        places[:, 0] = self.places
        places[:, 1:] = lines + np.arange(n * (width - 1), dtype=np.int32).reshape(n, width - 1)
        used = self.longest
        return Hypotheses(
            self.own.grown(lines + n * (width - 1), self.own.capacity, used),
            self.source,
            self.positions.repeat(width),
            places.reshape(-1),
            self.ancestors.repeat(width, 0),
            self.sources.repeat(width),
            self.source_lengths.repeat(width),
            self.width * width,
        )

    def keep(self, sentences: Sequence[int]) -> "Hypotheses":
        """Keep only these sentences."""
        rows = np.asarray(sentences, np.int64)[:, None] * self.width + np.arange(self.width)
        rows = rows.reshape(-1)
        return Hypotheses(
            self.own, self.source, self.positions[rows], self.places[rows], self.ancestors[rows],
            self.sources[rows], self.source_lengths[rows], self.width,
        )  # fmt: skip

    def make_room(self, length: int) -> None:
        """Grow the caches, if needed, so that positions below ``length`` can be written."""
        capacity = self.own.capacity
        if length <= capacity:
            return
        used, capacity = self.longest, max(length, 2 * capacity)
        self.own = self.own.grown(self.own.lines, capacity, used)
        ancestors = np.zeros((self.n, capacity), np.int32)
        ancestors[:, :used] = self.ancestors[:, :used]
        self.ancestors, self.rows = ancestors, None
