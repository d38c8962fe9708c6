"""Synchronous grammar: one derivation, written in two languages and aligned word by word.

A derivation is a small tree of `Sentence`, `Clause` and `Nominal`, without words or order. A language
writes it as a row of `Token`s, and every token names the *nodes* of the derivation that it expresses:
``subject.noun``, ``verb``, ``finite``. Two tokens are aligned exactly if they share a node, so that one
word may stand for several ("bought": ``verb`` and ``finite``; German "hat ... gekauft") or for none
("the" in Tamil). This is the design of Grammatical Framework (Ranta 2004): one abstract syntax, and
a concrete syntax for each language.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeVar

T = TypeVar("T")

SPLITS = ("train", "valid", "test")


class Draw:
    """Random choices, equal on every machine: Python guarantees the sequence of ``random()``."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def below(self, n: int) -> int:
        """Return an integer from 0 to ``n - 1``."""
        return int(self._random() * n)

    def pick(self, options: Sequence[T]) -> T:
        """Return one of ``options``."""
        return options[int(self._random() * len(options))]

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, words separated by blanks.

    Args:
        source: the source sentence.
        target: its only translation.
        alignment: sorted pairs of (index of a source word, index of a target word), from 0.
        source_tags: the Universal Dependencies part of speech of every source word.
        target_tags: the same for the target.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    source_tags: tuple[str, ...]
    target_tags: tuple[str, ...]


class Token(NamedTuple):
    """A written word, its part of speech (UD), and the nodes of the derivation it expresses."""

    text: str
    tag: str
    nodes: tuple[str, ...]


Tokens = tuple[Token, ...]


class Nominal(NamedTuple):
    """A noun phrase: ``determiner adjective noun title``; a pronoun or a name has only the noun."""

    noun: str
    determiner: str = ""
    adjective: str = ""
    plural: bool = False
    title: str = ""

    @property
    def is_joint(self) -> bool:
        """Whether it consists of two names joined by "and"."""
        return " and " in self.noun


class Place(NamedTuple):
    """A relation (``in``, ``on``, ``to`` ...) to a nominal."""

    relation: str
    nominal: Nominal


class Clause(NamedTuple):
    """Who does what to whom, where and when.

    Args:
        subject: the subject in English (other languages may put it into another case).
        verb: a key of the verb lexicon; ``be`` takes a ``quality`` or a ``place``.
        object: what it is done to; ``what`` for the question word.
        recipient: who gets the object.
        quality: the key of a predicative adjective.
        place: where, or where to.
        time: a key of the time adverbials.
        early: whether the time opens the sentence.
        tense: present, past, future, can, must, want or like (English "likes to read").
        negative: whether it is denied.
        question: empty for a statement, ``whether`` for a yes/no question, ``subject`` or ``object``
            if that nominal is the question word, else the adverb asked for (``where``, ``when``, ``why``).
    """

    subject: Nominal
    verb: str
    object: Nominal | None = None
    recipient: Nominal | None = None
    quality: str = ""
    place: Place | None = None
    time: str = ""
    early: bool = False
    tense: str = "present"
    negative: bool = False
    question: str = ""


class Sentence(NamedTuple):
    """One or two clauses, and how they are joined.

    Args:
        kind: plain; request (a polite imperative); that, because, but (main clause first, then the other);
            relative (the second clause belongs to the subject of the first, which is its object).
        main: the main clause.
        other: the second clause, if the kind has one.
        address: the noun or name of the persons addressed, which determines "you"; or empty.
    """

    kind: str
    main: Clause
    other: Clause | None = None
    address: str = ""


def word(text: str, tag: str, *nodes: str) -> Tokens:
    """Return one token."""
    return (Token(text, tag, nodes),)


def parse_tokens(text: str, role: str) -> Tokens:
    """Read tokens from ``word/TAG/nodes`` with one digit a node: ``am/ADP/12 Morgen/NOUN/3``."""
    fields = (entry.split("/") for entry in text.split())
    return tuple(
        Token(text, tag, tuple(f"{role}.{digit}" for digit in digits)) for text, tag, digits in fields
    )


def pair(source: Tokens, target: Tokens) -> Pair:
    """Join two token rows of one derivation to a `Pair`; tokens that share a node are aligned."""
    positions: dict[str, list[int]] = {}
    for j, token in enumerate(target):
        for node in token.nodes:
            positions.setdefault(node, []).append(j)
    links = {
        (i, j) for i, token in enumerate(source) for node in token.nodes for j in positions.get(node, ())
    }
    return Pair(
        " ".join([token.text for token in source]),
        " ".join([token.text for token in target]),
        tuple(sorted(links)),
        tuple([token.tag for token in source]),
        tuple([token.tag for token in target]),
    )


def lemma(key: str) -> str:
    """Return the English word of a lexicon key, without its sense: ``play.game`` gives ``play``."""
    return key.partition(".")[0]
