"""Questions about short passages of the phrasebook's English, whose answers are stretches of the passage.

A passage has two to four statements, each with another verb, so that a question is about one of them: *who*
did something (of persons), *what* it was done to (of things), and *where* (with the preposition). Question
and statement are written from one derivation, in which the part asked for gives way to the question word.

In validation and test, the statement that is asked for joins words that no statement in training joins (see
`heedful.data.corpora.phrasebook`); the others are as in training.
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
"""The share of questions without an answer, where there are such."""

_SEEDS = {"train": 1, "valid": 2, "test": 3}
_PERSONS = {"person", "kin"}
_LIVING = {"person", "kin", "animal"}


class Question(NamedTuple):
    """A question about a passage.

    Args:
        question: with its question mark.
        passage: words and full stops, separated by blanks.
        answer: as it stands in the passage; empty if the passage does not tell.
        start: the character of the passage at which it begins, as text; empty likewise.
    """

    question: str
    passage: str
    answer: str
    start: str


def asked(statement: Clause) -> list[tuple[Clause, tuple[str, ...]]]:
    """The questions that a statement answers, each with the nodes (or their roles) that are its answer."""
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
    """The questions of a split; the same for a seed on every machine.

    Args:
        split: ``train``, ``valid`` or ``test``.
        seed: of the choices; what is held out does not hang on it.
        unanswerable: whether a quarter is about statements that are not in the passage.

    Raises:
        RequestError: for a split that is not there.
    """
    if split not in COUNTS:
        raise RequestError(
            f"there is no split {split!r}{nearest(split, COUNTS)}; there are {', '.join(COUNTS)}"
        )
    pools, draw = _statements(seed), Draw(4 * seed + _SEEDS[split])
    return (_question(draw, pools[split], pools["train"], unanswerable) for _ in range(COUNTS[split]))


@cache
def _statements(seed: int) -> dict[str, tuple[Clause, ...]]:
    """For each split the clauses that answer a question."""
    found: dict[str, list[Clause]] = {split: [] for split in COUNTS}
    for s in derivations("de", seed, DERIVATIONS):
        clause, split = s.main, split_of(s, "de")
        told = s.kind == "plain" and not s.address and not clause.question and not clause.negative
        if told and split is not None and asked(clause):
            found[split].append(clause)
    return {split: tuple(clauses) for split, clauses in found.items()}


def _question(
    draw: Draw, asked_of: tuple[Clause, ...], others: tuple[Clause, ...], unanswerable: bool
) -> Question:
    chosen = [draw.pick(asked_of)]
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
    """The words by which a question tells a statement from others."""
    verb = VERBS[clause.verb].base if clause.verb in VERBS else clause.verb
    return frozenset({verb, clause.tense} & {verb, "want", "like"})


def _written(clause: Clause) -> Tokens:
    return english.sentence(Sentence("plain", clause))


def _text(tokens: Tokens) -> str:
    return " ".join(token.text for token in tokens)


def _cut(tokens: Tokens, roles: tuple[str, ...]) -> tuple[str, int]:
    """The tokens that stand for the roles, and the character at which they begin."""
    places = [i for i, token in enumerate(tokens) if any(node.startswith(roles) for node in token.nodes)]
    first, last = places[0], places[-1] + 1
    return _text(tokens[first:last]), len(_text(tokens[:first])) + bool(first)
