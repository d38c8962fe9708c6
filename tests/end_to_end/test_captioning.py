"""Captioners by the real command: trained on files, used on paths, scored, described; what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255)}
RECIPE = """\
task: {kind: captioning}
data:
  train: {kind: tsv, paths: rows.tsv, columns: {image: 0, caption: 1}}
  valid: {kind: tsv, paths: rows.tsv, columns: {image: 0, caption: 1}}
  test:
    own: {kind: tsv, paths: rows.tsv, columns: {image: 0, caption: 1}}
  filter: {unreadable: drop}
tokenizer: {subwords: {kind: word}}
model:
  kind: captioner
  image_size: 12
  patch_size: 6
  d_model: 12
  n_layers: 1
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 40, tokens_per_update: 60, validate_every: 20, save_every: 20, precision: fp32}
"""


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@pytest.fixture(scope="module")
def folder(heedful, tmp_path_factory):
    """A trained run; nobody may change it."""
    folder = tmp_path_factory.mktemp("captions")
    (folder / "images").mkdir()
    lines = []
    for i in range(24):
        colour = list(COLOURS)[i % 3]
        array = np.full((15, 13, 3), COLOURS[colour], np.uint8)
        Image.fromarray(array).save(folder / "images" / f"{i}.png")
        lines.append(f"images/{i}.png\tall is {colour}\n")
    (folder / "rows.tsv").write_text("".join(lines), "utf-8")
    (folder / "recipe.yaml").write_text(RECIPE, "utf-8")
    done = heedful("train", "recipe.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    return folder


SHOW_ATTEND_TELL = """\
  kind: recurrent-captioner
  image_size: 12
  encoder:
    {kind: resnet, n_blocks: [1, 1], width: 8, n_groups: 4, root_kernel: 3, root_stride: 1, root_pool: false}
  d_embedding: 13
  d_hidden: 17
"""


@pytest.mark.slow
def test_an_lstm_over_cells_is_trained_used_scored_and_explained(heedful, folder, tmp_path):
    head, _, rest = RECIPE.partition("  kind: captioner\n")
    recipe = head + SHOW_ATTEND_TELL + rest[rest.index("schedule:") :]
    (folder / "lstm.yaml").write_text(recipe, "utf-8")
    run = str(tmp_path / "run")
    done = heedful("train", "lstm.yaml", "--out", run, cwd=folder)
    assert done.status == 0, done.err
    paths = [f"images/{i}.png" for i in range(3)]
    done = heedful("predict", run, "--precision", "bf16", cwd=folder, stdin="\n".join(paths) + "\n")
    assert done.out.splitlines() == ["all is red", "all is green", "all is blue"]
    assert "bf16 on the plain path (unsupported model: RecurrentEncoderDecoder)" in done.err
    done = heedful("evaluate", run, "--json", cwd=folder)
    check("evaluation", done.json())
    done = heedful("explain", run, paths[0], "--json", "--out", str(tmp_path / "words.png"), cwd=folder)
    check("explanation", done.json())
    (cross,) = done.json()["maps"]
    assert np.array(cross["weights"]).shape == (1, 4, 36)
    with Image.open(tmp_path / "words.png") as drawn:
        assert drawn.size[0] > 100
    assert "cells" in heedful("describe", run, cwd=folder).out


def test_paths_become_captions_one_line_for_each(heedful, folder):
    done = heedful("predict", "run", cwd=folder, stdin="images/0.png\nimages/1.png\nimages/2.png\n")
    assert done.status == 0, done.err
    assert done.out.splitlines() == ["all is red", "all is green", "all is blue"]
    assert "fp32 on the plain path" in done.err


def test_an_image_that_cannot_be_read_has_an_empty_line_and_is_named(heedful, folder):
    done = heedful("predict", "run", cwd=folder, stdin="images/0.png\nrows.tsv\ngone.png\nimages/1.png\n")
    assert done.status == 1
    assert done.out.splitlines() == ["all is red", "", "", "all is green"]
    assert "rows.tsv: not an image" in done.err
    assert "gone.png: no such file" in done.err
    assert "2 of 4 inputs could not be read" in done.err
    assert "Traceback" not in done.err


def test_json_lines_with_answers_and_weights_over_the_patches(heedful, folder):
    lines = '{"image": "images/0.png", "id": 7}\n{"image": "gone.png", "id": 8}\n'
    done = heedful("predict", "run", "--jsonl", "--n-best", "2", "--attention", cwd=folder, stdin=lines)
    assert done.status == 1
    first, second = map(json.loads, done.out.splitlines())
    assert (first["input"], first["output"]) == ({"id": 7, "image": "images/0.png"}, "all is red")
    assert len(first["alternatives"]) == 1
    assert first["grid"] == [2, 2]
    weights = np.array(first["attention"])
    assert weights.shape == (1, 3, len(first["tokens"]) + 1, 4)
    assert second["error"] == "standard input:2: gone.png: no such file"
    for record in (first, second):
        check("prediction", record)


def test_json_lines_without_a_path_have_an_error(heedful, folder):
    lines = '{"image": null}\n{"image": "images/0.png"}\n'
    done = heedful("predict", "run", "--jsonl", "--attention", cwd=folder, stdin=lines)
    assert done.status == 1
    first, second = map(json.loads, done.out.splitlines())
    check("prediction", first)
    assert "standard input:1: field 'image' must be text, got null" in first["error"]
    assert second["output"] == "all is red"


def test_evaluation_is_what_the_schema_says(heedful, folder):
    done = heedful("evaluate", "run", "--json", "--output", "scored.jsonl", cwd=folder)
    assert done.status == 0, done.err
    check("evaluation", done.json())
    names = [score["name"] for score in done.json()["splits"][0]["scores"]]
    assert names[:4] == ["BLEU", "chrF2", "TER", "exact match"]
    records = [json.loads(line) for line in (folder / "scored.jsonl").read_text("utf-8").splitlines()]
    assert [r["input"]["image"] for r in records] == [f"images/{i}.png" for i in range(24)]


def test_a_users_own_table_is_scored(heedful, folder, tmp_path):
    path = folder / "images" / "0.png"
    (tmp_path / "own.jsonl").write_text(json.dumps({"image": str(path), "caption": "all is red"}) + "\n")
    done = heedful("evaluate", "run", "--table", tmp_path / "own.jsonl", cwd=folder)
    assert done.status == 0, done.err
    assert "own.jsonl: 1 sentences" in done.out


def test_a_users_own_folder_is_scored_against_all_captions_of_an_image(heedful, folder, tmp_path):
    (tmp_path / "album").mkdir()
    for i in range(2):
        content = (folder / "images" / f"{i}.png").read_bytes()
        (tmp_path / "album" / f"{i}.png").write_bytes(content)
        (tmp_path / "album" / f"{i}.txt").write_text("nothing\nall is red\n")
    done = heedful("evaluate", "run", "--folder", tmp_path / "album", "--json", cwd=folder)
    assert done.status == 0, done.err
    check("evaluation", done.json())
    scores = {score["name"]: score for score in done.json()["splits"][0]["scores"]}
    assert (scores["exact match"]["value"], scores["exact match"]["counts"]["sentences"]) == (0.5, 2)
    assert scores["perplexity"]["counts"]["sentences"] == 4


def test_a_run_is_described(heedful, folder):
    done = heedful("describe", "run", "--json", cwd=folder)
    assert done.status == 0, done.err
    check("ledger", done.json())
    assert done.json()["source_length"] == 4


@pytest.mark.parametrize(
    "command, message",
    [
        (["predict", "run", "--stream", "--beam", "2"], "set beam to 1"),
        (["predict", "run", "--precision", "int8"], "needs the native engine"),
        (["predict", "run", "--jsonl"], "no field 'image'; there are text"),
        (
            ["evaluate", "run", "--data", "rows.tsv", "rows.tsv"],
            "expected one table or folder to evaluate a captioner, got 2 files",
        ),
        (
            ["train", "recipe.yaml", "model.patch_size=5", "--out", "x"],
            "patch_size must divide image_size=12, got 5",
        ),
    ],
)
def test_wrong_requests_are_told(heedful, folder, command, message):
    done = heedful(*command, cwd=folder, stdin='{"text": "a"}\n')
    assert done.status in (1, 2), done.out
    assert message in done.err
    assert "Traceback" not in done.err
