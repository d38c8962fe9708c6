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
from heedful.data.corpora.grammar import Clause, Draw, Nominal, Sentence, Tokens
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


def questions_about(statement: Clause) -> list[tuple[Clause, tuple[str, ...]]]:
    """Return the questions that a statement answers, each with the nodes (or their roles) of its answer."""
    untimed = statement._replace(time="", early=False)
    candidates: list[tuple[Clause, tuple[str, ...]]] = []
    subject, object_phrase = statement.subject.noun, statement.object
    if subject not in PRONOUNS and (subject not in NOUNS or NOUNS[subject].is_any("person", "kin")):
        question = untimed._replace(subject=Nominal("who"), question="subject")
        candidates.append((question, ("subject.", "and", "partner.")))
    if (
        object_phrase
        and object_phrase.noun in NOUNS
        and not NOUNS[object_phrase.noun].is_any("person", "kin", "animal")
    ):
        candidates.append((untimed._replace(object=Nominal("what"), question="object"), ("object.",)))
    if statement.place is not None:
        candidates.append((untimed._replace(place=None, question="where"), ("place",)))
    return candidates


def questions(split: str, seed: int = 0, *, unanswerable: bool = False) -> Iterator[Question]:
    """Yield the questions of a split; the same for a seed on every machine.

    Args:
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of the choices; the held-out combinations do not depend on it.
        unanswerable: whether a quarter of the questions is about statements that are not in the passage.
    """
    pools, draw = _statements(seed), Draw(4 * seed + 1 + list(COUNTS).index(split))
    return (_question(draw, pools[split], pools["train"], unanswerable) for _ in range(COUNTS[split]))


@cache
def _statements(seed: int) -> dict[str, list[Clause]]:
    """Return the clauses of each split that answer a question."""
    statements_by_split: dict[str, list[Clause]] = {split: [] for split in COUNTS}
    for s in derivations("de", seed, DERIVATIONS):
        clause, split = s.main, split_of(s, "de")
        is_statement = s.kind == "plain" and not s.address and not clause.question and not clause.negative
        if is_statement and split is not None and questions_about(clause):
            statements_by_split[split].append(clause)
    return statements_by_split


def _question(draw: Draw, candidates: list[Clause], others: list[Clause], unanswerable: bool) -> Question:
    clauses = [draw.pick(candidates)]
    verbs, n_statements = _verbs(clauses[0]), FEWEST + draw.below(MOST - FEWEST + 1)
    while len(clauses) < n_statements:
        distractor = draw.pick(others)
        if verbs.isdisjoint(_verbs(distractor)):
            clauses.append(distractor)
            verbs |= _verbs(distractor)
    question, roles = draw.pick(questions_about(clauses[0]))
    if unanswerable and draw.chance(UNANSWERABLE):
        return Question(_text(_tokens(question)), " ".join(_text(_tokens(c)) for c in clauses[1:]), "", "")
    position = draw.below(len(clauses))
    statements = [*clauses[1 : position + 1], clauses[0], *clauses[position + 1 :]]
    texts = [_text(_tokens(c)) for c in statements]
    answer, start = _answer_span(_tokens(clauses[0]), roles)
    start += sum(len(text) + 1 for text in texts[:position])
    return Question(_text(_tokens(question)), " ".join(texts), answer, str(start))


def _verbs(clause: Clause) -> frozenset[str]:
    """Return the verbs that identify the statement a question refers to."""
    verb = VERBS[clause.verb].base
    return frozenset({verb, clause.tense} & {verb, "want", "like"})


def _tokens(clause: Clause) -> Tokens:
    return english.sentence(Sentence("plain", clause))


def _text(tokens: Tokens) -> str:
    return " ".join(token.text for token in tokens)


def _answer_span(tokens: Tokens, roles: tuple[str, ...]) -> tuple[str, int]:
    """Return the text of the tokens with these roles, and the character at which it begins."""
    positions = [i for i, token in enumerate(tokens) if any(node.startswith(roles) for node in token.nodes)]
    first, last = positions[0], positions[-1] + 1
    return _text(tokens[first:last]), len(_text(tokens[:first])) + bool(first)
