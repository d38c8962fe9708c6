"""IDX files: read byte for byte, and refused by name where they are not what they say."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from heedful.data.sources import IdxSource, open_source
from heedful.errors import DataError


def idx(array, kind=8):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


PIXELS = np.random.default_rng(1).integers(0, 256, (7, 3, 5), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2, 2, 0, 1], dtype=np.uint8)


def config(**changes):
    return IdxSource(**{"columns": {"image": "x", "label": "y"}, **changes})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x").write_bytes(idx(PIXELS))
    (tmp_path / "y").write_bytes(idx(LABELS))
    (tmp_path / "x.gz").write_bytes(gzip.compress(idx(PIXELS)))
    return tmp_path


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_items_of_both_files_belong_together(folder, name):
    rows = list(open_source(config(columns={"image": name, "label": "y"}, names=["a", "b", "c"]), folder))
    assert np.array_equal(np.stack([row.row["image"].content for row in rows]), PIXELS)
    assert [row.row["label"] for row in rows] == [["a", "b", "c"][n] for n in LABELS]
    assert str(rows[3].location) == str(rows[3].row["image"]) == f"{name}:4"


def test_labels_without_names_are_numbers(folder):
    assert [row.row["label"] for row in open_source(config(), folder)] == [str(n) for n in LABELS]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "not an IDX file: it begins with nothing"),
        (b"\x89PNG\r\n", "not an IDX file: it begins with 89 50 4e 47"),
        (idx(PIXELS, kind=13), "type 0x0d with 3 axes"),
        (idx(PIXELS[0]), "type 0x08 with 2 axes"),
        (idx(PIXELS)[:-1], "its header announces 105 values, got 104"),
        (idx(PIXELS) + b"\0", "its header announces 105 values, got 106"),
        (idx(PIXELS)[:9], "truncated or damaged"),
        (idx(PIXELS[:5]), "x has 5, y has 7"),
    ],
)
def test_a_malformed_file_is_named(folder, content, message):
    (folder / "x").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(open_source(config(), folder))
    assert "x" in str(caught.value)


def test_a_label_without_a_name_is_named(folder):
    with pytest.raises(DataError, match="x:1: label 2 has no name: `names` has 2"):
        list(open_source(config(names=["a", "b"]), folder))


def test_a_missing_file_is_reported_at_once(folder):
    with pytest.raises(DataError, match="no such file"):
        open_source(config(columns={"image": "z"}), folder)


@pytest.mark.corpus
@pytest.mark.skipif("HEEDFUL_DATA" not in os.environ, reason="HEEDFUL_DATA is not set")
def test_fashion_mnist_is_read():
    base = "$HEEDFUL_DATA/fashion_mnist/t10k"
    columns = {"image": f"{base}-images-idx3-ubyte.gz", "label": f"{base}-labels-idx1-ubyte.gz"}
    rows = list(open_source(IdxSource(columns=columns), Path()))
    assert len(rows) == 10_000
    assert rows[0].row["image"].content.shape == (28, 28)
    assert [row.row["label"] for row in rows[:5]] == ["9", "2", "1", "1", "6"]
