"""Words with tags: how rows are split into words, limited, and presented to a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from heedful.data.batch import Batch
from heedful.data.report import EncodedRow
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.nn.layout import Ids
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, DOCUMENT_TEMPLATE, Template

WORDS, TAGS = "words", "tags"

# Other spaces, such as no-break spaces, may be part of a word.
_WORD = re.compile(r"[^ \t\n\r\f\v]+")


def split(line: str) -> list[str]:
    """The words, or tags, of a line: what blanks separate."""
    return _WORD.findall(line)


def words_and_tags(row: LocatedRow[Row]) -> tuple[list[str], list[str]]:
    """The words of a row and their tags, each given as a list or as a line with blanks between.

    Raises:
        DataError: they are not as many.
    """
    words, tags = (of if isinstance(of, list) else split(of) for of in (row.row[WORDS], row.row[TAGS]))
    if len(words) != len(tags):
        raise DataError(f"{row.where}: {len(words)} words but {len(tags)} tags: every word needs one")
    return words, tags


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

    def over(self, row: EncodedRow) -> str | None:
        """See `heedful.data.report.Limit`."""
        if len(row[WORDS]) <= self.most:
            return None
        longest = int(self._within(row).max()) + 1
        if longest <= self.most:
            return None
        return f"a word has {longest} tokens, more than {self.most} ({self.key})"

    def cut(self, row: EncodedRow) -> EncodedRow:
        """The first tokens of each word."""
        kept = np.flatnonzero(self._within(row) < self.most).tolist()
        return {**row, **{column: [row[column][i] for i in kept] for column in (WORDS, TAGS)}}

    def _within(self, row: EncodedRow) -> np.ndarray:
        """``[tokens]``: the number of each token in its word, from 0."""
        places = np.arange(len(row[TAGS]))
        return places - np.maximum.accumulate(np.where(np.asarray(row[TAGS]) > 0, places, 0))


@dataclass(frozen=True)
class WordTemplate:
    """How words are presented to a model, and at which of its tokens the tag of a word is predicted.

    Args:
        template: the special tokens around them.
        last: whether it is the last one, not the first.
    """

    template: Template
    last: bool

    def __call__(self, texts: Sequence[Ids], marks: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """A batch of words.

        Args:
            texts: the ids of some words each.
            marks: for each id 0, or where a word begins the number of its tag plus 1.
            samples: the numbers of the samples.
        """
        batch = self.template([[text] for text in texts], samples)
        return batch.tagged([_at_last(own) for own in marks] if self.last else marks)


TAG_AT_FIRST_TOKEN = WordTemplate(CLASS_TEMPLATE, last=False)
"""``<cls> a <sep>``, for a model in which each token attends to all others."""

TAG_AT_LAST_TOKEN = WordTemplate(DOCUMENT_TEMPLATE, last=True)
"""``</s> a </s>``, for a model in which each token attends to those before it."""


def _at_last(marks: Ids) -> Ids:
    """The marks of words, each at the word's last token, not its first."""
    own = np.asarray(marks, np.int64)
    firsts, moved = np.flatnonzero(own), np.zeros_like(own)
    moved[np.append(firsts[1:], len(own))[: len(firsts)] - 1] = own[firsts]
    return moved


def stretches(lengths: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Cut a row of words of so many tokens into as few stretches of at most ``most`` tokens as possible.

    Returns:
        Of each stretch its first word and the first one after it; a longer word is one by itself.
    """
    cuts, total = [0], 0
    for i, length in enumerate(lengths):
        if total and total + length > most:
            cuts.append(i)
            total = 0
        total += length
    return list(pairwise([*cuts, len(lengths)])) if len(lengths) else []
