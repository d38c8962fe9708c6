"""Lines: only a newline ends one, and whatever is wrong with a file is said with its place."""

import gzip
import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.data.lines import File, Location, expand, find, lines, raw_lines, read_text
from heedful.errors import DataError


def read(path):
    return list(lines(File(path, path.name)))


@pytest.fixture
def write(tmp_path):
    def _write(content, name="train.en"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def test_a_place_reads_as_file_and_line():
    assert str(Location("train.en", 17)) == "train.en:17"


@pytest.mark.parametrize(
    "separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\r\r"]
)
def test_only_a_newline_ends_a_line(write, separator):
    assert read(write(f"a{separator}b\nc\n")) == [f"a{separator}b", "c"]


def test_carriage_returns_end_the_lines_of_a_file_without_newlines(write):
    """As Excel on an old Mac writes them; in blocks, whose borders change nothing."""
    assert read(write("a,b\r1,2\r\r3,4")) == ["a,b", "1,2", "", "3,4"]
    long = ["x" * n for n in (70_000, 0, 140_000, 3)]
    assert read(write("\r".join(["a", "b", *long]) + "\r")) == ["a", "b", *long]
    assert read(write("one\rline")) == ["one\rline"]


def test_one_carriage_return_is_dropped_and_no_more(write):
    assert read(write("a\r\nb\r\r\n\r\n c \n")) == ["a", "b\r", "", " c "]


def test_the_last_line_may_lack_its_newline(write):
    assert read(write("a\nb")) == ["a", "b"]
    assert read(write("a\nb\n\n")) == ["a", "b", ""]


def test_a_byte_order_mark_is_dropped_at_the_start_only(write):
    assert read(write("\ufeffa\n\ufeffb\n")) == ["a", "\ufeffb"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",))), min_size=1, max_size=7
    ),
    packed=st.booleans(),
)
def test_written_lines_are_read_back(tmp_path, rows, packed):
    path = tmp_path / ("x.gz" if packed else "x")
    content = "".join(row + "\r\n" for row in rows).encode()
    path.write_bytes(b"\xef\xbb\xbf" + (content) if not packed else gzip.compress(b"\xef\xbb\xbf" + content))
    assert read(path) == rows
    assert sum(1 for _ in raw_lines(File(path, "x"))) == len(rows)


def test_a_missing_file_is_named_with_its_nearest_neighbour(write, tmp_path):
    write("a\n", "train.en")
    with pytest.raises(DataError, match=r"trian\.en: no such file \(did you mean 'train\.en'\?\)"):
        find("trian.en", tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such file \(no folder .*corpora\)"):
        find("corpora/train.en", tmp_path)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        find(".", tmp_path)


@pytest.mark.parametrize("through_link", [False, True])
def test_a_device_is_refused_before_reading(tmp_path, through_link):
    name = "/dev/zero"
    if through_link:
        (tmp_path / "train.en").symlink_to("/dev/zero")
        name = "train.en"
    with pytest.raises(DataError, match=f"{name}: must be a regular file or a pipe, got a device"):
        find(name, tmp_path)


def test_a_pipe_is_read_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["a\nb\n"], daemon=True)
    writer.start()
    assert list(lines(find("pipe", tmp_path))) == ["a", "b"]
    writer.join(10)


def test_not_utf8_names_line_and_byte(write):
    path = write(b"fine\nna\xefve\n")
    with pytest.raises(DataError, match=r"train\.en:2: byte 3 of the line is not UTF-8"):
        read(path)


def test_utf16_is_recognised(write):
    with pytest.raises(DataError, match=r":1: byte 1 .*UTF-16"):
        read(write("text\n".encode("utf-16")))


@pytest.mark.parametrize(
    ("name", "content"), [("a", b""), ("a.gz", b""), ("b.gz", gzip.compress(b"", mtime=0))]
)
def test_an_empty_file_is_an_error(write, name, content):
    with pytest.raises(DataError, match=rf"{name}: the file is empty"):
        read(write(content, name))


def test_a_name_does_not_decide(write):
    assert read(write("plain\n", "a.gz")) == ["plain"]
    assert read(write(gzip.compress(b"packed\n"), "a.csv")) == ["packed"]


def test_truncated_gzip(write):
    content = gzip.compress(os.urandom(4000).hex().encode())
    with pytest.raises(DataError, match=r"a\.gz: the gzip file is truncated"):
        read(write(content[: len(content) // 2], "a.gz"))


def test_damaged_gzip(write):
    content = bytearray(gzip.compress(b"some text\n" * 11))
    content[-5] ^= 1  # the length and checksum stand at the end
    with pytest.raises(DataError, match=r"a\.gz: the gzip file is damaged"):
        read(write(bytes(content), "a.gz"))


@pytest.mark.parametrize("written", ["$HEEDFUL_DATA/x", "${HEEDFUL_DATA}/x"])
def test_the_variable_is_replaced(monkeypatch, written):
    monkeypatch.setenv("HEEDFUL_DATA", r"/corpora\1")
    assert expand(written) == r"/corpora\1/x"


@pytest.mark.parametrize("value", [None, ""])
def test_an_unset_variable_is_explained(monkeypatch, value):
    monkeypatch.delenv("HEEDFUL_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("HEEDFUL_DATA", value)
    with pytest.raises(
        DataError, match="HEEDFUL_DATA is not set; set it to the folder that contains the corpora"
    ):
        expand("$HEEDFUL_DATA/x")


def test_other_dollars_are_kept_and_the_home_folder_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("HEEDFUL_DATA", "/d")
    assert expand("~/a$b$HEEDFUL_DATASET") == "/home/someone/a$b$HEEDFUL_DATASET"


def test_relative_paths_start_at_the_root_and_keep_their_name(write, tmp_path):
    path = write("a\n")
    assert find("train.en", tmp_path) == File(path, "train.en")
    assert find(str(path), tmp_path / "elsewhere") == File(path, str(path))


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_has_a_limit_wherever_it_is_in_the_file(write, monkeypatch, packed):
    monkeypatch.setattr("heedful.limits.LONGEST_LINE", 4)
    content, name = (gzip.compress, "a.gz") if packed else (bytes, "a")
    assert read(write(content(b"abc\nabc\nab\n"), name)) == ["abc", "abc", "ab"]
    with pytest.raises(DataError, match=rf"{name}:2: the line has more than .*; it may lack line ends"):
        read(write(content(b"abc\nabcd\nab\n"), name))
    with pytest.raises(DataError, match=rf"{name}:2: the line has more than"):
        read(write(content(b"abc\nabcde"), name))


def test_a_file_that_is_read_whole_has_a_limit(write, monkeypatch):
    monkeypatch.setattr("heedful.limits.LONGEST_DOCUMENT", 6)
    path = write(gzip.compress(b"abc\nab"), "a.gz")
    assert read_text(File(path, "a.gz")) == "abc\nab"
    path = write(gzip.compress(b"abc\nabc"), "a.gz")
    with pytest.raises(DataError, match=r"a\.gz: has more than .* MiB, and is read whole; split it"):
        read_text(File(path, "a.gz"))
