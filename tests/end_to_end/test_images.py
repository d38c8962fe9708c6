"""Classifiers of images by the real command, with files among the images that are none."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
RECIPE = """\
task: {kind: image-classification}
data:
  train: {kind: folder, path: images, skip: 4}
  valid: {kind: folder, path: images, limit: 4}
  test:
    own: {kind: folder, path: test}
  filter: {unreadable: drop}
augmentation: {shift: 1, flip: true, erase: 0.2}
model:
  kind: vision
  image_size: 8
  channels: 3
  patch_size: 4
  d_model: 12
  n_layers: 1
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 40, tokens_per_update: 60, validate_every: 20, save_every: 20, precision: fp32}
"""


def write(folder):
    draw = np.random.default_rng(0)
    for part in ("images", "test"):
        for label, colour in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
            (folder / part / label).mkdir(parents=True)
            for i in range(8):
                noise = draw.integers(0, 40, (9, 12, 3))
                Image.fromarray((np.array(colour) + noise).astype(np.uint8)).save(
                    folder / part / label / f"{i}.png"
                )
    for name in ("notes.txt", "notes.png"):
        (folder / "images" / "red" / name).write_text("no image")
    (folder / "test" / "blue" / "cut.png").write_bytes((folder / "test/blue/0.png").read_bytes()[:60])
    (folder / "recipe.yaml").write_text(RECIPE)


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@pytest.fixture(scope="module")
def folder(heedful, tmp_path_factory):
    """With the trained run ``run``; nobody may change it."""
    folder = tmp_path_factory.mktemp("images")
    write(folder)
    done = heedful("train", "recipe.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    assert "files that are not read as images: 1 .txt; the first is red/notes.txt" in done.err
    assert "unreadable: 1 (images/red/notes.png)" in done.err
    assert "the first has 12 x 9 pixels in colours; all are brought to 8 x 8 pixels in colours" in done.err
    return folder


def test_paths_are_answered_one_line_for_each(heedful, folder):
    done = heedful("predict", "run", cwd=folder, stdin="test/red/1.png\ntest/blue/2.png\n")
    assert done.status == 0, done.err
    assert done.out == "red\nblue\n"


def test_one_image_may_be_named_itself(heedful, folder):
    done = heedful("predict", "run", "test/blue/2.png", cwd=folder)
    assert (done.status, done.out) == (0, "blue\n"), done.err
    done = heedful("predict", "run", "test/blue/2.png", "--jsonl", "--n-best", "2", cwd=folder)
    answer = json.loads(done.out)
    assert (answer["input"], answer["output"]) == ({"image": "test/blue/2.png"}, "blue")
    gone = heedful("predict", "run", "test/blue/none.png", cwd=folder)
    assert gone.status == 2
    assert "none.png: no such file" in gone.err


def test_several_images_and_folders_may_be_named(heedful, folder, tmp_path):
    done = heedful("predict", "run", "test/red/1.png", "test/blue/2.png", cwd=folder)
    assert (done.status, done.out) == (0, "red\nblue\n"), done.err
    done = heedful("predict", "run", "test/red/1.png", "test/blue/", "--jsonl", cwd=folder)
    answers = [json.loads(line) for line in done.out.splitlines()]
    images = sorted(path.name for path in (folder / "test/blue").glob("*.png"))
    assert [answer["input"]["image"] for answer in answers] == [
        "test/red/1.png",
        *(f"test/blue/{n}" for n in images),
    ]
    assert done.status == 1  # test/blue/cut.png
    done = heedful("predict", "run", "test/red", "--out", tmp_path / "out.csv", cwd=folder)
    assert (done.status, done.out) == (0, ""), done.err
    header, *records = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "image,prediction,confidence,p(blue),p(red),notes"
    paths = sorted(path.relative_to(folder) for path in (folder / "test/red").glob("*.png"))
    assert [record.split(",")[0] for record in records] == [str(path) for path in paths]


def test_an_image_that_is_named_needs_no_suffix(heedful, folder, tmp_path):
    (tmp_path / "scan").write_bytes((folder / "test/red/1.png").read_bytes())
    for files in (["scan"], ["scan", "scan"]):
        done = heedful("predict", folder / "run", *files, cwd=tmp_path)
        assert (done.status, done.out) == (0, "red\n" * len(files)), done.err
    (tmp_path / "list").write_text("scan\n")
    assert heedful("predict", folder / "run", "list", cwd=tmp_path).out == "red\n"
    assert heedful("embed", folder / "run", "scan", cwd=tmp_path).json()["image"] == "scan"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["test/red/1.png", "recipe.yaml"], "recipe.yaml: expected an image or a folder"),
        (["run/cache"], "run/cache: no images in this folder"),
    ],
)
def test_what_is_not_an_image_is_named(heedful, folder, files, message):
    done = heedful("predict", "run", *files, cwd=folder)
    assert done.status == 2
    assert message in done.err


def test_what_cannot_be_read_has_an_empty_line_and_is_named(heedful, folder):
    paths = "test/red/1.png\ntest/blue/cut.png\nnone.png\n\ntest/blue/2.png\n"
    done = heedful("predict", "run", cwd=folder, stdin=paths)
    assert done.status == 1
    assert done.out == "red\n\n\n\nblue\n"
    for message in ("test/blue/cut.png: ", "none.png: no such file", "3 of 5 inputs could not be read"):
        assert message in done.err
    assert "Traceback" not in done.err


def test_json_lines_have_the_labels_or_the_error(heedful, folder):
    lines = "".join(
        json.dumps({"image": path, "id": n}) + "\n" for n, path in enumerate(["test/red/1.png", "x"])
    )
    done = heedful("predict", "run", "--jsonl", "--n-best", "2", cwd=folder, stdin=lines)
    assert done.status == 1
    first, second = map(json.loads, done.out.splitlines())
    for record in (first, second):
        check("prediction", record)
    assert (first["output"], first["input"]["id"], first["alternatives"][0]["output"]) == ("red", 0, "blue")
    assert (second["input"]["id"], second["error"]) == (1, "standard input:2: x: no such file")


def test_json_lines_without_a_path_have_an_error(heedful, folder):
    values = ["test/red/1.png", None, 3, "test/blue/2.png"]
    lines = "".join(json.dumps({"image": value, "id": n}) + "\n" for n, value in enumerate(values))
    done = heedful("predict", "run", "--jsonl", cwd=folder, stdin=lines + '{"id": 4}\n')
    assert done.status == 1
    assert done.err.endswith("heedful: 3 of 5 inputs could not be read\n")
    found = [json.loads(line) for line in done.out.splitlines()]
    for record in found:
        check("prediction", record)
    assert [record["input"]["id"] for record in found] == [0, 1, 2, 3, 4]
    assert [record.get("output") for record in found] == ["red", None, None, "blue", None]
    assert [record.get("error") for record in found] == [
        None,
        "standard input:2: field 'image' must be text, got null; remove such rows",
        "standard input:3: 3: no such file",
        None,
        "standard input:5: no field 'image'; there are id",
    ]


def test_it_is_scored_on_its_test_set_and_on_a_users_folder(heedful, folder):
    done = heedful("evaluate", "run", "--json", "--output", "rows.jsonl", cwd=folder)
    assert done.status == 0, done.err
    check("evaluation", done.json())
    (split,) = done.json()["splits"]
    score = split["scores"][0]
    assert (score["name"], score["value"]) == ("accuracy", 1.0)
    assert score["counts"] == {"examples": 16, "classes": 2, "unreadable": 1}
    assert score["details"]["confusion"] == [[8, 0], [0, 8]]
    records = [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]
    assert records[0]["input"]["image"] == "test/blue/0.png"
    own = heedful("evaluate", "run", "--folder", "test", cwd=folder)
    assert own.status == 0, own.err
    assert own.out.startswith("test: 16 examples\n")
    assert "heedful: own: dropped, unreadable: 1 (test/blue/cut.png)\n" in done.err
    told = r"^heedful: test: dropped, unreadable: 1 \(/.*/test/blue/cut.png\)$"
    assert re.search(told, own.err, re.MULTILINE)


def test_runs_and_recipes_are_described(heedful, folder):
    for what in ("run", "recipe.yaml"):
        done = heedful("describe", what, "--json", cwd=folder)
        assert done.status == 0, done.err
        check("ledger", done.json())
    timed = heedful("describe", "recipe.yaml", "--time", "--device", "cpu", "--json", cwd=folder)
    assert timed.status == 0, timed.err
    assert timed.json()["timing"]["tokens"] == 60


@pytest.mark.parametrize(
    "command, message",
    [
        (["train", "recipe.yaml", "data.filter.unreadable=error", "--out", "x"], "images/red/notes.png"),
        (
            ["train", "recipe.yaml", "model.patch_size=3", "--out", "x"],
            "patch_size must divide image_size=8, got 3",
        ),
        (["train", "recipe.yaml", "data.train.path=petz", "--out", "x"], "data.train: "),
        (["train", "recipe.yaml", "data.train.skip=99", "--out", "x"], "skip: 99 leaves no rows"),
        (["predict", "run", "--beam", "3"], "generates no text"),
        (["predict", "run", "--jsonl", "--attention"], "attention over a source is not available"),
        (["evaluate", "run", "--folder", "none"], "none"),
        (
            ["evaluate", "run", "--folder", "test", "--text", "x"],
            "expected only one of these",
        ),
    ],
)
def test_wrong_requests_are_told(heedful, folder, command, message):
    done = heedful(*command, cwd=folder, stdin='{"image": "a"}\n')
    assert done.status in (1, 2), done.out
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (folder / "x").exists()
