"""Extractive questions about short passages in the phrasebook's English: answers are spans of the passage.

A passage has two to four statements with different verbs, so that a question refers to one of them: *who*
did something (persons), *what* it was done to (things), and *where* (with the preposition). Question and
statement are generated from one derivation, in which the question word replaces the answer.

In validation and test, the statement with the answer combines words that no training statement combines (see
`heedful.data.corpora.phrasebook`); the other statements are as in training.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from heedful.data.corpora import english
from heedful.data.corpora.grammar import Clause, Draw, Nominal, Sentence, Tokens
from heedful.data.corpora.lexicon_english import NOUNS, PRONOUNS, VERBS
from heedful.data.corpora.phrasebook import DERIVATIONS, derivations, split_of
from heedful.errors import RequestError, nearest

COUNTS = {"train": 8_000, "valid": 500, "test": 500}
FEWEST, MOST = 2, 4
UNANSWERABLE = 0.25
"""The share of questions without an answer in the corpus that has them."""

_SEEDS = {"train": 1, "valid": 2, "test": 3}
_PERSONS = {"person", "kin"}
_LIVING = {"person", "kin", "animal"}


class Question(NamedTuple):
    """A question about a passage.

    Args:
        question: the question, with its question mark.
        passage: words and full stops, separated by spaces.
        answer: the answer as in the passage; empty if the question is unanswerable.
        start: the character of the passage at which the answer begins, as text; empty likewise.
    """

    question: str
    passage: str
    answer: str
    start: str


def asked(statement: Clause) -> list[tuple[Clause, tuple[str, ...]]]:
    """Return the questions that a statement answers, each with the nodes (or their roles) of its answer."""
    plain = statement._replace(time="", early=False)
    found: list[tuple[Clause, tuple[str, ...]]] = []
    subject, thing = statement.subject.noun, statement.object
    if subject not in PRONOUNS and (subject not in NOUNS or _PERSONS & set(NOUNS[subject][1])):
        question = plain._replace(subject=Nominal("who"), question="subject")
        found.append((question, ("subject.", "and", "partner.")))
    if thing is not None and thing.noun in NOUNS and not _LIVING & set(NOUNS[thing.noun][1]):
        found.append((plain._replace(object=Nominal("what"), question="object"), ("object.",)))
    if statement.place is not None:
        found.append((plain._replace(place=None, question="where"), ("place",)))
    return found


def questions(split: str, seed: int = 0, *, unanswerable: bool = False) -> Iterator[Question]:
    """Yield the questions of a split; the same for a seed on every machine.

    Args:
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of the choices; the held-out combinations do not depend on it.
        unanswerable: whether a quarter of the questions is about statements that are not in the passage.

    Raises:
        RequestError: if there is no such split.
    """
    if split not in COUNTS:
        raise RequestError(
            f"there is no split {split!r}{nearest(split, COUNTS)}; there are {', '.join(COUNTS)}"
        )
    pools, draw = _statements(seed), Draw(4 * seed + _SEEDS[split])
    return (_question(draw, pools[split], pools["train"], unanswerable) for _ in range(COUNTS[split]))


@cache
def _statements(seed: int) -> dict[str, tuple[Clause, ...]]:
    """Return the clauses of each split that answer a question."""
    found: dict[str, list[Clause]] = {split: [] for split in COUNTS}
    for s in derivations("de", seed, DERIVATIONS):
        clause, split = s.main, split_of(s, "de")
        is_statement = s.kind == "plain" and not s.address and not clause.question and not clause.negative
        if is_statement and split is not None and asked(clause):
            found[split].append(clause)
    return {split: tuple(clauses) for split, clauses in found.items()}


def _question(
    draw: Draw, candidates: tuple[Clause, ...], others: tuple[Clause, ...], unanswerable: bool
) -> Question:
    chosen = [draw.pick(candidates)]
    verbs, wanted = _verbs(chosen[0]), FEWEST + draw.below(MOST - FEWEST + 1)
    while len(chosen) < wanted:
        other = draw.pick(others)
        if verbs.isdisjoint(_verbs(other)):
            chosen.append(other)
            verbs |= _verbs(other)
    question, roles = draw.pick(asked(chosen[0]))
    if unanswerable and draw.chance(UNANSWERABLE):
        return Question(_text(_written(question)), " ".join(_text(_written(c)) for c in chosen[1:]), "", "")
    place = draw.below(len(chosen))
    statements = [*chosen[1 : place + 1], chosen[0], *chosen[place + 1 :]]
    before = "".join(_text(_written(c)) + " " for c in statements[:place])
    answer, start = _cut(_written(chosen[0]), roles)
    passage = " ".join(_text(_written(c)) for c in statements)
    return Question(_text(_written(question)), passage, answer, str(len(before) + start))


def _verbs(clause: Clause) -> frozenset[str]:
    """Return the verbs that identify the statement a question refers to."""
    verb = VERBS[clause.verb].base if clause.verb in VERBS else clause.verb
    return frozenset({verb, clause.tense} & {verb, "want", "like"})


def _written(clause: Clause) -> Tokens:
    return english.sentence(Sentence("plain", clause))


def _text(tokens: Tokens) -> str:
    return " ".join(token.text for token in tokens)


def _cut(tokens: Tokens, roles: tuple[str, ...]) -> tuple[str, int]:
    """Return the text of the tokens with these roles, and the character at which it begins."""
    places = [i for i, token in enumerate(tokens) if any(node.startswith(roles) for node in token.nodes)]
    first, last = places[0], places[-1] + 1
    return _text(tokens[first:last]), len(_text(tokens[:first])) + bool(first)
