"""What the native engine remembers between steps (compare `heedful.nn.state`).

Nothing is copied when beams change places: every hypothesis writes to a line of its own, and a table of
ancestors tells for each position in whose line it was written. Sentences that leave take their rows out
of the tables; their lines stay behind, unread.
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
    """N hypotheses, ``width`` for each sentence. A state that was passed on is spent.

    Args:
        own: keys and values of their tokens.
        source: keys and values of the sources, one line for each.
        positions: tokens so far of each.
        places: the line that each writes to.
        ancestors: ``[N, capacity]``: the line that holds each position.
        sources, source_lengths: the source that each reads, and its length.
        width: hypotheses that share a sentence.
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
        """The rows of single steps, kept while the hypotheses stay the same."""
        self.longest = int(self.positions.max(initial=0))
        """Positions that are in use."""

    @property
    def n(self) -> int:
        """N."""
        return len(self.positions)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens so far of each hypothesis."""
        return tuple(self.positions.tolist())

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def next_layout(self, lengths: Sequence[int]) -> Layout:
        """The layout of ``lengths`` further tokens for each hypothesis."""
        return Layout.of(lengths, self.lengths)

    def advance(self, lengths: Int32[np.ndarray, " N"] | int) -> None:
        """Count tokens that were written to each hypothesis."""
        self.positions += lengths
        self.longest = (
            self.longest + lengths if isinstance(lengths, int) else int(self.positions.max(initial=0))
        )

    def select(self, rows: Any) -> "Hypotheses":
        """Row n continues row ``rows[n]``, one of its own sentence."""
        parents = np.asarray(rows)
        if len(parents) != self.n:
            raise ValueError(f"{len(parents)} parents for {self.n} hypotheses; `keep` lets sentences go")
        used = self.longest
        # In place: the rows of the next step look at these very arrays.
        self.ancestors[:, :used] = self.ancestors[parents, :used]
        self.positions[:] = self.positions[parents]
        return self

    def widen(self, width: int) -> "Hypotheses":
        """Repeat every hypothesis ``width`` times, side by side: all but the first get lines of their own."""
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
        """Let all sentences go but these."""
        rows = np.asarray(sentences, np.int64)[:, None] * self.width + np.arange(self.width)
        rows = rows.reshape(-1)
        return Hypotheses(
            self.own, self.source, self.positions[rows], self.places[rows], self.ancestors[rows],
            self.sources[rows], self.source_lengths[rows], self.width,
        )  # fmt: skip

    def make_room(self, length: int) -> None:
        """See to it that positions below ``length`` can be written."""
        capacity = self.own.capacity
        if length <= capacity:
            return
        used, capacity = self.longest, max(length, 2 * capacity)
        self.own = self.own.grown(self.own.lines, capacity, used)
        ancestors = np.zeros((self.n, capacity), np.int32)
        ancestors[:, :used] = self.ancestors[:, :used]
        self.ancestors, self.rows = ancestors, None
