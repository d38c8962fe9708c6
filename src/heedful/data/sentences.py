"""Where sentences and documents begin in a stream of tokens that is a ring (see `heedful.data.windows`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.masking import Draw, Ids
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS


class Sentences:
    """Beginnings of sentences and documents in a stream, both as places that rise.

    A document's first token begins a sentence. An end token belongs to the document before it and begins
    none; so a document of nothing but its end token is part of the one before.

    Args:
        ids: ``[L]``, the stream, each document with its end token.
        signs: of the vocabulary.
    """

    def __init__(self, ids: NDArray[Any], signs: SentenceSigns) -> None:
        self.size = len(ids)
        self.documents = document_beginnings(ids)
        self.places = sentence_beginnings(ids, signs, self.documents)
        self._is_document = np.isin(self.places, self.documents, assume_unique=True)

    def forward(self, place: int) -> int:
        """How far it is from a place to where the next sentence begins; 0 where one begins there."""
        following = self.places[np.searchsorted(self.places, place) % len(self.places)]
        return int(following - place) % self.size

    def back(self, place: int) -> int:
        """Where the sentence begins that a place lies in."""
        return int(self.places[np.searchsorted(self.places, place, side="right") - 1])

    def inside(self, start: int, length: int) -> Ids:
        """Where sentences begin in a stretch of the ring, after its first token and counted from it.

        Beginnings of documents are among them only where there are no others.
        """
        first = np.searchsorted(self.places, start, side="right")
        turns, rest = divmod(start + length, self.size)
        last = turns * len(self.places) + np.searchsorted(self.places, rest)
        numbers = np.arange(first, last) % len(self.places)
        within = numbers[~self._is_document[numbers]]
        return (self.places[within if len(within) else numbers] - start) % self.size

    def elsewhere(self, place: int, draw: Draw) -> int:
        """A sentence of another document than that of ``place``.

        A token is drawn, each of the other documents' with equal probability, and its sentence is taken.
        Where there is only one document, the token is one of that.
        """
        own = np.searchsorted(self.documents, place, side="right") - 1
        begin, end = self.documents[own], self.documents[(own + 1) % len(self.documents)]
        # 0 where the document ends where it begins: there is only one.
        size = int(end - begin) % self.size
        return self.back((int(end) + draw.below(self.size - size)) % self.size)


def document_beginnings(ids: NDArray[Any]) -> Ids:
    """``[documents]``: the first token of each that has any; of none, the stream's first."""
    written = ids != SPECIALS.end
    first = written & ~np.concatenate([[False], written[:-1]])
    return np.flatnonzero(first) if first.any() else np.zeros(1, dtype=np.int64)


def sentence_beginnings(ids: NDArray[Any], signs: SentenceSigns, documents: Ids) -> Ids:
    """``[sentences]``: the first token of each."""
    # Whether a word begins: white space stands before it, in its own piece or in that before.
    apart = signs.spaced[ids] | np.roll(signs.spacing[ids], 1)
    passed = signs.passed[ids] | (signs.quotes[ids] & ~apart)
    ends_of_passed = np.flatnonzero(passed & ~np.append(passed[1:], False))

    def reached(places: Ids) -> Ids:
        """The first tokens from ``places`` on that are not passed over."""
        places = places[places < len(ids)]
        behind = passed[places]
        places[behind] = ends_of_passed[np.searchsorted(ends_of_passed, places[behind])] + 1
        return places[places < len(ids)]

    after_stops = reached(np.flatnonzero(signs.stops[ids]) + 1)
    after_breaks = reached(np.flatnonzero(signs.breaks[ids]) + 1)
    found = np.union1d(after_stops[apart[after_stops]], after_breaks)
    found = found[ids[found] != SPECIALS.end]
    # What stands before a document's first sign belongs to its first sentence.
    return np.union1d(np.setdiff1d(found, reached(documents)), documents)
