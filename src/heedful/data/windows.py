"""Windows, spans and sentences of a long token stream, for training and scoring.

The stream is the concatenation of all documents, each followed by an end token. It is circular: its first
token is preceded by its last, an end token. So every token is predicted from the tokens before it, the first
of each document from an end token, and all windows have the same length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.plan import OFFSETS, Draw, Lengths
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS

Ids = NDArray[np.int64]


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
        return int(Draw(self.seed, epoch, stream=OFFSETS).raw(1)[0]) % len(self.ids)

    def starts(self, samples: Sequence[int], epoch: int) -> Ids:
        """Return the offsets of windows, ``[n]``."""
        starts = self.start(epoch) + np.asarray(samples, dtype=np.int64) * self.length
        return np.asarray(starts % len(self.ids))

    def rows(self, samples: Sequence[int], epoch: int) -> Ids:
        """Return the input tokens of windows and the token after the last, ``[n, length + 1]``."""
        return circular_sections(self.ids, self.starts(samples, epoch), self.length + 1)


def circular_sections(ids: np.ndarray, starts: Ids, length: int) -> Ids:
    """Return the sections of the circular stream that begin at ``starts``, ``[n, length]``."""
    indices = (starts[:, None] + np.arange(length)) % len(ids)
    return np.asarray(ids[indices], dtype=np.int64)


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
    n_scored = 0
    while n_scored < n:
        end = min(n_scored + (stride if n_scored else context), n)
        yield Span(n_scored if stride == context else max(0, end - context), n_scored, end)
        n_scored = end


class Sentences:
    """Beginnings of sentences and documents in a stream, both as ascending positions.

    The first token of a document begins a sentence. An end token belongs to the preceding document and never
    begins one, so an empty document is part of the one before it.

    Args:
        ids: ``[L]``, the stream, each document followed by its end token.
        signs: the sentence-boundary properties of the vocabulary.
    """

    def __init__(self, ids: NDArray[np.integer], signs: SentenceSigns) -> None:
        self.size = len(ids)
        self.documents = document_beginnings(ids)
        self.starts = sentence_beginnings(ids, signs, self.documents)
        self._begins_document = np.isin(self.starts, self.documents, assume_unique=True)

    def distance_to_next(self, position: int) -> int:
        """Return the distance from a position to the next sentence beginning; 0 if one begins there."""
        following = self.starts[np.searchsorted(self.starts, position) % len(self.starts)]
        return int(following - position) % self.size

    def start_of(self, position: int) -> int:
        """Return the beginning of the sentence that contains a position."""
        return int(self.starts[np.searchsorted(self.starts, position, side="right") - 1])

    def starts_within(self, start: int, length: int) -> Ids:
        """Return the sentence beginnings in a circular section, after and relative to its first token.

        Beginnings of documents are included only if there are no others.
        """
        first = np.searchsorted(self.starts, start, side="right")
        n_rounds, remainder = divmod(start + length, self.size)
        last = n_rounds * len(self.starts) + np.searchsorted(self.starts, remainder)
        indices = np.arange(first, last) % len(self.starts)
        in_documents = indices[~self._begins_document[indices]]
        return (self.starts[in_documents if len(in_documents) else indices] - start) % self.size

    def draw_from_other_document(self, position: int, draw: Draw) -> int:
        """Draw a sentence from a document other than that of ``position``.

        A token of the other documents is drawn uniformly, and its sentence is returned. If there is only one
        document, the token is drawn from it.
        """
        document = np.searchsorted(self.documents, position, side="right") - 1
        begin, end = self.documents[document], self.documents[(document + 1) % len(self.documents)]
        # 0 if the document ends where it begins, because there is only one.
        length = int(end - begin) % self.size
        return self.start_of((int(end) + draw.below(self.size - length)) % self.size)


def document_beginnings(ids: NDArray[np.integer]) -> Ids:
    """Return the first token of each non-empty document, ``[documents]``; if there is none, position 0."""
    is_text = ids != SPECIALS.end
    first = is_text & ~np.concatenate([[False], is_text[:-1]])
    return np.flatnonzero(first) if first.any() else np.zeros(1, dtype=np.int64)


def sentence_beginnings(ids: NDArray[np.integer], signs: SentenceSigns, documents: Ids) -> Ids:
    """Return the first token of each sentence, ``[sentences]``."""
    # Whether a word begins: white space precedes it, in its own piece or in the previous one.
    begins_word = signs.spaced[ids] | np.roll(signs.spacing[ids], 1)
    skipped = signs.passed[ids] | (signs.quotes[ids] & ~begins_word)
    ends_of_skipped = np.flatnonzero(skipped & ~np.append(skipped[1:], False))

    def next_unskipped(positions: Ids) -> Ids:
        """Return the first token at or after each position that is not passed over."""
        positions = positions[positions < len(ids)]
        is_skipped = skipped[positions]
        positions[is_skipped] = ends_of_skipped[np.searchsorted(ends_of_skipped, positions[is_skipped])] + 1
        return positions[positions < len(ids)]

    after_stops = next_unskipped(np.flatnonzero(signs.stops[ids]) + 1)
    after_breaks = next_unskipped(np.flatnonzero(signs.breaks[ids]) + 1)
    starts = np.union1d(after_stops[begins_word[after_stops]], after_breaks)
    starts = starts[ids[starts] != SPECIALS.end]
    # Tokens that are passed over at the start of a document belong to its first sentence.
    return np.union1d(np.setdiff1d(starts, next_unskipped(documents)), documents)
