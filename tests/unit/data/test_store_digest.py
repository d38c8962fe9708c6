"""The hash of rows: any change of text, order or column changes it, and storage does not."""

import gzip
import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Location
from heedful.data.sources import FilesSource
from heedful.data.store import RowDigest

row_lists = st.lists(
    st.dictionaries(st.text(max_size=3), st.text(st.characters(), max_size=3), max_size=3), max_size=5
)


def digest(rows):
    hashed = RowDigest()
    for row in rows:
        hashed.update(row)
    return hashed.hexdigest()


@given(row_lists, row_lists)
def test_equal_rows_and_no_others_hash_alike(a, b):
    assert (digest(a) == digest(b)) == (a == b)


def test_text_cannot_move_between_rows_or_columns():
    variants = [
        [{"a": "xy", "b": "z"}],
        [{"a": "x", "b": "yz"}],
        [{"a": "xy"}, {"b": "z"}],
        [{"b": "z"}, {"a": "xy"}],
        [{"a": "xy", "b": "z"}, {}],
    ]
    assert len({digest(rows) for rows in variants}) == len(variants)


def test_the_order_of_columns_in_a_row_is_not_part_of_it():
    assert digest([{"a": "x", "b": "y"}]) == digest([{"b": "y", "a": "x"}])


def test_the_bytes_that_are_hashed():
    def number(n):
        return n.to_bytes(8, "little")

    content = number(1) + number(1) + b"a" + number(2) + "é".encode()
    assert digest([{"a": "é"}]) == hashlib.sha256(content).hexdigest()


def test_an_image_is_hashed_by_its_bytes_and_differs_from_text():
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    variants = [
        [{"a": LazyImage(pixels, "x")}],
        [{"a": LazyImage(pixels.reshape(3, 2), "x")}],
        [{"a": LazyImage(pixels[::-1], "x")}],
        [{"a": LazyImage(b"abc", "x")}],
        [{"a": "abc"}],
    ]
    assert len({digest(rows) for rows in variants}) == len(variants)
    assert digest([{"a": LazyImage(pixels.copy(), "y")}]) == digest(variants[0])


def test_rows_pass_through_and_storage_does_not_matter(tmp_path):
    (tmp_path / "plain").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"one\ntwo"))
    found = []
    for name in ("plain", "packed.gz"):
        hashed = RowDigest()
        rows = list(hashed.through(FilesSource(columns={"text": name}).open(tmp_path)))
        assert rows == [LocatedRow({"text": t}, Location(name, n)) for n, t in enumerate(("one", "two"), 1)]
        found.append(hashed.hexdigest())
    assert found[0] == found[1] == digest([{"text": "one"}, {"text": "two"}])
