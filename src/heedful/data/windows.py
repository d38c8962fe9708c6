"""A long stream of tokens, cut into windows of one length for training, and into spans for scoring.

Documents lie one after another in the stream, each followed by an end token. The stream is a ring: what
comes before its first token is its last, an end token. So every token is foretold from what precedes it,
the first of each document from an end token, and no window is shorter than others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.plan import Lengths

OFFSETS = 1
"""Tells the random numbers of offsets from those of the plan, which come from the same seed and epoch."""


@dataclass(frozen=True)
class Windows:
    """Windows of a ring of tokens; those of an epoch do not overlap.

    Each epoch begins at a random place, so the same token is met at another position in its window. Of
    ``len(ids)`` tokens, the last few that fill no window are left out; every epoch leaves out others.

    Args:
        ids: ``[L]``, the stream, at least one token.
        context: tokens that are read at once; a shorter stream makes one window of all of it.
        seed: with the epoch, determines where it begins.
    """

    ids: np.ndarray
    context: int
    seed: int

    @property
    def length(self) -> int:
        """Tokens of a window, which are also those it foretells."""
        return min(self.context, len(self.ids))

    @property
    def lengths(self) -> Lengths:
        """``[N]``, that of each window: there are as many as fit into the stream."""
        return np.full(len(self.ids) // self.length, self.length)

    def start(self, epoch: int) -> int:
        """Where the first window of an epoch begins."""
        bits = np.random.Philox(np.random.SeedSequence([self.seed, epoch], spawn_key=(OFFSETS,)))
        return int(bits.random_raw(1)[0]) % len(self.ids)

    def starts(self, samples: Sequence[int], epoch: int) -> NDArray[np.int64]:
        """``[n]``: where the windows begin."""
        starts = self.start(epoch) + np.asarray(samples, dtype=np.int64) * self.length
        return np.asarray(starts % len(self.ids))

    def rows(self, samples: Sequence[int], epoch: int) -> NDArray[np.int64]:
        """``[n, length + 1]``: the tokens that the windows read, and the one that follows the last."""
        return ring(self.ids, self.starts(samples, epoch), self.length + 1)


def ring(ids: np.ndarray, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """``[n, length]``: stretches of the ring that begin at ``starts``."""
    places = (starts[:, None] + np.arange(length)) % len(ids)
    return np.asarray(ids[places], dtype=np.int64)


class Span(NamedTuple):
    """Tokens to be scored, with those before them that are read for it.

    Token t of the stream is foretold at place t - 1. The tokens from ``begin`` to ``end`` - 1 are foretold
    in one go, and those from ``scored`` on count.
    """

    begin: int
    scored: int
    end: int


def spans(n: int, context: int, stride: int) -> Iterator[Span]:
    """Spans in which each of ``n`` tokens counts once; none foretells more than ``context`` tokens.

    After the first span, each scores the ``stride`` tokens that follow the last one's, and reads as far
    back as the context allows: at least ``context - stride`` tokens stand before what counts. With a
    stride of the whole context, spans do not overlap, and the last may be shorter.

    Raises:
        ValueError: a stride that is not within 1 and ``context``.
    """
    if not 1 <= stride <= context:
        raise ValueError(f"a stride of {stride} does not lie within 1 and the context of {context}")
    done = 0
    while done < n:
        end = min(done + (stride if done else context), n)
        yield Span(done if stride == context else max(0, end - context), done, end)
        done = end
