"""Segmentation by the real command: trained on drawn scenes, masks written and scored again."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image

from heedful.data.corpora.scenes import masked_rows

pytestmark = pytest.mark.slow

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
RECIPE = """\
task: {kind: segmentation, decoder: pixels}
data:
  train: {kind: segmented-folder, path: scenes}
  valid: {kind: built-in, name: scene-masks, split: valid, limit: 4}
  test:
    own: {kind: segmented-folder, path: scenes, limit: 3}
model:
  kind: vision
  image_size: 48
  patch_size: 8
  d_model: 12
  n_layers: 1
  pooling: mean
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training:
  max_updates: 20
  tokens_per_update: 144
  validate_every: 10
  save_every: 10
  precision: fp32
  metric: mean-iou
"""


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@pytest.fixture(scope="module")
def folder(heedful, tmp_path_factory):
    """With the trained run ``run``; nobody may change it."""
    folder = tmp_path_factory.mktemp("masks")
    for kind in ("images", "masks"):
        (folder / "scenes" / kind / "more").mkdir(parents=True)
    for number, row in enumerate(islice(masked_rows("train"), 24)):
        name = f"{'more/' if number % 2 else ''}{number}"
        size = (48 + 2 * number, 48)  # wider images, whose middle is the scene
        image = Image.new("RGB", size, tuple(map(int, row["image"].content[0, 0])))
        image.paste(Image.fromarray(row["image"].content), (number, 0))
        image.save(folder / "scenes" / "images" / f"{name}.png")
        mask = Image.new("L", size, 0)
        mask.paste(Image.fromarray(row["mask"].content), (number, 0))
        mask.save(folder / "scenes" / "masks" / f"{name}.png")
    (folder / "recipe.yaml").write_text(RECIPE)
    done = heedful("train", "recipe.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    assert "mean-iou 0." in done.err
    assert "5 labels: 0, 1, 2, 3, 4" in done.err
    return folder


def test_each_image_has_a_line_with_shares(heedful, folder):
    done = heedful("predict", "run", "scenes/images", cwd=folder)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 24
    for line in lines:
        shares = [float(part.split()[1].removeprefix("<")) for part in line.split(", ")]
        assert line.startswith("0 ")
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(100, abs=0.6)


def test_json_lines_have_the_mask(heedful, folder):
    lines = "".join(
        json.dumps({"image": path, "id": n}) + "\n" for n, path in enumerate(["scenes/images/4.png", "x"])
    )
    done = heedful("predict", "run", "--jsonl", cwd=folder, stdin=lines)
    assert done.status == 1
    first, second = map(json.loads, done.out.splitlines())
    for record in (first, second):
        check("prediction", record)
    assert (first["input"]["id"], second["input"]["id"], second["error"]) == (
        0,
        1,
        "standard input:2: x: no such file",
    )
    assert first["output"]["size"] == [56, 48]
    assert sum(length for _, length in first["output"]["runs"]) == 56 * 48
    assert first["output"]["runs"][0] == [255, 4]
    assert sum(first["shares"].values()) == pytest.approx(1)


def test_masks_are_written_beside_their_names_and_read_back(heedful, folder, tmp_path):
    out = tmp_path / "own" / "masks"
    out.parent.mkdir()
    (tmp_path / "own" / "images").symlink_to(folder / "scenes" / "images")
    done = heedful("predict", "run", "scenes/images", "--out", out, cwd=folder)
    assert done.status == 0, done.err
    assert f"{out}: 24 masks" in done.err
    assert len(done.out.splitlines()) == 24
    names = {
        path.relative_to(folder / "scenes" / "images") for path in (folder / "scenes/images").rglob("*.png")
    }
    assert {path.relative_to(out) for path in out.rglob("*.png")} == names
    for name in names:
        with Image.open(folder / "scenes/images" / name) as image, Image.open(out / name) as mask:
            assert (mask.mode, mask.size) == ("P", image.size)
    scored = heedful("evaluate", "run", "--folder", tmp_path / "own", "--json", cwd=folder).json()
    check("evaluation", scored)
    (split,) = scored["splits"]
    assert {score["name"]: score["value"] for score in split["scores"]} == {
        "mean IoU": 1,
        "pixel accuracy": 1,
    }


def test_two_masks_of_one_name_are_refused(heedful, folder, tmp_path):
    (folder / "copy").mkdir(exist_ok=True)
    (folder / "copy" / "4.png").write_bytes((folder / "scenes/images/4.png").read_bytes())
    files = ["scenes/images/4.png", "copy/4.png"]
    done = heedful("predict", "run", *files, "--out", tmp_path / "masks", cwd=folder)
    assert done.status == 2
    assert "the masks of scenes/images/4.png and copy/4.png would both be" in done.err
    assert "Traceback" not in done.err


def test_no_file_that_was_there_is_overwritten(heedful, folder, tmp_path):
    for name in ("a.png", "sub/a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((folder / "scenes/images/4.png").read_bytes())
    before = (tmp_path / "sub/a.png").read_bytes()
    done = heedful("predict", "run", tmp_path, "--out", tmp_path / "sub", cwd=folder)
    assert done.status == 2
    assert f"{tmp_path / 'sub' / 'a.png'} exists" in done.err
    assert (tmp_path / "sub/a.png").read_bytes() == before


def test_images_are_not_overwritten(heedful, folder):
    before = (folder / "scenes/images/4.png").read_bytes()
    for files in (["scenes/images"], ["scenes/images/4.png"]):
        done = heedful("predict", "run", *files, "--out", "scenes/images", cwd=folder)
        assert done.status == 2
        assert "scenes/images: contains the image scenes/images/" in done.err
    assert (folder / "scenes/images/4.png").read_bytes() == before


def test_a_table_may_be_written_too(heedful, folder, tmp_path):
    done = heedful("predict", "run", "scenes/images/4.png", "--out", tmp_path / "out.csv", cwd=folder)
    assert (done.status, done.out) == (0, ""), done.err
    header, record = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "image,prediction,notes"
    assert record.startswith('scenes/images/4.png,"0 ')


def test_scores_of_each_class_are_shown(heedful, folder):
    done = heedful("evaluate", "run", "--split", "own", "--output", "rows.jsonl", cwd=folder)
    assert done.status == 0, done.err
    assert "own: 3 images" in done.out
    assert "mean IoU" in done.out
    assert ["class", "precision", "recall", "IoU", "count"] in [
        line.split() for line in done.out.splitlines()
    ]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert [row["input"]["image"] for row in rows] == [f"scenes/images/{n}.png" for n in (0, 10, 12)]
    assert all(0 <= row["scores"]["mean_iou"] <= 1 for row in rows)


def test_missing_masks_are_found_before_anything_else(heedful, folder, tmp_path):
    (tmp_path / "scenes" / "images").mkdir(parents=True)
    (tmp_path / "scenes" / "masks").mkdir()
    Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "scenes" / "images" / "1.png")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    done = heedful("train", "recipe.yaml", "--out", "new", cwd=tmp_path)
    assert done.status == 2
    assert "data.train: scenes/masks: has no images; add some" in done.err.replace(f"{tmp_path}/", "")
    assert not (tmp_path / "new").exists()


def test_other_tasks_write_no_folder(heedful, transformer, tmp_path):
    done = heedful("predict", transformer, "--out", tmp_path / "masks", cwd=tmp_path, stdin="a\n")
    assert done.status == 2
    assert "file name must end in .csv, .tsv, .xlsx or .jsonl" in done.err
    assert not (tmp_path / "masks").exists()
