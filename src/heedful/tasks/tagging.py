"""Tagging: a tag for every word, predicted at the word's first token (Devlin et al. 2019, section 5.3).

A language model predicts it at the word's last token, where it has read the whole word and nothing after it.

words, tags -> ids of the words, a mark on each first one -> stretches -> `Batch.tagged` -> model -> loss
words -> ids -> stretches -> hidden states of first tokens -> tags                        `Tagger.predict`
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_labels, write_json
from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Location, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.models.language_model import LanguageModelConfig
from heedful.objectives.classification import TAG
from heedful.objectives.registry import TAG as TAG_LOSSES
from heedful.objectives.registry import Losses
from heedful.recipes import schema
from heedful.tasks.base import Columns, Log, Rows, TaskInfo
from heedful.tasks.grouping import longest_first
from heedful.tasks.labels import FEWEST_LABELS, Labels, Unseen, listed, number_of
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.tagging import tagging_scores
from heedful.tasks.model_input import (
    INPUT,
    AnswerOptions,
    ModelInput,
    Questions,
    ids_in,
    in_chunks,
    refuse_empty,
    words_axis,
)
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader
from heedful.tasks.text_task import AnyReader, TextRecipe, TextTask, WholeDataConfig, synthetic_texts
from heedful.tasks.texts import BUDGET, N_SPECIALS, TEXT
from heedful.tasks.unknown import joined, unknown_note, unknown_notes
from heedful.tasks.words import (
    BY_FIRST,
    BY_LAST,
    TAGS,
    WORDS,
    WordLimit,
    WordTemplate,
    split,
    stretches,
    words_and_tags,
)
from heedful.text.tokenizer import EncodedTexts, Tokenizer
from heedful.text.words import word_ids, word_ids_of_all
from heedful.typing import JsonMapping, JsonObject

# Rows whose words are encoded together.
CHUNK = 1000

# Recipes ------------------------------------------------------------------------------------------------


class TaggingConfig(Config):
    """A tag for every word; the data have the columns ``words`` and ``tags``: lines with blanks, or lists."""

    kind: Literal["tagging"] = "tagging"


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the tag of a word; ``chunk`` is not used.

    Args:
        label_smoothing: of cross-entropy.
    """

    losses: ClassVar[Losses] = TAG_LOSSES

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class TaggingRecipe(TextRecipe):
    """A whole recipe; a language model predicts the tag of a word before it reads what follows."""

    task: TaggingConfig
    data: WholeDataConfig
    model: AnyReader
    objective: ObjectiveConfig = ObjectiveConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures, over words."""
        return {"loss", "accuracy"}

    @property
    def words(self) -> WordTemplate:
        """How words are presented to the model."""
        return BY_LAST if isinstance(self.model, LanguageModelConfig) else BY_FIRST


# Data and predictions -----------------------------------------------------------------------------------


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

    @staticmethod
    def files(folder: RunFolder) -> list[Path]:
        """The tokenizer and the tags."""
        return [folder.tokenizer(TEXT), folder.labels]

    def save(self, folder: RunFolder) -> None:
        """Write both files."""
        self.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.labels, {"version": 1, "labels": list(self.tags)})

    @classmethod
    def load(cls, folder: RunFolder) -> "TagProcessor":
        """Read both files."""
        return cls(Tokenizer.load(folder.tokenizer(TEXT)), read_labels(folder.labels))

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


class TagBatches:
    """Batches of words with tags; a sample is a row, or a stretch of one that is longer than the model reads.

    Args:
        store: ids of words, and marks where words begin.
        longest: the most tokens of a sequence.
        frame: how the words are presented to the model.
    """

    def __init__(self, store: TokenStore, longest: int, frame: WordTemplate) -> None:
        self.store, self.frame = store, frame
        room, lengths = longest - N_SPECIALS, store.lengths(WORDS)
        found = [(row, *part) for row, n in enumerate(lengths.tolist()) for part in self._parts(row, n, room)]
        self.parts = np.array(found, dtype=np.int64).reshape(-1, 3)
        self.lengths: Lengths = self.parts[:, 2] - self.parts[:, 1] + N_SPECIALS

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """The batch of some stretches."""
        chosen = self.parts[list(samples)]
        rows = self.store.gather(chosen[:, 0].tolist())
        cut = [slice(first, last) for _, first, last in chosen.tolist()]
        texts, marks = ([ids[part] for ids, part in zip(rows[c], cut, strict=True)] for c in (WORDS, TAGS))
        return self.frame(texts, marks, samples)

    def _parts(self, row: int, n_tokens: int, room: int) -> Iterator[tuple[int, int]]:
        """The first token of each stretch of a row, and the first one after it."""
        if n_tokens <= room:
            yield 0, n_tokens
            return
        bounds = np.append(np.flatnonzero(self.store[row][TAGS]), n_tokens)
        for first, last in stretches(np.diff(bounds).tolist(), room):
            yield int(bounds[first]), int(bounds[last])


@dataclass(frozen=True)
class Tagged(Prediction):
    """A prediction of tags: ``text`` has them with blanks between, ``score`` is the sum of ``log_probs``.

    Args:
        words: what was read.
        tags: one for each word, as ``log_probs``.
    """

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


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

    Inputs that are too long for the model are read in stretches of whole words, and the prediction notes it.

    Args:
        model: has a head ``tag``; put into evaluation mode here.
        processor: of words and tags.
        longest: the most tokens of a sequence.
        frame: how the words lie before the model.
        budget: maximum number of tokens of a batch, with padding.
    """

    unaligned = "tagging generates no text"

    def __init__(
        self,
        model: Model,
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
        """Notes about each input: in how many parts it was read, and without how many tokens."""
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


# The task -----------------------------------------------------------------------------------------------


class Tagging(TextTask):
    """Predict a tag for every word."""

    Recipe = TaggingRecipe
    Processor = TagProcessor
    info = TaskInfo(
        unit="words",
        evaluating="tagging",
        own_data=("table",),
        shorter="lower model.max_length, of a language model model.context",
    )
    answer = TAGS
    texts_of_all = (WORDS,)
    validation_terms: ClassVar = {"loss": TAG, "accuracy": "correct"}

    recipe: TaggingRecipe
    processor: TagProcessor

    @property
    def texts(self) -> tuple[str, ...]:
        """The words."""
        return (WORDS,)

    @property
    def columns(self) -> Columns:
        """Words and tags."""
        return Columns((WORDS, TAGS), (WORDS,), lists=(WORDS, TAGS), input_lists=True)

    def sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """With the number of tags, of which nothing is known before there are data."""
        return (*vocab_sizes, FEWEST_LABELS)

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that computes the logits of the tags."""
        return {TAG: class_head(self.recipe.model.d_model, sizes[-1], self.recipe.model.dropout)}

    def processor_with(self, tokenizer: Tokenizer, rows: Rows) -> TagProcessor:
        """Collect the tags, sorted.

        Raises:
            DataError: if the numbers of words and tags of a row differ, or there are fewer than two tags.
        """
        tags = sorted({tag for row in rows() for tag in words_and_tags(row)[1]})
        if len(tags) < FEWEST_LABELS:
            raise DataError(f"at least two different tags are needed, got {len(tags)}: {tags}")
        return TagProcessor(tokenizer, tuple(tags))

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """The ids of the words, and a mark where each begins."""
        return self.processor.encode(rows)

    def limits(self) -> Sequence[WordLimit]:
        """Long rows are read in stretches; a word is not."""
        return [WordLimit(self.recipe.room, f"{self.recipe.longest_key}={self.recipe.model.longest}")]

    @property
    def n_answers(self) -> int:
        """The tags, and no tag."""
        return len(self.processor.tags) + 1

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Log the tags, too."""
        super().initialise(model, log)
        log(f"{len(self.processor.tags)} tags: {listed(self.processor.tags)}")

    def batches(self, store: TokenStore) -> TagBatches:
        """Rows, or stretches of long ones."""
        return TagBatches(store, self.recipe.model.longest, self.recipe.words)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Rows that differ by a token or two in length; two words of three are one token."""
        batch = synthetic_texts(sizes[0], n, length, 1, self.recipe.frame)
        marks = [
            [1 + i % sizes[-1] if i % 4 else 0 for i in range(k - 2)] for k in batch.inputs.layout.lengths
        ]
        return batch.tagged(marks)

    def predictor(self, model: Model, decoding: Any, inference: Inference, **options: Any) -> Tagger:
        """Predicts tags."""
        longest, frame = self.recipe.model.longest, self.recipe.words
        return Tagger(inference.ready(), self.processor, longest=longest, frame=frame, **options)

    def model_input(
        self, model: Model, given: Any, options: AnswerOptions, predict: Callable[..., Prediction]
    ) -> ModelInput:
        """Prepare a list of words, or a line of words separated by spaces."""
        options.refuse_target(self.recipe.task.kind, "the answer is a tag for each word")
        processor, room = self.processor, self.recipe.model.longest - N_SPECIALS
        words = split(given) if isinstance(given, str) else [self.text_in(word) for word in given]
        ids = [own[:room] for own in word_ids(processor.tokenizer, words)]
        refuse_empty(*ids)
        parts = stretches([len(own) for own in ids], room)
        if len(parts) > 1:
            raise RequestError(
                f"the input must fit into one part of {room} tokens, got {len(parts)} parts; shorten it, for "
                f"example to the first {parts[0][1]} words"
            )
        answer: Any = predict()
        flat = [token for own in ids for token in own]
        batch = self.recipe.words([flat], [[int(i == 0) for own in ids for i in range(len(own))]])
        assert batch.rows is not None
        questions = Questions(
            INPUT,
            tuple(batch.rows.tolist()),
            torch.tensor([processor.tags.index(tag) for tag in answer.tags]),
            in_chunks(model.heads[TAG], batch),
            lambda i, number: processor.tags[number],
        )
        axis = words_axis(processor.tokenizer, ids_in(batch), words, ids)
        return ModelInput(batch, {INPUT: axis}, answer, questions)

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], JsonObject]:
        """All of them, if any has a word."""
        kept = list(islice(rows, limit))
        return (kept if any(words_and_tags(row)[0] for row in kept) else []), {}

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Refuse tags of another task altogether."""
        self._unseen(rows)

    def metrics(
        self, model: Model, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Tagged]
    ) -> tuple[list[Score], list[str]]:
        """Accuracy and F1 of words, and of spans if the tags encode them."""
        unseen, right = self._unseen(rows), [words_and_tags(row)[1] for row in rows]
        found = tagging_scores([p.tags for p in predictions], right, self.processor.tags, unseen.labels)
        scores = [replace(score, counts={**score.counts, **unseen.counted}) for score in found]
        texts = [" ".join(prediction.words) for prediction in predictions]
        unknown = unknown_notes("", EncodedTexts.by(self.processor.tokenizer, texts))
        return scores, [*unseen.notes("tag"), *unknown]

    def records(
        self, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Tagged]
    ) -> Iterator[JsonMapping]:
        """Words, right tags, the prediction and how many of its tags are right."""
        for row, prediction in zip(rows, predictions, strict=True):
            tags = words_and_tags(row)[1]
            yield {
                "words": prediction.words,
                "tags": tags,
                "prediction": prediction.tags,
                "log_probs": prediction.log_probs,
                "correct": sum(a == b for a, b in zip(tags, prediction.tags, strict=True)),
            }

    def _unseen(self, rows: Sequence[LocatedRow[Row]]) -> Unseen:
        given = ((tag, row.where) for row in rows for tag in words_and_tags(row)[1])
        return Unseen.among(given, self.processor.tags, "tag")
