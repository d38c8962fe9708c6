"""Pretrained word vectors: word2vec text and binary files, and GloVe text files.

Text: one word a line, followed by its numbers, separated by single spaces; word2vec (and fastText)
begin with a line "words width", GloVe does not. Binary: that line, then for each word its bytes,
a space and its numbers as little-endian 32-bit floats; a newline may follow. All may be gzipped.
The format is detected from the content, not the name: after a header, a file is binary if the records
that the header announces fill it exactly. Files are read as a stream, and numbers are parsed only for
the requested words.
"""

import codecs
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.errors import DataError
from heedful.files import require_end

_CHUNK = 1 << 20
_WIDEST = 100_000  # a header with a larger width is damaged
_LONGEST_WORD = 1 << 12  # bytes; a longer "word" in a binary file means that the file is damaged


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors for those of the requested words that a file contains.

    Args:
        matrix: the vectors, one row for each word found.
        ids: the id of each row's word.
        words: the words of the rows, in the order of the request.
        missing: the words that are not in the file, in the order of the request.
    """

    matrix: Float[Tensor, "n d"]
    ids: Int[Tensor, " n"]
    words: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def d(self) -> int:
        """The width of the vectors."""
        return self.matrix.shape[1]

    def __str__(self) -> str:
        n_found, n = len(self.words), len(self.words) + len(self.missing)
        return f"{n_found:,} of {n:,} words have a pretrained vector ({n_found / max(n, 1):.1%})"


def read_vectors(path: str | Path, words: Mapping[str, int]) -> Vectors:
    """Read the vectors of ``words`` (word to id) from a word2vec or GloVe file; it is read and checked whole.

    Words are compared exactly, including case. If a word occurs twice, its first vector is used.

    Raises:
        DataError: if the file is missing or damaged, or not a file of vectors.
    """
    words_by_bytes = {word.encode(errors="surrogatepass"): word for word in words}
    vectors_by_word: dict[str, np.ndarray] = {}
    with _opened(path) as stream:
        width, records, parse = _detect_format(stream, str(path))
        for record in records:
            word = words_by_bytes.get(record.word)
            if word is not None and word not in vectors_by_word:
                vectors_by_word[word] = _parsed(record, parse)
    found_words = tuple(word for word in words if word in vectors_by_word)
    matrix = (
        np.stack([vectors_by_word[word] for word in found_words])
        if found_words
        else np.zeros((0, width), np.float32)
    )
    return Vectors(
        matrix=torch.from_numpy(matrix),
        ids=torch.tensor([words[word] for word in found_words], dtype=torch.int64),
        words=found_words,
        missing=tuple(word for word in words if word not in vectors_by_word),
    )


def width_of_vectors(path: str | Path) -> int:
    """Return the width of the vectors of a file from its first line.

    Raises:
        DataError: if the file is missing, or not a file of vectors.
    """
    with _opened(path) as stream:
        return _detect_format(stream, str(path))[0]


def fill_embedding(weight: Float[Tensor, "V d"], vectors: Vectors, scale: float = 1.0) -> None:
    """Copy the vectors into the rows of ``weight`` given by their ids; leave the other rows unchanged.

    Args:
        weight: the weight of the embedding.
        vectors: the vectors for some of its rows.
        scale: the factor by which the embedding multiplies its rows; the vectors are divided by it, so that
            the model reads them at their original scale.

    Raises:
        DataError: if the width of the vectors differs from that of the embedding.
        ValueError: if an id is outside the embedding.
    """
    n_rows, d = weight.shape
    if vectors.d != d:
        raise DataError(
            f"the pretrained vectors have width {vectors.d}, the embedding {d}; "
            f"use vectors of width {d}, or an embedding of width {vectors.d}"
        )
    if vectors.ids.numel() and not 0 <= int(vectors.ids.min()) <= int(vectors.ids.max()) < n_rows:
        raise ValueError(f"an id is outside the {n_rows} rows of the embedding")
    with torch.no_grad():
        weight[vectors.ids.to(weight.device)] = (vectors.matrix / scale).to(weight)


class _Record(NamedTuple):
    """A word and its unparsed numbers; ``location`` is where they are for messages."""

    word: bytes
    numbers: bytes
    location: str


_Parse = Callable[[bytes], np.ndarray]


@contextmanager
def _opened(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open the content as a buffered stream, decompressed if it is gzip.

    Raises:
        DataError: if the file cannot be read, here or in the block.
    """
    try:
        require_end(Path(path))
        with io.BufferedReader(io.FileIO(path), _CHUNK) as raw:
            if raw.peek(2)[:2] != b"\x1f\x8b":
                yield raw
                return
        with io.BufferedReader(gzip.open(path), _CHUNK) as stream:  # type: ignore[type-var, arg-type]
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _detect_format(stream: io.BufferedReader, path: str) -> tuple[int, Iterator[_Record], _Parse]:
    """Detect which of the three formats a file has: return the width, the records, and their parser."""
    first = stream.readline(_CHUNK)
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) < 12 for field in fields):
        n, d = int(fields[0]), int(fields[1])
        if not 0 < d <= _WIDEST:
            raise DataError(f"{path}:1: the width of the vectors must be 1 to {_WIDEST}, got {d}")
        if _is_binary(stream.peek(4 * d), n, d, path):
            records = _binary_records(stream, n, d, path)
            return d, records, lambda numbers: np.frombuffer(numbers, "<f4").astype(np.float32)
        return d, _counted(_text_records(stream, 2, d, path), n, path), _floats_of_text
    d = len(fields) - 1
    if d < 1 or not all(map(_is_number, fields[1:])):
        raise DataError(
            f"{path}:1: expected two counts (word2vec) or a word and its numbers (GloVe), "
            f"got {first[:60].decode(errors='replace').strip()!r}"
        )
    return d, _text_records(chain([first], stream), 1, d, path), _floats_of_text


def _is_binary(peeked: bytes, n: int, d: int, path: str) -> bool:
    """Whether a file with the header ``n d`` is binary.

    The four bytes of a float may all be printable, so they do not show that a file is text: it is binary if n
    records with 4 d bytes of numbers fill it exactly. Text in which every number takes four bytes ("0.1 ")
    fills such records too, but it parses as text throughout, which no binary file does.

    Args:
        peeked: the beginning of the content after the header.
        n: the number of words.
        d: the width.
        path: the path of the file.
    """
    sample = peeked.partition(b" ")[2][: 4 * d]  # what follows the first word
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return True
    if any(byte < 32 and byte not in b"\t\n\r" for byte in sample):
        return True
    # Words of a binary file contain no line break: this stops reading most text files early.
    if not _fits(path, lambda s: _binary_records(s, n, d, path), lambda record: b"\n" not in record.word):
        return False
    return not _fits(
        path,
        lambda s: _counted(_text_records(s, 2, d, path), n, path),
        lambda record: _floats_of_text(record.numbers) is not None,
    )


def _fits(
    path: str,
    read_records: Callable[[io.BufferedReader], Iterator[_Record]],
    predicate: Callable[[_Record], bool],
) -> bool:
    """Whether all records after the first line can be read and parsed, and the predicate holds for each."""
    with _opened(path) as stream:
        stream.readline(_CHUNK)
        try:
            return all(map(predicate, read_records(stream)))
        except (DataError, ValueError):
            return False


def _text_records(lines: Iterable[bytes], first: int, d: int, path: str) -> Iterator[_Record]:
    for line_number, line in enumerate(lines, first):
        location = f"{path}:{line_number}"
        line = line.rstrip(b" \r\n")
        extra = line.count(b" ") - d
        if extra < 0:
            raise DataError(f"{location}: expected a word and {d} numbers, got {extra + d + 1} fields")
        # Some of GloVe's words contain spaces, but a number within such a word means damage.
        word, *_ = line.split(b" ", 1) if extra == 0 else line.rsplit(b" ", d)
        if extra and any(map(_is_number, word.split(b" ")[1:])):
            raise DataError(f"{location}: expected a word and {d} numbers, got more numbers")
        yield _Record(word, line[len(word) + 1 :], location)


def _counted(records: Iterator[_Record], n: int, path: str) -> Iterator[_Record]:
    """Yield the records; raise an error unless there are n."""
    n_read = 0
    for n_read, record in enumerate(records, 1):
        if n_read > n:
            raise DataError(f"{record.location}: the first line announces {n} words, but there are more")
        yield record
    if n_read < n:
        raise DataError(f"{path}: ends after {n_read} of the {n} words that the first line announces")


def _binary_records(stream: io.BufferedReader, n: int, d: int, path: str) -> Iterator[_Record]:
    buffer, offset, size = b"", 0, 4 * d
    for word_number in range(1, n + 1):
        space = buffer.find(b" ", offset)
        while space < 0 or len(buffer) < space + 1 + size:
            if space < 0 and len(buffer) - offset > _LONGEST_WORD:
                raise DataError(f"{path}: damaged: no word ends where word {word_number} of {n} should")
            chunk = stream.read(_CHUNK)
            if not chunk:
                raise DataError(
                    f"{path}: ends within word {word_number} of the {n} that the first line announces"
                )
            buffer, offset = buffer[offset:] + chunk, 0
            space = buffer.find(b" ")
        end = space + 1 + size
        yield _Record(
            buffer[offset:space].lstrip(b"\n"), buffer[space + 1 : end], f"{path}: word {word_number}"
        )
        offset = end
    if (buffer[offset:] + stream.read(_CHUNK)).strip():
        raise DataError(f"{path}: has more content after the {n} words that the first line announces")


def _parsed(record: _Record, parse: _Parse) -> np.ndarray:
    try:
        vector = parse(record.numbers)
    except ValueError as error:
        raise DataError(f"{record.location}: {error}") from error
    if not np.isfinite(vector).all():
        raise DataError(f"{record.location}: a number is infinite or NaN")
    return vector


def _floats_of_text(numbers: bytes) -> np.ndarray:
    return np.array([float(field) for field in numbers.split(b" ")], dtype=np.float32)


def _is_number(field: bytes) -> bool:
    try:
        return not math.isnan(float(field))
    except ValueError:
        return False
