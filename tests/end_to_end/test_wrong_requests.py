"""Bad input: an exit status, a message that names the place, no traceback, nothing half made.

A request that is wrong ends with status 2, work that fails with 1.
"""

import gzip
import json
import os
import random
import re
import shutil
import socket
from pathlib import Path

import pytest
import torch


def refused(done, *parts, status=2):
    """That the command ended with the status and one message with the parts, and no result."""
    assert done.status == status, (done.status, done.err)
    assert done.out == ""
    assert "Traceback" not in done.err, done.err
    for part in parts:
        assert part in done.err, done.err


def told(done):
    """The last message, without the lines about the work before it."""
    return done.err[done.err.rindex("heedful: ") :]


def replace(path, old, new):
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")


# Data


def test_a_missing_file_of_any_part_is_named_before_any_work(heedful, corpus):
    for part, name, key in [
        ("train", "train.tgt", "data.train"),
        ("valid", "valid.src", "data.valid"),
        ("test", "test.src", "data.test.own"),
    ]:
        moved = (corpus / name).rename(corpus / "elsewhere")
        done = heedful("train", "tiny.yaml", "--out", "runs/x", cwd=corpus)
        refused(done, f"{key}: ", f"{corpus / name}: no such file")
        assert "training the tokenizer" not in done.err, part
        assert not (corpus / "runs").exists()
        moved.rename(corpus / name)


def test_a_misspelt_file_has_its_neighbour_suggested(heedful, corpus):
    replace(corpus / "tiny.yaml", "source: train.src", "source: trian.src")
    refused(heedful("train", "tiny.yaml", cwd=corpus), "trian.src: no such file (did you mean 'train.src'?)")


def test_unequal_line_counts_are_told(heedful, corpus):
    with (corpus / "train.tgt").open("a") as file:
        file.write("ONE MORE\n")
    done = heedful("train", "tiny.yaml", "--out", "run", cwd=corpus)
    refused(done, "source has 160 lines (train.src 160), target has 161 lines (train.tgt 161)")
    assert not (corpus / "run").exists()


def test_bytes_that_are_not_utf8_are_located(heedful, corpus):
    lines = (corpus / "valid.src").read_bytes().split(b"\n")
    lines[6] = b"na\xefve"
    (corpus / "valid.src").write_bytes(b"\n".join(lines))
    done = heedful("train", "tiny.yaml", "--out", "run", cwd=corpus)
    refused(done, "valid.src:7: byte 3 of the line is not UTF-8")
    assert not (corpus / "run").exists()


def test_an_empty_file_is_named(heedful, corpus):
    (corpus / "train.src").write_text("")
    (corpus / "train.tgt").write_text("")
    refused(heedful("train", "tiny.yaml", cwd=corpus), "train.src: the file is empty")


EMPTY = {
    "train": ["there is no text to train a tokenizer on: every line is empty"],
    "valid": ["no rows left after filtering", "empty source: 5 (", "valid.src:1"],
}


@pytest.mark.parametrize("part", EMPTY)
def test_lines_that_are_all_empty_leave_nothing_to_train_on(heedful, corpus, part):
    (corpus / f"{part}.src").write_text("\n" * 5)
    (corpus / f"{part}.tgt").write_text("\n" * 5)
    done = heedful("train", "tiny.yaml", "--out", "run", cwd=corpus)
    refused(done, f"data.{part}: ", *EMPTY[part])
    assert not (corpus / "run").exists()


def test_a_folder_where_a_file_of_data_belongs(heedful, corpus):
    (corpus / "test.src").unlink()
    (corpus / "test.src").mkdir()
    refused(heedful("train", "tiny.yaml", cwd=corpus), "test.src: is a folder, not a file")


def test_the_variable_of_a_shipped_recipe_is_not_set(heedful, tmp_path):
    done = heedful("train", "multi30k-ende-tiny", cwd=tmp_path)
    refused(done, "data.train: $HEEDFUL_DATA/multi30k/train.en.gz", "HEEDFUL_DATA is not set")
    assert not any(tmp_path.iterdir())


# Recipes


RECIPES = {
    "unknown key": (
        "d_model: 16",
        "d_modle: 16",
        ["tiny.yaml:8: model.d_modle: unknown key (did you mean 'd_model'?)"],
    ),
    "wrong type": (
        "d_ff: 32",
        "d_ff: wide",
        ["tiny.yaml:9: model.layer.channels.d_ff: expected a whole number", "'wide'"],
    ),
    "out of range": (
        "dropout: 0.1",
        "dropout: 1.5",
        ["tiny.yaml:8: model.dropout: expected a number less than 1"],
    ),
    "syntax": ("n_heads: 2", "n_heads: [2", ["tiny.yaml:9:30: expected ']', for the '[' on line 9, got '}'"]),
    "duplicate key": ("n_layers: 1", "d_model: 32", ["tiny.yaml:8", "d_model", "duplicate key"]),
    "heads": ("n_heads: 2", "n_heads: 3", ["tiny.yaml:8: model: d_model=16 must be divisible by n_heads=3"]),
    "tie": (
        "subwords: {",
        "shared: false, subwords: {",
        ["model.tie=three-way requires one vocabulary for both sides; set tokenizer.shared=true"],
    ),
    "metric": (
        "decode: null",
        "decode: 0",
        ["training.metric=bleu", "need validation.decode", "loss, perplexity"],
    ),
    "preset": (
        "kind: transformer",
        "preset: transformer-tinny",
        ["tiny.yaml:8: ", "did you mean 'transformer-tiny'?"],
    ),
    "model": (
        "kind: transformer",
        "kind: tranformer",
        ["tiny.yaml:8: model.kind: unknown kind", "did you mean 'transformer'?"],
    ),
    "no model": (
        "kind: transformer, ",
        "",
        ["tiny.yaml:8: model.kind: required key is missing", "recurrent, transformer"],
    ),
    "task": ("kind: translation", "kind: translatoin", ["tiny.yaml:1: task.kind", "'translation'"]),
    "end": ("max_updates: 60, ", "", ["tiny.yaml:11: training: set at least one of max_updates"]),
    "places to write": (
        "n_layers: 1",
        "n_layers: 1, positions: learned, max_length: 20",
        ["model.max_length=20", "decoding.max_length.cap to at most 19"],
    ),
    "position": (
        "n_layers: 1",
        "n_layers: 1, positions: learned, max_length: 20",
        ["model.max_length=20", "data.filter.max_length to at most 19"],
    ),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_wrong_recipe_is_told_with_its_line(heedful, corpus, case):
    old, new, parts = RECIPES[case]
    replace(corpus / "tiny.yaml", old, new)
    extra = ["training.metric=bleu"] if case == "metric" else []
    if case == "places to write":
        extra += ["data.filter.max_length=19", "decoding.max_length.cap=256"]
    done = heedful("train", "tiny.yaml", *extra, "--out", "run", cwd=corpus)
    refused(done, *parts)
    assert not (corpus / "run").exists()


def test_every_mistake_of_a_recipe_is_told_at_once(heedful, corpus):
    replace(corpus / "tiny.yaml", "d_ff: 32", "d_ff: wide, colour: red")
    done = heedful("train", "tiny.yaml", "optimizer.kind=adamm", "training.seed=x", cwd=corpus)
    refused(
        done,
        "model.layer.channels.d_ff",
        "model.layer.channels.colour",
        "optimizer.kind=adamm: unknown kind 'adamm' (did you mean 'adam'?)",
    )
    refused(done, "on the command line: training.seed=x: expected a whole number")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("multi30k-ende-tinny", ["unknown recipe", "did you mean 'multi30k-ende-tiny'?"]),
        ("nowhere.yaml", ["nowhere.yaml: no such file"]),
        ("folder.yaml", ["folder.yaml: is a folder"]),
        ("some/where", ["some/where: no such recipe or run (no folder some)"]),
        ("binary.yaml", ["binary.yaml:1: expected UTF-8 text"]),
        ("list.yaml", ["list.yaml:1: "]),
        ("empty.yaml", ["empty.yaml"]),
    ],
)
def test_what_is_no_recipe(heedful, tmp_path, name, parts):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "empty.yaml").write_text("")
    refused(heedful("train", name, cwd=tmp_path), *parts)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("override", ["seed", "=3", "training.seed=", "training..seed=1", "data.train.0=x"])
def test_what_is_no_override(heedful, corpus, override):
    done = heedful("train", "tiny.yaml", override, cwd=corpus)
    refused(done, "command line", override.partition("=")[0])


# The folder of a run


def test_out_that_exists_is_left_alone(heedful, corpus, own_run):
    before = {path: path.read_bytes() for path in own_run.rglob("*") if path.is_file()}
    done = heedful("train", "tiny.yaml", "--out", own_run, cwd=corpus)
    refused(done, f"{own_run}: already contains a run", "--resume", "--out")
    assert {path: path.read_bytes() for path in own_run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["notes.txt", "notes.tmp"])
def test_out_with_other_things_in_it_is_left_alone(heedful, corpus, name):
    (corpus / "mine").mkdir()
    (corpus / "mine" / name).write_text("x")
    done = heedful("train", "tiny.yaml", "--out", "mine", cwd=corpus)
    refused(done, "mine: is not empty", name, "--out")
    assert [path.name for path in (corpus / "mine").iterdir()] == [name]


def test_out_that_is_a_file_or_below_one(heedful, corpus):
    refused(heedful("train", "tiny.yaml", "--out", "train.src", cwd=corpus), "train.src: is a file")
    done = heedful("train", "tiny.yaml", "--out", "train.src/run", cwd=corpus)
    refused(done, "train.src/run: cannot create the folder: ", "train.src is a file, not a folder; ")


def test_an_empty_folder_that_was_there_is_empty_again(heedful, corpus):
    (corpus / "mine").mkdir()
    (corpus / "train.tgt").write_bytes(b"\xff\n")
    refused(heedful("train", "tiny.yaml", "--out", "mine", cwd=corpus), "train.tgt:1: byte 1")
    assert not any((corpus / "mine").iterdir())


def test_resume_of_nothing(heedful, corpus):
    refused(heedful("train", "tiny.yaml", "--out", "run", "--resume", cwd=corpus), "no run to resume")
    refused(heedful("train", "runs/none", "--resume", cwd=corpus), "runs/none: no such run")
    (corpus / "empty").mkdir()
    refused(heedful("train", "empty", "--resume", cwd=corpus), "empty is not a run")
    assert not (corpus / "run").exists()


def test_resume_with_another_model(heedful, transformer, own_run):
    before = (own_run / "recipe.yaml").read_bytes()
    done = heedful(
        "train", own_run, "--resume", "model.layer.channels.d_ff=64", "training.seed=2", cwd=transformer
    )
    refused(
        done,
        f"{own_run}: cannot be resumed with other settings than it was started with: "
        "model.layer.channels.d_ff=64 (started with 32), training.seed=2 (started with ",
    )
    assert (own_run / "recipe.yaml").read_bytes() == before


def test_resume_with_a_recipe_of_another_task(heedful, own_run, tmp_path):
    done = heedful("train", "phrasebook-tags", "--resume", "--out", own_run, cwd=tmp_path)
    refused(
        done, f"{own_run}: cannot be resumed", "with: task.kind=tagging (started with translation); restore"
    )


def test_resume_in_another_folder(heedful, own_run, tmp_path):
    done = heedful("train", own_run, "--resume", "--out", "other", cwd=tmp_path)
    refused(done, "--out other: not supported with --resume")
    assert not (tmp_path / "other").exists()


def test_a_run_for_a_recipe(heedful, transformer, tmp_path):
    refused(heedful("train", transformer, cwd=tmp_path), "expected a recipe, got a run folder", "--resume")


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
@pytest.mark.parametrize("run", ["none", "empty", "train.src"])
def test_what_is_no_run(heedful, corpus, verb, run):
    (corpus / "empty").mkdir()
    refused(heedful(verb, run, cwd=corpus), f"{run}: no such run" if run == "none" else f"{run} is not a run")


def test_a_run_of_another_format_version(heedful, own_run, tmp_path):
    card = json.loads((own_run / "run.json").read_text())
    (own_run / "run.json").write_text(json.dumps({**card, "version": 7}))
    refused(heedful("predict", own_run, cwd=tmp_path), "run.json: format version 7, but this heedful reads 1")
    done = heedful("predict", own_run, cwd=tmp_path)
    assert done.err.rstrip().endswith("written by a newer version: upgrade heedful")
    refused(
        heedful("predict", own_run / "run.json", cwd=tmp_path),
        f"it is a file; give the run's folder {own_run}",
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "files": 3}', "{"])
def test_a_damaged_card(heedful, own_run, tmp_path, text):
    (own_run / "run.json").write_text(text)
    done = heedful("predict", own_run, cwd=tmp_path)
    refused(done, "run.json: damaged", status=1)


# Damage


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def test_weights_that_were_cut_off(heedful, own_run, tmp_path):
    weights = own_run / "weights.safetensors"
    size = weights.stat().st_size
    os.truncate(weights, size - 7)
    done = heedful("predict", own_run, cwd=tmp_path)
    refused(done, f"{weights}: damaged: expected {size} bytes, got {size - 7}", status=1)


@pytest.mark.parametrize("name", ["weights.safetensors", "recipe.yaml", "target.tokenizer.json"])
def test_a_flipped_bit(heedful, own_run, tmp_path, name):
    flip(own_run / name, (own_run / name).stat().st_size // 2)
    for verb in ("predict", "evaluate"):
        refused(heedful(verb, own_run, cwd=tmp_path), f"{own_run / name}: damaged", status=1)


@pytest.mark.parametrize("name", ["weights.safetensors", "source.tokenizer.json", "recipe.yaml"])
def test_a_missing_file_of_a_run(heedful, own_run, tmp_path, name):
    (own_run / name).unlink()
    refused(heedful("predict", own_run, cwd=tmp_path), f"{own_run / name}: missing", status=1)


@pytest.mark.parametrize("card", [True, False])
def test_a_tokenizer_of_another_vocabulary(heedful, own_run, recurrent, tmp_path, card):
    """Whether it stands on the card, or the run has no card because training has not ended."""
    if not card:
        for name in ("run.json", "weights.safetensors"):
            (own_run / name).unlink()
    for side in ("source", "target"):
        shutil.copy(recurrent / "source.tokenizer.json", own_run / f"{side}.tokenizer.json")
    done = heedful("predict", own_run, cwd=tmp_path)
    shapes = "source_embedding.weight has shape [338, 16] in the file, [12, 16] in the model"
    part = "source.tokenizer.json: damaged" if card else shapes
    refused(done, part, status=1 if card else 2)


def test_a_damaged_newest_checkpoint_is_passed_over(heedful, own_run, tmp_path):
    newest, *older = sorted((own_run / "checkpoints").iterdir(), reverse=True)
    flip(newest / "model.safetensors", 2000)
    done = heedful("train", own_run, "--resume", cwd=tmp_path)
    assert done.status == 0, done.err
    assert f"skipped a damaged checkpoint: {newest / 'model.safetensors'}: file is damaged" in done.err
    assert f"resuming after update {int(older[0].name[5:])}" in done.err


def test_no_good_checkpoint(heedful, own_run, tmp_path):
    for checkpoint in (own_run / "checkpoints").iterdir():
        (checkpoint / "optimizer.safetensors").unlink()
    done = heedful("train", own_run, "--resume", cwd=tmp_path)
    refused(done, "all checkpoints are damaged", "optimizer.safetensors: file is missing", status=1)


def test_a_full_disk_leaves_the_earlier_checkpoints(heedful, corpus):
    """The limit on a file's size stands for the end of the disk; half of the updates fit below it."""
    small, large = ("training.max_updates=2", "training.max_updates=200")
    assert heedful("train", "tiny.yaml", small, "--out", "run", cwd=corpus).status == 0
    run = corpus / "run"
    checkpoint = run / "checkpoints" / "step-00000002"
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    limit = (checkpoint / "optimizer.safetensors").stat().st_size - 1
    done = heedful("train", "run", large, "--resume", cwd=corpus, file_size=limit)
    refused(done, "step-00000010: the checkpoint cannot be written: ", "earlier checkpoints are", status=1)
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000002"]
    assert heedful("train", "run", large.replace("200", "12"), "--resume", cwd=corpus).status == 0


@pytest.mark.parametrize("limit", [100, 3000, 20000])
def test_a_full_disk_during_preparation(heedful, corpus, limit):
    done = heedful("train", "tiny.yaml", "--out", "run", cwd=corpus, file_size=limit)
    refused(done, "File too large", status=1)
    assert not (corpus / "run").exists() or limit == 20000


# Options


OPTIONS = [
    (["predict", "RUN", "--beam", "0"], ["--beam"]),
    (["predict", "RUN", "--beam", "two"], ["--beam"]),
    (["predict", "RUN", "--jsonl", "--n-best", "4"], ["n_best must be at most beam (3), got 4"]),
    (
        ["predict", "RUN", "--jsonl", "--beam", "2", "--n-best", "3"],
        ["n_best must be at most beam (2), got 3"],
    ),
    (["predict", "RUN", "--n-best", "2"], ["--n-best", "--jsonl"]),
    (["predict", "RUN", "--attention"], ["--attention", "--jsonl"]),
    (["predict", "RUN", "--alignment-head", "1.1"], ["--alignment-head requires --alignment"]),
    (["predict", "RUN", "--alignment", "--alignment-step", "input"],
     ["--alignment-step requires --alignment-head"]),
    (["predict", "RUN", "--alignment", "--alignment-head", "one"],
     ["--alignment-head must be LAYER.HEAD, or LAYER for the mean of its heads"]),
    (["predict", "RUN", "--alignment", "--alignment-head", "7.1"],
     ["alignment head: layer must be between 1 and"]),
    (["predict", "RUN", "--alignment", "--stream"], ["--stream is not supported with --alignment"]),
    (["predict", "RUN", "--decoding", "kind=sample", "--decoding", "temperature=-1"],
     ["on the command line: decoding.temperature=-1: expected a number of at least 0"]),
    (["predict", "RUN", "--decoding", "kind=sample", "--beam", "2"], ["beam=2 is not supported by sampling"]),
    (["predict", "RUN", "--decoding", "temperature=1"], ["decoding.temperature", "unknown key"]),
    (["predict", "RUN", "--decoding", "kind=greedi"], ["unknown kind 'greedi' (did you mean 'greedy'?)"]),
    (["predict", "RUN", "--decoding", "kind"], ["expected KEY=VALUE"]),
    (["predict", "RUN", "--device", "tpu"], ["device tpu: no such device"]),
    (["predict", "RUN", "--device", "mps"], ["device mps: heedful runs on cpu and cuda"]),
    (["predict", "RUN", "none.txt"], ["none.txt: no such file"]),
    (
        ["predict", "RUN", "she reads"],
        ["she reads: no such file; FILE must be a file", "echo 'she reads' | heedful predict "],
    ),
    (["predict", "RUN", "a long text " * 99], ["no such file; FILE must be a file"]),
    (["predict", "RUN", "RUN"], ["is a folder, not a file"]),
    (["predict"], ["Missing argument", "RUN"]),
    (["predict", "RUN", "--bem", "3"], ["No such option", "--bem", "--beam"]),
    (["predct"], ["No such command", "predict"]),
    (["evaluate", "RUN", "--split", "owm"], ["split owm: no such split (did you mean 'own'?)"]),
    (["evaluate", "RUN", "--limit", "0"], ["--limit"]),
    (["evaluate", "RUN", "--data", "only-one"], ["only-one: no such file"]),
    (["evaluate", "RUN", "--data", "none.src", "none.tgt"], ["none.src: no such file"]),
    (["evaluate", "RUN", "--text", "none"], ["none: no such file"]),
    (
        ["evaluate", "RUN", "--output", "no/where.jsonl"],
        ["no/where.jsonl: cannot be written: the folder no does not exist; create it: mkdir -p no"],
    ),
    (["evaluate", "RUN", "--output", "RUN"], ["expected a file, got a folder"]),
    (["evaluate", "RUN", "--device", "cuda:x"], ["device cuda:x: no such device"]),
    (["train"], ["Missing argument", "RECIPE"]),
    (["train", "tiny.yaml", "--device", "tpu"], ["device tpu: no such device"]),
    (["train", "tiny.yaml", "--print", "--bogus"], ["No such option", "--bogus"]),
    (["train", "tiny.yaml", "--print", "--json"], ["--json: not supported with --print"]),
    (["recipes", "sst2", "--json"], ["--json: only supported for the list"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "parts"), OPTIONS, ids=lambda x: " ".join(x)[:60])
def test_a_wrong_option_is_named(heedful, transformer, corpus, arguments, parts):
    before = sorted(corpus.iterdir())
    done = heedful(*(transformer if a == "RUN" else a for a in arguments), cwd=corpus, stdin="red dog\n")
    refused(done, *parts)
    assert sorted(corpus.iterdir()) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_a_gpu_that_is_not_there(heedful, transformer, tmp_path, verb):
    done = heedful(verb, transformer, "--device", "cuda", cwd=tmp_path)
    refused(done, "device cuda: this machine has no GPU")


# Inputs


NO_INPUTS = {
    "red dog": "invalid JSON: Expecting value at column 1",
    "3": "not a JSON object",
    '{"text": "red", "id": 7}': "no field 'source'; there are text, id",
    '{"source": null, "id": 7}': "field 'source' must be text, got null",
    '{"source": {"x": 3}, "id": 7}': "field 'source' must be text, got an object",
    '{"source": "x", "weight": 1e999}': "value out of range: 1e999",
    f'{{"source": "x", "weight": {"1" * 5000}}}': "integers must have at most 4,300 digits, got 5,000",
    '{"source": "x", "source": "y"}': 'duplicate key "source"',
    '{"source": "\\ud800", "id": 7}': "contains half of a surrogate pair at character 1",
    "[" * 100_000: "nested at most 200 deep",
}


def failed(done, n, answers):
    """That so many inputs were told as unreadable, and the others answered."""
    assert done.status == 1, done.err
    assert "Traceback" not in done.err
    # Inputs in JSON lines may also have constraints that no output satisfies.
    assert re.search(rf"heedful: {n} of {answers} inputs could not be (read|answered)\n$", done.err)
    assert done.out.count("\n") == answers


@pytest.mark.parametrize("file", ["in.jsonl", "-"])
def test_a_line_that_is_no_input_has_an_error_in_its_place(heedful, transformer, tmp_path, published, file):
    good = [json.dumps({"source": text}) for text in ("red dog", "cat")]
    text = "\n".join([good[0], *NO_INPUTS, good[1]]) + "\n"
    (tmp_path / "in.jsonl").write_text(text)
    done = heedful("predict", transformer, file, "--jsonl", cwd=tmp_path, stdin=text)
    failed(done, len(NO_INPUTS), len(NO_INPUTS) + 2)
    first, *wrong, last = map(json.loads, done.out.split("\n")[:-1])
    alone = heedful("predict", transformer, "--jsonl", cwd=tmp_path, stdin="\n".join(good))
    assert [first, last] == [json.loads(line) for line in alone.out.splitlines()]
    for number, (line, part) in enumerate(NO_INPUTS.items(), 2):
        found = wrong[number - 2]
        published("prediction", found)
        assert "output" not in found
        assert found["error"].startswith(f"{'standard input' if file == '-' else file}:{number}: ")
        assert part in found["error"]
        assert f"heedful: {found['error']}\n" in done.err
        assert ("id" in found.get("input", ())) == ('"id"' in line)


@pytest.mark.parametrize("line", ["red dog", "3", '{"sources": "red"}'])
def test_a_first_line_without_the_key_is_a_wrong_request(heedful, transformer, tmp_path, line):
    text = line + "\n" + '{"source": "red dog"}\n'
    refused(heedful("predict", transformer, "--jsonl", cwd=tmp_path, stdin=text), "standard input:1: ")


def test_a_text_that_is_missing_may_be_the_first(process, transformer, tmp_path):
    """Through a real pipe."""
    text = '{"source": null}\n{"source": "red dog"}\n'
    done = process("-m", "heedful", "predict", transformer, "--jsonl", cwd=tmp_path, input=text)
    assert done.returncode == 1
    assert done.stderr.endswith("heedful: 1 of 2 inputs could not be answered\n")
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["input"], first["error"][:18]) == ({"source": None}, "standard input:1: ")
    assert second["output"]


def test_what_failed_may_be_asked_again(heedful, transformer, tmp_path):
    given = '{"source": "red", "error": "in.jsonl:3: …"}\n'
    found = heedful("predict", transformer, "--jsonl", cwd=tmp_path, stdin=given).json()
    assert "error" not in found
    assert found["input"] == json.loads(given)


@pytest.mark.parametrize("file", ["in.txt", "-"])
def test_an_input_that_is_not_utf8_has_an_empty_line(heedful, transformer, tmp_path, file):
    (tmp_path / "in.txt").write_bytes(b"red\nd\xf6g\ncat\n")
    done = heedful("predict", transformer, file, cwd=tmp_path, stdin=b"red\nd\xf6g\ncat\n")
    failed(done, 1, 3)
    assert f"{'standard input' if file == '-' else file}:2: byte 2 of the line is not UTF-8" in done.err
    alone = heedful("predict", transformer, cwd=tmp_path, stdin="red\ncat\n").out.splitlines()
    assert done.out.splitlines() == [alone[0], "", alone[1]]


def test_a_first_line_that_is_not_utf8_has_an_empty_line_too(heedful, transformer, tmp_path):
    done = heedful("predict", transformer, cwd=tmp_path, stdin=b"d\xf6g\nred\n")
    failed(done, 1, 2)
    assert "standard input:1: byte 2 of the line is not UTF-8" in done.err
    assert done.out == "\n" + heedful("predict", transformer, cwd=tmp_path, stdin=b"red\n").out


def test_a_file_in_utf16_is_refused(heedful, transformer, tmp_path):
    content = "red\n".encode("utf-16")
    refused(heedful("predict", transformer, cwd=tmp_path, stdin=content), "standard input:1: byte", "UTF-16")


def test_own_keys_that_answers_have_too_come_back(heedful, transformer, tmp_path, published):
    own = {"version": 7, "score": "mine", "note": "mine", "text": 3, "input": "mine", "tokens": None}
    given = json.dumps({"source": "red dog", "id": 5, "ids": [1], "weight": 0.5, **own})
    found = heedful("predict", transformer, "--jsonl", cwd=tmp_path, stdin=given + "\n").json()
    alone = heedful("predict", transformer, "--jsonl", cwd=tmp_path, stdin='{"source": "red dog"}\n').json()
    assert found == {**alone, "input": json.loads(given)}
    published("prediction", found)


def test_what_came_before_the_end_of_a_file_that_is_cut_off_is_answered(heedful, transformer, tmp_path):
    draw = random.Random(0)
    rows = "".join(f"red {draw.getrandbits(4000)}\n" for _ in range(20))
    packed = gzip.compress(f"red\ncat\n{rows}".encode())
    (tmp_path / "in.txt.gz").write_bytes(packed[: len(packed) // 2])
    done = heedful("predict", transformer, "in.txt.gz", cwd=tmp_path)
    assert done.status == 2
    assert "in.txt.gz: the gzip file is truncated" in done.err
    alone = heedful("predict", transformer, cwd=tmp_path, stdin="red\ncat\n").out
    assert done.out.startswith(alone)


def test_evaluation_that_fails_leaves_no_part_of_its_output(heedful, transformer, tmp_path):
    (tmp_path / "out.jsonl").write_text("older\n")
    (tmp_path / "a").write_text("red\n\n")
    (tmp_path / "b").write_text("RED\n")
    done = heedful("evaluate", transformer, "--data", "a", "b", "--output", "out.jsonl", cwd=tmp_path)
    refused(done, "source has 2 lines (", "target has 1 lines (")
    assert (tmp_path / "out.jsonl").read_text() == "older\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "out.jsonl"]


def test_a_socket_is_no_data_file(heedful, transformer, tmp_path):
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(Path(os.path.relpath(tmp_path)) / "s"))
        refused(heedful("predict", transformer, "s", cwd=tmp_path), "s: ", "must be a regular file or a pipe")


# Beginners' mistakes


def test_an_image_is_no_input_of_a_task_on_texts(heedful, transformer, tmp_path):
    for name in ("pic.png", "pic"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
        done = heedful("predict", transformer, name, cwd=tmp_path)
        refused(done)
        remedy = "the task translation reads source; name a file of text"
        assert told(done) == f"heedful: {name}: is an image; {remedy}\n"


def test_an_input_in_an_old_encoding_gets_the_command_that_converts_it(heedful, transformer, tmp_path):
    (tmp_path / "in.txt").write_bytes("Käse\nSchöne Grüße\nred\n".encode("cp1252"))
    done = heedful("predict", transformer, "in.txt", cwd=tmp_path)
    failed(done, 2, 3)
    assert done.err.count("iconv -f WINDOWS-1252 -t UTF-8 in.txt > NEW") == 1


@pytest.mark.parametrize("split", ["dev", "validation"])
def test_the_validation_data_have_one_name(heedful, transformer, tmp_path, split):
    done = heedful("evaluate", transformer, "--split", split, cwd=tmp_path)
    refused(done, f"split {split}: no such split (did you mean 'valid'?)")


def test_validation_data_are_checked_before_the_tokenizer_is_trained(heedful, corpus):
    with (corpus / "valid.tgt").open("a") as file:
        file.write("ONE MORE\n")
    done = heedful("train", "tiny.yaml", "--out", "run", cwd=corpus)
    refused(done, "data.valid: the columns are not line-aligned: ")
    assert "training the tokenizer" not in done.err
    assert not (corpus / "run").exists()


def test_a_vocabulary_that_is_smaller_than_asked_for_is_reported(heedful, corpus):
    tokenizer = ["tokenizer.subwords={kind: bpe, vocab_size: 50000}", "tokenizer.subwords.merges=null"]
    done = heedful("train", "tiny.yaml", "training.max_updates=1", *tokenizer, "--out", "run", cwd=corpus)
    assert done.status == 0, done.err
    assert "tokens, fewer than vocab_size=50000 (source)" in done.err
