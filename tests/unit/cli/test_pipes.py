"""What comes through a pipe is answered in blocks, as it comes."""

import io
import os
import threading

import pytest

from heedful.cli.pipes import Piped
from heedful.cli.source import Source


@pytest.fixture
def pipe():
    """A pipe that is read as standard input, and what writes into it."""
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        yield Piped.of(source), sink


def blocks(piped, size):
    source = Source("pipe", piped, size, piped.ready)
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
