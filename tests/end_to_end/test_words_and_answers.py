"""Taggers, answerers and regressions by the real command: trained, used, scored, described, and refusals."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
REST = """\
tokenizer: {subwords: {kind: word}}
model:
  kind: encoder
  d_model: 12
  n_layers: 1
  max_length: 15
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 4, tokens_per_update: 90, validate_every: 2, save_every: 2, precision: fp32}
"""
ROWS = {
    "tagging": [
        {"words": "the cat sat", "tags": "DET NOUN VERB"},
        {"words": "a dog lay", "tags": "DET NOUN VERB"},
    ],
    "question-answering": [
        {"question": "who sat ?", "passage": "the cat sat . a dog lay", "answer": "the cat"},
        {"question": "who lay ?", "passage": "the cat sat . a dog lay", "answer": "a dog"},
    ],
    "regression": [
        {"text": "the cat sat", "label": 1.5},
        {"text": "a dog lay", "label": -2},
    ],
}
MORE = {"question-answering": "windows: {longest_question: 4}\n"}
NAMES = list(ROWS)


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@pytest.fixture(scope="module")
def folder(heedful, tmp_path_factory):
    """A trained run of each task; nobody may change them."""
    folder = tmp_path_factory.mktemp("tasks")
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 9), "utf-8")
        source = (
            f"{{kind: jsonl, paths: {name}.jsonl, columns: {{{', '.join(f'{c}: {c}' for c in rows[0])}}}}}"
        )
        data = f"data:\n  train: {source}\n  valid: {source}\n  test:\n    own: {source}\n"
        recipe = f"task: {{kind: {name}}}\n{data}{REST}{MORE.get(name, '')}"
        (folder / f"{name}.yaml").write_text(recipe, "utf-8")
        done = heedful("train", f"{name}.yaml", "--out", name, cwd=folder)
        assert done.status == 0, done.err
    return folder


def test_every_word_of_a_line_has_a_tag(heedful, folder):
    lines = ["the cat sat", "", "  a  dog ", "unknown", "the cat " * 20]
    done = heedful("predict", "tagging", cwd=folder, stdin="\n".join(lines) + "\n")
    assert done.status == 0, done.err
    tags = [line.split() for line in done.out.split("\n")[:-1]]
    assert [len(own) for own in tags] == [len(line.split()) for line in lines]
    assert "the input is empty" in done.err
    assert "read in 4 parts" in done.err


def test_words_may_be_a_list_in_json(heedful, folder):
    lines = '{"words": ["the", "old cat"], "id": 1}\n{"words": "the cat", "id": 2}\n'
    done = heedful("predict", "tagging", "--jsonl", cwd=folder, stdin=lines)
    assert done.status == 0, done.err
    first, second = map(json.loads, done.out.splitlines())
    assert (first["words"], second["words"]) == (["the", "old cat"], ["the", "cat"])
    for record in (first, second):
        assert len(record["output"]) == len(record["log_probs"]) == 2
        assert record["score"] == pytest.approx(sum(record["log_probs"]))
        check("prediction", record)


def test_answers_come_with_their_places(heedful, folder):
    row = {**ROWS["question-answering"][0], "id": 7}
    done = heedful(
        "predict", "question-answering", "--jsonl", "--n-best", "3", cwd=folder, stdin=json.dumps(row)
    )
    assert done.status == 0, done.err
    record = json.loads(done.out)
    check("prediction", record)
    for found in (record, *record["alternatives"]):
        assert row["passage"][found["start"] : found["end"]] == found["output"]
    assert len(record["alternatives"]) == 2
    plain = heedful(
        "predict", "question-answering", cwd=folder, stdin=f"{row['question']}\t{row['passage']}\n"
    )
    assert plain.out == record["output"] + "\n"


def test_numbers_are_lines_and_values(heedful, folder):
    plain = heedful("predict", "regression", cwd=folder, stdin="the cat\n\n")
    assert plain.status == 0, plain.err
    first, second = plain.out.splitlines()
    assert (float(first), second) == (float(first), "")
    done = heedful("predict", "regression", "--jsonl", cwd=folder, stdin='{"text": "the cat"}\n')
    record = json.loads(done.out)
    check("prediction", record)
    assert record["output"] == pytest.approx(float(first), rel=1e-5)


@pytest.mark.parametrize("run", NAMES)
def test_what_has_no_text_has_an_error_in_its_place(heedful, folder, run):
    row = ROWS[run][0]
    key = next(iter(row))
    lines = "".join(json.dumps({**row, key: value}) + "\n" for value in (row[key], None, row[key]))
    done = heedful("predict", run, "--jsonl", cwd=folder, stdin=lines)
    assert done.status == 1
    first, second, third = map(json.loads, done.out.splitlines())
    check("prediction", second)
    assert "error" not in first
    assert first == third
    assert second["input"] == {**row, key: None}
    assert second["error"] == f"standard input:2: field '{key}' must be text, got null; remove such rows"


@pytest.mark.parametrize("run", NAMES)
def test_scores_and_descriptions_are_what_the_schemas_say(heedful, folder, run):
    done = heedful("evaluate", run, "--json", cwd=folder)
    assert done.status == 0, done.err
    check("evaluation", done.json())
    own = heedful("evaluate", run, "--table", f"{run}.jsonl", "--output", f"{run}.out", cwd=folder)
    assert own.status == 0, own.err
    assert len((folder / f"{run}.out").read_text("utf-8").splitlines()) == 18
    described = heedful("describe", run, "--time", "--length", "9", "--json", cwd=folder)
    assert described.status == 0, described.err
    check("ledger", described.json())
    recipe = heedful("describe", f"{run}.yaml", cwd=folder)
    assert recipe.status == 0, recipe.err


@pytest.mark.parametrize(
    "command, message",
    [
        (["predict", "tagging", "--beam", "3"], "generates no text"),
        (["predict", "tagging", "--jsonl", "--n-best", "2"], "n_best=2: not supported"),
        (["predict", "tagging", "--jsonl"], "field 'words.1' must be text, got null"),
        (["predict", "question-answering"], "expected 2 texts separated by tabs (question, passage)"),
        (
            ["predict", "question-answering", "--jsonl", "--attention"],
            "no field 'question'; there are text, words",
        ),
        (["evaluate", "tagging", "--stride", "3"], "has no windows"),
    ],
)
def test_wrong_requests_are_told(heedful, folder, command, message):
    done = heedful(*command, cwd=folder, stdin='{"text": ["a"], "words": ["a", null]}\n')
    assert done.status in (1, 2), done.out
    assert message in done.err
    assert "Traceback" not in done.err
