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
from heedful.data.corpora.derivations import derivations
from heedful.data.corpora.grammar import Clause, Draw, Nominal, Sentence, Tokens, require_split
from heedful.data.corpora.lexicon import NOUNS, PRONOUNS, VERBS
from heedful.data.corpora.phrasebook import DERIVATIONS, split_of

COUNTS = {"train": 8_000, "valid": 500, "test": 500}
FEWEST, MOST = 2, 4
UNANSWERABLE = 0.25
"""The share of questions without an answer in the corpus that has them."""


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
    if subject not in PRONOUNS and (subject not in NOUNS or NOUNS[subject].is_any("person", "kin")):
        question = plain._replace(subject=Nominal("who"), question="subject")
        found.append((question, ("subject.", "and", "partner.")))
    if thing and thing.noun in NOUNS and not NOUNS[thing.noun].is_any("person", "kin", "animal"):
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
    require_split("phrasebook-questions", split)
    pools, draw = _statements(seed), Draw(4 * seed + 1 + list(COUNTS).index(split))
    return (_question(draw, pools[split], pools["train"], unanswerable) for _ in range(COUNTS[split]))


@cache
def _statements(seed: int) -> dict[str, list[Clause]]:
    """Return the clauses of each split that answer a question."""
    found: dict[str, list[Clause]] = {split: [] for split in COUNTS}
    for s in derivations("de", seed, DERIVATIONS):
        clause, split = s.main, split_of(s, "de")
        is_statement = s.kind == "plain" and not s.address and not clause.question and not clause.negative
        if is_statement and split is not None and asked(clause):
            found[split].append(clause)
    return found


def _question(draw: Draw, candidates: list[Clause], others: list[Clause], unanswerable: bool) -> Question:
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
    texts = [_text(_written(c)) for c in statements]
    answer, start = _cut(_written(chosen[0]), roles)
    start += sum(len(text) + 1 for text in texts[:place])
    return Question(_text(_written(question)), " ".join(texts), answer, str(start))


def _verbs(clause: Clause) -> frozenset[str]:
    """Return the verbs that identify the statement a question refers to."""
    verb = VERBS[clause.verb].base
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
