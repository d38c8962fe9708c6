"""Inputs without content: in every task, the message on one has the same form, with its file and line."""

import json
from pathlib import Path

import pytest
from base_recipes import BASES, base, write_rows
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.tasks.registry import TASKS

KINDS = [name for name in BASES if "," not in name]
RUNNING = ("language-modelling", "masked-language-modelling")
TEXTS = {"text", "source", "words", "question"}
NOTHING = {"question-answering": "\t"}
VERBS = {"sentence-embedding": ("embed",)}
MESSAGES = {
    **dict.fromkeys(("image-classification", "segmentation", "captioning"), "the path of an image is empty"),
    "question-answering": "the input is empty: it has no passage",
}


def test_every_task_has_a_case():
    assert {*KINDS} == TASKS.keys()


BLANK = (" ", "\u00a0", "\n", " \t\u2003\r\n\u00a0")
"""What cells of spreadsheets contain that look empty."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("empty")
    write_rows(made)
    return made


@pytest.fixture(scope="module")
def run_of(folder):
    """Return the run of a task, trained once."""
    runs = {}

    def trained(kind):
        if kind not in runs:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                heedful.train(base(kind), kind, device="cpu")
            runs[kind] = heedful.load(folder / kind, device="cpu")
        return runs[kind]

    return trained


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*KINDS} - MESSAGES.keys() | {"question-answering"}))
def test_an_input_of_white_space_alone_is_an_empty_one(kind, run_of):
    run = run_of(kind)

    def whole(text):
        return text if len(run.task.columns.inputs) == 1 else (text,) * len(run.task.columns.inputs)

    if kind != "sentence-embedding":  # of pairs; each text has its vector below
        empty, *others = run.predict([whole(text) for text in ("", *BLANK)], otherwise="none")
        if kind == "language-modelling":  # a prompt may end in white space, which is continued
            assert [empty.is_empty, *(other.is_empty for other in others)] == [False] * (1 + len(BLANK))
        else:
            assert empty.is_empty
            assert [other.to_dict() for other in others] == [empty.to_dict()] * len(BLANK)
        held = run.predict([whole(text) for text in BLANK], otherwise=None)
        assert all((each.to_dict()["output"] is None) == each.is_empty for each in held)
    vectors = run.embed(["", *BLANK])
    assert (vectors == vectors[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in BASES if k not in RUNNING and {*BASES[k]["columns"]} & TEXTS])
def test_training_rows_with_white_space_alone_are_dropped_as_empty_ones(kind, folder, monkeypatch):
    monkeypatch.chdir(folder)
    columns = BASES[kind]["columns"]
    column = next(name for name in columns if name in TEXTS)
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text("utf-8").splitlines()]
    reports = []
    for text in ("", "\u00a0"):
        changed = {**rows[0], column: [text] if isinstance(rows[0][column], list) else text}
        if column == "words":
            changed["tags"] = changed["tags"][:1] if text else []
            changed[column] = [text] if text else []
        lines = [json.dumps(row) for row in (*rows, changed)]
        Path("more.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        recipe = base(kind)
        for part in ("train", "valid"):
            recipe["data"][part]["paths"] = "more.jsonl"
        out = f"{kind} {len(text)}".replace(",", "")
        heedful.train(recipe, out, device="cpu")
        reports.append(json.loads(Path(out, "data.json").read_text("utf-8"))["train"]["dropped"])
    assert reports[0] == reports[1]
    assert reports[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_input_is_named_by_file_and_line(kind, folder, run_of, monkeypatch):
    run_of(kind)
    monkeypatch.chdir(folder)
    nothing = NOTHING.get(kind, "")
    (folder / "inputs.txt").write_text(f"{nothing}\n{nothing}\n", "utf-8")
    for verb in VERBS.get(kind, ("predict", "embed")):
        done = CliRunner().invoke(app, [verb, kind, "inputs.txt", "--device", "cpu"])
        logged = [line for line in done.stderr.splitlines() if "empty" in line]
        if kind == "language-modelling" and verb == "predict":
            assert logged == []  # an empty prompt is continued
            continue
        message = MESSAGES.get(kind, "the input is empty")
        if verb == "embed":
            message = message.partition(":")[0]
        assert logged == [f"heedful: inputs.txt:{line}: {message}" for line in (1, 2)], (verb, done.stderr)


@pytest.mark.slow
def test_an_empty_line_in_place_of_two_texts_has_the_same_form(folder, monkeypatch):
    monkeypatch.chdir(folder)
    heedful.train(base("question-answering"), "two texts", device="cpu")
    (folder / "lines.txt").write_text("who?\tdog\n\n", "utf-8")
    done = CliRunner().invoke(app, ["predict", "two texts", "lines.txt", "--device", "cpu"])
    assert "heedful: lines.txt:2: the input is empty; expected 2 texts separated by tabs" in done.stderr
    assert done.exit_code == 1
