"""Split a long token stream into windows of equal length for training, and into spans for scoring.

The stream is the concatenation of all documents, each followed by an end token. It is circular: its first
token is preceded by its last, an end token. So every token is predicted from the tokens before it, the first
of each document from an end token, and all windows have the same length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.plan import Lengths

OFFSETS = 1
"""Separates the random stream of offsets from that of the plan, with the same seed and epoch."""


@dataclass(frozen=True)
class Windows:
    """Windows of a circular token stream; those of an epoch do not overlap.

    Each epoch begins at a random offset, so that tokens change their positions in the windows. The last
    tokens that do not fill a window are dropped, different ones in every epoch.

    Args:
        ids: ``[L]``, the stream, at least one token.
        context: the number of input tokens of a window; a shorter stream is one window.
        seed: determines the offset together with the epoch.
    """

    ids: np.ndarray
    context: int
    seed: int

    @property
    def length(self) -> int:
        """The number of input tokens of a window, equal to the number of predicted tokens."""
        return min(self.context, len(self.ids))

    @property
    def lengths(self) -> Lengths:
        """``[N]``, the length of each of the windows that fit into the stream."""
        return np.full(len(self.ids) // self.length, self.length)

    def start(self, epoch: int) -> int:
        """Return the offset of the first window of an epoch."""
        bits = np.random.Philox(np.random.SeedSequence([self.seed, epoch], spawn_key=(OFFSETS,)))
        return int(bits.random_raw(1)[0]) % len(self.ids)

    def starts(self, samples: Sequence[int], epoch: int) -> NDArray[np.int64]:
        """Return the offsets of windows, ``[n]``."""
        starts = self.start(epoch) + np.asarray(samples, dtype=np.int64) * self.length
        return np.asarray(starts % len(self.ids))

    def rows(self, samples: Sequence[int], epoch: int) -> NDArray[np.int64]:
        """Return the input tokens of windows and the token after the last, ``[n, length + 1]``."""
        return ring(self.ids, self.starts(samples, epoch), self.length + 1)


def ring(ids: np.ndarray, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the sections of the circular stream that begin at ``starts``, ``[n, length]``."""
    places = (starts[:, None] + np.arange(length)) % len(ids)
    return np.asarray(ids[places], dtype=np.int64)


class Span(NamedTuple):
    """Tokens to score, with the tokens before them that are their context.

    Token t of the stream is predicted at position t - 1. The tokens from ``begin`` to ``end`` - 1 are
    predicted in one forward pass, and those from ``scored`` on are scored.
    """

    begin: int
    scored: int
    end: int


def spans(n: int, context: int, stride: int) -> Iterator[Span]:
    """Yield spans that score each of ``n`` tokens once; none predicts more than ``context`` tokens.

    After the first span, each scores the next ``stride`` tokens and uses as many tokens before them as the
    context allows, at least ``context - stride``. With a stride equal to the context, spans do not overlap,
    and the last may be shorter.

    Raises:
        ValueError: if the stride is not within 1 and ``context``.
    """
    if not 1 <= stride <= context:
        raise ValueError(f"stride must be within 1 and the context {context}, got {stride}")
    done = 0
    while done < n:
        end = min(done + (stride if done else context), n)
        yield Span(done if stride == context else max(0, end - context), done, end)
        done = end
