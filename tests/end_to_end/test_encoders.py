"""Encoders by the real command: a masked language model, classifiers of texts and pairs, what they refuse."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
TEXT = "the cat sat on the mat while the dog lay on the log\n" * 12
ROWS = [("cat", "the cat sat"), ("dog", "the dog lay"), ("cat", "a cat on the mat"), ("dog", "a dog")] * 6
MASKED = """\
task: {kind: masked-language-modelling, next_sentence: true}
data:
  train: {kind: text, paths: text.txt}
  valid: {kind: text, paths: text.txt}
tokenizer: {subwords: {kind: bpe, merges: 20}}
model:
  kind: encoder
  d_model: 12
  n_layers: 1
  max_length: 15
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 6, tokens_per_update: 90, validate_every: 3, save_every: 3, precision: fp32}
"""
LABELS = """\
task: {kind: classification, pairs: PAIRS}
data:
  train: {kind: tsv, paths: rows.tsv, header: true, columns: COLUMNS}
  valid: {kind: tsv, paths: rows.tsv, header: true, columns: COLUMNS}
  test:
    own: {kind: tsv, paths: rows.tsv, header: true, columns: COLUMNS}
tokenizer: {subwords: {kind: word}}
model:
  kind: encoder
  d_model: 12
  n_layers: 1
  max_length: 15
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 6, tokens_per_update: 90, validate_every: 3, save_every: 3, precision: fp32}
"""


def write(folder):
    (folder / "text.txt").write_text(TEXT, "utf-8")
    lines = ["label\ttext\tpair", *("\t".join([label, text, "again"]) for label, text in ROWS)]
    (folder / "rows.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "masked.yaml").write_text(MASKED, "utf-8")
    for name, columns in (("single", ["text", "label"]), ("pairs", ["text", "pair", "label"])):
        recipe = LABELS.replace("PAIRS", str(name == "pairs").lower())
        recipe = recipe.replace("COLUMNS", "{" + ", ".join(f"{c}: {c}" for c in columns) + "}")
        (folder / f"{name}.yaml").write_text(recipe, "utf-8")


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@pytest.fixture(scope="module")
def folder(heedful, tmp_path_factory):
    """Trained runs: ``masked``, ``tuned`` on top of it, and ``pairs``; nobody may change them."""
    folder = tmp_path_factory.mktemp("encoders")
    write(folder)
    for command in (
        ["masked.yaml", "--out", "masked"],
        ["single.yaml", "start.run=masked", "start.frozen=body", "--out", "tuned"],
        ["pairs.yaml", "--out", "pairs"],
    ):
        done = heedful("train", *command, cwd=folder)
        assert done.status == 0, done.err
    return folder


def test_gaps_are_filled_one_line_for_each(heedful, folder):
    done = heedful("predict", "masked", cwd=folder, stdin="the [MASK] sat\n\nno gap\n")
    assert done.status == 0, done.err
    first, second, third = done.out.splitlines()
    assert "[MASK]" not in first
    assert (second, third) == ("", "no gap")
    assert "there is no [MASK] to fill" in done.err
    assert "decoding in" not in done.err


def test_something_else_may_stand_for_a_gap(heedful, folder):
    one = heedful("predict", "masked", cwd=folder, stdin="the [MASK] sat\n")
    other = heedful("predict", "masked", "--gap", "___", cwd=folder, stdin="the ___ sat\n")
    assert one.out == other.out


def test_labels_come_with_their_probabilities(heedful, folder):
    lines = "".join(json.dumps({"text": text, "id": i}) + "\n" for i, (_, text) in enumerate(ROWS[:3]))
    done = heedful("predict", "tuned", "--jsonl", "--n-best", "2", cwd=folder, stdin=lines)
    assert done.status == 0, done.err
    for i, line in enumerate(done.out.splitlines()):
        record = json.loads(line)
        assert record["input"] == {"text": ROWS[i][1], "id": i}
        assert {record["output"], record["alternatives"][0]["output"]} == {"cat", "dog"}
        check("prediction", record)


def test_a_tuned_run_says_what_it_started_from(heedful, folder):
    done = heedful("train", "single.yaml", "start.run=masked", "--out", "again", cwd=folder)
    assert "starting from the weights of masked; newly initialised heads: class" in done.err
    assert "2 labels: cat, dog" in done.err


def test_pairs_are_lines_with_a_tab_or_json(heedful, folder):
    plain = heedful("predict", "pairs", cwd=folder, stdin="the cat\tagain\na dog\t\n")
    lines = '{"text": "the cat", "pair": "again"}\n{"text": "a dog", "pair": ""}\n'
    structured = heedful("predict", "pairs", "--jsonl", cwd=folder, stdin=lines)
    assert plain.status == structured.status == 0
    assert plain.out.splitlines() == [json.loads(line)["output"] for line in structured.out.splitlines()]


@pytest.mark.parametrize("run", ["masked", "tuned", "pairs"])
def test_a_pair_without_its_second_text_has_an_error_in_its_place(heedful, folder, run):
    lines = "".join(json.dumps({"text": "a [MASK]", "pair": pair}) + "\n" for pair in ("b", None, "b"))
    done = heedful("predict", run, "--jsonl", cwd=folder, stdin=lines)
    first, second, third = map(json.loads, done.out.splitlines())
    assert first == third
    reads_pairs = run != "tuned"
    assert done.status == reads_pairs
    assert ("error" in second) == reads_pairs
    check("prediction", second)


@pytest.mark.parametrize("run", ["masked", "tuned", "pairs"])
def test_evaluation_is_what_the_schema_says(heedful, folder, run):
    split = ["--split", "valid"] if run == "masked" else []
    done = heedful("evaluate", run, *split, "--json", cwd=folder)
    assert done.status == 0, done.err
    check("evaluation", done.json())
    assert heedful("evaluate", run, *split, cwd=folder).status == 0


def test_a_users_own_files_are_scored(heedful, folder):
    done = heedful("evaluate", "tuned", "--table", "rows.tsv", "--output", "rows.jsonl", cwd=folder)
    assert done.status == 0, done.err
    records = [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]
    assert len(records) == len(ROWS)
    assert {"input", "output", "target", "correct"} <= set(records[0])
    assert heedful("evaluate", "masked", "--text", "text.txt", cwd=folder).status == 0


@pytest.mark.parametrize("run", ["masked", "tuned", "pairs"])
def test_runs_are_described(heedful, folder, run):
    done = heedful("describe", run, "--json", cwd=folder)
    assert done.status == 0, done.err
    check("ledger", done.json())


@pytest.mark.parametrize(
    "command, message",
    [
        (["predict", "tuned", "--beam", "3"], "generates no text"),
        (["predict", "tuned", "--decoding", "kind=sample"], "generates no text"),
        (["predict", "tuned", "--stream"], "does not support streaming"),
        (["predict", "tuned", "--gap", "x"], "not supported for task"),
        (["predict", "tuned", "--jsonl", "--attention"], "attention over a source is not available"),
        (["predict", "pairs"], "expected 2 texts separated by tabs (text, pair)"),
        (["evaluate", "tuned", "--stride", "3"], "has no windows"),
        (["evaluate", "tuned", "--table", "missing.tsv"], "missing.tsv"),
    ],
)
def test_wrong_requests_are_told(heedful, folder, command, message):
    done = heedful(*command, cwd=folder, stdin='{"text": "a"}\n')
    assert done.status in (1, 2), done.out
    assert message in done.err
    assert "Traceback" not in done.err
