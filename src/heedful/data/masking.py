"""Hiding tokens for a model to find again: single ones, whole words or spans of words.

Of the tokens that are chosen, 80 % become the mask, 10 % any token, 10 % stay (Devlin et al. 2019, section
3.1; spans: Joshi et al. 2020, section 3.1). What is chosen is a function of the numbers that a `Draw` is made
from, and of nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

MASKS = 2
"""Tells these random numbers from those of plans and windows, which come from the same seed and epoch."""


class Draw:
    """Random numbers that depend on the given numbers alone, from a stream that numpy keeps stable."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence(list(key), spawn_key=(MASKS,)))

    def floats(self, n: int) -> NDArray[np.float64]:
        """``n`` numbers in [0, 1)."""
        return (self._bits.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, size: int) -> int:
        """A whole number from 0 to ``size`` - 1."""
        return int(self.floats(1)[0] * size)

    def permutation(self, n: int) -> Ids:
        """The numbers from 0 to ``n`` - 1 in random order."""
        return np.argsort(self._bits.random_raw(n), kind="stable") if n else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class SpanLengths:
    """``P(n) = p (1 - p)^(n-1) / (1 - (1 - p)^longest)`` for n = 1 .. longest.

    The geometric law, renormalised, not clipped: with 0.2 and 10 its mean is 3.8 (clipped: 4.46).
    Source: Joshi et al. 2020, section 3.1.
    """

    p: float = 0.2
    longest: int = 10

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """``[longest]``."""
        weights = self.p * (1 - self.p) ** np.arange(self.longest)
        return weights / weights.sum()

    @property
    def mean(self) -> float:
        """Of the lengths."""
        return float(self.probabilities @ np.arange(1, self.longest + 1))

    @property
    def overshoot(self) -> float:
        """``E[n^2] / (2 E[n])``: how far lengths that are summed up go beyond a limit, on average."""
        squares = self.probabilities @ np.arange(1, self.longest + 1) ** 2
        return float(squares) / (2 * self.mean)

    def draw(self, draw: Draw) -> int:
        """A length."""
        return 1 + int(np.searchsorted(self.probabilities.cumsum()[:-1], draw.floats(1)[0], side="right"))


@dataclass(frozen=True)
class Hidden:
    """A sequence of which some tokens are hidden.

    Args:
        ids: as the model reads it.
        places: ``[n]``, those that it is to find again, rising.
        before, after: ``[n]``, for each the last place before its run and the first after it.
        within: ``[n]``, its number in its run, from 0.
    """

    ids: Ids
    places: Ids
    before: Ids
    after: Ids
    within: Ids


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden.

    Args:
        mask: the id that stands for a hidden token.
        first, last: random replacements are drawn from the ids ``first`` to ``last`` - 1.
        rate: the share of tokens that is chosen, on average: exactly, and nearly so of words and spans. A
            text that is short beside a span has one all the same.
        masked, random: shares of the chosen ones that become the mask, and any token.
        begins_word: for each id whether it begins a word; None: single tokens are chosen, not whole words.
        spans: choose runs of words of such lengths, which then share their fate; None: words or tokens.
    """

    mask: int
    first: int
    last: int
    rate: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    begins_word: NDArray[np.bool_] | None = None
    spans: SpanLengths | None = None

    def hide(self, ids: Ids, draw: Draw) -> Hidden:
        """Hide some tokens of a sequence; specials (ids below ``first``) are left alone."""
        runs = sorted(self._runs(ids, draw))
        places = np.array([place for begin, end in runs for place in range(begin, end)], dtype=np.int64)
        sizes = [end - begin for begin, end in runs]
        # In spans, all tokens have the same fate; elsewhere each has its own.
        fates = draw.floats(len(sizes) if self.spans else len(places))
        fates = np.repeat(fates, sizes) if self.spans else fates
        others = self.first + (draw.floats(len(places)) * (self.last - self.first)).astype(np.int64)
        shown = np.where(fates < self.masked, self.mask, ids[places])
        shown = np.where((fates >= self.masked) & (fates < self.masked + self.random), others, shown)
        changed = ids.copy()
        changed[places] = shown
        return Hidden(
            changed,
            places,
            np.repeat([begin - 1 for begin, _ in runs], sizes).astype(np.int64),
            np.repeat([end for _, end in runs], sizes).astype(np.int64),
            np.concatenate([np.arange(size) for size in [*sizes, 0]]).astype(np.int64),
        )

    def _runs(self, ids: Ids, draw: Draw) -> Iterator[tuple[int, int]]:
        """What is chosen, as runs of places ``[begin, end)``."""
        words = self._words(ids)
        n_tokens = sum(end - begin for begin, end in words)
        if not n_tokens:
            return iter(())
        # Rounded up or down by chance, so that the rate is right on average.
        budget = int(self.rate * n_tokens + draw.floats(1)[0])
        if self.spans is not None:
            return self._spans(words, self.spans, budget, n_tokens, draw)
        return self._units(words, max(1, budget), draw)

    def _words(self, ids: Ids) -> list[tuple[int, int]]:
        """Runs of places that are chosen together or not at all."""
        ordinary = ids >= self.first
        if self.begins_word is None:
            return [(place, place + 1) for place in np.flatnonzero(ordinary).tolist()]
        # A word begins where its token says so, and after a special.
        begins = ordinary & (self.begins_word[ids] | ~np.concatenate([[False], ordinary[:-1]]))
        starts = np.flatnonzero(begins)
        stops = np.flatnonzero(begins | ~ordinary)
        ends = [*stops.tolist(), len(ids)]
        following = np.searchsorted(stops, starts, side="right")
        return [(int(start), int(ends[i])) for start, i in zip(starts, following, strict=True)]

    def _units(self, words: Sequence[tuple[int, int]], budget: int, draw: Draw) -> Iterator[tuple[int, int]]:
        """Words in random order, as long as they fit; at least one."""
        left, found = budget, False
        for number in draw.permutation(len(words)).tolist():
            size = words[number][1] - words[number][0]
            if size <= left or not found:
                yield words[number]
                left, found = left - size, True
            if left <= 0:
                return

    def _spans(
        self,
        words: Sequence[tuple[int, int]],
        lengths: SpanLengths,
        budget: int,
        n_tokens: int,
        draw: Draw,
    ) -> Iterator[tuple[int, int]]:
        """Spans of words at random free places; how long one is never decides whether it is taken."""
        enough = budget - lengths.overshoot * n_tokens / len(words)
        free, done, found = np.ones(len(words), dtype=bool), 0, False
        while done < enough or not found:
            length = lengths.draw(draw)
            while not len(places := _starts(words, free, length)):
                if found:
                    return
                length -= 1  # a text too short for the first one gets a shorter one
            start = int(places[draw.below(len(places))])
            # Neighbouring spans would look like one: the word before and the word after stay free.
            free[max(0, start - 1) : start + length + 1] = False
            begin, end = words[start][0], words[start + length - 1][1]
            yield begin, end
            done, found = done + end - begin, True


def _starts(words: Sequence[tuple[int, int]], free: NDArray[np.bool_], length: int) -> Ids:
    """The words with which ``length`` free ones begin that follow one another."""
    if length > len(words):
        return np.zeros(0, dtype=np.int64)
    joined = [before[1] == after[0] for before, after in pairwise(words)]
    n_free, n_joined = (np.concatenate([[0], np.cumsum(x)]) for x in (free, np.array(joined, dtype=int)))
    starts = np.arange(len(words) - length + 1)
    all_free = n_free[starts + length] - n_free[starts] == length
    return np.flatnonzero(all_free & (n_joined[starts + length - 1] - n_joined[starts] == length - 1))
