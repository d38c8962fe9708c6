"""The token store: the same rows back, and nothing half-written or damaged."""

import hashlib
import json
import resource
import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.data import store as module
from heedful.data.images import LazyImage
from heedful.data.store import RowDigest, TokenStore
from heedful.errors import WorkError

ROWS = [
    {"source": [3, 1, 4], "target": [1, 5]},
    {"source": [], "target": [9]},
    {"source": [2, 6, 5, 3, 5], "target": []},
]
BOTH = ("source", "target")


def as_lists(store):
    return [{column: ids.tolist() for column, ids in store[i].items()} for i in range(len(store))]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def built(tmp_path):
    path = tmp_path / "store"
    TokenStore.build(ROWS, BOTH, path, key="k", n_ids=10)
    return path


def test_rows_lengths_and_gathered_rows(place):
    store = TokenStore.build(iter(ROWS), BOTH, place)
    assert len(store) == 3
    assert as_lists(store) == ROWS
    assert store.lengths("source").tolist() == [3, 0, 5]
    assert store.lengths("target").tolist() == [2, 1, 0]
    gathered = store.gather(np.array([2, 0, 2]))
    assert [ids.tolist() for ids in gathered["source"]] == [[2, 6, 5, 3, 5], [3, 1, 4], [2, 6, 5, 3, 5]]
    assert [ids.tolist() for ids in gathered["target"]] == [[], [1, 5], []]
    assert all(ids.dtype == np.int64 for row in gathered.values() for ids in row)


def test_rows_count_from_either_end_and_no_further(place):
    store = TokenStore.build(ROWS, BOTH, place)
    assert store[-3]["source"].tolist() == [3, 1, 4]
    for row in (3, -4):
        with pytest.raises(IndexError):
            store[row]


def test_what_is_returned_is_a_copy(place):
    store = TokenStore.build(ROWS, BOTH, place)
    store[0]["source"][:] = 7
    assert as_lists(store) == ROWS


def test_other_entries_of_a_row_are_left_out(place):
    assert as_lists(TokenStore.build(ROWS, ["target"], place)) == [{"target": row["target"]} for row in ROWS]


def test_no_rows(place):
    store = TokenStore.build([], BOTH, place)
    assert len(store) == 0
    assert store.lengths("source").tolist() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 70_000), max_size=11), max_size=23),
    flush=st.integers(1, 29),
)
def test_rows_are_read_back_for_any_flush_size(place, monkeypatch, rows, flush):
    monkeypatch.setattr(module, "_FLUSH", flush)
    store = TokenStore.build(({"text": row} for row in rows), ["text"], place, n_ids=70_001)
    assert [row["text"] for row in as_lists(store)] == rows


@pytest.mark.parametrize(("n_ids", "size"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_ids_take_few_bytes_where_the_vocabulary_allows(tmp_path, n_ids, size):
    store = TokenStore.build([{"text": [0, n_ids - 1]}], ["text"], tmp_path / "s", n_ids=n_ids)
    assert (tmp_path / "s" / "0.ids").stat().st_size == 2 * size
    assert store[0]["text"].tolist() == [0, n_ids - 1]


def test_columns_may_have_ranges_of_their_own(place):
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 6)
    rows = [{"image": row, "label": [n * 299]} for n, row in enumerate(pixels)]
    store = TokenStore.build(rows, ["image", "label"], place, n_ids={"image": 256, "label": 300})
    assert (store.stream("image").dtype, store.stream("label").dtype) == (np.uint8, np.dtype("<u2"))
    assert np.array_equal(store.stream("image").reshape(2, 6), pixels)
    assert store.stream("label").tolist() == [0, 299]
    with pytest.raises(ValueError, match="must be 0 to 9"):
        TokenStore.build(rows, ["image"], place, n_ids={"image": 10})


@pytest.mark.parametrize("bad", [-1, 10])
def test_ids_outside_the_vocabulary_are_refused_and_leave_nothing(tmp_path, place, bad):
    with pytest.raises(ValueError, match="must be 0 to 9"):
        TokenStore.build([{"text": [3, bad]}], ["text"], place, n_ids=10)
    assert list(tmp_path.iterdir()) == []


def test_opened_again_it_is_the_same_and_stays_on_disk(built):
    store = TokenStore.open(built, "k")
    assert as_lists(store) == ROWS
    assert all(isinstance(ids, np.memmap) for ids in store._ids.values())


def test_a_store_of_another_key_is_not_opened(built):
    assert TokenStore.open(built, "other") is None


@pytest.mark.parametrize("name", ["header.json", "0.ids", "1.ids", "0.offsets", "1.offsets"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_store_is_not_opened_and_is_replaced(built, tmp_path, name, harm):
    file = built / name
    content = bytearray(file.read_bytes())
    if harm == "flip":
        content[len(content) // 2] ^= 128
        file.write_bytes(content)
    elif harm == "cut":
        file.write_bytes(content[:-1])
    else:
        file.unlink()
    assert TokenStore.open(built, "k") is None
    TokenStore.build(ROWS[:1], BOTH, built, key="k")
    assert as_lists(TokenStore.open(built, "k")) == ROWS[:1]
    assert list(tmp_path.iterdir()) == [built]


@pytest.mark.parametrize("changes", [{"version": 2}, {"format": "another"}, {"new": 1}])
def test_a_store_of_another_version_is_not_opened(built, changes):
    header = json.loads((built / "header.json").read_text())
    (built / "header.json").write_text(json.dumps({**header, **changes}))
    assert TokenStore.open(built, "k") is None


def test_where_there_is_no_store_none_is_opened(tmp_path):
    assert TokenStore.open(tmp_path, "k") is TokenStore.open(tmp_path / "none", "k") is None


def test_files_of_a_killed_process_are_removed(built, tmp_path):
    for name in (".store.0123456789ab", ".store.ba9876543210.former"):
        left = tmp_path / name.replace("store", built.name)
        left.mkdir()
        (left / "0.ids").write_bytes(b"half")
    (tmp_path / f".{built.name}-of-another").mkdir()
    TokenStore.build(ROWS[:1], BOTH, built, key="new")
    assert {path.name for path in tmp_path.iterdir()} == {built.name, f".{built.name}-of-another"}


def test_a_fault_in_the_rows_leaves_the_former_store(built, tmp_path):
    def rows():
        yield ROWS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(rows(), BOTH, built, key="new")
    assert as_lists(TokenStore.open(built, "k")) == ROWS
    assert list(tmp_path.iterdir()) == [built]


def test_a_full_disk_is_fatal_and_leaves_nothing(tmp_path, monkeypatch):
    """The operating system refuses to let a file grow, as it does when a disk is full."""
    monkeypatch.setattr(module, "_FLUSH", 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    rows = ({"text": [i % 7] * 101} for i in range(10_000))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(WorkError, match=r"deep.store: cannot be written \(File too large\)"):
            TokenStore.build(rows, ["text"], tmp_path / "deep" / "store")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "deep").iterdir()) == []
    assert next(rows, None) is not None  # it stopped at once


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkError, match="file/store: cannot be written"):
        TokenStore.build(ROWS, BOTH, tmp_path / "file" / "store")


def test_a_store_needs_columns(place):
    with pytest.raises(ValueError, match="at least one column"):
        TokenStore.build(ROWS, [], place)


def test_a_column_is_a_stream_of_its_rows_that_is_read_only(place):
    store = TokenStore.build(ROWS, BOTH, place, n_ids=10)
    assert store.stream("source").tolist() == [3, 1, 4, 2, 6, 5, 3, 5]
    assert store.stream("target").tolist() == [1, 5, 9]
    with pytest.raises(ValueError, match="read-only"):
        store.stream("source")[0] = 7
    assert store[0]["source"].tolist() == [3, 1, 4]


def test_rows_whose_image_is_missing_equal_no_others(tmp_path):
    (tmp_path / "a.png").write_bytes(b"some bytes")
    names = ("a.png", "b.png", "c.png")
    digest = RowDigest()
    for name in names:
        digest.update({"image": LazyImage.of(tmp_path / name), "label": "x"})
    assert len(digest.row_hashes) == 1
    others = [RowDigest() for _ in range(2)]
    for other, label in zip(others, "xy", strict=True):
        other.update({"image": LazyImage.of(tmp_path / "b.png"), "label": label})
    assert others[0].hexdigest() != others[1].hexdigest()


def test_a_store_of_other_columns_or_ids_is_built_again(built):
    """Its header and its ids may have been changed together with their hashes."""
    assert as_lists(TokenStore.open(built, "k", {"source": 7, "target": 10})) == ROWS
    for n_ids in ({"source": 10}, {"source": 10, "target": 10, "more": 5}, {"source": 6, "target": 10}):
        assert TokenStore.open(built, "k", n_ids) is None


def test_a_store_whose_rows_are_out_of_order_is_built_again(built):
    offsets = np.array([0, 5, 3, 8], "<i8").tobytes()  # of the lengths 3, 0 and 5
    (built / "0.offsets").write_bytes(offsets)
    header = json.loads((built / "header.json").read_text())
    header["columns"][0]["offsets_sha256"] = hashlib.sha256(offsets).hexdigest()
    (built / "header.json").write_text(json.dumps(header))
    assert TokenStore.open(built, "k") is not None
    assert TokenStore.open(built, "k", {"source": 10, "target": 10}) is None
