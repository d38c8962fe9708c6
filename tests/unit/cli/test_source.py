"""What verbs read: lines of a file or of standard input, and how many of them are answered together."""

import io
import sys

import pytest

from heedful.cli.source import BLOCK, Source
from heedful.errors import DataError


class Input:
    """Standard input, from a terminal or not."""

    def __init__(self, typed):
        self.buffer, self.isatty = io.BytesIO(b"a\nb\n"), lambda: typed


@pytest.mark.parametrize(
    "typed, name, sizes", [(True, "-", [1, 1]), (True, "inputs.txt", [2]), (False, "-", [2])]
)
def test_only_what_is_typed_is_answered_line_by_line(monkeypatch, tmp_path, typed, name, sizes):
    monkeypatch.setattr(sys, "stdin", Input(typed))
    (tmp_path / "inputs.txt").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)
    source = Source.of(name)
    assert [len(block) for block in source.blocks(source.lines())] == sizes


def test_blocks_are_bounded_and_nothing_is_lost():
    source = Source("here", [b"%d\n" % i for i in range(2 * BLOCK + 3)])
    blocks = list(source.blocks(source.lines()))
    assert [len(block) for block in blocks] == [BLOCK, BLOCK, 3]
    assert [int(line) for block in blocks for line in block] == list(range(2 * BLOCK + 3))


def test_what_came_before_a_damage_is_given_first():
    def raw():
        yield from (b"a\n", b"b\n", b"c\n")
        raise DataError("damaged")

    source = Source("here", raw(), size=2)
    blocks = source.blocks(source.lines())
    assert [next(blocks), next(blocks)] == [["a", "b"], ["c"]]
    with pytest.raises(DataError, match="damaged"):
        next(blocks)


def test_all_of_it_has_no_last_end_of_line():
    for raw, text in (([], ""), ([b"a"], "a"), ([b"\xef\xbb\xbfa\r\n", b"\n", b" b\r\n"], "a\n\n b")):
        assert Source("here", raw).text() == text
        assert list(Source("here", raw).joined().lines()) == [text]


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "none").touch()
    assert list(Source.of(str(tmp_path / "none")).lines()) == []
