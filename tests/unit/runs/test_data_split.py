"""Data sets taken from the training source: what recipes refuse, and that every verb sees its own part."""

import json

import pytest
import torch
from ruamel.yaml import YAML

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.data.sources import open_source
from heedful.data.store import RowDigest
from heedful.errors import DataError, RequestError
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.prepare import rows_of
from heedful.runs.reading import read_recipe, saved_recipe
from heedful.runs.required_files import check_before_imports
from heedful.runs.train import train_run

RECIPE = """\
task: {kind: classification}
data:
  train: {kind: tsv, paths: all.tsv, columns: {label: 0, text: 1}}
  split: {valid: 0.1, test: 0.2}
  test: {other: {kind: tsv, paths: other.tsv, columns: {label: 0, text: 1}}}
tokenizer: {subwords: {kind: word, split: space}}
model:
  kind: encoder
  d_model: 8
  n_layers: 1
  max_length: 13
  layer: {mixer: {kind: attention, n_heads: 2}, channels: {kind: feed-forward, d_ff: 8}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 6, tokens_per_update: 200, save_every: 2, validate_every: 3, precision: fp32}
"""
ROWS = [(("odd", "even")[i % 2], f"word{i % 7} number {i % 151}") for i in range(307)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "all.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in ROWS))
    (tmp_path / "other.tsv").write_text("odd\tword1\neven\tword2\n")
    return tmp_path


def read(folder, *overrides):
    return read_recipe(str(folder / "r.yaml"), overrides)[0]


def texts_of(recipe, source):
    return [(row.row["label"], row.row["text"]) for row in rows_of(recipe, source)]


@pytest.mark.parametrize(
    ("overrides", "place", "message"),
    [
        (
            ["data.valid={kind: tsv, paths: a, columns: {label: 0, text: 1}}"],
            "on the command line",
            "data.valid and data.split.valid are both given; remove one of them",
        ),
        (["data.split=null"], "on the command line", "data.valid is missing; give a source, or a share"),
        (["data.split.valid=null"], "on the command line", "data.valid is missing"),
        (["data.split.other=0.1"], "on the command line", "data.test.other and data.split.other are both"),
        (["data.split.train=0.5"], "on the command line", "data.split.train is what the other shares leave"),
        (
            ["data.split.test=0.9"],
            "on the command line",
            "data.split leaves no training data: its shares are 1",
        ),
        (["data.split.test=1"], "on the command line", "expected a number less than 1.0, got 1"),
        (["data.split.test=0.0"], "on the command line", "expected a number greater than 0.0, got 0.0"),
        (["data.split.test=a"], "on the command line", "expected a number, got 'a'"),
    ],
)
def test_sets_that_are_given_twice_or_not_at_all_are_refused(folder, overrides, place, message):
    with pytest.raises(RequestError) as raised:
        read(folder, *overrides)
    assert message in str(raised.value)
    assert place in str(raised.value).splitlines()[0]


def test_a_recipe_without_validation_data_names_its_section(folder):
    (folder / "r.yaml").write_text(RECIPE.replace("valid: 0.1, ", ""))
    with pytest.raises(RequestError, match=r"r\.yaml:\d: data: data\.valid is missing"):
        read(folder)


def test_validation_data_may_be_given_beside_a_test_set_of_the_split(folder, monkeypatch):
    monkeypatch.chdir(folder)
    valid = "data.valid={kind: tsv, paths: other.tsv, columns: {label: 0, text: 1}}"
    recipe = read(folder, valid, "data.split.valid=null")
    sets = recipe.data.sets
    assert len(texts_of(recipe, sets.valid)) == 2
    assert len(texts_of(recipe, sets.train)) + len(texts_of(recipe, sets.test["test"])) == len(ROWS)


def test_a_missing_file_is_named_by_the_key_of_its_source(folder):
    check_before_imports(str(folder / "r.yaml"), [])
    (folder / "all.tsv").unlink()
    with pytest.raises(DataError, match=r"^data\.train: .*all\.tsv: no such file"):
        check_before_imports(str(folder / "r.yaml"), [])


@pytest.mark.slow
def test_sizes_count_the_rows_that_are_trained_on(folder):
    n_rows = len(texts_of(recipe := read(folder), recipe.data.sets.train))
    assert n_rows < 250
    for limit, chosen in ((n_rows, 0), (n_rows - 1, None)):
        override = f"sizes=[{{max_rows: {limit}, model: {{d_model: 10}}}}]"
        assert read(folder, override).size == chosen
    assert read(folder, f"sizes=[{{max_rows: {n_rows}}}]", "data.split.test=null").size is None


@pytest.mark.slow
def test_a_run_trains_on_the_rest_and_every_split_is_scored_on_its_part(folder):
    recipe = read(folder)
    sets = recipe.data.sets
    sources = {"train": sets.train, "valid": sets.valid, "test": sets.test["test"]}
    parts = {name: texts_of(recipe, source) for name, source in sources.items()}
    lines = []
    train_run(recipe, folder / "run", device="cpu", log=lines.append)
    assert not any("are also training rows" in line for line in lines)
    report = json.loads((folder / "run" / "data.json").read_text())
    assert report["train"]["rows"] == len(parts["train"])
    assert report["valid"]["rows"] == len(parts["valid"])
    assert set(parts["train"]).isdisjoint(parts["valid"])
    run = load(folder / "run", device="cpu")
    for name in ("train", "valid", "test"):
        evaluation = evaluate(run, name, chosen_splits(run, name, None)[name])
        assert [(row["target"], row["input"]["text"]) for row in evaluation.rows()] == parts[name]
    assert [*chosen_splits(run, "other", None)] == ["other"]


@pytest.mark.slow
def test_the_saved_recipe_has_the_split_and_resumes_to_the_same_weights(folder):
    straight, stopped = folder / "straight", folder / "stopped"
    train_run(read(folder), straight, device="cpu")
    train_run(read(folder, "training.max_updates=4"), stopped, device="cpu")
    assert YAML(typ="safe").load((stopped / "recipe.yaml").read_text())["data"]["split"] == {
        "valid": 0.1,
        "test": 0.2,
    }
    resumed = saved_recipe(RunFolder(stopped), ["training.max_updates=6"])
    train_run(resumed, stopped, resume=True, device="cpu")
    one, other = (load(path, device="cpu").model.state_dict() for path in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    with pytest.raises(RequestError, match=r"data\.split\.valid=0\.2 \(started with 0\.1\)"):
        train_run(read(folder, "data.split.valid=0.2"), stopped, resume=True, device="cpu")


def test_running_text_is_split_by_document(folder):
    text = "\n\n".join(f"document {i}\nhas two lines" for i in range(60))
    (folder / "all.txt").write_text(text)
    source = "{kind: text, paths: all.txt, documents: blank-lines}"
    recipe, _ = read_recipe(
        "my-own-text", [f"root={folder}", f"data.train={source}", "data.valid=null", "data.split.valid=0.2"]
    )
    sets = recipe.data.sets
    found = [[row.row["text"] for row in rows_of(recipe, part)] for part in (sets.train, sets.valid)]
    assert sorted(found[0] + found[1]) == sorted(text.split("\n\n"))
    assert len(found[1]) > 4


def test_equal_rows_have_equal_digests_whatever_part_they_are_read_by(folder):
    """Rows of two sets are compared by these (the notes on shared rows)."""
    recipe = read(folder)
    digests = {}
    for name, source in (("train", recipe.data.sets.train), ("valid", recipe.data.sets.valid)):
        digests[name] = RowDigest()
        for row in open_source(source, folder):
            digests[name].update(row.row)
    assert set(digests["train"].row_hashes).isdisjoint(digests["valid"].row_hashes)
