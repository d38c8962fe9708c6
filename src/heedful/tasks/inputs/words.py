"""Words with tags: how rows are split into words, limited, and presented to a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import regex

from heedful.data.batch import Batch
from heedful.data.report import EncodedRow
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.nn.layout import Ids
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, DOCUMENT_TEMPLATE, Template
from heedful.tasks.prediction import content_of

WORDS, TAGS = "words", "tags"

_BOUNDARY = regex.compile(r"(?w)\b", regex.VERSION1)

# Other spaces, such as no-break spaces, may be part of a word.
_WORD = re.compile(r"[^ \t\n\r\f\v]+")


def split(line: str) -> list[str]:
    """Split a line into words, or tags, at blanks."""
    return _WORD.findall(line)


def split_text(text: str) -> list[str]:
    """Split a text into words and punctuation marks, at the default word boundaries of Unicode (UAX #29).

    ``Müller's`` and ``3.14`` are one word, ``Baden-Württemberg`` is three; each character of Chinese is one.
    """
    return [word for word in _BOUNDARY.split(text) if not word.isspace() and word]


def as_line(words: Sequence[str]) -> str:
    """Return words as a line that `split` splits into as many; blanks in a word become no-break spaces."""
    return " ".join("\u00a0".join(split(word)) or "\u00a0" for word in words)


def with_content(words: Sequence[str]) -> list[str]:
    """Return words; none if all are white space alone, such as a no-break space in an empty cell."""
    return [*words] if any(map(content_of, words)) else []


def words_and_tags(row: LocatedRow[Row]) -> tuple[list[str], list[str]]:
    """Return the words of a row and their tags; a column is a list, or a line with blanks.

    A row whose words are all white space has none, and no tags.

    Raises:
        DataError: their numbers differ.
    """
    words, tags = (
        value if isinstance(value, list) else split(value) for value in (row.row[WORDS], row.row[TAGS])
    )
    if len(words) != len(tags):
        raise DataError(f"{row.location}: {len(words)} words but {len(tags)} tags: every word needs one")
    return (words, tags) if with_content(words) else ([], [])


@dataclass(frozen=True)
class WordLimit:
    """The most tokens of a word: a row is read in stretches of whole words. A `heedful.data.report.Limit`.

    Args:
        most: how many.
        key: the setting that limits it.
    """

    most: int
    key: str

    @property
    def reason(self) -> str:
        """See `heedful.data.report.Limit`."""
        return f"a word longer than {self.most} ({self.key})"

    def excess(self, row: EncodedRow) -> str | None:
        """See `heedful.data.report.Limit`."""
        if len(row[WORDS]) <= self.most:
            return None
        longest = int(self._offsets(row).max()) + 1
        if longest <= self.most:
            return None
        return f"a word has {longest} tokens, more than {self.most} ({self.key})"

    def truncate(self, row: EncodedRow) -> EncodedRow:
        """Return the row with the first tokens of each word."""
        kept_indices = np.flatnonzero(self._offsets(row) < self.most).tolist()
        return {**row, **{column: [row[column][i] for i in kept_indices] for column in (WORDS, TAGS)}}

    def _offsets(self, row: EncodedRow) -> np.ndarray:
        """Return ``[tokens]``: the index of each token in its word, from 0."""
        positions = np.arange(len(row[TAGS]))
        return positions - np.maximum.accumulate(np.where(np.asarray(row[TAGS]) > 0, positions, 0))


@dataclass(frozen=True)
class WordTemplate:
    """The special tokens around words, and the token of a word at which its tag is predicted.

    Args:
        template: the special tokens around them.
        at_last_token: whether it is the last token of the word, not the first.
    """

    template: Template
    at_last_token: bool

    def __call__(self, texts: Sequence[Ids], marks: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """Return a batch of sequences of words, with their tags as targets.

        Args:
            texts: the ids of the words of each sequence.
            marks: for each id 0, or the number of the tag plus 1 if a word begins.
            samples: the indices of the samples.
        """
        batch = self.template([[text] for text in texts], samples)
        return batch.tagged(
            [_to_last_tokens(row_marks) for row_marks in marks] if self.at_last_token else marks
        )


TAG_AT_FIRST_TOKEN = WordTemplate(CLASS_TEMPLATE, at_last_token=False)
"""``<cls> a <sep>``, for a model in which each token attends to all others."""

TAG_AT_LAST_TOKEN = WordTemplate(DOCUMENT_TEMPLATE, at_last_token=True)
"""``</s> a </s>``, for a model in which each token attends to those before it."""


def _to_last_tokens(marks: Ids) -> Ids:
    """Move the mark of each word from its first to its last token."""
    at_first = np.asarray(marks, np.int64)
    firsts, at_last = np.flatnonzero(at_first), np.zeros_like(at_first)
    at_last[np.append(firsts[1:], len(at_first))[: len(firsts)] - 1] = at_first[firsts]
    return at_last


def stretches(lengths: Sequence[int], max_tokens: int) -> list[tuple[int, int]]:
    """Cut a row of words of these lengths into as few stretches of at most ``max_tokens`` as possible.

    Returns:
        The first word of each stretch, and the first one after it; a longer word is a stretch by itself.
    """
    starts, total = [0], 0
    for i, length in enumerate(lengths):
        if total and total + length > max_tokens:
            starts.append(i)
            total = 0
        total += length
    return list(pairwise([*starts, len(lengths)])) if len(lengths) else []
