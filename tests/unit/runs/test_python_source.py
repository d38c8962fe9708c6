"""Recipes whose rows a function of the user gives."""

import sys

import numpy as np
import pytest

from heedful import parts, plugins
from heedful.api.run import load
from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.prepare import rows_of
from heedful.runs.reading import read_recipe
from heedful.runs.required_files import check_before_imports
from heedful.runs.train import train_run

MODULE = """\
import numpy as np
import heedful


@heedful.part
def rows(n):
    for i in range(n):
        yield {"label": ("odd", "even")[i % 2], "text": f"word{i % 7} number {i % 151}"}


@heedful.part
def sentences():
    yield {"words": ["A", "dog"], "tags": ("DET", "NOUN")}


@heedful.part
def paths():
    yield {"image": "a.png", "label": 3}
    yield {"image": np.zeros((2, 2), np.uint8), "label": 3}


@heedful.part
def pictures():
    yield {"text": np.zeros((2, 2), np.uint8), "label": 3}
"""
RECIPE = """\
task: {kind: classification}
data:
  train: {kind: python, function: "rows_of_mine:rows", arguments: {n: 150}}
  split: {valid: 0.2}
  test: {more: {kind: python, function: "rows_of_mine:rows", arguments: {n: 3}}}
tokenizer: {subwords: {kind: word, split: space}}
model:
  kind: encoder
  d_model: 8
  n_layers: 1
  max_length: 13
  layer: {mixer: {kind: attention, n_heads: 2}, channels: {kind: feed-forward, d_ff: 8}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 2, tokens_per_update: 200, precision: fp32}
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    (tmp_path / "rows_of_mine.py").write_text(MODULE)
    (tmp_path / "r.yaml").write_text(RECIPE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(parts, "_marked", {})
    monkeypatch.setenv(plugins.VARIABLE, "rows_of_mine")
    yield str(tmp_path / "r.yaml")
    sys.modules.pop("rows_of_mine", None)


def training_rows(path, name, function):
    data = f"{{train: {{kind: python, function: 'rows_of_mine:{function}'}}, split: {{valid: 0.5}}}}"
    recipe = read_recipe(
        name, [f"data={data}", "data.valid=null", "data.test=null", f"root={path.rpartition('/')[0]}"]
    )[0]
    return [row.row for row in rows_of(recipe, recipe.data.train, training=True)]


def test_a_package_that_was_not_named_is_refused_before_torch_is_imported(path, monkeypatch):
    check_before_imports(path, [])
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(parts, "_marked", {})
    with pytest.raises(DataError) as raised:
        check_before_imports(path, [])
    assert str(raised.value) == (
        "data.train: rows_of_mine:rows would import the module 'rows_of_mine', which was not named as a "
        "plugin; if you trust it, add --plugin rows_of_mine, or plugins=['rows_of_mine'] in Python"
    )


def test_lists_and_images_are_what_the_task_reads(path):
    (row,) = training_rows(path, "my-own-tags", "sentences")
    assert row == {"words": ["A", "dog"], "tags": ["DET", "NOUN"]}
    first, second = training_rows(path, "my-own-images", "paths")
    assert str(first["image"].content) == path.replace("r.yaml", "a.png")
    assert isinstance(second["image"], LazyImage)
    assert isinstance(second["image"].content, np.ndarray)
    assert first["label"] == "3"
    with pytest.raises(
        DataError, match="rows_of_mine:pictures:1: column 'text': expected text, got an image"
    ):
        training_rows(path, "my-own-labels", "pictures")


@pytest.mark.slow
def test_a_run_on_rows_of_a_function_predicts_without_it(path, tmp_path, monkeypatch):
    recipe, _ = read_recipe(path)
    train_run(recipe, tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    (name, source), *_ = chosen_splits(run, "test", None).items()
    assert (name, len([*evaluate(run, name, source).rows()])) == ("more", 3)
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(parts, "_marked", {})
    without = load(tmp_path / "run", device="cpu")
    assert without.predict(["word1"])[0].text in ("odd", "even")
    with pytest.raises(DataError, match="would import the module"):
        evaluate(without, name, source)
