"""Word vectors: the three formats as real files, and what is said of damaged ones."""

import gzip
import struct

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from heedful.data.vectors import fill_embedding, read_vectors
from heedful.errors import DataError

D = 3
VECTORS = {
    "the": [0.5, -1.25, 3.0],
    "naïve": [1e-3, 2.0, -0.125],
    "東京": [7.0, 8.0, 9.0],
    "1999": [0.0, 0.0, 0.0],
    "</s>": [-1.0, 1.5, 2.5e10],
}


def _row(word, numbers):
    return f"{word} {' '.join(map(repr, numbers))}".encode()


def _text(vectors, header=True, end=b"\n"):
    rows = [_row(word, numbers) + end for word, numbers in vectors.items()]
    return (f"{len(vectors)} {D}\n".encode() if header else b"") + b"".join(rows)


def _binary(vectors, end=b"\n"):
    rows = [w.encode() + b" " + struct.pack(f"<{len(v)}f", *v) + end for w, v in vectors.items()]
    return f"{len(vectors)} {D}\n".encode() + b"".join(rows)


FORMATS = {
    "word2vec text": _text(VECTORS),
    "fastText": _text(VECTORS, end=b" \n"),
    "CRLF": _text(VECTORS, end=b"\r\n"),
    "GloVe": _text(VECTORS, header=False),
    "no last newline": _text(VECTORS, header=False)[:-1],
    "word2vec binary": _binary(VECTORS),
    "binary without newlines": _binary(VECTORS, end=b""),
}


def _written(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS.keys())
def test_every_format_gives_the_vectors_of_the_requested_words(tmp_path, content, packed):
    path = _written(tmp_path / "vectors", gzip.compress(content) if packed else content)
    vectors = read_vectors(path, {"東京": 4, "absent": 9, "the": 0, "1999": 7, "The": 2, "naïve": 5})
    assert vectors.words == ("東京", "the", "1999", "naïve")
    assert vectors.missing == ("absent", "The")
    assert vectors.ids.tolist() == [4, 0, 7, 5]
    assert vectors.d == D
    assert torch.equal(vectors.matrix, torch.tensor([VECTORS[w] for w in vectors.words]))


@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS.keys())
def test_no_words_no_rows(tmp_path, content):
    vectors = read_vectors(_written(tmp_path / "v", content), {})
    assert vectors.matrix.shape == (0, D)
    assert vectors.ids.tolist() == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vectors=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=6),
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=D, max_size=D),
        min_size=1,
        max_size=9,
    ),
    write=st.sampled_from([_text, _binary]),
)
# All bytes of the first vector are letters and signs.
@example({"0": [-4050609426661376.0, 3.444499969482422, 6503765897117696.0]}, _binary)
# Text that fills the records of a binary file: every number takes four bytes.
@example({"0": [0.0, 0.5, 1.0], "1": [2.0, 0.0, 0.5]}, _text)
def test_vectors_are_read_back_bit_for_bit(tmp_path, vectors, write):
    path = _written(tmp_path / "v", write(vectors))
    read = read_vectors(path, {word: n for n, word in enumerate(vectors)})
    assert read.words == tuple(vectors)
    assert torch.equal(read.matrix, torch.tensor(list(vectors.values()), dtype=torch.float32))


LETTERS = struct.unpack("<3f", b"abcdefghijkl")
SPELT = struct.unpack("<3f", b"1.0 2.0 3.0\n")
FILLING = {
    "numbers of letters": (_binary({"a": LETTERS, "b": LETTERS}), LETTERS),
    "the first vector spells numbers": (_binary({"a": SPELT, "b": LETTERS}), SPELT),
    "text, a word of spaces": (b"1 3\n. . 1 2.0 3\n", None),
    "text, four bytes a number": (b"2 3\na 0.1 0.2 0.3\nb 0.4 0.5 0.6\n", (0.1, 0.2, 0.3)),
    "text, of lines of other lengths": (b"2 3\na 1 2 3\nb 0.5 0.25 0.125\n", (1, 2, 3)),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("content, first", FILLING.values(), ids=FILLING.keys())
def test_a_file_is_binary_if_its_records_fill_it_and_it_is_not_text_throughout(
    tmp_path, content, first, packed
):
    path = _written(tmp_path / "v", gzip.compress(content) if packed else content)
    vectors = read_vectors(path, {"a": 0})
    assert vectors.words == (("a",) if first else ())
    assert torch.equal(
        vectors.matrix, torch.tensor([first] if first else [], dtype=torch.float32).view(-1, 3)
    )


def test_rows_that_straddle_the_chunks_of_a_large_binary_file(tmp_path):
    d, n = 251, 2003  # 2 MB, read in chunks of one
    matrix = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    rows = (b"w%d " % i + row.numpy().astype("<f4").tobytes() + b"\n" for i, row in enumerate(matrix))
    path = _written(tmp_path / "v.bin", b"%d %d\n" % (n, d) + b"".join(rows))
    read = read_vectors(path, {f"w{i}": i for i in range(n)})
    assert torch.equal(read.matrix, matrix)


def test_a_word_with_spaces_is_one_word(tmp_path):
    content = _row("the", [1.0, 2.0, 3.0]) + b"\n" + _row(". . .", [4.0, 5.0, 6.0]) + b"\n"
    vectors = read_vectors(_written(tmp_path / "v", content), {". . .": 0, ".": 1})
    assert vectors.words == (". . .",)
    assert vectors.matrix.tolist() == [[4.0, 5.0, 6.0]]


@pytest.mark.parametrize("header", [True, False])
def test_the_first_of_two_equal_words_counts(tmp_path, header):
    content = b"2 3\n" if header else b""
    content += b"a 1 2 3\na 4 5 6\n"
    vectors = read_vectors(_written(tmp_path / "v", content), {"a": 0})
    assert vectors.matrix.tolist() == [[1.0, 2.0, 3.0]]


GOOD = _row("a", [1.0, 2.0, 3.0]) + b"\n"
DAMAGED = {
    "empty": (b"", r":1: expected two counts"),
    "prose": (b"It was a dark night.\n", r":1: expected .*dark night"),
    "short row": (GOOD + b"b 1.0 2.0\n", r":2: expected a word and 3 numbers, got 3 fields"),
    "blank row": (GOOD + b"\n" + GOOD, r":2: expected a word and 3 numbers, got 1 fields"),
    "long row": (GOOD + b"b 1.0 2.0 3.0 4.0\n", r":2: .*got more numbers"),
    "two rows in one": (GOOD + b"b 1.0 2.0 3.0c 4.0 5.0 6.0\n", r":2: .*got more numbers"),
    "no number": (GOOD + b"b 1.0 x 3.0\n", r":2: could not convert"),
    "not finite": (GOOD + b"b 1.0 inf 3.0\n", r":2: a number is infinite"),
    "too few rows": (b"3 3\n" + GOOD, r"ends after 1 of the 3 words"),
    "too many rows": (b"1 3\n" + GOOD + GOOD, r":3: the first line announces 1 words"),
    "no width": (b"1 0\na\n", r":1: the width of the vectors must be 1 to 100000, got 0"),
    "absurd width": (b"1 99999999\na\n", r":1: the width of the vectors must be 1 to 100000, got 99999999"),
    "cut binary": (_binary(VECTORS)[:-5], r"ends within word 5 of the 5"),
    "long binary": (_binary(VECTORS) + b"x", r"has more content after the 5 words"),
    "binary of another width": (
        b"5 2\n" + _binary(VECTORS).split(b"\n", 1)[1],
        r"has more content after|infinite",
    ),
    "binary, not finite": (b"1 3\nb " + struct.pack("<3f", 1, float("nan"), 2), r"word 1: a number"),
    "binary without words": (b"2 3\na " + bytes(12) + b"\xff" * 5000, r"no word ends where word 2 of 2"),
    "cut gzip": (gzip.compress(_text(VECTORS))[:-9], r"cannot be read"),
    "broken gzip": (gzip.compress(_text(VECTORS))[:20] + b"\0" * 30, r"cannot be read"),
}


@pytest.mark.parametrize("content, message", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_named_with_file_and_line(tmp_path, content, message):
    path = _written(tmp_path / "my.vec", content)
    with pytest.raises(DataError, match=r"my\.vec.*" + message):
        read_vectors(path, {"a": 0, "b": 1})


def test_a_device_is_refused():
    with pytest.raises(DataError, match="/dev/zero: must be a regular file or a pipe"):
        read_vectors("/dev/zero", {"a": 0})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.vec: cannot be read: No such file"):
        read_vectors(tmp_path / "none.vec", {"a": 0})


def test_fill_writes_the_rows_found_and_no_other(tmp_path):
    path = _written(tmp_path / "v", _text(VECTORS))
    weight = torch.nn.Parameter(torch.full((6, D), -9.0))
    vectors = read_vectors(path, {"東京": 4, "absent": 2, "the": 1})
    fill_embedding(weight, vectors)
    expected = torch.full((6, D), -9.0)
    expected[4], expected[1] = torch.tensor(VECTORS["東京"]), torch.tensor(VECTORS["the"])
    assert torch.equal(weight.detach(), expected)
    assert weight.requires_grad
    assert vectors.missing == ("absent",)
    assert str(vectors) == "2 of 3 words have a pretrained vector (66.7%)"
    assert str(read_vectors(path, {})) == "0 of 0 words have a pretrained vector (0.0%)"


def test_fill_keeps_the_type_of_the_embedding(tmp_path):
    weight = torch.zeros(2, D, dtype=torch.bfloat16)
    fill_embedding(weight, read_vectors(_written(tmp_path / "v", _text(VECTORS)), {"the": 1}))
    assert weight.tolist() == [[0.0] * D, VECTORS["the"]]


def test_fill_refuses_another_width_and_ids_outside(tmp_path):
    vectors = read_vectors(_written(tmp_path / "v", _text(VECTORS)), {"the": 5})
    with pytest.raises(DataError, match="width 3, the embedding 4"):
        fill_embedding(torch.zeros(6, 4), vectors)
    with pytest.raises(ValueError, match="outside the 5 rows"):
        fill_embedding(torch.zeros(5, D), vectors)
