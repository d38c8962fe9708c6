"""Inputs without content: in every task, the message on one has the same form, with its file and line."""

import pytest
from base_recipes import BASES, base, write_rows
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.tasks.registry import TASKS

KINDS = [name for name in BASES if "," not in name]
NOTHING = {"question-answering": "\t"}
VERBS = {"sentence-embedding": ("embed",)}
MESSAGES = {
    **dict.fromkeys(("image-classification", "segmentation", "captioning"), "the path of an image is empty"),
    "question-answering": "the input is empty: it has no passage",
}


def test_every_task_has_a_case():
    assert {*KINDS} == TASKS.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("empty")
    write_rows(made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_input_is_named_by_file_and_line(kind, folder, monkeypatch):
    monkeypatch.chdir(folder)
    heedful.train(base(kind), kind, device="cpu")
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
