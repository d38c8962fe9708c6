"""A folder of images with captions: each of the three forms, their order, and what is wrong in them."""

import json

import pytest
from PIL import Image

from heedful.data.images import LazyImage
from heedful.data.sources import CaptionedFolderSource, JsonlSource, open_source
from heedful.errors import DataError

NAMES = ["b.png", "a.jpg", "old/c.PNG"]


@pytest.fixture
def folder(tmp_path):
    """With three images, one in a folder below, and what is not looked at."""
    for n, name in enumerate([*NAMES, ".hidden.png", ".thumbs/a.png"]):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (3, 2), (n, 0, 0)).save(path)
    (tmp_path / "pets" / "README").write_text("of pets")
    return tmp_path


def write(folder, **files):
    for name, text in files.items():
        (folder / "pets" / name.replace("_", ".")).write_text(text)


def metadata(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def rows(folder, **part):
    return list(open_source(CaptionedFolderSource(path="pets", **part), folder))


def said(located):
    return [(row["image"].name, row["caption"], str(where)) for row, where in located]


IN_ORDER = [
    ("pets/a.jpg", "a cat"),
    ("pets/b.png", "a dog"),
    ("pets/b.png", "it sleeps"),
    ("pets/old/c.PNG", "eel"),
]

FORMS = {
    "lines of metadata": {
        "metadata_jsonl": metadata(
            {"file_name": "old/c.PNG", "text": "eel"},
            {"file_name": "b.png", "text": "a dog", "more": 3},
            {"file_name": "a.jpg", "text": "a cat"},
            {"file_name": "./b.png", "text": "it sleeps"},
        )
    },
    "lists in metadata": {
        "metadata_jsonl": metadata(
            {"file_name": "b.png", "caption": ["a dog", "it sleeps"]},
            {"file_name": "a.jpg", "caption": "a cat"},
            {"file_name": "old/c.PNG", "caption": ["eel"]},
        )
    },
    "tabs": {"captions_txt": "b.png\ta dog\nold/c.PNG\teel\r\nb.png\tit sleeps\na.jpg\ta cat\n"},
    "commas": {"captions_txt": 'image,caption\nb.png,a dog\nb.png,"it sleeps"\na.jpg,a cat\nold/c.PNG,eel\n'},
    "files beside": {"b_txt": "a dog\nit sleeps\n", "a_txt": "a cat", "old/c_txt": "eel\n"},
}


@pytest.mark.parametrize("form", FORMS)
def test_images_come_by_name_and_captions_by_line_in_every_form(folder, form):
    write(folder, **FORMS[form])
    found = rows(folder)
    assert [(image, text) for image, text, _ in said(found)] == IN_ORDER
    assert [row["image"].content for row, _ in found] == [folder / name for name, _ in IN_ORDER]
    assert all(isinstance(row["image"], LazyImage) for row, _ in found)


def test_a_row_is_located_by_its_line(folder):
    write(folder, **FORMS["tabs"])
    assert [where for _, _, where in said(rows(folder))] == [
        f"pets/captions.txt:{number}" for number in (4, 1, 3, 2)
    ]
    (folder / "pets" / "captions.txt").unlink()
    write(folder, **FORMS["files beside"])
    places = ["a.txt:1", "b.txt:1", "b.txt:2", "old/c.txt:1"]
    assert [where for _, _, where in said(rows(folder))] == [f"pets/{place}" for place in places]


def test_the_first_form_that_is_there_is_read(folder):
    write(folder, a_txt="beside\n")
    assert said(rows(folder))[0][1] == "beside"
    write(folder, captions_txt="a.jpg\tin a table\n")
    assert said(rows(folder))[0][1] == "in a table"
    write(folder, metadata_jsonl=metadata({"file_name": "a.jpg", "text": "in metadata"}))
    assert said(rows(folder))[0][1] == "in metadata"


def test_metadata_has_the_layout_of_the_datasets_library(folder):
    """Which reads the same folder, and the same captions, by itself."""
    datasets = pytest.importorskip("datasets")
    write(folder, metadata_jsonl=metadata(*({"file_name": name, "text": f"of {name}"} for name in NAMES)))
    theirs = datasets.load_dataset(
        "imagefolder", data_dir=str(folder / "pets"), split="train", cache_dir=str(folder / "cache")
    )
    theirs = theirs.cast_column("image", datasets.Image(decode=False))
    found = sorted((each["image"]["path"].rpartition("pets/")[2], each["text"]) for each in theirs)
    assert found == sorted((name.removeprefix("pets/"), text) for name, text, _ in said(rows(folder)))


def test_a_comma_in_a_caption_needs_quotes_or_a_tab(folder):
    write(folder, captions_txt='image,caption\na.jpg,"a cat, asleep"\n')
    assert said(rows(folder))[0] == ("pets/a.jpg", "a cat, asleep", "pets/captions.txt:2")
    write(folder, captions_txt="image,caption\na.jpg,a cat, asleep\n")
    with pytest.raises(DataError, match=r"captions.txt:2: .*got 3 fields; .*in double quotes"):
        rows(folder)
    write(folder, captions_txt="a.jpg\timage, caption\n")
    assert said(rows(folder))[0][1] == "image, caption"


# What is missing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {"metadata_jsonl": metadata({"file_name": "b.png", "text": []}, {"file_name": "a.jpg", "text": "x"})},
        {"captions_txt": "a.jpg\tx\n"},
        {"a_txt": "x\n", "b_txt": ""},
    ],
    ids=["metadata", "table", "beside"],
)
def test_an_image_without_a_caption_is_a_row_with_an_empty_one(folder, files):
    """Which every task drops, or refuses, as it does other empty texts."""
    write(folder, **files)
    names = ["pets/a.jpg", "pets/b.png", "pets/old/c.PNG"]
    assert [row[:2] for row in said(rows(folder))] == list(zip(names, ["x", "", ""], strict=True))
    assert said(rows(folder))[2][2] == "pets/old/c.PNG"


@pytest.mark.parametrize(
    "files, name",
    [
        ({"metadata_jsonl": metadata({"file_name": "gone.png", "text": "x"})}, "gone.png"),
        ({"captions_txt": "gone.png\tx\n"}, "gone.png"),
        ({"a_txt": "x\n", "gone_txt": "y\n"}, "gone"),
    ],
    ids=["metadata", "table", "beside"],
)
def test_a_missing_image_is_a_row_that_cannot_be_read(folder, files, name):
    write(folder, **files)
    (missing,) = [row["image"] for row, _ in rows(folder) if row["image"].name == f"pets/{name}"]
    with pytest.raises(DataError, match=f"pets/{name}: no such file"):
        missing.pixels(2, 3)


@pytest.mark.parametrize(
    "files, message",
    [
        ({}, r"pets: no metadata.jsonl, no captions.txt, and no image with a .txt file of the same name$"),
        ({"README_txt": "of pets"}, "no image with a .txt file of the same name"),
        ({"old/captions_txt": "c.PNG\teel\n"}, r"found .*pets/old/captions.txt: did you mean its folder"),
        ({"captions_txt": ""}, "captions.txt: the file is empty"),
        ({"captions_txt": "a.jpg a cat\n"}, "captions.txt:1: expected an image, a tab and a caption"),
        ({"captions_txt": "a.jpg,a cat\n"}, "or the header 'image,caption'"),
        ({"captions_txt": "a.jpg\ta cat\nb.png\n"}, r"captions.txt:2: .* a tab and a caption, got 1 field"),
        ({"captions_txt": "a.jpg\ta\tcat\n"}, r"captions.txt:1: .*, got 3 fields"),
        ({"captions_txt": "\ta cat\n"}, "captions.txt:1: the image name is empty"),
        ({"captions_txt": 'image,caption\na.jpg,"a cat\n'}, "captions.txt:2: the quotes"),
        (
            {"metadata_jsonl": metadata({"file_name": "a.jpg"})},
            "metadata.jsonl:1: expected exactly one of the fields text and caption, got neither",
        ),
        (
            {"metadata_jsonl": metadata({"file_name": "a.jpg", "text": "x", "caption": "y"})},
            "expected exactly one of the fields text and caption, got both",
        ),
        ({"metadata_jsonl": metadata({"image": "a.jpg", "text": "x"})}, "jsonl:1: no field 'file_name'"),
        (
            {"metadata_jsonl": metadata({"file_name": ["a.jpg"], "text": "x"})},
            "field 'file_name' must name one image, got a list",
        ),
        ({"metadata_jsonl": metadata({"file_name": "a.jpg", "text": None})}, "'text' must be text, got null"),
        ({"metadata_jsonl": "a.jpg\ta cat\n"}, "metadata.jsonl:1: not JSON lines"),
    ],
)  # fmt: skip
def test_errors_are_located(folder, files, message):
    write(folder, **files)
    with pytest.raises(DataError, match=message):
        rows(folder)


def test_a_file_that_is_not_utf_8_is_named(folder):
    (folder / "pets" / "a.txt").write_bytes("eine müde Katze\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"pets/a.txt:1: byte 7 of the line is not UTF-8"):
        rows(folder)


def test_a_missing_folder_or_caption_file_is_reported_at_once(folder):
    with pytest.raises(DataError, match=r"petz: no such folder \(did you mean 'pets'\?\)"):
        open_source(CaptionedFolderSource(path="petz"), folder)
    with pytest.raises(DataError, match="no metadata"):
        open_source(CaptionedFolderSource(path="pets"), folder)


# Parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
def test_a_part_has_whole_images(folder, n):
    """So that no image is learned from and measured by."""
    write(folder, **FORMS["tabs"])
    first, others = rows(folder, limit=n), rows(folder, skip=n)
    assert said([*first, *others]) == said(rows(folder))
    names = [{row["image"].name for row, _ in part} for part in (first, others)]
    assert (len(names[0]), len(names[1])) == (n, 3 - n)
    assert not names[0] & names[1]
    assert said(rows(folder, skip=1, limit=1)) == said(rows(folder))[1:3]
    with pytest.raises(DataError, match="skip: 3 leaves no rows: there are only 3 images"):
        rows(folder, skip=3)


def test_another_field_is_read_by_another_source(folder):
    """The one that a message names."""
    write(folder, metadata_jsonl=metadata({"file_name": "a.jpg", "text": "x", "caption": "y"}))
    columns = {"image": "file_name", "caption": "caption"}
    (row,) = open_source(JsonlSource(paths="pets/metadata.jsonl", columns=columns), folder)
    assert row.row == {"image": "a.jpg", "caption": "y"}
