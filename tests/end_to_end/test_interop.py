"""Import and export by the real command: there and back, used in between, and what is refused."""

import json
import math
import shutil
import struct

import pytest

from heedful.runs.reading import read_recipe
from heedful.runs.warm_start import rate_note

TEXT = "the cat sat on the mat.\nthe dog sat on the log.\n\n" * 12
RECIPE = """\
task: {kind: language-modelling}
data:
  train: {kind: text, paths: train.txt, documents: blank-lines}
  valid: {kind: text, paths: valid.txt}
tokenizer: {subwords: {kind: byte-bpe, merges: 30}}
model:
  kind: language-model
  n_layers: 1
  d_model: 16
  context: 16
  layer: {mixer: {n_heads: 2}, channels: {activation: gelu-tanh}}
schedule: {kind: constant, peak: 2e-2, warmup: 5}
training: {max_updates: 40, tokens_per_update: 160, validate_every: 20, precision: fp32}
"""
PROMPTS = "the cat\n\nthe dog sat on\n"
GREEDY = ["--decoding", "kind=greedy", "--max-new-tokens", "12"]


@pytest.fixture(scope="module")
def model(heedful, tmp_path_factory):
    """A language model that was trained here; nobody may change it."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "train.txt").write_text(TEXT, "utf-8")
    (folder / "valid.txt").write_text("the dog sat on the mat.\n", "utf-8")
    (folder / "lm.yaml").write_text(RECIPE, "utf-8")
    done = heedful("train", "lm.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    return folder / "run"


@pytest.fixture(scope="module")
def gpt2(heedful, model):
    """The folder that it was exported to; nobody may change it."""
    done = heedful("export", model, "--to", "gpt2", cwd=model.parent)
    assert done.status == 0, done.err
    assert done.out == f"{model}-gpt2\n"
    return model.with_name("run-gpt2")


@pytest.fixture
def own_gpt2(gpt2, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(gpt2, tmp_path / "gpt2")


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def refused(done, *parts, status=2):
    assert done.status == status, (done.status, done.err)
    assert done.out == ""
    assert "Traceback" not in done.err, done.err
    for part in parts:
        assert part in done.err, done.err


def test_a_language_model_goes_there_and_back(heedful, model, gpt2, tmp_path):
    files = {"config.json", "generation_config.json", "model.safetensors"}
    files |= {"tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in gpt2.iterdir()} == files
    done = heedful("import", gpt2, "runs/again", cwd=tmp_path)
    assert (done.status, done.out) == (0, "runs/again\n"), done.err
    again = tmp_path / "runs" / "again"
    first, second = (
        heedful("predict", run, *GREEDY, cwd=tmp_path, stdin=PROMPTS).out for run in (model, again)
    )
    assert first == second
    assert first.count("\n") == 3
    scores = []
    # One document in every recipe; the imported run does not know how the other was split.
    text = (model.parent / "valid.txt").read_text("utf-8").replace("\n", " ").strip()
    (tmp_path / "one.txt").write_text(text, "utf-8")
    for run in (model, again):
        done = heedful("evaluate", run, "one.txt", "--json", cwd=tmp_path)
        assert done.status == 0, done.err
        scores.append(done.json()["splits"][0]["scores"][0]["value"])
    # Six rows were left behind and six were made: of some 290, which are no more probable than others.
    assert abs(scores[1] - scores[0]) < math.log(1 + 6 / 280)
    counts = [heedful("describe", run, "--json", cwd=tmp_path).json()["total"] for run in (model, again)]
    assert counts[0] == counts[1]


def test_a_translator_goes_there_and_back(heedful, transformer, tmp_path):
    done = heedful("export", transformer, "out/marian", "--to", "marian", cwd=tmp_path)
    assert (done.status, done.out) == (0, "out/marian\n"), done.err
    done = heedful("import", "out/marian", "again", cwd=tmp_path)
    assert done.status == 0, done.err
    lines = "red dog runs\nblue bird\n"
    runs = (transformer, tmp_path / "again")
    first, second = (heedful("predict", run, "--beam", "1", cwd=tmp_path, stdin=lines).out for run in runs)
    assert first == second
    assert first.count("\n") == 2


def test_an_imported_run_says_what_it_is_when_it_is_to_be_trained(heedful, gpt2, tmp_path):
    heedful("import", gpt2, "run", cwd=tmp_path)
    refused(heedful("train", "run", "--resume", cwd=tmp_path), "has no checkpoints to continue from")
    for split in ((), ("--split", "valid")):
        refused(
            heedful("evaluate", "run", *split, cwd=tmp_path),
            "an imported run has no data sets",
            "give FILE to evaluate it on your data",
        )


def test_a_rate_for_new_weights_is_noted_of_an_imported_model(heedful, model, gpt2, tmp_path):
    heedful("import", gpt2, "gpt2", cwd=tmp_path)
    (tmp_path / "train.txt").write_text(TEXT, "utf-8")
    (tmp_path / "valid.txt").write_text(TEXT, "utf-8")
    (tmp_path / "lm.yaml").write_text(RECIPE, "utf-8")

    def notes(start, *overrides):
        changes = [f"start.run={start}", "training.max_updates=1", *overrides]
        done = heedful(
            "train", "lm.yaml", "--out", f"runs/{len(overrides)}", "--overwrite", *changes, cwd=tmp_path
        )
        assert done.status == 0, done.err
        return [line for line in done.err.splitlines() if "a rate for new weights" in line]

    noted = "a rate for new weights, not for those of an imported model; usual is"
    adam, muon = "optimizer.kind=adam schedule.peak=0.02", "optimizer.kind=muon schedule.peak=5e-05"
    assert notes("gpt2") == [f"{adam}: {noted} schedule.peak=5e-5"]
    assert notes("gpt2", "schedule.peak=5e-5", "optimizer.kind=muon") == [
        f"{muon}: {noted} optimizer.kind=adamw schedule.peak=5e-5"
    ]
    assert notes("gpt2", "schedule.peak=5e-5") == notes(model) == []
    for frozen, is_noted in (("none", True), ("embedding", True), ("body", False)):
        changes = [f"start.run={tmp_path / 'gpt2'}", f"start.frozen={frozen}"]
        assert (rate_note(read_recipe(tmp_path / "lm.yaml", changes)[0]) is not None) == is_noted


def test_what_is_missing_is_named(heedful, own_gpt2, tmp_path):
    refused(heedful("import", "nowhere", "run", cwd=tmp_path), "nowhere: no such folder")
    (own_gpt2 / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    refused(heedful("import", own_gpt2, "run", cwd=tmp_path), "has no tokenizer: neither tokenizer.json")
    (tmp_path / "tokenizer.json").rename(own_gpt2 / "tokenizer.json")
    (own_gpt2 / "model.safetensors").rename(own_gpt2 / "pytorch_model.bin")
    refused(
        heedful("import", own_gpt2, "run", cwd=tmp_path),
        "pytorch_model.bin: not supported, since loading such",
    )
    (own_gpt2 / "config.json").unlink()
    refused(heedful("import", own_gpt2, "run", cwd=tmp_path), "has no config.json")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "values, message",
    [
        (
            {"model_type": "brt"},
            "'brt' is not supported (did you mean 'bert'?); expected one of gpt2, marian, bert, vit",
        ),
        ({"model_type": "bart"}, "'bart' is not supported: of encoder-decoders, only Marian is; expected"),
        ({"n_embd": 18}, "transformer.wte.weight has shape ["),
        ({"vocab_size": 300}, "config.json: vocab_size: 300, and tokenizer.json has"),
        ({"scale_attn_by_inverse_layer_idx": True}, "config.json: scale_attn_by_inverse_layer_idx: True"),
    ],
)
def test_what_does_not_fit_is_told_and_leaves_nothing(heedful, own_gpt2, tmp_path, values, message):
    change(own_gpt2, **values)
    refused(heedful("import", own_gpt2, "runs/x", cwd=tmp_path), message)
    assert not (tmp_path / "runs").exists()


def test_damaged_weights_are_told_with_another_status(heedful, own_gpt2, tmp_path):
    path = own_gpt2 / "model.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[:-7], whole[:5], struct.pack("<Q", 1 << 60) + whole[8:], b""):
        path.write_bytes(damaged)
        done = heedful("import", own_gpt2, "runs/x", cwd=tmp_path)
        refused(done, "model.safetensors: cannot be read as safetensors", status=1)
        assert not (tmp_path / "runs").exists()


def test_a_full_disk_leaves_nothing(heedful, gpt2, tmp_path):
    done = heedful("import", gpt2, "runs/x", cwd=tmp_path, file_size=9000)
    refused(done, "cannot be written", status=1)
    assert not (tmp_path / "runs").exists()


def test_folders_that_hold_something_are_left_alone(heedful, model, gpt2, tmp_path):
    refused(heedful("import", gpt2, model, cwd=tmp_path), "run: must be empty")
    refused(heedful("export", model, "--to", "gpt2", cwd=tmp_path), "run-gpt2: must be empty")
    twice = heedful("export", model, "x", "--to", "gpt2", "--out", "y", cwd=tmp_path)
    refused(twice, "--out y: OUT is x already; remove one of them")


def test_formats_that_do_not_fit_are_told(heedful, model, transformer, recurrent, tmp_path):
    def told(run, to, *parts):
        refused(heedful("export", run, "--to", to, "--out", "x", cwd=tmp_path), *parts)
        assert not (tmp_path / "x").exists()

    told(model, "gpt", "format gpt: unknown (did you mean 'gpt2'?)")
    told(model, "marian", "expected a run of task translation, got language-modelling; use gpt2")
    told(recurrent, "marian", "model.kind=recurrent: ")
    told(tmp_path / "nowhere", "gpt2", "nowhere: no such run")
