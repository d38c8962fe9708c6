"""Parts of a source by the content of rows: any order, equal rows together, shares within sampling error."""

import random
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Location, Source
from heedful.data.sources import (
    JsonlSource,
    SegmentedFolderSource,
    TextSource,
    TsvSource,
    list_columns,
    open_source,
)
from heedful.data.splitting import DataSets, PartSource, data_sets, part_of, training_source
from heedful.errors import DataError

SHARES = {"valid": 0.05, "test": 0.2}
TABLE = TsvSource(paths="rows.tsv", columns={"text": 0, "label": 1})


def located(number=1, **row):
    return LocatedRow(row, Location("rows.tsv", number))


def part(folder, shares=None, **row):
    return part_of(located(**row), shares or SHARES, folder)


def parts_of_lines(folder, lines, shares=SHARES, table=TABLE):
    """The rows of each part of a table with these lines."""
    (folder / "rows.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    names = ("train", *shares)
    return {
        name: [(row.row["text"], row.row["label"]) for row in open_source(source, folder)]
        for name, source in ((n, PartSource(source=table, shares=shares, part=n)) for n in names)
    }


LINES = [f"text {i}\t{i % 3}" for i in range(2003)]


def test_each_row_is_in_one_part_in_the_order_of_the_source(tmp_path):
    parts = parts_of_lines(tmp_path, LINES)
    rows = [tuple(line.split("\t")) for line in LINES]
    assert sorted(row for part in parts.values() for row in part) == sorted(rows)
    for found in parts.values():
        assert found == [row for row in rows if row in set(found)]


def test_shares_are_those_of_independent_draws(tmp_path):
    """Within four standard deviations of the binomial distribution."""
    parts = parts_of_lines(tmp_path, LINES)
    for name, share in {**SHARES, "train": 0.75}.items():
        deviation = (len(LINES) * share * (1 - share)) ** 0.5
        assert abs(len(parts[name]) - len(LINES) * share) < 4 * deviation


def test_neither_order_nor_other_rows_matter(tmp_path):
    lines = list(LINES)
    random.Random(0).shuffle(lines)
    before, after = parts_of_lines(tmp_path, LINES), parts_of_lines(tmp_path, lines[:700])
    for name, rows in after.items():
        assert set(rows) <= set(before[name])


def test_equal_rows_are_never_in_two_parts(tmp_path):
    parts = parts_of_lines(tmp_path, [f"text {i % 211}\t{i % 211 % 2}" for i in range(2003)])
    sets = [set(rows) for rows in parts.values()]
    assert sum(map(len, sets)) == len(set.union(*sets)) == 211


def test_the_hash_is_as_stated():
    """BLAKE2b of 64 bits over the columns by name, each with its lengths: releases may not change parts."""
    text = "größer".encode()
    numbers = [len(n).to_bytes(8, "little") for n in (b"12", b"label", b"0", b"text", text)]
    content = b"".join(
        [numbers[0], numbers[1], b"label", numbers[2], b"0", numbers[3], b"text", numbers[4], text]
    )
    number = int.from_bytes(blake2b(content, digest_size=8).digest(), "big") / 2**64
    row = {"text": "größer", "label": "0"}
    assert part(None, {"valid": number + 1e-9}, **row) == "valid"
    assert part(None, {"valid": number - 1e-9}, **row) == "train"
    assert part(None, {"test": 2e-9, "valid": number - 1e-9}, **row) == "test"


@settings(max_examples=50, deadline=None)
@given(
    row=st.dictionaries(st.sampled_from("abcde"), st.text() | st.lists(st.text(), max_size=3), min_size=1),
    share=st.floats(0.01, 0.4),
)
def test_columns_have_no_order_and_further_shares_leave_the_validation_data(row, share):
    turned = dict(reversed(row.items()))
    assert part(None, **row) == part(None, **turned)
    alone, beside = {"valid": share}, {"test": 0.5, "valid": share}
    assert (part(None, alone, **row) == "valid") == (part(None, beside, **row) == "valid")


def test_rows_of_one_image_or_passage_stay_together(tmp_path):
    for i in range(50):
        (tmp_path / f"{i}.png").write_bytes(b"image %d" % i)
        (tmp_path / f"copy of {i}.png").write_bytes(b"image %d" % i)
    found = set()
    for i in range(50):
        parts = {
            part(tmp_path, image=f"{i}.png", caption="one"),
            part(tmp_path, image=f"{i}.png", caption="another"),
            part(tmp_path, image=f"copy of {i}.png", caption="one"),
            part(tmp_path, image=LazyImage(b"image %d" % i, "elsewhere")),
        }
        assert len(parts) == 1
        found |= parts
        assert len({part(tmp_path, passage=f"p {i}", question=q) for q in "abc"}) == 1
    assert len(found) > 1
    arrays = [LazyImage(np.full((3, 5), i, np.uint8), "array") for i in range(99)]
    assert len({part(tmp_path, image=image) for image in arrays}) > 1


def test_missing_images_are_not_all_in_one_part(tmp_path):
    assert {part(tmp_path, image=f"missing {i}.png") for i in range(99)} == {"train", "valid", "test"}


def test_range_and_lists_of_the_source_hold(tmp_path):
    few = TABLE.model_copy(update={"skip": 3, "limit": 500})
    parts = parts_of_lines(tmp_path, LINES, table=few)
    assert sorted(row for p in parts.values() for row in p) == sorted(
        tuple(line.split("\t")) for line in LINES[3:503]
    )
    jsonl = JsonlSource(paths="x", columns={"a": "a"}, lists={"b": "b"})
    assert [*list_columns(PartSource(source=jsonl, shares=SHARES, part="train"))] == ["b"]


def test_a_missing_file_is_found_when_the_part_is_opened(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        open_source(PartSource(source=TABLE, shares=SHARES, part="test"), tmp_path)


def test_an_empty_part_is_an_error(tmp_path):
    (tmp_path / "rows.tsv").write_text("only\t1\n")
    with pytest.raises(DataError, match=r"none of the 1 of the source is in the part valid \(0\.0001\)"):
        [*open_source(PartSource(source=TABLE, shares={"valid": 1e-4}, part="valid"), tmp_path)]


@pytest.mark.parametrize("documents", ["line", "blank-lines"])
def test_a_text_file_of_one_document_has_parts_if_its_documents_are_as_advised(tmp_path, documents):
    (tmp_path / "book.txt").write_text("".join(f"line {i}\n\n" for i in range(200)))
    book = TextSource(paths="book.txt")
    with pytest.raises(DataError, match="none of the 1 of the source is") as caught:
        [*PartSource(source=book, shares={"a": 0.5, "b": 0.49999}, part="train").open(tmp_path)]
    assert documents in str(caught.value).partition("data.train.documents=")[2]
    smaller = book.model_copy(update={"documents": documents})
    assert [*PartSource(source=smaller, shares=SHARES, part="valid").open(tmp_path)]
    with pytest.raises(DataError) as caught:
        [*PartSource(source=smaller, shares={"a": 0.99, "b": 0.00999}, part="train").open(tmp_path)]
    assert "data.train.documents" not in str(caught.value)


def test_the_sets_of_a_recipe():
    folder = SegmentedFolderSource(path="a")
    plain = data_sets(TABLE, folder, {"x": TABLE}, {})
    assert plain == DataSets(TABLE, folder, {"x": TABLE})
    split = data_sets(TABLE, None, {"x": folder}, SHARES)
    assert split.train == training_source(TABLE, SHARES)
    assert [split.train.part, split.valid.part, split.test["test"].part] == ["train", "valid", "test"]
    assert (split.test["x"], split.valid.kind) == (folder, "tsv")
    assert all(isinstance(source, Source) for source in (split.train, split.valid))
