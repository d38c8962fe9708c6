"""Rows longer than the filter or the model allows: counted, logged, dropped or refused, in every task."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.errors import DataError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.prepare import prepare
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.registry import TASKS

N, LONG = 11, (2, 5, 7)
"""Rows of each file, and the numbers of the lines that are too long."""

SHORT_TEXT, LONG_TEXT = "one two three", "one two three " * 4
CODER = {
    "kind": "transformer",
    "d_model": 8,
    "n_layers": 1,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 9}},
}
READER = {**CODER, "kind": "encoder", "max_length": 8}
WORDS = {"subwords": {"kind": "word"}}


def labelled(i, text):
    return {"text": text, "label": str(1 + i % 2)}


@dataclass
class Case:
    """A task, the row of a line, and what is said of its long rows.

    Args:
        row: of the number of the line and a text that is long or short.
        sections: of the recipe, besides data, training and schedule.
        filter: of its data.
        truncated: what reports call it.
        evaluated: what scores report of it; None: the very rows are read whole.
        predicted: what is noted about an answer to a long row.
        limits: how many limits a long row is over.
    """

    row: Any
    sections: dict[str, Any]
    truncated: tuple[str, ...]
    filter: dict[str, Any] = field(default_factory=dict)
    evaluated: str = "truncated, longer than the model reads: 3 (rows.jsonl:2, rows.jsonl:5, rows.jsonl:7)"
    predicted: str | None = "cut from 12 to 6 tokens"


TEXT_LIMIT = ("text longer than 6 (model.max_length=8, of which 2 are special tokens)",)
WRITING = {
    "model": {**CODER, "positions": "learned", "max_length": 7},
    "tokenizer": WORDS,
    "decoding": {"kind": "greedy", "max_length": {"cap": 6}},
}
LIMITS = ("source longer than 6", "target longer than 6")

CASES = {
    "translation": Case(
        lambda i, text: {"source": text, "target": text},
        WRITING,
        LIMITS,
        {"max_length": 6},
        predicted="source cut from 12 to 6 tokens",
    ),
    "summarisation": Case(
        lambda i, text: {"source": text, "target": "one"},
        WRITING,
        LIMITS[:1],
        {"max_length": 6},
        predicted="source cut from 12 to 6 tokens",
    ),
    "classification": Case(labelled, {"model": READER, "tokenizer": WORDS}, TEXT_LIMIT),
    "classification, pairs": Case(
        lambda i, text: {**labelled(i, text), "pair": "two"},
        {
            "task": {"kind": "classification", "pairs": True},
            "model": {**READER, "segments": 2},
            "tokenizer": WORDS,
        },
        ("text with pair longer than 5 (model.max_length=8, of which 3 are special tokens)",),
        predicted="cut from 13 to 5 tokens",
    ),
    "classification, language model": Case(
        labelled,
        {"model": {**CODER, "kind": "language-model", "context": 8}, "tokenizer": WORDS},
        ("text longer than 6 (model.context=8, of which 2 are special tokens)",),
    ),
    "classification, filter and model": Case(
        labelled, {"model": READER, "tokenizer": WORDS}, ("text longer than 4",), {"max_length": 4}
    ),
    "multilabel-classification": Case(labelled, {"model": READER, "tokenizer": WORDS}, TEXT_LIMIT),
    "regression": Case(labelled, {"model": READER, "tokenizer": WORDS}, TEXT_LIMIT),
    "sentence-embedding": Case(
        lambda i, text: {"text": text, "pair": "two"}, {"model": READER, "tokenizer": WORDS}, TEXT_LIMIT
    ),
    "tagging": Case(
        lambda i, text: {"words": f"a {text.strip().replace(' ', '-')[:24]}", "tags": f"x {'xy'[i % 2]}"},
        {"model": {**READER, "max_length": 18}, "tokenizer": {"subwords": {"kind": "character"}}},
        ("a word longer than 16 (model.max_length=18)",),
        predicted="words longer than 16 tokens are cut, by 9 in all; read in 2 parts",
    ),
    "question-answering": Case(
        lambda i, text: {"question": text, "passage": "one two", "answer": "two"},
        {"model": {**READER, "segments": 2}, "tokenizer": WORDS, "windows": {"longest_question": 4}},
        ("question longer than 4",),
        predicted="question cut from 12 to 4 tokens",
    ),
    "captioning": Case(
        lambda i, text: {"image": "image.png", "caption": text},
        {
            "model": {
                **CODER,
                "kind": "captioner",
                "image_size": 8,
                "patch_size": 4,
                "positions": "learned",
                "max_length": 7,
            },
            "tokenizer": WORDS,
            "decoding": {"kind": "greedy", "max_length": {"cap": 6}},
        },
        ("caption longer than 6",),
        {"max_length": {"caption": 6}},
        evaluated="not in the perplexity, longer than the model reads: 3 of 11",
        predicted=None,  # nothing of an image is cut
    ),
}

WHOLE = {
    "language-modelling": {"model": {**CODER, "kind": "language-model", "context": 5}, "tokenizer": WORDS},
    "masked-language-modelling": {"model": READER, "tokenizer": WORDS},
}
"""Tasks that read a stream in windows: no row is cut."""

every_case = pytest.mark.parametrize("name", CASES)


def test_every_task_occurs():
    tasks = {name.partition(",")[0] for name in CASES} | {*WHOLE, "image-classification", "segmentation"}
    assert tasks == {*TASKS}


def write(folder, row):
    lines = [row(i, LONG_TEXT if i in LONG else SHORT_TEXT) for i in range(1, N + 1)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / "image.png")
    return lines


def recipe_of(folder, task, sections, row, filter=None):
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {column: column for column in row}}
    tree = {
        "task": {"kind": task},
        "data": {"train": source, "valid": source, "test": {"test": source}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {
            "max_updates": 1, "tokens_per_update": 200, "validate_every": 1, "save_every": 1,
            "precision": "fp32",
        },
        **sections,
    }  # fmt: skip
    if filter:
        tree["data"]["filter"] = filter
    return recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})


def made(folder, name, **filter):
    """The recipe of a case, and its rows."""
    case = CASES[name]
    rows = write(folder, case.row)
    settings = {**case.filter, **filter}
    return recipe_of(folder, name.partition(",")[0], case.sections, rows[0], settings), rows


@pytest.mark.slow
@every_case
def test_rows_that_are_cut_are_counted_and_told(tmp_path, name):
    case, logged = CASES[name], []
    recipe, rows = made(tmp_path, name)
    train_run(recipe, tmp_path / "run", device="cpu", log=logged.append)
    report = json.loads((tmp_path / "run/data.json").read_text())
    tally = {"count": 3, "examples": [f"rows.jsonl:{i}" for i in LONG]}
    for part in ("train", "valid"):
        assert (report[part]["rows"], report[part]["kept"]) == (N, N)
        assert report[part]["truncated"] == dict.fromkeys(case.truncated, tally)
    places = "(rows.jsonl:2, rows.jsonl:5, rows.jsonl:7)"
    for reason in case.truncated:
        assert logged.count(f"  truncated, {reason}: 3 {places}") == 2
    run = load(tmp_path / "run", device="cpu")
    assert case.evaluated in evaluate(run, *chosen_splits(run, "test", None).popitem()).notes
    inputs = [run.task.columns.input_of(row) for row in rows]
    if "image" in rows[0]:
        inputs = [tmp_path / path for path in inputs]
    predictions = run.predict(inputs)
    assert [i for i, p in enumerate(predictions, 1) if p.cut] == ([*LONG] if case.predicted else [])
    of_inputs = {"; ".join(p.notes).partition("output cut at")[0].removesuffix("; ") for p in predictions}
    assert of_inputs == {"", case.predicted or ""}


@every_case
def test_rows_that_are_too_long_are_dropped_and_counted(tmp_path, name):
    recipe, _ = made(tmp_path, name, too_long="drop")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    prepare(recipe, folder, lambda line: None)
    report = json.loads(folder.data_report.read_text())["train"]
    tally = {"count": 3, "examples": [f"rows.jsonl:{i}" for i in LONG]}
    assert (report["kept"], report["truncated"]) == (N - 3, {})
    assert report["dropped"] == {CASES[name].truncated[0]: tally}


@every_case
def test_a_row_that_is_too_long_is_refused_by_its_place(tmp_path, name):
    recipe, _ = made(tmp_path, name, too_long="error")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with pytest.raises(DataError, match=r"^data\.valid: rows\.jsonl:2: .* tokens, more than .*truncate"):
        prepare(recipe, folder, lambda line: None)


@pytest.mark.parametrize("task", WHOLE)
def test_running_text_is_never_cut(tmp_path, task):
    rows = write(tmp_path, lambda i, text: {"text": text.strip()})
    recipe = recipe_of(tmp_path, task, WHOLE[task], rows[0])
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    prepared = prepare(recipe, folder, lambda line: None)
    report = json.loads(folder.data_report.read_text())["train"]
    assert report["truncated"] == report["dropped"] == {}
    n_words = sum(len(row["text"].split()) for row in rows)
    assert len(prepared.train.stream("text")) == n_words + N  # and the end of each document


def test_an_answer_that_no_window_holds_is_counted_and_left_out(tmp_path):
    """Otherwise the row would be in no batch, or teach that there is no answer."""
    answers = {i: LONG_TEXT.strip() if i in LONG else "two" for i in range(1, N + 1)}
    rows = write(tmp_path, lambda i, text: {"question": "one", "passage": LONG_TEXT, "answer": answers[i]})
    sections = {
        **CASES["question-answering"].sections,
        "task": {"kind": "question-answering", "unanswerable": True},
    }
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    prepare(recipe_of(tmp_path, "question-answering", sections, rows[0]), folder, lambda line: None)
    report = json.loads(folder.data_report.read_text())["train"]
    ((reason, tally),) = report["dropped"].items()
    assert reason.startswith("no window holds the whole answer")
    assert (report["kept"], tally["examples"]) == (N - 3, [f"rows.jsonl:{i}" for i in LONG])
