"""A folder with a folder for each class."""

import re

import numpy as np
import pytest

from heedful.data.folders import unread_files
from heedful.data.image_files import unread_note
from heedful.data.sources import CaptionedFolderSource, FolderSource, SegmentedFolderSource, open_source
from heedful.data.splitting import PartSource
from heedful.errors import DataError

SHARES = {"valid": 0.3, "test": 0.3}
FILES = ["cat/2.png", "cat/1.png", "cat/old/9.jpg", "dog/7.png", "eel/a.gif", "eel/b.gif"]


@pytest.fixture
def folder(tmp_path):
    for name in [*FILES, "cat/.hidden.png", ".git/x.png", "cat/.thumbs/1.png", "README"]:
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def rows(folder, **part):
    return list(open_source(FolderSource(path="pets", **part), folder))


def test_classes_come_in_turn_and_files_by_name(folder):
    found = rows(folder)
    names = ["cat/1.png", "dog/7.png", "eel/a.gif", "cat/2.png", "eel/b.gif", "cat/old/9.jpg"]
    assert [row.row["image"].content for row in found] == [folder / "pets" / name for name in names]
    assert [row.row["label"] for row in found] == ["cat", "dog", "eel", "cat", "eel", "cat"]
    assert [str(row.location) for row in found] == [f"pets/{name}" for name in names]


def test_limit_and_skip_divide_all_classes(folder):
    assert [row.row["label"] for row in rows(folder, limit=3)] == ["cat", "dog", "eel"]
    assert len(rows(folder, skip=3)) == 3


def test_a_class_without_an_image_is_named(folder):
    (folder / "pets" / "fox").mkdir()
    (folder / "pets" / "fox" / ".keep").write_text("")
    with pytest.raises(DataError, match=r"pets/fox: the class has no images"):
        rows(folder)


def test_an_image_beside_the_classes_is_named(folder):
    (folder / "pets" / "stray.JPG").write_bytes(b"")
    with pytest.raises(DataError, match=r"stray.JPG: image outside the class folders"):
        rows(folder)


def test_a_missing_folder_is_named_with_the_nearest(folder):
    with pytest.raises(DataError, match=r"petz: no such folder \(did you mean 'pets'\?\)"):
        open_source(FolderSource(path="petz"), folder)
    with pytest.raises(DataError, match="has no subfolders"):
        open_source(FolderSource(path="pets/dog"), folder)


def test_a_class_whose_name_is_not_utf_8_is_refused_by_it(folder):
    strange = b"g\xe4nse".decode("utf-8", "surrogateescape")
    (folder / "pets" / strange).mkdir()
    (folder / "pets" / strange / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match="not UTF-8") as raised:
        rows(folder)
    assert strange in str(raised.value)


# Folders as archives, telephones and other programs leave them ----------------------------------------------


def make(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def test_files_of_systems_are_neither_classes_nor_images(folder):
    expected = [str(row.location) for row in rows(folder)]
    make(
        folder / "pets",
        "__MACOSX/cat/._1.png",
        ".DS_Store",
        "cat/Thumbs.db",
        "dog/desktop.ini",
        "cat/.DS_Store",
    )
    make(folder / "pets", "dog/@eaDir/7.png/thumb.jpg", "Thumbs.db")
    assert [str(row.location) for row in rows(folder)] == expected


# A message and, in it, the paths of the folders that are meant.
AROUND = {
    "a folder around": (["p/p/cat/1.png", "p/p/dog/1.png"], "p", ["p/p"]),
    "two folders around": (["p/q/r/cat/1.png", "p/q/r/dog/1.png"], "p", ["p/q/r"]),
    "a folder around, of an archive": (
        ["p/p/cat/1.png", "p/p/dog/1.png", "p/__MACOSX/p/cat/._1.png"],
        "p",
        ["p/p"],
    ),
    "one data set": (["p/train/cat/1.png", "p/train/dog/1.png"], "p", ["p/train"]),
    "data sets": (
        [f"p/{part}/{label}/1.png" for part in ("train", "val") for label in "ab"],
        "p",
        ["p/train", "p/val"],
    ),
    "data sets, capitals": (
        [f"p/{part}/{label}/1.png" for part in ("Test", "Train", "Valid") for label in "ab"],
        "p",
        ["p/Test", "p/Train", "p/Valid"],
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_level_too_many_is_an_error_whose_paths_work(name, tmp_path):
    files, path, meant = AROUND[name]
    make(tmp_path, *files)
    with pytest.raises(DataError) as raised:
        list(open_source(FolderSource(path=path), tmp_path))
    found = re.findall(r"path: (\S+?)(?: and|$)", str(raised.value))
    assert found == meant
    for each in found:
        assert len({row.row["label"] for row in open_source(FolderSource(path=each), tmp_path)}) == 2


@pytest.mark.parametrize(
    "files",
    [
        ["p/train/1.png", "p/bus/1.png"],
        ["p/train/old/1.png", "p/test/2.png"],
        ["p/train/old/1.png", "p/bus/new/1.png"],
        ["p/cat/1.png"],
        ["p/cat/old/1.png"],
        ["p/cat/1.png", "p/cat/old/2.png", "p/cat/new/3.png"],
    ],
)
def test_classes_with_subfolders_stay_classes(files, tmp_path):
    make(tmp_path, *files)
    found = {str(row.location): row.row["label"] for row in open_source(FolderSource(path="p"), tmp_path)}
    assert found == {file: file.split("/")[1] for file in files}


def test_the_paths_of_masks_are_found_below_a_folder_around(tmp_path):
    make(tmp_path, "p/p/images/1.png", "p/p/masks/1.png")
    with pytest.raises(DataError, match=r"set path: p/p$"):
        list(open_source(SegmentedFolderSource(path="p"), tmp_path))
    assert len(list(open_source(SegmentedFolderSource(path="p/p"), tmp_path))) == 1


def test_files_that_are_not_read_are_counted_by_suffix(tmp_path):
    make(
        tmp_path,
        "p/1.JPG",
        "p/1.txt",
        "p/2.heic",
        "p/3.CR2",
        "p/4.cr2",
        "p/notes.txt",
        "p/list",
        "p/captions.txt",
    )
    found = unread_note(unread_files(CaptionedFolderSource(path="p"), tmp_path))
    assert found == "files that are not read as images: 2 .cr2, 1 without suffix, 1 .txt; the first is 3.CR2"
    make(tmp_path, "s/images/1.jpg", "s/masks/1.png", "s/masks/1.json", "s/images/Thumbs.db")
    assert unread_note(unread_files(SegmentedFolderSource(path="s"), tmp_path)) == (
        "files that are not read as images: 1 .json; the first is masks/1.json"
    )
    assert unread_note(unread_files(FolderSource(path="s"), tmp_path)) == (
        "files that are not read as images: 1 .json; the first is masks/1.json"
    )


def test_parts_do_not_depend_on_names_or_the_place_of_the_folder(tmp_path):
    draw = np.random.default_rng(0)
    for n in range(40):
        content = draw.bytes(30)
        for path in (
            f"a/pets/{'cat' if n % 2 else 'dog'}/{n}.png",
            f"b/x/y/{'Katze' if n % 2 else 'Hund'}/{40 - n}.JPG",
        ):
            make(tmp_path, path)
            (tmp_path / path).write_bytes(content)
    sources = (FolderSource(path="a/pets"), tmp_path), (FolderSource(path="y"), tmp_path / "b" / "x")
    parts = [
        {
            part: {
                row.row["image"].encoded() for row in PartSource(source=s, shares=SHARES, part=part).open(r)
            }
            for part in ("train", *SHARES)
        }
        for s, r in sources
    ]
    assert parts[0] == parts[1]
    assert sum(map(len, parts[0].values())) == 40
