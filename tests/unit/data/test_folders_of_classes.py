"""A folder with a folder for each class."""

import pytest

from heedful.data.sources import FolderSource, open_source
from heedful.errors import DataError

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
