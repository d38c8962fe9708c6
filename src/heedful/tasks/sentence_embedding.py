"""Sentence embeddings: vectors of texts whose cosine similarity tells how similar the texts are.

row -> token ids of a text, its positive and perhaps a hard negative -> one batch -> model -> contrastive loss
text -> token ids -> hidden states -> pooled vector                       `heedful.tasks.embedding`
pair of texts -> two vectors -> cosine similarity -> prediction

A model reads each text alone (a bi-encoder); `heedful.objectives.contrastive` has the loss and its sources.
The positive of a text is the text in the column ``pair``, or the same text with another dropout mask (SimCSE,
unsupervised). Its negatives are the other positives of the micro-batch, and the texts in the column
``negative`` (hard negatives), if there is one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveFloat, model_validator
from torch import Tensor, nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.data.user_files import UserTable, reads_first, user_table
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.nn.layout import Ids
from heedful.objectives.contrastive import CONTRAST, unit_vectors
from heedful.objectives.registry import CONTRAST as CONTRASTIVE_LOSSES
from heedful.objectives.registry import Losses
from heedful.recipes import schema
from heedful.tasks.base import PreparedData, RowReader
from heedful.tasks.embedding import embed
from heedful.tasks.evaluation import Batches, PredictedRows, micro_batch_tokens
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.inputs.texts import (
    PAIR,
    TEXT,
    Template,
    TemplateLimit,
    encode_columns,
    encode_texts,
    join_notes,
    synthetic_ids,
    truncate,
    unknown_notes_by_column,
)
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.similarity import retrieval_ranks, retrieval_scores, similarity_scores
from heedful.tasks.model_input import (
    INPUT,
    AnswerOptions,
    ModelInput,
    PredictionTargets,
    ids_in,
    refuse_empty,
    text_axis,
    texts_in,
)
from heedful.tasks.prediction import (
    DEFAULT_OPTIONS,
    Prediction,
    PredictOptions,
    TaskInput,
    as_texts,
)
from heedful.tasks.regression import parse_target
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_task import AnyReader, TextRecipe, TextTask
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping

NEGATIVE, SIMILARITY = "negative", "similarity"

FEWEST = 16
"""Number of examples in a micro-batch below which a note says that there are few negatives."""

# Recipes ------------------------------------------------------------------------------------------------


class SentenceEmbeddingConfig(Config):
    """Vectors of texts, trained by contrast; the data have the columns ``text`` and ``pair``.

    If there is a column ``similarity`` of numbers, ``evaluate`` compares cosine similarities with them.

    Args:
        positives: the positive of a text: ``pairs``, the text in the column ``pair``, or ``dropout``, the
            same text with another dropout mask (the column ``pair`` is then only needed to evaluate).
        hard_negatives: whether training rows have a column ``negative``, a text that is similar to ``text``
            but is not a positive.
        min_similarity: of training and validation rows, only those with at least this number in the column
            ``similarity`` are positives, and others are dropped; null: all are positives.
    """

    kind: Literal["sentence-embedding"] = "sentence-embedding"
    positives: Literal["pairs", "dropout"] = "pairs"
    hard_negatives: bool = False
    min_similarity: float | None = None

    @model_validator(mode="after")
    def _has_pairs(self) -> "SentenceEmbeddingConfig":
        for key in ("hard_negatives", "min_similarity"):
            value = getattr(self, key)
            if self.positives == "dropout" and value is not None and value is not False:
                raise ValueError(
                    f"{key} is not supported with positives=dropout, which reads no pairs; remove it"
                )
        return self


class ObjectiveConfig(schema.ObjectiveConfig):
    """The contrastive loss.

    Args:
        loss: a name in `heedful.objectives.registry`: ``info-nce``.
        temperature: what cosine similarities are divided by; lower values stress the most similar negatives.
        symmetric: whether pairs are contrasted in both directions.
    """

    losses: ClassVar[Losses] = CONTRASTIVE_LOSSES

    loss: str = "info-nce"
    temperature: PositiveFloat = 0.05
    symmetric: bool = False


class SentenceEmbeddingRecipe(TextRecipe):
    """A whole recipe."""

    task: SentenceEmbeddingConfig
    model: AnyReader
    objective: ObjectiveConfig = ObjectiveConfig()

    scored_metrics: ClassVar[frozenset[str]] = frozenset({"pearson", "spearman", "accuracy@1", "mrr"})

    def metric_names(self) -> set[str]:
        """What validation measures: the mean contrastive loss, which depends on the size of micro-batches."""
        return {"loss"}

    @schema.check
    def _drops_something(self) -> None:
        sections = [
            self.model,
            *(part for layer in self.model.layers for part in (layer.mixer, layer.channels)),
        ]
        if self.task.positives == "dropout" and not any(
            getattr(section, "dropout", 0) for section in sections
        ):
            raise ValueError(
                "task.positives=dropout requires dropout, which makes the two vectors of a text different; "
                "set model.dropout=0.1"
            )


@dataclass(frozen=True, repr=False)
class SimilarityPrediction(Prediction):
    """The cosine similarity of two texts; ``text`` has four decimals, and ``score`` is unused.

    Args:
        value: the cosine similarity, from -1 to 1; NaN: both texts are empty.
        vectors: the vectors of both texts, of length 1, ``[2, d]``. Not part of JSON.
    """

    value: float = math.nan
    vectors: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((2, 0), dtype=np.float32), repr=False, compare=False
    )
    has_score: ClassVar[bool] = False

    @property
    def output(self) -> object:
        """The cosine similarity."""
        return self.value


# Batches ------------------------------------------------------------------------------------------------


class ContrastiveBatches:
    """Batches of texts with their positives and hard negatives; long texts are truncated. A `Batches`.

    Args:
        store: the ids.
        columns: of the texts of an example: the text, its positive (the same column for the same text), and
            the hard negative, if there is one.
        longest: maximum number of tokens of a text, including special tokens.
        template: the special tokens around a text.
    """

    def __init__(self, store: TokenStore, columns: Sequence[str], longest: int, template: Template) -> None:
        self.store, self.columns, self.longest, self.template = store, columns, longest, template
        n_specials = template.n_specials(1)
        lengths = (np.clip(store.lengths(column) + n_specials, 1, longest) for column in columns)
        self.lengths: Lengths = np.sum(list(lengths), axis=0)

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of some rows."""
        rows = self.store.gather(samples)
        return contrastive_batch([rows[c] for c in self.columns], self.longest, self.template, samples)


def contrastive_batch(
    columns: Sequence[Sequence[Ids]], longest: int, template: Template, samples: Sequence[int] = ()
) -> Batch:
    """Return a batch of the texts of all columns, one column after the other.

    Args:
        columns: of each, the ids of the texts of all examples.
        longest: maximum number of tokens of a text, including special tokens.
        template: the special tokens around a text.
        samples: the sample numbers of the examples.
    """
    texts = [ids for column in columns for ids in column]
    numbers: dict[bytes, int] = {}
    text_ids = [numbers.setdefault(np.asarray(ids, dtype=np.int64).tobytes(), len(numbers)) for ids in texts]
    batch = template([truncate([ids], longest, template) for ids in texts], samples)
    return replace(batch, text_ids=torch.tensor(text_ids, dtype=torch.int64).view(len(columns), -1).T)


# The task -----------------------------------------------------------------------------------------------


class SentenceEmbedding(TextTask):
    """Compute vectors of texts that are similar for similar texts."""

    Recipe = SentenceEmbeddingRecipe
    Processor = TextProcessor
    info = TaskInfo(
        unit="pairs",
        evaluation_verb="embedding",
        memory_advice="lower model.max_length (language models: model.context)",
        predicts_numbers=True,
    )
    target_column = None
    has_pooling = True
    validation_terms: ClassVar = {"loss": CONTRAST}

    recipe: SentenceEmbeddingRecipe

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The texts of a training row."""
        if self.recipe.task.positives == "dropout":
            return (TEXT,)
        return (TEXT, PAIR, NEGATIVE) if self.recipe.task.hard_negatives else (TEXT, PAIR)

    @property
    def columns(self) -> Columns:
        """The texts, and the similarity of a pair, if it is known."""
        texts, negative = self.text_columns[:2], self.text_columns[2:]
        return Columns(
            texts,
            (TEXT, PAIR),
            training=negative,
            extra=(PAIR, *negative, SIMILARITY),
            single_valued=(SIMILARITY,),
        )

    @property
    def embedded_columns(self) -> Columns:
        """One text, since each is read alone."""
        return replace(self.columns, inputs=(TEXT,))

    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> TextProcessor:
        """Return the tokenizer alone."""
        return TextProcessor(tokenizer)

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the texts of each row that is similar enough."""
        tokenizer, reads_negatives = self.processor.text, self.recipe.task.hard_negatives
        tokenizers = dict.fromkeys(self.columns.required, tokenizer)
        for row, ids in encode_columns(tokenizers, self._positives(rows, report)):
            if reads_negatives and NEGATIVE in row.row:  # validation rows need none
                (ids[NEGATIVE],) = encode_texts(tokenizer, [row.row[NEGATIVE]])
            yield LocatedRow(ids, row.location)

    def _positives(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[LocatedRow[Row]]:
        """Yield the rows that are similar enough, and count the others as dropped.

        Raises:
            DataError: a row has no similarity, or one that is not a number.
        """
        least = self.recipe.task.min_similarity
        for row in rows:
            if least is None:
                yield row
                continue
            if SIMILARITY not in row.row:
                raise DataError(
                    f"{row.location}: no column {SIMILARITY!r}, which task.min_similarity requires"
                )
            if parse_target(row, SIMILARITY) >= least:
                yield row
            else:
                report.rows += 1
                report.drop(f"similarity below {least:g}", row.location)

    def limits(self) -> Sequence[TemplateLimit]:
        """Return a limit for each text."""
        longest, template, key = self.recipe.model.longest, self.recipe.template, self.recipe.max_length_key
        return [TemplateLimit((column,), longest, template, key) for column in self.text_columns]

    @property
    def n_target_ids(self) -> int:
        """None: there are no targets."""
        return 0

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """Return no head: the pooled vector is the embedding."""
        return {}

    def unavailable_metrics(self, data: PreparedData) -> Mapping[str, str]:
        """Return scores for which the validation rows lack pairs, or similarities, or pairs without them."""
        rows = data.valid_rows
        if not rows:
            return {}
        if any(PAIR not in row.row for row in rows):
            reason = f"it requires the column {PAIR!r} in data.valid; add it"
            return dict.fromkeys(self.recipe.scored_metrics, reason)
        similarities = [parse_target(row, SIMILARITY) for row in rows if _has_similarity(row)]
        reasons: dict[str, str] = {}
        if len(set(similarities)) < 2:
            few = f"it requires different values in the column {SIMILARITY!r} of data.valid; add them"
            reasons |= dict.fromkeys(("pearson", "spearman"), few)
        if len(similarities) == len(rows):
            rated = (
                f"all rows of data.valid have a {SIMILARITY}, and retrieval is scored on the others; add some"
            )
            reasons |= dict.fromkeys(("accuracy@1", "mrr"), rated)
        return reasons

    def data_notes(self, data: PreparedData) -> Sequence[str]:
        """Note that there are few negatives, if micro-batches are small."""
        lengths = self.batches(data.train, training=True).lengths
        n = micro_batch_tokens(self.recipe) / max(1.0, float(np.mean(lengths)))
        if n >= FEWEST or n >= len(lengths):
            return ()
        return [
            f"a micro-batch has about {n:.0f} examples, so a text has few in-batch negatives; raise "
            "training.tokens_per_update, or lower training.accumulate"
        ]

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of texts with their positives, and in training with hard negatives."""
        columns = self.text_columns if training else self.text_columns[:2]
        if len(columns) == 1:
            columns *= 2  # the positive is the same text
        return ContrastiveBatches(store, columns, self.recipe.model.longest, self.recipe.template)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return random examples, whose texts have about ``length`` tokens together."""
        template, n_texts = self.recipe.template, max(2, len(self.text_columns))
        draw, n_specials = np.random.default_rng(0), template.n_specials(1)
        lengths = [length // n_texts + (i < length % n_texts) - n_specials for i in range(n_texts)]
        columns = [synthetic_ids(draw, sizes[0], n, max(0, n_tokens)) for n_tokens in lengths]
        return contrastive_batch(columns, self.recipe.model.longest, template)

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict the cosine similarity of each pair of texts."""
        texts = [text for task_input in inputs for text in as_texts(task_input)]
        embeddings = embed(model, self.embedding_inputs(texts))
        predictions: list[Prediction] = []
        for first, second in zip(embeddings[::2], embeddings[1::2], strict=True):
            vectors = np.stack([each.vector for each in (first, second) if each.vector is not None])
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            value = float(np.clip(vectors[0].astype(np.float64) @ vectors[1], -1, 1))
            notes, cut = join_notes(first.notes, second.notes), first.cut + second.cut
            predictions.append(
                SimilarityPrediction(f"{value:.4f}", notes=notes, cut=cut, value=value, vectors=vectors)
            )
        options.progress(len(inputs))
        return predictions

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare the first text of a pair; the answer is its similarity to the second."""
        options.refuse_target(self.recipe.task.kind, "the answer is a number")
        text, pair = texts_in(task_input, self.columns, self.recipe.task.kind)
        tokenizer, longest, template = self.processor.text, self.recipe.model.longest, self.recipe.template
        (ids,) = encode_texts(tokenizer, [text])
        refuse_empty(ids)
        batch = template([truncate([ids], longest, template)])
        (other,) = embed(model, self.embedding_inputs([pair]))

        def similarity(hidden: Tensor, batch: Batch) -> Tensor:
            vector = unit_vectors(hidden, model.heads, batch.inputs.layout)
            fixed = torch.as_tensor(other.vector, device=hidden.device)
            return vector @ nn.functional.normalize(fixed, dim=0)

        targets = PredictionTargets.of_number(similarity, answer.text)
        axes = {INPUT: text_axis(tokenizer, ids_in(batch), [text])}
        return ModelInput(batch, axes, answer, targets)

    def source_from(self, files: Sequence[Path]) -> UserTable:
        """Return a table of pairs, with the column ``similarity`` if the file has it.

        Raises:
            RequestError: if it is not one file.
        """
        like = self.recipe.data.train
        if len(files) == 1:
            with suppress(DataError):
                source = user_table(files[0], (TEXT, PAIR, SIMILARITY), like=like)
                if SIMILARITY in getattr(source, "columns", ()) and reads_first(source):
                    return source
            return user_table(files[0], (TEXT, PAIR), like=like)
        return super().source_from(files)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that every row has a pair, and that similarities are numbers."""
        for row in rows:
            if PAIR not in row.row:
                raise DataError(f"{row.location}: no column {PAIR!r}, which the evaluation of pairs requires")
            if _has_similarity(row):
                parse_target(row, SIMILARITY)

    def metrics(
        self, model: Model, predicted: PredictedRows[SimilarityPrediction]
    ) -> tuple[list[Score], list[str]]:
        """Return correlations of rows with a similarity, and retrieval scores of the other rows."""
        scores: list[Score] = []
        rated = [(row, p) for row, p in predicted if _has_similarity(row)]
        pairs = [(row.row, p) for row, p in predicted if not _has_similarity(row)]
        if rated:
            given = [parse_target(row, SIMILARITY) for row, _ in rated]
            scores += similarity_scores([p.value for _, p in rated], given)
        if pairs:
            scores += retrieval_scores(*_queries(pairs))
        texts = [{column: str(row.row[column]) for column in (TEXT, PAIR)} for row in predicted.rows]
        return scores, unknown_notes_by_column(self.processor.text, texts)

    def compared(self, predicted: PredictedRows[SimilarityPrediction]) -> Iterator[JsonMapping]:
        """Yield the given similarity of each row, or the rank of its pair among those of all rows."""
        pairs = [(row.row, p) for row, p in predicted if not _has_similarity(row)]
        ranks = iter(retrieval_ranks(*_queries(pairs)).tolist() if pairs else ())
        for row in predicted.rows:
            if _has_similarity(row):
                yield {"target": parse_target(row, SIMILARITY)}
            else:
                yield {"scores": {"rank": next(ranks)}}


def _has_similarity(row: LocatedRow[Row]) -> bool:
    return bool(str(row.row.get(SIMILARITY, "")).strip())


def _queries(
    pairs: Sequence[tuple[Row, SimilarityPrediction]],
) -> tuple[list[str], NDArray[np.float32], list[str], NDArray[np.float32]]:
    """Return texts, their vectors, the texts of their pairs, and the vectors of these."""
    vectors = np.stack([prediction.vectors for _, prediction in pairs])
    return [row[TEXT] for row, _ in pairs], vectors[:, 0], [row[PAIR] for row, _ in pairs], vectors[:, 1]
