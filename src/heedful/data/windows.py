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
        return ring(self.ids, self.starts(samples, epoch), self.length + 1)


def ring(ids: np.ndarray, starts: Ids, length: int) -> Ids:
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
        self.places = sentence_beginnings(ids, signs, self.documents)
        self._is_document = np.isin(self.places, self.documents, assume_unique=True)

    def forward(self, place: int) -> int:
        """Return the distance from a position to the next sentence beginning; 0 if one begins there."""
        following = self.places[np.searchsorted(self.places, place) % len(self.places)]
        return int(following - place) % self.size

    def back(self, place: int) -> int:
        """Return the beginning of the sentence that contains a position."""
        return int(self.places[np.searchsorted(self.places, place, side="right") - 1])

    def inside(self, start: int, length: int) -> Ids:
        """Return the sentence beginnings in a section of the ring, after and relative to its first token.

        Beginnings of documents are included only if there are no others.
        """
        first = np.searchsorted(self.places, start, side="right")
        turns, rest = divmod(start + length, self.size)
        last = turns * len(self.places) + np.searchsorted(self.places, rest)
        numbers = np.arange(first, last) % len(self.places)
        within = numbers[~self._is_document[numbers]]
        return (self.places[within if len(within) else numbers] - start) % self.size

    def elsewhere(self, place: int, draw: Draw) -> int:
        """Draw a sentence from a document other than that of ``place``.

        A token of the other documents is drawn uniformly, and its sentence is returned. If there is only one
        document, the token is drawn from it.
        """
        own = np.searchsorted(self.documents, place, side="right") - 1
        begin, end = self.documents[own], self.documents[(own + 1) % len(self.documents)]
        # 0 if the document ends where it begins, because there is only one.
        size = int(end - begin) % self.size
        return self.back((int(end) + draw.below(self.size - size)) % self.size)


def document_beginnings(ids: NDArray[np.integer]) -> Ids:
    """Return the first token of each non-empty document, ``[documents]``; if there is none, position 0."""
    is_text = ids != SPECIALS.end
    first = is_text & ~np.concatenate([[False], is_text[:-1]])
    return np.flatnonzero(first) if first.any() else np.zeros(1, dtype=np.int64)


def sentence_beginnings(ids: NDArray[np.integer], signs: SentenceSigns, documents: Ids) -> Ids:
    """Return the first token of each sentence, ``[sentences]``."""
    # Whether a word begins: white space precedes it, in its own piece or in the previous one.
    apart = signs.spaced[ids] | np.roll(signs.spacing[ids], 1)
    passed = signs.passed[ids] | (signs.quotes[ids] & ~apart)
    ends_of_passed = np.flatnonzero(passed & ~np.append(passed[1:], False))

    def reached(places: Ids) -> Ids:
        """Return the first token at or after each position that is not passed over."""
        places = places[places < len(ids)]
        behind = passed[places]
        places[behind] = ends_of_passed[np.searchsorted(ends_of_passed, places[behind])] + 1
        return places[places < len(ids)]

    after_stops = reached(np.flatnonzero(signs.stops[ids]) + 1)
    after_breaks = reached(np.flatnonzero(signs.breaks[ids]) + 1)
    found = np.union1d(after_stops[apart[after_stops]], after_breaks)
    found = found[ids[found] != SPECIALS.end]
    # Tokens that are passed over at the start of a document belong to its first sentence.
    return np.union1d(np.setdiff1d(found, reached(documents)), documents)
