"""The small files of a run: what is written comes back, and what is not as it must be is told by its name."""

import os
from pathlib import Path

import pytest

from heedful.artifacts.run_folder import (
    RunFolder,
    missing_run,
    other_runs,
    read_labels,
    write_card,
    write_json,
)
from heedful.errors import DamagedError, DataError, RequestError
from heedful.records import read_text
from heedful.runs.reading import saved_recipe
from heedful.text.tokenizer import Tokenizer
from heedful.training.callbacks import read_metrics

HASH = "0" * 64
NAME = b"na\xffme".decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("labels", [[NAME, "gänse"], ["plain ü"]])
def test_names_that_are_not_utf_8_come_back(tmp_path, labels):
    write_json(tmp_path / "a.json", {"version": 1, "labels": labels})
    assert read_labels(tmp_path / "a.json") == tuple(labels)


def test_utf_8_is_written_as_it_is_read(tmp_path):
    write_json(tmp_path / "a.json", {"label": "Gänse"})
    assert "Gänse" in (tmp_path / "a.json").read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"labels": 3}',
        '{"labels": []}',
        '{"labels": [1]}',
        '{"labels": ["a", "a"]}',
        '{"labels": ["a"], "labels": ["b"]}',
        '{"labels": ["a"], "label": 1}',
        '{"labels": ["a"], "version": 2}',
        "{",
        "[" * 200_000,
    ],
)
def test_labels_that_are_none_are_damage(tmp_path, text):
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(DamagedError, match=r"labels\.json: damaged"):
        read_labels(tmp_path / "labels.json")


@pytest.mark.parametrize(
    "entry", [3, None, {}, {"bytes": "3", "sha256": HASH}, {"bytes": 3}, {"bytes": 3, "sha256": 5}]
)
def test_a_card_that_says_nothing_of_a_file_is_damaged(tmp_path, entry):
    (tmp_path / "labels.json").write_text("{}\n")
    write_card(tmp_path / "run.json", {"version": 1, "files": {"labels.json": entry}})
    with pytest.raises(DamagedError, match=r"run\.json: damaged: files\.labels\.json"):
        RunFolder(tmp_path).read_card()


def test_a_card_speaks_of_its_own_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "other").write_text("abc")
    card = {"version": 1, "files": {"../other": {"bytes": 3, "sha256": HASH}}}
    write_card(tmp_path / "run" / "run.json", card)
    with pytest.raises(DamagedError, match=r"run\.json: damaged: .* in the run's folder, got '\.\./other'"):
        RunFolder(tmp_path / "run").read_card()


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("name", ["weights.safetensors", "labels.json", "text.tokenizer.json"])
@pytest.mark.parametrize("content", ["{}\n", "{", None])
def test_only_weights_with_checkpoints_can_be_written_anew(tmp_path, has_checkpoint, name, content):
    if has_checkpoint:
        (tmp_path / "checkpoints" / "step-00000010").mkdir(parents=True)
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DamagedError) as raised:
        RunFolder(tmp_path).check_files({"files": {name: {"bytes": 3, "sha256": "x"}}})
    assert str(raised.value).startswith(f"{tmp_path / name}: ")
    assert "from a copy" in str(raised.value)
    assert ("--resume" in str(raised.value)) == (has_checkpoint and name == "weights.safetensors")


def test_a_file_in_place_of_a_run_is_told_with_the_folder(tmp_path):
    write_json(tmp_path / "run.json", {"version": 1, "files": {}})
    with pytest.raises(RequestError, match=rf"run\.json is not a run: it is a file; .* folder {tmp_path}$"):
        RunFolder(tmp_path / "run.json").read_card()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "text").write_text("x")
    with pytest.raises(RequestError, match=r"text is not a run: it is a file; give the run's folder$"):
        RunFolder(tmp_path / "other" / "text").read_card()


def make_runs(folder, *names):
    """Runs, oldest first; every second one is unfinished: it has no card yet."""
    for age, name in enumerate(names):
        run = RunFolder(folder / name)
        run.path.mkdir(parents=True)
        file = run.card if age % 2 else run.recipe
        file.write_text("{}")
        os.utime(file, (1000 + age, 1000 + age))


def test_a_missing_run_comes_with_its_nearest_name_and_the_newest_runs(tmp_path):
    make_runs(tmp_path, "english-german", "b", "a")
    (tmp_path / "no-run").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(RequestError) as raised:
        RunFolder(tmp_path / "english-germna").read_card()
    assert str(raised.value) == (
        f"{tmp_path}/english-germna: no such run (did you mean '{tmp_path}/english-german'?); "
        f"runs in {tmp_path}, newest first: a, b, english-german"
    )
    assert other_runs(tmp_path / "zzz") == f"; runs in {tmp_path}, newest first: a, b, english-german"
    with pytest.raises(
        RequestError, match=r"is not a run: it has no run\.json; runs in .*: a, b, english-german$"
    ):
        RunFolder(tmp_path).read_card()


def test_a_model_of_transformers_is_to_be_imported_first(tmp_path):
    (tmp_path / "a model").mkdir()
    (tmp_path / "a model" / "config.json").write_text("{}")
    for read in (
        RunFolder(tmp_path / "a model").read_card,
        lambda: saved_recipe(RunFolder(tmp_path / "a model")),
    ):
        with pytest.raises(RequestError) as raised:
            read()
        assert f"import it first: heedful import '{tmp_path}/a model' RUN" in str(raised.value)


def test_at_most_ten_runs_are_listed(tmp_path):
    make_runs(tmp_path, *map(str, range(1, 13)))
    assert other_runs(tmp_path / "run").endswith(": 12, 11, 10, 9, 8, 7, 6, 5, 4, 3 and 2 more")


def test_a_name_alone_is_also_looked_for_in_the_folder_of_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(missing_run(Path("mine"))) == "mine: no such run"
    make_runs(tmp_path / "runs", "mine", "other")
    assert str(missing_run(Path("mine"))) == (
        "mine: no such run (did you mean 'runs/mine'?); runs in runs, newest first: other, mine"
    )
    assert str(missing_run(Path("deep/mine"))) == "deep/mine: no such run (no folder deep)"
    make_runs(tmp_path, "here")
    assert str(missing_run(Path("x"))) == "x: no such run; runs in this folder, newest first: here"


@pytest.mark.parametrize("version, advice", [(2, "upgrade heedful$"), (0, "reads 1$")])
def test_another_format_version_is_told(tmp_path, version, advice):
    write_json(tmp_path / "run.json", {"version": version, "files": {}})
    with pytest.raises(RequestError, match=f"format version {version}, but this heedful .*{advice}"):
        RunFolder(tmp_path).read_card()


@pytest.mark.parametrize("card", [{}, {"version": None}, {"version": "1", "files": {}}])
def test_a_card_without_a_version_is_damaged(tmp_path, card):
    write_json(tmp_path / "run.json", card)
    with pytest.raises(
        DamagedError, match=r"run\.json: damaged: version: (missing|expected a valid integer, got)"
    ):
        RunFolder(tmp_path).read_card()


READERS = [read_text, Tokenizer.load, lambda path: [*read_metrics(path)]]


@pytest.mark.parametrize("read", READERS)
def test_a_device_in_the_place_of_a_file_is_not_read(tmp_path, read):
    """It may have no end."""
    path = tmp_path / "a.json"
    path.symlink_to(os.devnull)
    with pytest.raises(DataError, match=r"a\.json: must be a regular file or a pipe, got a device"):
        read(path)
