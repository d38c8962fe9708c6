"""Constraints on the text of an output: how it begins, and phrases that it must or must not contain.

They look at the bytes that tokens spell, so every tokenisation of a phrase counts, also one whose first or
last token has further characters. Matching is that of Knuth, Morris and Pratt, and of Aho and Corasick.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from heedful.decoding.constraints import Blocked, Constraint
from heedful.decoding.spelling import Ids, Spelling

Positions = tuple[int, ...]
"""How many bytes of the prefix may be spelled; empty: all of it is."""


class ForcedPrefix(Constraint):
    """The output begins with a text. The state is the positions in it, of which there may be two.

    Tokens are allowed if they spell the next bytes, and the rest can still be spelled; the last of them may
    go on beyond the prefix.

    Args:
        spelling: of the vocabulary.
        text: the prefix, not empty.
        name: of the constraint.
    """

    def __init__(self, spelling: Spelling, text: bytes, name: str) -> None:
        self.spelling, self.name = spelling, name
        space = spelling.first_space
        # The first piece loses its space, if it has one; then the text may also be spelled without.
        self._text = space + text
        self._first: Positions = (0, len(space)) if space and not text.startswith(space) else (0,)
        self._fewest = spelling.fewest_to_begin(self._text)
        self.n_tokens = min(self._fewest[position] for position in self._first)
        """The fewest tokens that spell the prefix; infinity if none do."""
        self._allowed = cache(self._allowed_at)

    def _allowed_at(self, position: int) -> Ids:
        rest = self._text[position:]
        inner = [ids for n, ids in self.spelling.prefixes(rest) if self._fewest[position + n] < float("inf")]
        return np.concatenate([*inner, self.spelling.starting_with(rest)])

    def start(self) -> Positions:
        """Return the positions at which the first token may begin."""
        return self._first

    def advance(self, state: Positions, token: int) -> Positions:
        """Move on by the bytes of the token."""
        piece, positions = self.spelling.pieces[token], []
        for position in state:
            rest = self._text[position:]
            if piece.startswith(rest):
                return ()
            if rest.startswith(piece):
                positions.append(position + len(piece))
        return tuple(positions) or state

    def is_met(self, state: Positions) -> bool:
        """Return whether the prefix is spelled."""
        return not state

    def block(self, state: Positions, blocked: Blocked) -> None:
        """Block all tokens that do not spell the next bytes."""
        if state:
            allowed = np.concatenate([self._allowed(position) for position in state])
            is_other = np.ones_like(blocked)
            is_other[allowed] = False
            blocked |= is_other


class _Node(NamedTuple):
    """A node of the tree of phrases: the bytes up to it, and where a text goes on from it."""

    text: bytes
    rests: tuple[bytes, ...]
    """The rests of the phrases that start with ``text``."""


class BlockedPhrases(Constraint):
    """The output contains none of some phrases. The state is the longest end of it that begins one.

    Args:
        spelling: of the vocabulary.
        phrases: their bytes, none of them empty, nor beginning with the space that an output loses.
        name: of the constraint.
    """

    def __init__(self, spelling: Spelling, phrases: Sequence[bytes], name: str) -> None:
        self.spelling, self.name = spelling, name
        self._nodes: dict[bytes, _Node] = {}
        for phrase in phrases:
            for n in range(len(phrase)):
                begun = phrase[:n]
                rests = self._nodes[begun].rests if begun in self._nodes else ()
                self._nodes[begun] = _Node(begun, (*rests, phrase[n:]))
        self._phrases, self._longest = tuple(phrases), max(map(len, phrases))
        self._blocked_after = cache(self._blocked_in)

    def start(self) -> bytes:
        """Return no bytes."""
        return b""

    def advance(self, state: bytes, token: int) -> bytes:
        """Return the longest end of the text that begins a phrase."""
        return self._longest_end(state + self.spelling.pieces[token])

    def _longest_end(self, text: bytes) -> bytes:
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start:] in self._nodes:
                return text[start:]
        return b""

    def _blocked_in(self, state: bytes) -> Ids:
        found = [self.spelling.containing(self._phrases)] if not state else [self._blocked_after(b"")]
        for start in range(len(state)):
            if node := self._nodes.get(state[start:]):
                found += [self.spelling.starting_with(rest) for rest in node.rests]
        return np.concatenate(found)

    def block(self, state: bytes, blocked: Blocked) -> None:
        """Block the tokens that complete a phrase."""
        blocked[self._blocked_after(state)] = True


@dataclass(frozen=True)
class _Search:
    """How much of a required phrase an output has.

    Args:
        found: whether its text has the phrase.
        end: the longest end of the text that begins the phrase.
        steps: for each sequence of tokens of the phrase, how many of them the last tokens are.
    """

    found: bool
    end: bytes
    steps: tuple[int, ...]


class RequiredPhrase(Constraint):
    """The output contains a phrase, in whatever tokens; beam search is led to it by given ones.

    Args:
        spelling: of the vocabulary.
        phrase: its bytes, not empty.
        sequences: sequences of tokens that spell it.
        name: of the constraint.
    """

    def __init__(
        self, spelling: Spelling, phrase: bytes, sequences: Iterable[Sequence[int]], name: str
    ) -> None:
        self.spelling, self.phrase, self.name = spelling, phrase, name
        self.sequences = tuple(tuple(sequence) for sequence in sequences)
        self.n_goals = max(map(len, self.sequences))

    def start(self) -> _Search:
        """Return that nothing is found."""
        return _Search(False, b"", (0,) * len(self.sequences))

    def advance(self, state: _Search, token: int) -> _Search:
        """Search the phrase in the bytes of the token and those before it."""
        if state.found:
            return state
        text = state.end + self.spelling.pieces[token]
        if self.phrase in text:
            return _Search(True, b"", ())
        begins = (text[-n:] for n in range(min(len(self.phrase) - 1, len(text)), 0, -1))
        end = next((end for end in begins if self.phrase.startswith(end)), b"")
        pairs = zip(self.sequences, state.steps, strict=True)
        return _Search(False, end, tuple(_next_step(sequence, n, token) for sequence, n in pairs))

    def is_met(self, state: _Search) -> bool:
        """Return whether the text has the phrase."""
        return state.found

    def progress(self, state: _Search) -> int:
        """Return how many of the tokens of the phrase are written."""
        if state.found:
            return self.n_goals
        pairs = zip(self.sequences, state.steps, strict=True)
        return self.n_goals - min(len(sequence) - n for sequence, n in pairs)

    def wanted(self, state: _Search) -> list[int]:
        """Return the next token of each sequence."""
        if state.found:
            return []
        return [sequence[n] for sequence, n in zip(self.sequences, state.steps, strict=True)]


def _next_step(sequence: tuple[int, ...], n: int, token: int) -> int:
    """Return how many first tokens of a sequence are the last ones, after ``n`` of them and a token."""
    last = (*sequence[:n], token)
    lengths = range(min(len(last), len(sequence) - 1), 0, -1)
    return next((k for k in lengths if last[len(last) - k :] == sequence[:k]), 0)
