"""Packed and cleaned runs answer as before, in processes of their own; others are refused."""

import json
import shutil

import pytest

import heedful as package
from heedful.artifacts.run_folder import locked
from heedful.errors import DamagedError, RequestError
from heedful.files import stamped

TEXTS = "red dog sleeps\nblue bird\n\n"


def answers(process, run, cwd):
    (cwd / "in.txt").write_text(TEXTS, "utf-8")
    command = "predict", run, "in.txt", "--alignment", "--out", "out.jsonl"
    done = process("-m", "heedful", *command, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return (cwd / "out.jsonl").read_bytes()


def test_a_packed_run_answers_byte_for_byte(heedful, process, own_run, tmp_path):
    alignment = {"version": 3, "layer": 0, "head": 1, "step": "output", "rate": 0.2, "pairs": 9}
    card = json.loads((own_run / "run.json").read_text("utf-8"))
    alignment["weights"] = card["files"]["weights.safetensors"]["sha256"]
    (own_run / "alignment.json").write_text(json.dumps(stamped(alignment)))
    done = heedful("pack", own_run, "packed", cwd=tmp_path)
    assert (done.status, done.out) == (0, "packed\n")
    packed = tmp_path / "packed"
    assert {path.name for path in packed.iterdir()} == {*card["files"], "run.json", "alignment.json"}
    assert answers(process, packed, tmp_path) == answers(process, own_run, tmp_path)
    assert (packed / "run.json").read_bytes() == (own_run / "run.json").read_bytes()


def test_all_verbs_work_on_a_packed_run_and_resuming_says_why_not(heedful, transformer, tmp_path):
    packed = tmp_path / "packed" / transformer.name
    shutil.copytree(transformer.parent, tmp_path / "data", ignore=shutil.ignore_patterns("run"))
    files = tmp_path / "data" / "test.src", tmp_path / "data" / "test.tgt"
    (tmp_path / "in.txt").write_text(TEXTS, "utf-8")
    (tmp_path / "pairs.jsonl").write_text('{"source": "red dog", "target": "DOG RED"}\n', "utf-8")
    assert heedful("pack", transformer, packed, cwd=tmp_path).status == 0
    for arguments in (
        ("evaluate", "RUN", *files, "--limit", "5"),
        ("explain", "RUN", "red dog", "--json"),
        ("describe", "RUN", "--json"),
        ("embed", "RUN", "in.txt"),
        ("score", "RUN", "pairs.jsonl"),
        ("compare", "RUN", "--json"),
        ("export", "RUN", "--to", "marian", "--out", "OUT"),
    ):
        done, expected = (
            heedful(
                *(
                    run if a == "RUN" else tmp_path / f"{run.parent.name}-out" if a == "OUT" else a
                    for a in arguments
                ),
                cwd=tmp_path,
            )
            for run in (packed, transformer)
        )
        assert (done.status, expected.status) == (0, 0), (arguments, done.err, expected.err)
        if arguments[0] not in ("describe", "compare", "export"):  # they contain the run's name, or curves
            assert done.out == expected.out
    refused = heedful("train", packed, "--resume", "training.max_updates=99", cwd=tmp_path)
    assert refused.status == 2
    assert "the run is finished and has no checkpoints to continue from" in refused.err
    assert package.load(packed).predict(["red dog"]) == package.load(transformer).predict(["red dog"])


def test_a_cleaned_run_answers_as_before(heedful, process, own_run, tmp_path):
    before = answers(process, own_run, tmp_path)
    listed = {*json.loads((own_run / "run.json").read_text("utf-8"))["files"], "run.json", "metrics.jsonl"}
    asked = heedful("clean", own_run, cwd=tmp_path)
    assert asked.status == 2
    assert "nothing is removed without --yes" in asked.err
    size = sum(path.stat().st_size for path in (own_run / "checkpoints").rglob("*") if path.is_file())
    assert f"{own_run / 'checkpoints'}  {size:,} bytes" in asked.out.splitlines()
    assert (own_run / "checkpoints").is_dir()
    done = heedful("clean", own_run, "--yes", cwd=tmp_path)
    assert done.status == 0
    assert "removed " in done.err
    assert not (own_run / "checkpoints").exists()
    assert not (own_run / "cache").exists()
    assert listed <= {path.name for path in own_run.iterdir()}
    assert answers(process, own_run, tmp_path) == before
    again = heedful("clean", own_run, "--yes", cwd=tmp_path)
    assert (again.status, again.out) == (0, f"{own_run}: nothing to remove\n")
    assert "has no checkpoints" in heedful("train", own_run, "--resume", cwd=tmp_path).err


def test_a_resumable_run_trains_on_to_the_same_weights(heedful, corpus):
    sizes = "training.validate_every=4", "training.save_every=2"
    assert heedful("train", "tiny.yaml", *sizes, "training.max_updates=10", cwd=corpus).status == 0
    run, other = corpus / "runs" / "tiny", corpus / "runs" / "other"
    shutil.copytree(run, other)
    n_before = len([*(other / "checkpoints").iterdir()])
    assert package.clean(other, resumable=True) > 0
    assert 0 < len([*(other / "checkpoints").iterdir()]) <= n_before
    for folder in (run, other):
        done = heedful("train", folder, "--resume", "training.max_updates=14", cwd=corpus)
        assert done.status == 0, done.err
    assert (run / "weights.safetensors").read_bytes() == (other / "weights.safetensors").read_bytes()


def test_unfinished_damaged_and_locked_runs_are_refused(heedful, own_run, corpus, tmp_path):
    with locked(own_run):
        for arguments in (("pack", own_run, "out"), ("clean", own_run, "--yes")):
            done = heedful(*arguments, cwd=tmp_path)
            assert done.status == 2
            assert "locked by another process that writes to it" in done.err
    unfinished = tmp_path / "unfinished"
    shutil.copytree(own_run, unfinished)
    (unfinished / "run.json").unlink()
    (unfinished / "weights.safetensors").unlink()
    for arguments in (("pack", unfinished, "out"), ("clean", unfinished, "--yes")):
        done = heedful(*arguments, cwd=tmp_path)
        assert done.status == 2
        assert "training has not finished" in done.err
    assert package.clean(unfinished, resumable=True) >= 0
    assert (unfinished / "checkpoints").is_dir()
    with (own_run / "weights.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DamagedError):
        package.pack(own_run, tmp_path / "out")
    with pytest.raises(DamagedError):
        package.clean(own_run)
    assert (own_run / "checkpoints").is_dir()
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "missing").exists()
    with pytest.raises(RequestError, match="no such run"):
        package.clean(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_a_folder_that_is_not_empty_or_in_the_run_is_refused(own_run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(RequestError, match="is not an empty folder"):
        package.pack(own_run, tmp_path / "full")
    with pytest.raises(RequestError, match="is in the run's folder"):
        package.pack(own_run, own_run / "packed")
    assert (tmp_path / "full" / "x").read_text() == "x"
