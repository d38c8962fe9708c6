"""Folders with images and masks: pairs by name, and what is missing."""

import numpy as np
import pytest
from PIL import Image

from heedful.data.folders import SegmentedFolderSource
from heedful.data.sources import open_source
from heedful.errors import DataError


def save(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((3, 4), value, np.uint8)).save(path)


def folder_of(path, images, masks):
    for part, names in (("images", images), ("masks", masks)):
        for number, name in enumerate(names):
            save(path / part / name, number)
    return path


def rows(root, path="d", **settings):
    return list(open_source(SegmentedFolderSource(path=path, **settings), root))


def test_images_and_masks_of_equal_names_are_rows_sorted_by_name(tmp_path):
    names = ["b.png", "a.jpg", "deep/a.JPG", "x.y.png"]
    folder_of(tmp_path / "d", names, ["b.png", "a.png", "deep/a.png", "x.y.gif"])
    (tmp_path / "d" / "images" / ".hidden.png").write_bytes(b"")
    (tmp_path / "d" / "masks" / "notes.txt").write_text("no mask")
    found = rows(tmp_path)
    images = ["d/images/a.jpg", "d/images/b.png", "d/images/deep/a.JPG", "d/images/x.y.png"]
    masks = ["d/masks/a.png", "d/masks/b.png", "d/masks/deep/a.png", "d/masks/x.y.gif"]
    assert [str(row.row["image"]) for row in found] == images
    assert [str(row.row["mask"]) for row in found] == masks
    assert [str(row.location) for row in found] == images
    assert found[2].row["mask"].numbers()[0, 0] == 2
    assert [str(row.location) for row in rows(tmp_path, skip=1, limit=2)] == images[1:3]


@pytest.mark.parametrize(
    ("images", "masks", "message"),
    [
        (["1.jpg", "2.jpg"], ["1.png"], r"d/images/2.jpg: has no mask; expected .*d/masks/2.png \(or"),
        (["1.jpg"], ["1.png", "2.png"], r"d/masks/2.png: has no image; expected .*d/images/2.png"),
        (["1.jpg", "1.png"], ["1.png"], r"d/images/1.png: has the same name as 1.jpg; rename one"),
        (["1.jpg"], ["a/1.png"], r"d/images/1.jpg: has no mask"),
        ([], ["1.png"], r"d: has no subfolder images; expected the subfolders images and masks"),
        (["1.jpg"], [], r"d: has no subfolder masks"),
    ],
)  # fmt: skip
def test_what_has_no_partner_is_named_at_once(tmp_path, images, masks, message):
    folder_of(tmp_path / "d", images, masks)
    with pytest.raises(DataError, match=message):
        open_source(SegmentedFolderSource(path="d"), tmp_path)


def test_empty_and_missing_folders_are_refused(tmp_path):
    folder_of(tmp_path / "d", [], ["1.png"])
    (tmp_path / "d" / "images").mkdir()
    with pytest.raises(DataError, match=r"d/images: has no images"):
        open_source(SegmentedFolderSource(path="d"), tmp_path)
    with pytest.raises(DataError, match=r"dd: no such folder \(did you mean 'd'\?\)"):
        open_source(SegmentedFolderSource(path="dd"), tmp_path)
