"""Tagging: a tag for every word, told at the word's first token (Devlin et al. 2019, section 5.3).

A language model tells it at the word's last token: there it has read all of the word, and nothing behind it.

words, tags -> ids of the words, a mark on each first one -> stretches -> `Batch.tagged` -> model -> loss
words -> ids -> stretches -> hidden states of first tokens -> tags                        `Tagger.predict`
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.report import Encoded, EncodedRow
from heedful.data.sources import LocatedRow, Location, Row
from heedful.errors import DataError
from heedful.nn.layout import Ids
from heedful.tasks.grouping import longest_first
from heedful.tasks.labels import Labels, number_of
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader
from heedful.tasks.texts import AS_DOCUMENTS, BUDGET, N_SPECIALS, WITH_CLASS, Template
from heedful.tasks.unknown import joined, unknown_note
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import word_ids, word_ids_of_all

WORDS, TAGS = "words", "tags"

# Rows whose words are encoded together.
CHUNK = 1000

# Other spaces, such as those that do not break, may stand in a word.
_WORD = re.compile(r"[^ \t\n\r\f\v]+")


@dataclass(frozen=True)
class Tagged(Prediction):
    """A prediction of tags: ``text`` has them with blanks between, ``score`` is the sum of ``log_probs``.

    Args:
        words: what was read.
        tags: one for each word, as ``log_probs``.
    """

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


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
class TagProcessor:
    """The tokenizer of the words, and the tags in the order of their numbers."""

    tokenizer: Tokenizer
    tags: Labels

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        return f"{self.tokenizer.fingerprint}-{'|'.join(map(repr, self.tags))}"

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the vocabulary and of the set of tags."""
        return self.tokenizer.vocab_size, len(self.tags)

    def number(self, tag: str, where: Location) -> int:
        """The number of a tag; see `heedful.tasks.labels.number_of`."""
        return number_of(tag, self.tags, where, "tag")

    def encode(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[Encoded]:
        """The ids of the words, and for each id 0, or where a word begins the number of its tag plus 1.

        Raises:
            DataError: words and tags are not as many, or a tag is not known.
        """
        rows = iter(rows)
        while block := list(islice(rows, CHUNK)):
            pairs = [words_and_tags(row) for row in block]
            ids = word_ids_of_all(self.tokenizer, [words for words, _ in pairs])
            for row, (_, tags), each in zip(block, pairs, ids, strict=True):
                yield LocatedRow(self._marked(each, tags, row.where), row.where)

    def _marked(self, ids: Sequence[list[int]], tags: Sequence[str], where: Location) -> dict[str, list[int]]:
        numbers = [self.number(tag, where) + 1 for tag in tags]
        marks = [[number, *[0] * (len(own) - 1)] for number, own in zip(numbers, ids, strict=True)]
        return {WORDS: list(chain(*ids)), TAGS: list(chain(*marks))}


@dataclass(frozen=True)
class WordLimit:
    """The most tokens of a word: a row is read in stretches of whole words. A `heedful.data.report.Limit`.

    Args:
        most: how many.
        key: the setting that says so.
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
    """How words lie before a model, and at which of its tokens each is told its tag.

    Args:
        frame: the special tokens around them.
        last: whether it is the last one, not the first.
    """

    frame: Template
    last: bool

    def __call__(self, texts: Sequence[Ids], marks: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """A batch of words.

        Args:
            texts: the ids of some words each.
            marks: for each id 0, or where a word begins the number of its tag plus 1.
            samples: the numbers of the samples.
        """
        framed = self.frame([[text] for text in texts], samples)
        return framed.tagged([_at_last(own) for own in marks] if self.last else marks)


BY_FIRST = WordTemplate(WITH_CLASS, last=False)
"""``<cls> a <sep>``, each token with all that stands around it."""

BY_LAST = WordTemplate(AS_DOCUMENTS, last=True)
"""``</s> a </s>``, each token with those before it."""


def _at_last(marks: Ids) -> Ids:
    """The marks of words, each at the word's last token, not its first."""
    own = np.asarray(marks, np.int64)
    firsts, moved = np.flatnonzero(own), np.zeros_like(own)
    moved[np.append(firsts[1:], len(own))[: len(firsts)] - 1] = own[firsts]
    return moved


def stretches(lengths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Cut a row of words of so many tokens into as few stretches of at most ``room`` tokens as possible.

    Returns:
        Of each stretch its first word and the first one after it; a longer word is one by itself.
    """
    cuts, held = [0], 0
    for i, length in enumerate(lengths):
        if held and held + length > room:
            cuts.append(i)
            held = 0
        held += length
    return list(pairwise([*cuts, len(lengths)])) if len(lengths) else []


class _Stretch(NamedTuple):
    """Some words of an input: its number, the number of the first word, their ids, and how many were cut."""

    text: int
    first: int
    ids: list[list[int]]
    cut: int

    @property
    def flat(self) -> list[int]:
        return [i for own in self.ids for i in own]

    @property
    def marks(self) -> list[int]:
        return [int(i == 0) for own in self.ids for i in range(len(own))]


class Tagger(Reader):
    """A model with its processor: words in, tags out, as many and in the same order.

    Inputs that are too long for the model are read in stretches of whole words, and the prediction says so.

    Args:
        model: has a head ``tag``; put into evaluation mode here.
        processor: of words and tags.
        longest: the most tokens of a sequence.
        frame: how the words lie before the model.
        budget: tokens of the rectangle that is read together; bounds the memory.
    """

    unaligned = "a tagger writes nothing"

    def __init__(
        self,
        model: Any,
        processor: TagProcessor,
        *,
        longest: int,
        frame: WordTemplate = BY_FIRST,
        budget: int = BUDGET,
    ) -> None:
        self.model, self.processor, self.frame = model.eval(), processor, frame
        self.room, self.budget = longest - N_SPECIALS, budget
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def answers(self, inputs: Sequence[str | Sequence[str]], progress: Progress) -> list[Prediction]:
        """Tag the inputs, each a line of words with blanks between, or a list of words."""
        words = [split(text) if isinstance(text, str) else list(text) for text in inputs]
        pieces = [piece for i, own in enumerate(words) for piece in self._stretches(i, own)]
        found = [[(0, 0.0)] * len(own) for own in words]
        left = Counter(piece.text for piece in pieces)
        parts = dict(left)
        progress(len(words) - len(left))
        lengths = {i: len(piece.flat) + N_SPECIALS for i, piece in enumerate(pieces)}
        for group in longest_first(lengths, self.budget):
            for piece, tags in zip((pieces[i] for i in group), self._tags(pieces, group), strict=True):
                found[piece.text][piece.first : piece.first + len(tags)] = tags
                left[piece.text] -= 1
                progress(int(left[piece.text] == 0))
        cuts = [0] * len(words)
        for piece in pieces:
            cuts[piece.text] += piece.cut
        notes = self._notes(words, pieces, parts, cuts)
        return [replace(self._tagged(own, found[i], notes[i]), cut=cuts[i]) for i, own in enumerate(words)]

    def _notes(
        self,
        words: Sequence[Sequence[str]],
        pieces: Sequence[_Stretch],
        parts: Mapping[int, int],
        cuts: Sequence[int],
    ) -> list[str | None]:
        """What is told of each input, which is read in so many parts, and without so many tokens."""
        ids: list[list[int]] = [[] for _ in words]
        for piece in pieces:
            ids[piece.text] += piece.flat
        return [
            joined(
                f"words longer than {self.room} tokens are cut, by {cuts[i]} in all" if cuts[i] else None,
                f"read in {parts[i]} parts" if parts.get(i, 0) > 1 else None,
                unknown_note(self.processor.tokenizer, own, [ids[i]]),
            )
            if own
            else "the input is empty"
            for i, own in enumerate(words)
        ]

    def _stretches(self, text: int, words: Sequence[str]) -> Iterator[_Stretch]:
        whole = word_ids(self.processor.tokenizer, words)
        ids = [own[: self.room] for own in whole]
        for first, last in stretches([len(own) for own in ids], self.room):
            part = slice(first, last)
            yield _Stretch(text, first, ids[part], sum(map(len, whole[part])) - sum(map(len, ids[part])))

    def _tags(self, pieces: Sequence[_Stretch], group: Sequence[int]) -> Iterator[list[tuple[int, float]]]:
        """For each piece the number and the log-probability of each of its words' tags."""
        some = [pieces[i] for i in group]
        batch = self.frame([piece.flat for piece in some], [piece.marks for piece in some]).to(self.device)
        logits = self.model.heads["tag"](batch.picked(self.model(batch.inputs))).float()
        values, numbers = logits.log_softmax(-1).max(-1)
        every = iter(zip(numbers.tolist(), values.tolist(), strict=True))
        for piece in some:
            yield [next(every) for _ in piece.ids]

    def _tagged(self, words: list[str], found: Sequence[tuple[int, float]], note: str | None) -> Tagged:
        tags, log_probs = [self.processor.tags[number] for number, _ in found], [value for _, value in found]
        return Tagged(" ".join(tags), sum(log_probs), log_probs=log_probs, note=note, words=words, tags=tags)
