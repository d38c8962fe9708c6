"""Files as other programs write them: read right, or refused by one line with the format and a remedy.

Every remedy is applied to the very file that caused it, as a user would, and then the file can be read. A
command is run if its program is installed.
"""

import bz2
import gzip
import io
import lzma
import pickle
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from heedful.data.delimited import TsvSource
from heedful.data.hub import DatasetsSource
from heedful.data.lines import File, located_lines, read_bytes, read_text
from heedful.errors import DataError

CSV = 'text,label\n"Grüße, Welt",a\nzwei,b\n'
ROWS = [{"text": "Grüße, Welt", "label": "a"}, {"text": "zwei", "label": "b"}]
COLUMNS = {"text": "text", "label": "label"}


def rows_of(path: Path) -> list:
    """The rows of a CSV file as a recipe reads them."""
    source = TsvSource(paths=path.name, columns=COLUMNS, header=True, separator=",", quotes=True)
    return [row for row, _ in source.open(path.parent)]


def message_of(read: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        read()
    message = str(caught.value)
    assert "\n" not in message
    return message


def run_command(message: str, folder: Path, **replaced: str) -> Path:
    """Run the command at the end of a message, and return the file that it writes."""
    command = re.split(r"(?:convert it|extract one|extract its \w+|decompress it|as CSV): ", message)[-1]
    for old, new in replaced.items():
        command = command.replace(old, new)
    program = shlex.split(command)[0]
    if shutil.which(program) is None:
        pytest.skip(f"the program {program} is not installed")
    subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)
    written = re.search(r"> (\S+)$", command)
    return folder / (written[1] if written else "")


def zipped(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def by(*command: str) -> Callable[[bytes], bytes]:
    """What a command makes of its standard input."""

    def run(content: bytes) -> bytes:
        if shutil.which(command[0]) is None:
            pytest.skip(f"the program {command[0]} is not installed")
        return subprocess.run(command, input=content, capture_output=True, check=True).stdout

    return run


# Compressed files -------------------------------------------------------------------------------------------

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": by("zstd", "-c"),
    "zip": lambda content: zipped(**{"data.csv": content}),
    "zip of macOS": lambda content: zipped(**{"data.csv": content, "__MACOSX/._data.csv": b"\0\5\x16\7"}),
    "two members of gzip": lambda content: gzip.compress(content[:9]) + gzip.compress(content[9:]),
    "plain": lambda content: content,
}
NAMES = ["data.csv", "data.csv.gz", "data", "data.zip", "my data.csv.zst"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("program", COMPRESSORS)
def test_a_compressed_file_is_read_whatever_its_name(tmp_path, program, name):
    path = tmp_path / name
    path.write_bytes(COMPRESSORS[program](CSV.encode()))
    assert rows_of(path) == ROWS
    assert read_text(File(path, name)) == CSV
    assert read_bytes(File(path, name)) == CSV.encode()


@pytest.mark.parametrize("program", ["gzip", "bzip2", "xz", "zstd", "zip"])
def test_a_compressed_file_that_is_damaged(tmp_path, program):
    path, content = tmp_path / "a", COMPRESSORS[program](CSV.encode() * 99)
    path.write_bytes(content[: len(content) // 2])
    kind = {"zstd": "Zstandard"}.get(program, program)
    assert re.match(rf"a: the {kind} file is (truncated|damaged)", message_of(lambda: rows_of(path)))
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    assert re.match(rf"a: the {kind} file is (truncated|damaged)", message_of(lambda: rows_of(path)))


@pytest.mark.parametrize("program", COMPRESSORS)
def test_a_compressed_file_in_another_encoding(tmp_path, program):
    path = tmp_path / "my data.csv"
    path.write_bytes(COMPRESSORS[program](CSV.encode("cp1252")))
    message = message_of(lambda: rows_of(path))
    assert "the file is probably Windows-1252" in message
    assert rows_of(run_command(message, tmp_path)) == ROWS


def test_a_zip_archive_of_several_files(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(zipped(**{"my train.csv": CSV.encode(), "test.csv": b"", "._x": b"", ".DS_Store": b""}))
    message = message_of(lambda: rows_of(path))
    assert message == (
        "data.csv: is a zip archive with the files my train.csv, test.csv, ._x; extract one: "
        "unzip -p data.csv 'my train.csv' > NEW"
    )
    assert rows_of(run_command(message, tmp_path)) == ROWS


def test_a_zip_archive_with_nothing_in_it(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(zipped(**{".DS_Store": b"x"}))
    assert message_of(lambda: rows_of(path)) == "data.csv: is a zip archive without files"


# Other formats ----------------------------------------------------------------------------------------------


def database() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (text, label)")
        connection.executemany("INSERT INTO t VALUES (:text, :label)", ROWS)
        return connection.serialize()


def image(form: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (9, 9)).save(stream, form)
    return stream.getvalue()


def written(write: Callable[[pyarrow.Table, io.BytesIO], object]) -> bytes:
    stream = io.BytesIO()
    write(pyarrow.Table.from_pylist(ROWS), stream)
    return stream.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
HTML = b"\n<!-- x -->\n<!DOCTYPE HTML>\n<html><head><title>Log in</title></head></html>\n"
SGML = b"""<refset setid="x" trglang="de">
<doc>
<seg id="1"> Hallo </seg>
<seg id="2">Welt</seg>
</doc></refset>
"""

BINARY = {
    "PDF": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF document"),
    "RTF": (rb"{\rtf1\ansi\ansicpg1252 Hello}", "a document in Rich Text Format"),
    "old Excel": (OLE, "a document of Microsoft Office, either old"),
    "PNG": (image("PNG"), "an image"),
    "JPEG": (image("JPEG"), "an image"),
    "WebP": (image("WEBP"), "an image"),
    "TIFF": (image("TIFF"), "an image"),
    "GIF": (image("GIF"), "an image"),
    "SQLite": (database(), "an SQLite database"),
    "Parquet": (written(pyarrow.parquet.write_table), "a Parquet file"),
    "Feather": (written(pyarrow.feather.write_feather), "an Arrow (Feather) file"),
    "pickle": (pickle.dumps(ROWS), "a pickle of Python"),
    "old pickle": (pickle.dumps(ROWS, protocol=2), "a pickle of Python"),
    "macOS": (b"\0\5\x16\7\0\2\0\0Mac OS X        ", "an AppleDouble file"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4", "a 7z archive"),
    "RAR": (b"Rar!\x1a\x07\1\0", "a RAR archive"),
    "Word": (zipped(**{"word/document.xml": b"<x/>", "[Content_Types].xml": b""}), "a Word document"),
    "LibreOffice": (
        zipped(mimetype=b"application/vnd.oasis.opendocument.spreadsheet", **{"content.xml": b"<x/>"}),
        "an OpenDocument file",
    ),
    "Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n",
        "a pointer of Git LFS",
    ),
}
MARKED_UP = {
    "web page": (HTML, "a web page (HTML)"),
    "TMX": (b'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">', "a TMX file"),
    "SGML": (SGML, "a test set in SGML"),
    "XML": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML file"),
}


BEGINNINGS = [content for content, _ in {**BINARY, **MARKED_UP}.values()] + [
    COMPRESSORS[name](CSV.encode()) for name in ("gzip", "bzip2", "xz", "zip")
]


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "it's mine.txt"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", [*BINARY, *MARKED_UP])
def test_a_file_of_another_format_is_named(tmp_path, form, packed, name):
    """Never with a command that converts its encoding."""
    content, expected = {**BINARY, **MARKED_UP}[form]
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if packed else content)
    messages = [message_of(lambda: list(located_lines(File(path, name))))]
    if form in BINARY:
        messages.append(message_of(lambda: read_text(File(path, name))))
    for message in messages:
        assert message.startswith(f"{name}: {'decompress it: ' if packed else 'is '}")
        is_archive = packed and content.startswith(b"PK")  # only if it is not compressed, it is looked into
        assert f"is {'a zip archive' if is_archive else expected}" in message
        assert "iconv" not in message
        assert message.count(";") >= 1 + packed  # a remedy


@pytest.mark.parametrize("form", MARKED_UP)
def test_running_text_may_be_a_page(tmp_path, form):
    path, content = tmp_path / "a.txt", MARKED_UP[form][0]
    path.write_bytes(content)
    assert read_text(File(path, "a.txt")) == content.decode()


def test_what_a_binary_file_is_need_not_be_known(tmp_path):
    path = tmp_path / "data.csv"
    for content in (bytes(range(256)) * 40, random.Random(0).randbytes(5000)):
        path.write_bytes(content)
        message = message_of(lambda: rows_of(path))
        assert message == "data.csv: is a binary file and not text; name a file of text"


def test_a_database_is_written_as_csv(tmp_path):
    path = tmp_path / "my data.csv"
    path.write_bytes(BINARY["SQLite"][0])
    message = message_of(lambda: rows_of(path))
    assert rows_of(run_command(message, tmp_path, TABLE="t")) == ROWS


@pytest.mark.slow
@pytest.mark.parametrize("form", ["Parquet", "Feather"])
def test_a_file_of_columns_is_read_as_the_message_says(tmp_path, form, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    path = tmp_path / "my data.csv"
    path.write_bytes(BINARY[form][0])
    (builder,) = re.findall(
        r"kind: datasets, path: (\w+) and data_files: ", message_of(lambda: rows_of(path))
    )
    source = DatasetsSource(path=builder, data_files=str(path), columns=COLUMNS, streaming=True)
    assert [row for row, _ in source.open(tmp_path)] == ROWS


def test_a_test_set_in_sgml_becomes_lines(tmp_path):
    path = tmp_path / "ref.de"
    path.write_bytes(SGML)
    new = run_command(message_of(lambda: list(located_lines(File(path, "ref.de")))), tmp_path)
    assert new.read_text() == " Hallo \nWelt\n"


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("program", ["plain", "gzip", "xz", "zip"])
def test_text_in_wide_characters(tmp_path, form, program):
    path = tmp_path / "my data.csv"
    path.write_bytes(COMPRESSORS[program](CSV.encode(form)))
    path_of_content, message = path, message_of(lambda: rows_of(path))
    if "decompress it: " in message:
        first, second = message.split("; then ")
        run_command(first, tmp_path)
        message = second
    assert "UTF-16" in message or "UTF-32" in message, path_of_content
    assert rows_of(run_command(message, tmp_path)) == ROWS


@pytest.mark.slow
@given(beginning=st.sampled_from([*BEGINNINGS, b""]), rest=st.binary(max_size=600), cut=st.integers(0, 9))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_lines_or_an_error_of_one_line(tmp_path, beginning, rest, cut):
    path = tmp_path / "a.csv"
    path.write_bytes(beginning[: len(beginning) - cut] + rest)
    for read in (lambda file: list(located_lines(file)), read_text, read_bytes):
        try:
            assert read(File(path, "a.csv")) is not None
        except DataError as error:
            message = str(error)
            assert message.startswith("a.csv"), message
            assert "\n" not in message.strip()
