"""Questions in the form of SQuAD's files."""

import gzip
import json

import pytest
from pydantic import TypeAdapter

from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError

PASSAGE = "Anna sleeps.\r\nBob eats \u201ccake\u201d."


def question(text, *answers, **more):
    found = [{"text": answer, "answer_start": PASSAGE.index(answer)} for answer in answers]
    return {"id": "x", "question": text, "answers": found, **more}


ASKED = [
    question("who sleeps?", "Anna"),
    question("what is eaten?", "\u201ccake\u201d", "cake"),
    question("who is there?", "Bob", is_impossible=True, plausible_answers=[]),
    question("why?"),
]


def opened(root, paths="x.json"):
    source = TypeAdapter(SourceConfig).validate_python({"kind": "squad", "paths": paths})
    return list(open_source(source, root))


def file(*paragraphs):
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": [p]} for p in paragraphs]})


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_every_question_is_a_row_with_its_passage_and_all_answers(tmp_path, name):
    content = file({"context": PASSAGE, "qas": ASKED[:1]}, {"context": PASSAGE, "qas": ASKED[1:]}).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = opened(tmp_path, name)
    assert [row["question"] for row, _ in found] == [each["question"] for each in ASKED]
    assert {row["passage"] for row, _ in found} == {PASSAGE}
    answers = [["Anna"], ["\u201ccake\u201d", "cake"], [], []]
    assert [row["answer"] for row, _ in found] == answers
    assert [str(where) for _, where in found] == [f"{name}, question {n}" for n in (1, 2, 3, 4)]
    for row, _ in found:
        for answer, start in zip(row["answer"], row["start"], strict=True):
            assert row["passage"][int(start) :].startswith(answer)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "x.json: the file is empty"),
        ('{"question": "a"}\n{"question": "b"}', "x.json: invalid JSON"),
        ("[]", "x.json: expected a list 'data' of objects"),
        ('{"data": [{"paragraphs": 3}]}', "x.json: expected a list 'paragraphs' of objects"),
        ('{"data": [{"paragraphs": [{"context": "a"}]}]}', "x.json: expected a list 'qas' of objects"),
        (file({"qas": ASKED}), "x.json, question 1: no field 'context'"),
        (file({"context": "a", "qas": [{"question": "b"}]}), "x.json, question 1: expected a list 'answers'"),
        (file({"context": "a", "qas": [{"question": None, "answers": []}]}), "must be text, got null"),
    ],
)
def test_malformed_files_are_refused(tmp_path, content, message):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataError, match=message):
        opened(tmp_path)
