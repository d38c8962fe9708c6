"""Sources of lines, and input lines: each gives one input, and invalid ones do not affect the others."""

import gzip
import io
import json
import os
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli.inputs import BLOCK, InputFormat, Piped, Source
from heedful.errors import DataError

PAIR, EITHER, WORDS = (
    InputFormat(("a", "b")),
    InputFormat(("a",), ("b",)),
    InputFormat(("a",), accepts_list=True),
)
GOOD = b'{"a": "x", "b": "y"}'


def read(input_format, *lines, structured=True):
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return list(input_format.read(Source("in", [line + b"\n" for line in raw]), structured=structured))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES) | VALUES, max_size=7))
def test_every_line_gives_an_input_and_only_valid_ones_have_no_error(values):
    found = read(PAIR, GOOD, *map(json.dumps, values))
    assert len(found) == 1 + len(values)
    for number, (value, own) in enumerate(zip(values, found[1:], strict=True), 2):
        fits = isinstance(value, dict) and all(isinstance(value.get(key), str) for key in "ab")
        assert (own.error is None) == fits
        assert own.record == (value if isinstance(value, dict) else {})
        assert fits or own.error.startswith(f"in:{number}: ")


@pytest.mark.parametrize(
    ("input_format", "line", "error"),
    [
        (PAIR, '{"b": "y"}', 'an object with a string under "a", got no such key'),
        (PAIR, '{"a": "x", "bb": "y"}', "under \"b\", got no such key (did you mean 'bb'?)"),
        (PAIR, '{"a": "x", "b": null}', 'under "b", got null'),
        (PAIR, '{"a": 1.5, "b": "y"}', 'under "a", got a number'),
        (PAIR, '{"a": true, "b": "y"}', "got a boolean"),
        (PAIR, '{"a": ["x"], "b": "y"}', "got a list"),
        (PAIR, '{"a": {}, "b": "y"}', "got an object"),
        (PAIR, '["x", "y"]', 'expected an object with a string under "a", got a list'),
        (PAIR, '"x"', "got a string"),
        (PAIR, '{"a": "x", "b": "y"', "not JSON (Expecting ',' delimiter at column 20); with --jsonl every"),
        (
            PAIR,
            '{"a": "x", "b": "\\udc00"}',
            'the value of "b" must be valid Unicode, got an unpaired surrogate',
        ),
        (PAIR, '{"a": "x", "b": "y", "c": -Infinity}', "not JSON (-Infinity is not a JSON number)"),
        (PAIR, '{"a": "x", "b": "y", "c": 1e999}', "in:2: value out of range: 1e999"),
        (PAIR, f'{{"a": "x", "b": "y", "c": 1{"0" * 99}e999}}', f"out of range: 1{'0' * 59}…"),
        (
            PAIR,
            f'{{"a": "x", "b": "y", "c": [-{"1" * 5000}]}}',
            "out of range: integers must have at most 4,300 digits, got 5,000",
        ),
        (PAIR, '{"a": "x", "b": "y", "a": "z"}', 'in:2: duplicate key "a" in an object; keep one'),
        (PAIR, '{"a": "x", "b": "y", "c": [{"d": 1, "d": 1}]}', 'in:2: duplicate key "d"'),
        (PAIR, f'{{"a": "x", "b": "y", "c": {"[" * 200}{"]" * 200}}}', "nested at most 200 deep"),
        (
            PAIR,
            f'{{"a": "x", "b": "y", "c": {"[" * 99999}{"]" * 99999}}}',
            "lists and objects must be nested",
        ),
        (PAIR, b'{"a": "\xff"}', "byte 8 of the line is not UTF-8"),
        (EITHER, '{"a": "x", "b": 3}', 'under "b", got a number'),
        (WORDS, '{"a": ["x", null]}', 'a string or a list of strings under "a", got null in the list'),
    ],
)
def test_error_names_the_problem(input_format, line, error):
    first, bad, last = read(input_format, GOOD, line, GOOD)
    assert (first.error, last.error) == (None, None)
    assert bad.error.startswith("in:2: ")
    assert error in bad.error


@pytest.mark.parametrize("line", ["{}", '{"a": "x"}', '{"a": "x", "c": "y"}', "x", "3", "[]", ""])
def test_a_first_line_without_the_keys_is_a_wrong_request(line):
    with pytest.raises(DataError, match=r"^in:1: "):
        read(PAIR, line, GOOD)


@pytest.mark.parametrize(
    "value", ["1e999", "1" * 5000, '{"d": 1, "d": 2}', "[" * 300 + "]" * 300, "[" * 9999]
)
def test_a_first_line_with_a_value_that_is_refused_is_an_input_like_any_other(value):
    first, second = read(PAIR, f'{{"a": "x", "b": "y", "c": {value}}}', GOOD)
    assert first.error.startswith("in:1: ")
    assert second.error is None


@pytest.mark.parametrize("line", [b"\xff", b"\xffx\ty", b'{"a": "\xe4", "b": "y"}'])
@pytest.mark.parametrize("structured", [False, True])
def test_a_first_line_that_is_not_utf8_is_an_input_like_any_other(line, structured):
    good = GOOD if structured else b"x\ty"
    first, second = read(PAIR, line, good, structured=structured)
    assert "is not UTF-8" in first.error
    assert (second.error, second.record) == (None, {"a": "x", "b": "y"})


@pytest.mark.parametrize("beginning", ["x\ty".encode("utf-16"), gzip.compress(b"x\ty", mtime=0)])
@pytest.mark.parametrize("structured", [False, True])
def test_what_begins_as_another_format_is_a_wrong_request(beginning, structured):
    with pytest.raises(DataError, match=r"^in:1: .* it looks like (UTF-16|a gzip file)"):
        read(PAIR, beginning, GOOD, structured=structured)


def test_numbers_and_nesting_that_can_be_written_again_are_read():
    values = {"big": 10**4299, "deep": json.loads("[" * 199 + "]" * 199), "wide": [[[]] for _ in range(300)]}
    (own,) = read(PAIR, json.dumps({"a": "x", "b": "y", **values}))
    assert own.error is None
    assert own.record == {"a": "x", "b": "y", **values}


@pytest.mark.parametrize("value", ["null", "3", '["x"]', "{}"])
def test_a_first_line_with_the_keys_is_an_input_like_any_other(value):
    first, second = read(PAIR, f'{{"a": "x", "b": {value}}}', GOOD)
    assert first.error.startswith('in:1: expected an object with a string under "b"')
    assert second.error is None


def test_what_may_be_left_out_may_be_left_out():
    assert [own.error for own in read(EITHER, '{"a": "x"}', GOOD)] == [None, None]
    assert [own.record for own in read(EITHER, "x", "x\ty", structured=False)] == [
        {"a": "x"},
        {"a": "x", "b": "y"},
    ]


def test_a_list_may_be_words():
    assert [own.error for own in read(WORDS, '{"a": ["x", "y"]}', '{"a": []}', '{"a": "x"}')] == [None] * 3


def test_fields_are_separated_by_tabs():
    first, second, third, fourth = read(PAIR, "x\ty", "x", b"\xe4\ty", "\t", structured=False)
    assert (first.record, first.error) == ({"a": "x", "b": "y"}, None)
    assert second.error == "in:2: expected 2 texts separated by tabs (a, b), got 1"
    assert third.error == "in:3: byte 1 of the line is not UTF-8; convert it to UTF-8"
    assert (fourth.record, fourth.error) == ({"a": "", "b": ""}, None)
    with pytest.raises(DataError, match=r"expected 1 or 2 texts separated by tabs \(a, b\), got 3"):
        read(EITHER, "x\ty\tz", structured=False)


def test_a_single_text_may_have_tabs():
    (own,) = read(WORDS, "x\ty", structured=False)
    assert own.record == {"a": "x\ty"}


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
        assert list(Source("here", raw).as_one_line().lines()) == [text]


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
