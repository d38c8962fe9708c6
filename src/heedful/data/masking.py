"""Masking for masked language models: single tokens, whole words or spans of words.

Of the selected tokens, 80 % are replaced by the mask token, 10 % by a random token and 10 % stay unchanged
(Devlin et al. 2019, section 3.1; spans: Joshi et al. 2020, section 3.1). The selection depends only on the
key of the `Draw`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heedful.data.plan import Draw

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class SpanLengths:
    """``P(n) = p (1 - p)^(n-1) / (1 - (1 - p)^longest)`` for n = 1 .. longest.

    The geometric distribution, renormalised, not clipped: with 0.2 and 10 its mean is 3.8 (clipped: 4.46).
    Source: Joshi et al. 2020, section 3.1.
    """

    p: float = 0.2
    longest: int = 10

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """``[longest]``, the probability of each length from 1."""
        weights = self.p * (1 - self.p) ** np.arange(self.longest)
        return weights / weights.sum()

    @property
    def mean(self) -> float:
        """The mean length."""
        return float(self.probabilities @ np.arange(1, self.longest + 1))

    @property
    def overshoot(self) -> float:
        """``E[n^2] / (2 E[n])``: by how much a running sum of lengths exceeds a limit, on average."""
        squares = self.probabilities @ np.arange(1, self.longest + 1) ** 2
        return float(squares) / (2 * self.mean)

    def draw(self, draw: Draw) -> int:
        """Draw a length."""
        return 1 + int(np.searchsorted(self.probabilities.cumsum()[:-1], draw.floats(1)[0], side="right"))


@dataclass(frozen=True)
class MaskedSequence:
    """A sequence with masked tokens.

    Args:
        ids: the model's inputs.
        positions: ``[n]``, the positions to predict, ascending.
        before, after: ``[n]``, the last position before and the first position after each one's span.
        within: ``[n]``, the index of each position in its span, from 0.
    """

    ids: Ids
    positions: Ids
    before: Ids
    after: Ids
    within: Ids


@dataclass(frozen=True)
class Masking:
    """The masking strategy.

    Args:
        mask: the id of the mask token.
        first, last: random replacements are drawn from the ids ``first`` to ``last`` - 1.
        rate: the average share of tokens to select: exact for tokens, approximate for words and spans. At
            least one token, word or span is selected, however short the text.
        masked, random: the shares of selected tokens replaced by the mask and by a random token.
        begins_word: for each id whether it begins a word; None: select single tokens, not whole words.
        spans: select spans of words of these lengths, each replaced in the same way; None: words or tokens.
    """

    mask: int
    first: int
    last: int
    rate: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    begins_word: NDArray[np.bool_] | None = None
    spans: SpanLengths | None = None

    def mask_tokens(self, ids: Ids, draw: Draw) -> MaskedSequence:
        """Mask some tokens of a sequence; special tokens (ids below ``first``) are never masked."""
        runs = sorted(self._select_runs(ids, draw))
        positions = np.array(
            [position for begin, end in runs for position in range(begin, end)], dtype=np.int64
        )
        sizes = [end - begin for begin, end in runs]
        # All tokens of a span are replaced in the same way; otherwise each is drawn separately.
        draws = draw.floats(len(sizes) if self.spans else len(positions))
        draws = np.repeat(draws, sizes) if self.spans else draws
        random_ids = self.first + (draw.floats(len(positions)) * (self.last - self.first)).astype(np.int64)
        replacements = np.where(draws < self.masked, self.mask, ids[positions])
        replacements = np.where(
            (draws >= self.masked) & (draws < self.masked + self.random), random_ids, replacements
        )
        masked_ids = ids.copy()
        masked_ids[positions] = replacements
        return MaskedSequence(
            masked_ids,
            positions,
            np.repeat([begin - 1 for begin, _ in runs], sizes).astype(np.int64),
            np.repeat([end for _, end in runs], sizes).astype(np.int64),
            np.concatenate([np.arange(size) for size in [*sizes, 0]]).astype(np.int64),
        )

    def _select_runs(self, ids: Ids, draw: Draw) -> Iterator[tuple[int, int]]:
        """Select runs of positions ``[begin, end)``."""
        words = self._words(ids)
        n_tokens = sum(end - begin for begin, end in words)
        if not n_tokens:
            return iter(())
        # Rounded up or down at random, so that the rate is correct on average.
        budget = int(self.rate * n_tokens + draw.floats(1)[0])
        if self.spans is not None:
            return self._select_spans(words, self.spans, budget, n_tokens, draw)
        return self._select_words(words, max(1, budget), draw)

    def _words(self, ids: Ids) -> list[tuple[int, int]]:
        """Return the runs of positions that are selected together or not at all."""
        ordinary = ids >= self.first
        if self.begins_word is None:
            return [(position, position + 1) for position in np.flatnonzero(ordinary).tolist()]
        # A word begins at a token that begins words, and after a special token.
        begins = ordinary & (self.begins_word[ids] | ~np.concatenate([[False], ordinary[:-1]]))
        starts = np.flatnonzero(begins)
        stops = np.flatnonzero(begins | ~ordinary)
        ends = [*stops.tolist(), len(ids)]
        next_stops = np.searchsorted(stops, starts, side="right")
        return [(int(start), int(ends[i])) for start, i in zip(starts, next_stops, strict=True)]

    def _select_words(
        self, words: Sequence[tuple[int, int]], budget: int, draw: Draw
    ) -> Iterator[tuple[int, int]]:
        """Select words in random order while they fit the budget; at least one."""
        remaining, any_selected = budget, False
        for index in draw.permutation(len(words)).tolist():
            size = words[index][1] - words[index][0]
            if size <= remaining or not any_selected:
                yield words[index]
                remaining, any_selected = remaining - size, True
            if remaining <= 0:
                return

    def _select_spans(
        self, words: Sequence[tuple[int, int]], lengths: SpanLengths, budget: int, n_tokens: int, draw: Draw
    ) -> Iterator[tuple[int, int]]:
        """Select spans of words at random free positions; acceptance never depends on a span's length."""
        target = budget - lengths.overshoot * n_tokens / len(words)
        free, n_selected, any_selected = np.ones(len(words), dtype=bool), 0, False
        while n_selected < target or not any_selected:
            length = lengths.draw(draw)
            while not len(starts := _starts(words, free, length)):
                if any_selected:
                    return
                length -= 1  # shorten the first span if the text is too short for it
            start = int(starts[draw.below(len(starts))])
            # Keep a word between spans, since adjacent spans would look like one.
            free[max(0, start - 1) : start + length + 1] = False
            begin, end = words[start][0], words[start + length - 1][1]
            yield begin, end
            n_selected, any_selected = n_selected + end - begin, True


def _starts(words: Sequence[tuple[int, int]], free: NDArray[np.bool_], length: int) -> Ids:
    """Return the first words of all runs of ``length`` consecutive free words."""
    if length > len(words):
        return np.zeros(0, dtype=np.int64)
    adjacent = [before[1] == after[0] for before, after in pairwise(words)]
    n_free, n_adjacent = (np.concatenate([[0], np.cumsum(x)]) for x in (free, np.array(adjacent, dtype=int)))
    starts = np.arange(len(words) - length + 1)
    all_free = n_free[starts + length] - n_free[starts] == length
    return np.flatnonzero(all_free & (n_adjacent[starts + length - 1] - n_adjacent[starts] == length - 1))
