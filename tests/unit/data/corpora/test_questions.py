"""Questions about the phrasebook: fixed, answered where they say, by one statement alone, and held out."""

import hashlib
from functools import cache

import pytest

from heedful.data.corpora import open_corpus
from heedful.data.corpora.phrasebook import HELD_OUT
from heedful.data.corpora.questions import COUNTS, questions

# Change it only with the version of the package: published scores refer to this corpus.
DIGEST = "a180a12152399052"


@cache
def rows(split, kind="phrasebook-questions"):
    return list(open_corpus(kind, split))


def statements(passage):
    return [sentence.split() for sentence in passage.split(" .") if sentence]


@pytest.mark.slow
def test_the_corpus_never_changes_silently():
    text = "\n".join("\t".join(row.values()) for split in COUNTS for row in rows(split))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST


@pytest.mark.parametrize("split", COUNTS)
def test_answers_stand_where_they_say(split):
    assert len(rows(split)) == COUNTS[split]
    for row in rows(split):
        start = int(row["start"])
        assert row["answer"]
        assert row["passage"][start : start + len(row["answer"])] == row["answer"]
        assert row["question"].endswith(" ?")
        assert 2 <= len(statements(row["passage"])) <= 4
        first = row["question"].split()[0]
        assert first in ("who", "what", "where")
        if first == "where":
            assert row["answer"].split()[0] in ("in", "at", "on", "to", "under", "behind", "by")


@pytest.mark.parametrize("split", COUNTS)
def test_the_answer_lies_in_one_statement_that_shares_the_rest_of_the_question(split):
    for row in rows(split):
        start = int(row["start"])
        number = row["passage"][:start].count(" .")
        statement = statements(row["passage"])[number]
        answer = row["answer"].split()
        assert len(answer) < len(statement)
        assert any(statement[i : i + len(answer)] == answer for i in range(len(statement)))
        rest = set(row["question"].split()[1:-1]) - {"did", "does", "do"}
        # All but the verb, whose form may be another.
        assert len(rest - set(statement)) <= 1


def test_every_sort_of_question_is_there_and_every_place_of_the_answer():
    train = rows("train")
    firsts = [row["question"].split()[0] for row in train]
    assert min(firsts.count(word) for word in ("who", "what", "where")) > len(train) // 10
    numbers = {row["passage"][: int(row["start"])].count(" .") for row in train}
    assert numbers == {0, 1, 2, 3}


def test_test_asks_for_words_that_training_never_joins():
    train = [set(s) for row in rows("train") for s in statements(row["passage"])]
    forms = {"read": {"read", "reads"}, "newspaper": {"newspaper", "newspapers"}}
    assert ("read", "newspaper") in HELD_OUT["de"]["test"]
    assert not any(all(s & forms[word] for word in forms) for s in train)
    test = [set(s) for row in rows("test") for s in statements(row["passage"])]
    assert any(all(s & forms[word] for word in forms) for s in test)
    known = {word for row in rows("train") for word in (row["passage"] + " " + row["question"]).split()}
    used = {word for row in rows("test") for word in (row["passage"] + " " + row["question"]).split()}
    assert used <= known


def test_without_an_answer_the_statement_is_not_there():
    found = rows("valid", "phrasebook-questions-unanswerable")
    none = [row for row in found if not row["answer"]]
    assert 0.15 < len(none) / len(found) < 0.35
    assert all(row["start"] == "" and statements(row["passage"]) for row in none)


@pytest.mark.slow
def test_a_seed_draws_other_questions_and_the_same_ones_again():
    assert list(questions("valid", 1)) == list(questions("valid", 1)) != list(questions("valid", 0))
