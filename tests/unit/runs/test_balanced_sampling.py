"""Balanced sampling in trainings: the rows of an epoch, resuming, and tasks without classes."""

from collections import Counter

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.errors import RequestError
from heedful.runs.prepare import prepare
from heedful.runs.reading import read_recipe, saved_recipe
from heedful.runs.train import train_run

RECIPE = """\
task: {kind: classification}
data:
  train: {kind: tsv, paths: rows.tsv, columns: {label: 0, text: 1}}
  valid: {kind: tsv, paths: rows.tsv, columns: {label: 0, text: 1}}
tokenizer: {subwords: {kind: word, split: space}}
model:
  kind: encoder
  d_model: 8
  n_layers: 1
  max_length: 13
  layer: {mixer: {kind: attention, n_heads: 2}, channels: {kind: feed-forward, d_ff: 8}}
schedule: {kind: constant, peak: 1e-2}
training: {sampling: balanced, max_updates: 7, tokens_per_update: 60, save_every: 3, precision: fp32}
"""
COUNTS = {"ham": 40, "news": 7, "spam": 3}
IMAGES = ("base: digits", "training: {sampling: balanced}", "data: {train: {limit: 60}, valid: {limit: 9}}")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    lines = [f"{label}\t{label} text {i}" for label, n in COUNTS.items() for i in range(n)]
    (tmp_path / "rows.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "images.yaml").write_text("\n".join(IMAGES) + "\n")
    return tmp_path


def planned(path, folder):
    """The training data of a recipe, and the class of each sample."""
    recipe, _ = read_recipe(str(path))
    folder.mkdir()
    data = prepare(recipe, RunFolder(folder), lambda line: None)
    return data.task.training_data(data), data.train.stream("label")


@pytest.mark.parametrize("name", ["r.yaml", pytest.param("images.yaml", marks=pytest.mark.slow)])
def test_each_label_is_equally_frequent_in_every_epoch(folder, name):
    data, classes = planned(folder / name, folder / "run")
    n_classes = len(set(classes.tolist()))
    for epoch in (0, 1, 5):
        samples = np.concatenate(data.epoch(epoch))
        assert set(Counter(classes[samples].tolist()).values()) == {-(-len(classes) // n_classes)}
        labels = data.collate(samples.tolist(), epoch).classes
        assert labels.tolist() == classes[samples].tolist()


@pytest.mark.slow
def test_a_resumed_run_is_equal_to_one_that_never_stopped(folder):
    path, straight, stopped = str(folder / "r.yaml"), folder / "straight", folder / "stopped"
    train_run(read_recipe(path)[0], straight, device="cpu")
    train_run(read_recipe(path, ["training.max_updates=4"])[0], stopped, device="cpu")
    ended = train_run(
        saved_recipe(RunFolder(stopped), ["training.max_updates=7"]), stopped, resume=True, device="cpu"
    )
    assert ended.result.resumed_at == 4
    one, other = (load(run, device="cpu").model.state_dict() for run in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.slow
def test_a_run_may_not_change_its_sampling_when_it_is_resumed(folder):
    path = str(folder / "r.yaml")
    train_run(read_recipe(path, ["training.max_updates=4"])[0], folder / "run", device="cpu")
    with pytest.raises(RequestError, match=r"training\.sampling=shuffled \(started with balanced\)"):
        train_run(read_recipe(path, ["training.sampling=shuffled"])[0], folder / "run", resume=True)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("my-own-tags", "tagging"),
        ("phrasebook-label-sets", "multilabel-classification"),
        ("my-own-files", "translation"),
        ("my-own-numbers", "regression"),
        ("my-own-text", "language-modelling"),
    ],
)
def test_tasks_without_one_label_for_each_row_refuse_it(name, task):
    with pytest.raises(RequestError) as raised:
        read_recipe(name, ["training.sampling=balanced"])
    expected = (
        f"training.sampling=balanced is not supported for {task}, whose rows do not have one label each"
    )
    assert expected in str(raised.value)


def test_rare_labels_are_not_made_to_count_more_twice(folder):
    both = "both make rare labels count more; remove one of them"
    with pytest.raises(RequestError, match=both):
        read_recipe(str(folder / "r.yaml"), ["objective.class_weights=balanced"])
    read_recipe(str(folder / "r.yaml"), ["objective.class_weights={spam: 2.0}"])
