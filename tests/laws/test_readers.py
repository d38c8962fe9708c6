"""One file, one reader: the file that trained a run is read by every verb, row for row the same.

A case writes a file, and names the source and task of a run that is trained on it. The rows of the training
are the reference; predictions, scores and embeddings, evaluations on the user's file, and trainings on it
(``--data``) must read the same.
"""

import gzip
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from heedful.api.given import with_data
from heedful.cli.inputs import image_paths
from heedful.data.lines import File, LocatedRow, Location, fields_of, find
from heedful.data.lines import lines as lines_of
from heedful.data.user_files import user_source
from heedful.recipes.trees import Mark, Tree
from heedful.runs.inputs import input_form, read_inputs
from heedful.runs.left_out import left_out, unread
from heedful.runs.prepare import join_lists, rows_of
from heedful.runs.reading import recipe_from
from heedful.tasks.registry import task_for

LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 9}}
ENCODER = {"kind": "encoder", "d_model": 8, "n_layers": 1, "max_length": 19, "layer": LAYER}
VISION = {"kind": "vision", "d_model": 8, "n_layers": 1, "image_size": 8, "patch_size": 4, "layer": LAYER}
TEXTS = ["a b", 'say "no", c', "ä  \u2028 d", "e"]
LABELS = ["x", "y", "x", "1.5"]
NUMBERS = [1, 2.5, -3, 0]
SENTENCES = [["New\u00a0York", "is", "#1"], ["Rain"], ["a", "b"]]
TAGS = [["B-LOC", "O", "O"], ["O"], ["B-X", "I-X"]]


def words(**sections: Any) -> dict[str, Any]:
    return {"tokenizer": {"subwords": {"kind": "word"}}, **sections}


TASKS: dict[str, dict[str, Any]] = {
    "classification": words(model=ENCODER),
    "regression": words(model=ENCODER),
    "multilabel-classification": words(model=ENCODER),
    "tagging": words(model=ENCODER),
    "question-answering": words(model={**ENCODER, "max_length": 99}),
    "translation": words(model={"kind": "transformer", "d_model": 8, "n_layers": 1, "layer": LAYER}),
    "language-modelling": words(
        model={"kind": "language-model", "d_model": 8, "n_layers": 1, "context": 9, "layer": LAYER}
    ),
    "masked-language-modelling": words(model=ENCODER),
    "image-classification": {"model": VISION},
}


def lines(rows: list[str], end: str = "\n") -> bytes:
    return "".join(row + end for row in rows).encode()


def tsv(separator: str = "\t") -> list[str]:
    return [separator.join((label, text)) for label, text in zip(LABELS, TEXTS, strict=True)]


def csv(header: str = "id,body,queue") -> list[str]:
    quoted = [text.replace('"', '""') for text in TEXTS]
    return [
        header,
        *(f'{n},"{text}",{label}' for n, (text, label) in enumerate(zip(quoted, LABELS, strict=True))),
    ]


def objects(**columns: list[Any]) -> list[str]:
    return [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def conll(separator: str = "\t", further: str = "", first: str = "") -> list[str]:
    found = []
    for sentence, tags in zip(SENTENCES, TAGS, strict=True):
        found += [f"{first}{w}{separator}{further}{t}" for w, t in zip(sentence, tags, strict=True)] + [""]
    return found


def squad() -> bytes:
    answers = [{"text": "Bonn", "answer_start": 6}]
    questions = [{"id": n, "question": f"where {n}?", "answers": answers} for n in "ab"]
    paragraphs = [
        {"context": "he in Bonn", "qas": questions},
        {"context": "so in Bonn", "qas": questions[:1]},
    ]
    return json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}).encode()


def idx() -> bytes:
    return struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 8, 8) + bytes(range(192))


@dataclass(frozen=True)
class Case:
    """A file that trains a run.

    Args:
        task: the kind of task.
        name: the file's name.
        content: its bytes; None: `write` makes it.
        source: the source, without ``paths``.
        write: writes what else there is, and returns the source.
        train: whether ``--data FILE`` reads it: a recipe of the source's kind has the same columns.
        verbs: whether verbs that take one file of inputs can read it.
    """

    task: str
    name: str
    content: bytes | None
    source: Mapping[str, Any] = field(default_factory=dict)
    write: Callable[[Path], dict[str, Any]] | None = None
    train: bool = True
    inputs: bool = True


TABLE = {"kind": "tsv", "columns": {"label": 0, "text": 1}}
NAMED = {
    "kind": "tsv",
    "columns": {"text": "body", "label": "queue"},
    "header": True,
    "separator": ",",
    "quotes": True,
}
NESTED = {"kind": "jsonl", "columns": {"text": "doc.body", "label": "stars"}}
NESTED_LINES = objects(doc=[{"body": text} for text in TEXTS], stars=[5, 4.5, True, "x"], id=[1, 2, 3, 4])
CONLL = {"kind": "conll", "columns": {"words": 0, "tags": -1}}


def write_images(folder: Path) -> dict[str, Any]:
    for number, label in enumerate(("cat", "dog", "cat")):
        (folder / "images" / label).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(folder / "images" / label / f"{number}.png")
    return {"kind": "folder", "path": "images"}


def write_table_of_images(folder: Path) -> dict[str, Any]:
    write_images(folder)
    rows = ["images/cat/0.png\tcat", "images/dog/1.png\tdog"]
    (folder / "train.tsv").write_bytes(lines(rows))
    return {"kind": "tsv", "paths": "train.tsv", "columns": {"image": 0, "label": 1}}


def write_idx(folder: Path) -> dict[str, Any]:
    (folder / "labels").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([0, 1, 0]))
    (folder / "train-images").write_bytes(idx())
    return {"kind": "idx", "columns": {"image": "train-images", "label": "labels"}}


def write_pairs(folder: Path) -> dict[str, Any]:
    (folder / "train.de").write_bytes(lines([text.upper() for text in TEXTS]))
    (folder / "train.en").write_bytes(lines(TEXTS))
    return {"kind": "files", "columns": {"source": "train.en", "target": "train.de"}}


def write_parquet(folder: Path) -> dict[str, Any]:
    from pyarrow import parquet, table

    columns = {"body": TEXTS, "queue": LABELS, "n": [1.5, None, 3.0, float("nan")]}
    parquet.write_table(table(columns), folder / "train.parquet")
    fields = {"text": "body", "label": "queue"}
    return {"kind": "datasets", "path": "parquet", "data_files": "train.parquet", "columns": fields}


def write_datasets_json(folder: Path) -> dict[str, Any]:
    (folder / "train.json").write_bytes(lines(objects(body=TEXTS, queue=LABELS)))
    fields = {"text": "body", "label": "queue"}
    return {"kind": "datasets", "path": "json", "data_files": "train.json", "columns": fields}


CASES = {
    "tsv": Case("classification", "train.tsv", lines(tsv()), TABLE),
    "tsv named txt": Case("classification", "train.txt", lines(tsv()), TABLE),
    "tsv, blank last line": Case("classification", "train.tsv", lines([*tsv(), ""]), TABLE),
    "tsv, blank line": Case("classification", "train.tsv", lines([tsv()[0], "", *tsv()[1:]]), TABLE),
    "tsv, CRLF and BOM": Case("classification", "train.tsv", b"\xef\xbb\xbf" + lines(tsv(), "\r\n"), TABLE),
    "tsv, gzip": Case("classification", "train.tsv.gz", gzip.compress(lines(tsv())), TABLE),
    "tsv, without suffix": Case("classification", "train", lines(tsv()), TABLE),
    "csv": Case("classification", "train.csv", lines(csv()), NAMED),
    "csv named txt": Case("classification", "train.txt", lines(csv()), NAMED),
    "csv, blank lines": Case("classification", "train.csv", lines([*csv(), "", ""]), NAMED),
    "json lines": Case("classification", "train.jsonl", lines(NESTED_LINES), NESTED),
    "json lines named json": Case("classification", "train.json", lines(NESTED_LINES), NESTED),
    "json lines named ndjson": Case("classification", "train.ndjson", lines(NESTED_LINES), NESTED),
    "json lines named txt": Case("classification", "train.txt", lines(NESTED_LINES), NESTED),
    "json lines, blank last line": Case("classification", "train.jsonl", lines([*NESTED_LINES, ""]), NESTED),
    "json lines, gzip": Case("classification", "t.jsonl.gz", gzip.compress(lines(NESTED_LINES)), NESTED),
    "parquet": Case("classification", "train.parquet", None, write=write_parquet),
    "json by datasets": Case("classification", "train.json", None, write=write_datasets_json, train=False),
    "chain": Case(
        "classification", "train.tsv", lines(tsv()), {"kind": "chain", "sources": [TABLE, TABLE]}, train=False
    ),
    "numbers": Case(
        "regression",
        "train.jsonl",
        lines(objects(review=TEXTS, stars=NUMBERS)),
        {"kind": "jsonl", "columns": {"text": "review", "label": "stars"}},
    ),
    "texts that are numbers and lists": Case(
        "regression",
        "train.jsonl",
        lines(objects(text=[1, 2.5, ["a", "b"], True], label=NUMBERS)),
        {"kind": "jsonl", "columns": {"text": "text", "label": "label"}},
    ),
    "lists of labels": Case(
        "multilabel-classification",
        "train.jsonl",
        lines(objects(text=TEXTS, label=[["x"], [], ["x", "y"], ["y"]])),
        {"kind": "jsonl", "columns": {"text": "text", "label": "label"}},
    ),
    "conll": Case("tagging", "train.conll", lines(conll()), CONLL),
    "conll with blanks": Case("tagging", "eng.train", lines(conll(" ", "NN _ ")), CONLL),
    "conll named txt": Case("tagging", "train.txt", lines(conll(further="_\t")), CONLL),
    "conll named tsv": Case("tagging", "train.tsv", lines(conll()), CONLL),
    "conll-u": Case(
        "tagging",
        "train.conllu",
        lines(conll("\t", "_\t", first="1\t")),
        {"kind": "conll", "columns": {"words": 1, "tags": 3}, "universal": True},
    ),
    "lists of words": Case(
        "tagging",
        "train.jsonl",
        lines(objects(tokens=SENTENCES, ner=TAGS)),
        {"kind": "jsonl", "columns": {"words": "tokens", "tags": "ner"}},
    ),
    "squad": Case("question-answering", "train.json", squad(), {"kind": "squad"}),
    "aligned files": Case("translation", "train.en", None, write=write_pairs),
    "pairs in json": Case(
        "translation",
        "train.jsonl",
        lines(objects(translation=[{"en": text, "de": text.upper()} for text in TEXTS])),
        {"kind": "jsonl", "columns": {"source": "translation.en", "target": "translation.de"}},
    ),
    "pairs in a table": Case(
        "translation", "train.tsv", lines(tsv()), {"kind": "tsv", "columns": {"source": 0, "target": 1}}
    ),
    "lines of text": Case(
        "language-modelling", "train.txt", lines(TEXTS), {"kind": "text", "documents": "line"}
    ),
    "text in json": Case(
        "language-modelling",
        "train.jsonl",
        lines(objects(doc=[{"body": text} for text in TEXTS])),
        {"kind": "jsonl", "columns": {"text": "doc.body"}},
    ),
    "text in a table": Case(
        "masked-language-modelling",
        "train.csv",
        lines(csv()),
        {**NAMED, "columns": {"text": "body"}},
    ),
    "folder": Case("image-classification", "images", None, write=write_images, inputs=False),
    "table of images": Case("image-classification", "train.tsv", None, write=write_table_of_images),
    "idx": Case("image-classification", "train-images", None, write=write_idx, train=False),
}


@dataclass(frozen=True)
class Prepared:
    """A case in the current folder: the run as far as readers need it, its file and training rows."""

    case: Case
    run: SimpleNamespace
    file: File
    rows: list[dict[str, Any]]


def with_paths(source: Mapping[str, Any], name: str) -> dict[str, Any]:
    if source["kind"] == "chain":
        return {**source, "sources": [with_paths(part, name) for part in source["sources"]]}
    return {**source, "paths": name}


@pytest.fixture(params=CASES)
def prepared(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = CASES[request.param]
    if case.write is not None:
        source = case.write(tmp_path)
    else:
        (tmp_path / case.name).write_bytes(case.content)
        source = with_paths(case.source, case.name)
    recipe = recipe_of(case, source)
    rows = [row.row for row in rows_of(recipe, recipe.data.train, training=True)]
    assert len(rows) > 1
    file = File(Path(case.name), case.name) if Path(case.name).is_dir() else find(case.name, Path())
    return Prepared(case, SimpleNamespace(recipe=recipe, task=task_for(recipe)), file, rows)


def recipe_of(case, source):
    settings = {"task": {"kind": case.task}, "data": {"train": source, "valid": source}, **TASKS[case.task]}
    tree = Tree.of({**settings, "training": {"max_updates": 1}}, Mark("here"))
    return recipe_from(tree)


def repeated(case):
    """How often the training reads the file."""
    return len(case.source.get("sources", [1]))


def comparable(value):
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    if hasattr(value, "content"):  # an image
        content = value.content
        return str(content.resolve()) if isinstance(content, Path) else bytes(content)
    return value


def columns_of(task, name):
    return (
        task.columns
        if name == "predict"
        else getattr(task, {"score": "scored", "embed": "embedded_columns"}[name])
    )


@pytest.mark.parametrize("verb", ["predict", "score", "embed"])
def test_inputs_are_those_of_the_training(prepared, verb):
    case, run = prepared.case, prepared.run
    if not case.inputs:
        pytest.skip("images in folders are given one by one")
    if verb == "score" and not hasattr(run.task, "scored"):
        pytest.skip("the task scores no texts")
    columns = columns_of(run.task, verb)
    if case.name == "train.en" and verb == "score":
        pytest.skip("a pair is not in one file")
    found = list(read_inputs(run, columns, prepared.file, input_form(run, columns, prepared.file)))
    assert [str(record.error) for record in found if record.error] == []
    inputs = [comparable(columns.input_of(record.row)) for record in found]
    trained = {
        name: columns.trained_as.get(name, name) for name in (*columns.inputs, *columns.optional_inputs)
    }
    rows = [{name: row[key] for name, key in trained.items() if key in row} for row in prepared.rows]
    rows = [join_lists(LocatedRow(row, Location("train")), columns).row for row in rows]
    expected = [comparable(columns.input_of(row)) for row in rows]
    if case.name == "train.tsv" and run.task.columns.images:
        inputs = [str(Path(path).resolve()) for path in inputs]
    assert inputs * repeated(case) == expected


def test_words_without_their_tags_are_the_sentences_of_the_training(prepared):
    source, run = prepared.run.recipe.data.train, prepared.run
    if source.kind != "conll" or source.universal:
        pytest.skip("the format is not CoNLL, or its name says so")
    with_tags = [line.split("\t" if "\t" in line else " ") for line in lines_of(prepared.file)]
    name = f"new{prepared.file.path.suffix}"
    Path(name).write_bytes(lines([fields[0] for fields in with_tags]))
    file, columns = find(name, Path()), run.task.columns
    found = list(read_inputs(run, columns, file, input_form(run, columns, file)))
    assert [record.row["words"] for record in found] == [row["words"] for row in prepared.rows]


def test_an_evaluation_reads_the_rows_of_the_training(prepared):
    case, run = prepared.case, prepared.run
    if case.name == "train-images":
        pytest.skip("labels are in another file")
    files = [Path("train.en"), Path("train.de")] if case.name == "train.en" else [prepared.file.path]
    rows = [row.row for row in rows_of(run.recipe, run.task.source_from(files))]
    required = run.task.columns.required
    found = [{name: comparable(row[name]) for name in required} for row in rows]
    expected = [{name: comparable(row[name]) for name in required} for row in prepared.rows]
    assert found * repeated(case) == expected


def test_an_evaluation_has_all_fields_that_predictions_have(prepared):
    case, run = prepared.case, prepared.run
    if case.name == "train-images" or not case.inputs:
        pytest.skip("labels are in another file, or images in folders are given one by one")
    if case.name == "train.en":
        pytest.skip("a pair is not in one file")
    columns, source = run.task.columns, run.task.source_from([prepared.file.path])
    if (form := input_form(run, columns, prepared.file)) in ("lines", "conll"):
        pytest.skip("fields have no names in the file")
    predicted = [record.fields for record in read_inputs(run, columns, prepared.file, form)]
    rows = [row.row for row in rows_of(run.recipe, source, whole=True)]
    assert [fields_of(row) or {**row} for row in rows] == predicted


def test_a_training_on_the_file_reads_the_same_rows(prepared):
    case = prepared.case
    if not case.train:
        pytest.skip("no recipe of this source reads one file")
    settings = prepared.run.recipe.model_dump(mode="json", exclude_unset=True)
    names = ["train.en", "train.de"] if case.name == "train.en" else [case.name]
    tree, held = with_data(settings_tree(settings), {"train": names}, None)
    assert not held
    recipe = recipe_from(tree)
    rows = [row.row for row in rows_of(recipe, recipe.data.train, training=True)]
    required = prepared.run.task.columns.required
    found = [{name: comparable(row[name]) for name in required} for row in rows]
    assert found == [{name: comparable(row[name]) for name in required} for row in prepared.rows]


STRAY = {
    "notes.txt": "a text",
    "cat/notes.txt": "a text",
    "dog/deeper/data.csv": "a,b",
    "cat/.DS_Store": "",
    "Thumbs.db": "",
    "dog/desktop.ini": "",
}
NOTE = "files that are not read as images: 2 .txt, 1 .csv; the first is cat/notes.txt"


def test_files_beside_images_are_skipped_by_every_verb_with_the_same_note(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of(CASES["folder"], write_images(tmp_path))

    def read():
        user = user_source([Path("images")], ("image", "label"), recipe.data.train, {})
        sources = {"training": recipe.data.train, "--data": user, "evaluation": user}
        rows = {name: [*rows_of(recipe, source)] for name, source in sources.items()}
        found = {
            name: {str(row.row["image"].content.resolve()) for row in each} for name, each in rows.items()
        }
        return {**found, "inputs": {str(Path(path).resolve()) for path in image_paths(["images"])}}

    before = read()
    assert {len(found) for found in before.values()} == {3}
    for name, content in STRAY.items():
        (tmp_path / "images" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "images" / name).write_text(content)
    capsys.readouterr()
    assert read() == before
    assert capsys.readouterr().err == f"heedful: images: {NOTE}\n"
    assert [*left_out(recipe)] == [f"data.{part}: {NOTE}" for part in ("train", "valid")]
    assert [*unread(user_source([Path("images")], (), recipe.data.train, {}), Path())] == [NOTE]


def settings_tree(settings):
    return Tree.of(settings, Mark("recipe"))
