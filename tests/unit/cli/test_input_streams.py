"""Files and standard input of commands: lines are answered as they arrive, and none is lost."""

import io
import os
import sys
import threading

import pytest

from heedful.cli.input_streams import BLOCK, Piped, Source
from heedful.data.lines import Stream
from heedful.errors import DataError


def source_of(stream, **options):
    return Source(Stream.of("here", stream), **options)


# Sources ----------------------------------------------------------------------------------------------------


class StandardInput:
    """Standard input, from a terminal or not."""

    def __init__(self, typed):
        self.buffer, self.isatty = io.BytesIO(b"a\nb\n"), lambda: typed


@pytest.mark.parametrize(
    "typed, name, sizes", [(True, "-", [1, 1]), (True, "inputs.txt", [2]), (False, "-", [2])]
)
def test_only_what_is_typed_is_answered_line_by_line(monkeypatch, tmp_path, typed, name, sizes):
    monkeypatch.setattr(sys, "stdin", StandardInput(typed))
    (tmp_path / "inputs.txt").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)
    source = Source.of(name)
    assert [len(block) for block in source.blocks(source.lines())] == sizes


def test_blocks_are_bounded_and_nothing_is_lost():
    source = source_of([b"%d\n" % i for i in range(2 * BLOCK + 3)])
    blocks = list(source.blocks(source.lines()))
    assert [len(block) for block in blocks] == [BLOCK, BLOCK, 3]
    assert [int(line) for block in blocks for line in block] == list(range(2 * BLOCK + 3))


def test_what_came_before_a_damage_is_given_first():
    def raw():
        yield from (b"a\n", b"b\n", b"c\n")
        raise DataError("damaged")

    source = source_of(raw(), size=2)
    blocks = source.blocks(source.lines())
    assert [next(blocks), next(blocks)] == [["a", "b"], ["c"]]
    with pytest.raises(DataError, match="damaged"):
        next(blocks)


def test_all_of_it_has_no_last_end_of_line():
    for raw, text in (([], ""), ([b"a"], "a"), ([b"\xef\xbb\xbfa\r\n", b"\n", b" b\r\n"], "a\n\n b")):
        assert source_of(raw).text() == text
        assert list(source_of(raw).as_one_line().lines()) == [text]


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "none").touch()
    assert list(Source.of(str(tmp_path / "none")).lines()) == []


# Pipes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    """A pipe that is read as standard input, and what writes into it."""
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        yield Piped.of(source), sink


def blocks(piped, size):
    source = source_of(piped, size=size, ready=piped.ready)
    return source.blocks(source.lines())


def test_a_pipe_that_is_filled_without_a_break_gives_full_blocks(pipe):
    piped, sink = pipe
    lines = [f"{i} " + "x" * (i % 700) for i in range(2000)]

    def fill():
        with sink:
            sink.write("\n".join(lines).encode())

    thread = threading.Thread(target=fill)
    thread.start()
    found = list(blocks(piped, 300))
    thread.join()
    assert [line for block in found for line in block] == lines
    assert [len(block) for block in found] == [300] * 6 + [200]


def test_a_silent_pipe_ends_a_block_but_no_line(pipe):
    piped, sink = pipe
    found = blocks(piped, 300)
    sink.write(b"\xef\xbb\xbfa\r\n\nb\nhal")
    assert next(found) == ["a", "", "b"]
    threading.Timer(0.3, sink.write, [b"f\nc\nlast"]).start()
    assert next(found) == ["half", "c"]
    sink.close()
    assert list(found) == [["last"]]


def test_what_is_no_pipe_is_read_as_it_was(tmp_path):
    (tmp_path / "inputs").write_text("a\n")
    with (tmp_path / "inputs").open("rb") as file:
        assert Piped.of(file) is None
    assert Piped.of(io.BytesIO(b"a")) is None
