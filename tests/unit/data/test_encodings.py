"""Guesses of encodings, against texts that are encoded in them, and the command that a message gives."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from heedful.data.encodings import conversion_hint, likely_encoding, utf16_form
from heedful.data.lines import File, lines, read_text
from heedful.errors import DataError

TEXTS = {
    "german": "Die Bäume rauschen über dem grünen Fluß.\nÄpfel für Müller\n",
    "german words": "Schöne Grüße\n",
    "square metres": "Das Gebäude hat 40 m³ Wände und 12 m² Böden für Gäste.\n",
    "french": "Où est l’été ? Il a déjà été là.\nÇa coûte 5 € à l’hôtel.\n",
    "spanish": "¿Dónde está el niño? Mañana cumplirá años.\n",
    "swedish": "Flickan åt två äpplen på en ö.\n",
    "english": "It’s “quoted” by a word processor – and that’s it.\n",
    "polish": "Zażółć gęślą jaźń. Książka leży na stole, a łódź płynie.\n",
    "czech": "Příliš žluťoučký kůň úpěl ďábelské ódy. Děti si hrály.\n",
    "hungarian": "Árvíztűrő tükörfúrógép. Az idő szép, a gyűrű őt várja.\n",
    "japanese": "私は学生です。\nこれは本ですか。\nカタカナも使います。\n",
    "chinese": "今天天气很好。\n我们去公园散步吧。\n",
    "russian": "Мы идём домой по широкой улице.\n",
    "bulgarian": "Книгата е на масата, а котката спи до прозореца.\n",
    "greek": "Το βιβλίο είναι στο τραπέζι.\n",
    "korean": "책은 탁자 위에 있습니다. 오늘은 날씨가 좋아요.\n",
}

LIKELY = {
    ("german", "cp1252"): "WINDOWS-1252",
    ("german", "latin-1"): "WINDOWS-1252",
    ("german words", "latin-1"): "WINDOWS-1252",
    ("square metres", "cp1252"): "WINDOWS-1252",
    ("french", "cp1252"): "WINDOWS-1252",
    ("spanish", "cp1252"): "WINDOWS-1252",
    ("swedish", "cp1252"): "WINDOWS-1252",
    ("english", "cp1252"): "WINDOWS-1252",
    ("polish", "cp1250"): "WINDOWS-1250",
    ("czech", "cp1250"): "WINDOWS-1250",
    ("hungarian", "cp1250"): "WINDOWS-1250",
    ("russian", "cp1251"): "WINDOWS-1251",
    ("russian", "koi8-r"): "KOI8-R",
    ("bulgarian", "cp1251"): "WINDOWS-1251",
    ("japanese", "shift_jis"): "SHIFT_JIS",
    ("chinese", "gb18030"): "GB18030",
    ("chinese", "gb2312"): "GB18030",
    ("german", "utf-16"): "UTF-16",
    ("chinese", "utf-16"): "UTF-16",
    ("japanese", "utf-32"): "UTF-32",
    ("german", "mac-roman"): "MACINTOSH",
    ("french", "mac-roman"): "MACINTOSH",
    ("spanish", "mac-roman"): "MACINTOSH",
    ("german", "cp850"): "CP850",
    ("swedish", "cp850"): "CP850",
}

UNKNOWN = [("greek", "iso8859-7"), ("greek", "cp1253"), ("korean", "euc_kr")]


@pytest.mark.parametrize(("language", "encoding"), [*LIKELY, *UNKNOWN])
def test_the_likely_encoding_of_a_text(language, encoding):
    assert likely_encoding(TEXTS[language].encode(encoding)) == LIKELY.get((language, encoding))


def message(path, read=lambda file: list(lines(file))):
    with pytest.raises(DataError) as caught:
        read(File(path, str(path)))
    return str(caught.value)


@pytest.mark.skipif(shutil.which("iconv") is None, reason="the command iconv is not installed")
@pytest.mark.parametrize(("language", "encoding"), LIKELY)
@pytest.mark.parametrize("name", ["my text.txt", "a.txt.gz", "A.GZ"])
@pytest.mark.parametrize("read", [lambda file: list(lines(file)), read_text])
def test_the_command_of_the_message_converts_the_file(tmp_path, language, encoding, name, read):
    path = tmp_path / name
    content = ("only ascii\n" + TEXTS[language]).encode(encoding)
    path.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    found = message(path, read)
    line = 1 if encoding in ("utf-16", "utf-32") else 2
    assert found.startswith(f"{path}:{line}: byte ")
    assert "the file is probably " in found
    command = found.partition("convert it: ")[2]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read_text(File(tmp_path / "NEW", "NEW")) == "only ascii\n" + TEXTS[language]


def test_no_encoding_is_named_if_there_are_several_for_the_alphabet(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXTS["greek"].encode("cp1253"))
    assert message(path).endswith(f"; convert it from its encoding ENC: iconv -f ENC -t UTF-8 {path} > NEW")


def test_a_single_wrong_line_is_no_other_encoding(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("é\nä\n".encode() + b"caf\xe9\n")
    assert (
        message(path) == f"{path}:3: byte 4 of the line is not UTF-8; other lines are UTF-8; correct this one"
    )


def test_the_lines_decide_and_not_the_first_wrong_byte():
    hint = conversion_hint([b"a\xff\n", *TEXTS["german"].encode("cp1252").splitlines()], "x")
    assert hint == (
        "the file is probably Windows-1252 (Western European), as Excel and older Windows programs save it; "
        "convert it: iconv -f WINDOWS-1252 -t UTF-8 x > NEW"
    )


@pytest.mark.parametrize("form", ["UTF-16LE", "UTF-16BE"])
@pytest.mark.parametrize("language", TEXTS)
def test_utf16_without_a_mark_is_recognised(language, form):
    assert utf16_form((TEXTS[language] * 3).encode(form)) == form


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain text\n",
        b"a text with a stray \0 in it\n",
        b"\0\0\x08\x03\0\0\xea\x60\0\0\0\x1c",
        bytes(range(256)) * 9,
        "今天天气\0很好".encode(),
    ],
)
def test_what_is_not_utf16(content):
    assert utf16_form(content) is None


def test_a_pipe_is_not_read_again(tmp_path):
    """It would wait for a writer forever; what is left is the line."""
    path = Path(tmp_path / "pipe")
    subprocess.run(["mkfifo", path], check=True)
    with subprocess.Popen(["sh", "-c", f"printf 'caf\\351\\n' > '{path}'"]):
        assert message(path).startswith(
            f"{path}:1: byte 4 of the line is not UTF-8; the file is probably Windows-1252"
        )
