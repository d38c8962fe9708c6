"""Paths of images as other systems write them, in every kind of source that names images."""

import json
from unicodedata import normalize

import numpy as np
import pytest
from PIL import Image

from heedful.data.image_paths import file_at
from heedful.data.images import LazyImage, with_images
from heedful.data.lines import LocatedRow, Location
from heedful.data.sources import CaptionedFolderSource, SegmentedFolderSource, open_source
from heedful.errors import DataError

NAMES = ["café/größe 1.png", "ü.png", "a b/c.png", "plain/1.png"]
WRITTEN = {
    "as it is": lambda name: name,
    "NFC": lambda name: normalize("NFC", name),
    "NFD": lambda name: normalize("NFD", name),
    "of Windows": lambda name: name.replace("/", "\\"),
    "of Windows, NFD": lambda name: normalize("NFD", name).replace("/", "\\"),
}


@pytest.fixture(params=["NFC", "NFD"])
def folder(request, tmp_path):
    for name in NAMES:
        path = tmp_path / normalize(request.param, name)
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((3, 3), np.uint8)).save(path)
    return tmp_path


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("name", NAMES)
def test_a_table_names_a_file_in_any_form(folder, name, way):
    written = WRITTEN[way](name)
    row = LocatedRow({"image": written}, Location(f"{folder}/table.tsv", 1))
    image = with_images(row, ["image"], folder).row["image"]
    assert image.pixels(3, 1).max() == 0
    assert image.name == written
    assert LazyImage.of(str(folder / "plain").replace("plain", written)).size == (3, 3)


@pytest.mark.parametrize("way", WRITTEN)
def test_captions_name_files_in_any_form(folder, way):
    names = [WRITTEN[way](name) for name in NAMES]
    lines = [json.dumps({"file_name": name, "text": f"caption of {n}"}) for n, name in enumerate(names)]
    for table, text in (
        ("metadata.jsonl", "\n".join(lines)),
        ("captions.txt", "\n".join(f"{name}\tcaption" for name in names)),
    ):
        (folder / table).write_text(text, "utf-8")
        rows = [row.row for row in open_source(CaptionedFolderSource(path="."), folder)]
        (folder / table).unlink()
        assert len(rows) == len(NAMES)
        assert all(row["caption"] and row["image"].size == (3, 3) for row in rows)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_masks_and_captions_beside_images_are_named_in_any_form(tmp_path, form):
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    for part, name in (("images", normalize(form, "é.jpg")), ("masks", normalize(other, "é.png"))):
        (tmp_path / "p" / part).mkdir(parents=True)
        Image.new("L", (3, 3)).save(tmp_path / "p" / part / name)
    (row,) = open_source(SegmentedFolderSource(path="p"), tmp_path)
    assert row.row["mask"].numbers().shape == (3, 3)
    (tmp_path / "p" / "images" / normalize(other, "é.txt")).write_text("a dog", "utf-8")
    (row,) = open_source(CaptionedFolderSource(path="p/images"), tmp_path)
    assert row.row["caption"] == "a dog"
    assert row.row["image"].size == (3, 3)


def test_a_name_as_it_is_comes_first(tmp_path):
    for name, colour in (
        ("a\\b.png", 1),
        ("a/b.png", 2),
        (normalize("NFC", "é"), 3),
        (normalize("NFD", "é"), 4),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes([colour]))
        assert file_at(tmp_path, name).read_bytes() == bytes([colour])
    assert file_at(tmp_path, "none\\é") == tmp_path / "none\\é"
    assert file_at(tmp_path, "é" * 9999) == tmp_path / ("é" * 9999)


@pytest.mark.parametrize("name", ["C:\\Users\\me\\images\\1.png", "images\\none.png", "D:/images/1.png"])
def test_a_path_of_another_computer_names_the_remedy(tmp_path, name):
    image = with_images(LocatedRow({"image": name}, Location("t.tsv", 1)), ["image"], tmp_path).row["image"]
    with pytest.raises(DataError) as raised:
        image.pixels(3, 1)
    assert str(raised.value) == (
        f"{name}: no such file; for a path of another computer, write it relative to the folder of the "
        "table, with / between folders"
    )
