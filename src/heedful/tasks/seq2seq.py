"""What tasks share that generate one text for one source: batches, validation, references, likelihood."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import NonNegativeInt

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.links import ALIGNMENT
from heedful.data.plan import in_order
from heedful.data.sources import Row
from heedful.data.store import Ids, TokenStore
from heedful.decoding.config import BeamConfig, DecodingConfig, GreedyConfig
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.base import Model
from heedful.recipes import schema
from heedful.tasks.base import PreparedData, Task
from heedful.tasks.forced import forced
from heedful.tasks.grouping import longest_first
from heedful.tasks.metrics.likelihood import Likelihood
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.translation import Language, check_language, quick_scores, reference_notes
from heedful.tasks.model_input import (
    PREFIX,
    SOURCE,
    TARGET,
    AnswerOptions,
    Axis,
    ModelInput,
    Questions,
    running_text_input,
    text_axis,
)
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import ConcatenatedFormat, SequenceFormat
from heedful.tasks.source_target import Tokenizers
from heedful.tasks.validation import means, micro_batch
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import EncodedTexts, Tokenizer
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.update import PlannedData
from heedful.typing import JsonObject

Vary = Callable[[str, Sequence[Ids], Sequence[int], int], list[Ids]]
"""(column, ids of samples, their numbers, epoch) -> other ids of the same texts, or of changed images."""


class Pairs:
    """Batches of a store.

    Args:
        pairing: how source and target are presented to the model.
        store: the ids.
        columns: those of source and target. If there is a column ``alignment``, training batches have its
            links (`heedful.tasks.linking`).
        vary: changes sources and targets of training batches anew in every epoch; None: nothing.
    """

    def __init__(
        self, pairing: SequenceFormat, store: TokenStore, columns: tuple[str, str], vary: Vary | None = None
    ) -> None:
        self.pairing, self.store, self.columns, self.vary = pairing, store, columns, vary
        self.lengths = pairing.lengths(*(store.lengths(column) for column in columns))

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """A training batch."""
        rows = self.store.gather(samples)
        source, target = self.columns
        if self.vary is not None:
            for column in self.columns:
                rows[column] = self.vary(column, rows[column], samples, epoch)
        batch = self.pairing.collate(rows[source], rows[target], samples)
        return batch.linked(rows[ALIGNMENT]) if ALIGNMENT in rows else batch

    def scored(self, samples: Sequence[int]) -> Batch:
        """A batch whose loss is that of the targets alone."""
        rows = self.store.gather(samples)
        source, target = self.columns
        return self.pairing.scored(rows[source], rows[target])


# Recipes ------------------------------------------------------------------------------------------------


class ValidationConfig(Config):
    """What a validation measures besides loss and perplexity.

    Args:
        decode: of how many validation sentences to compute BLEU and chrF (0: none; null: all).
        decoding: how; greedy by default, for it is fast.
    """

    decode: NonNegativeInt | None = 0
    decoding: DecodingConfig | None = None


class LanguageConfig(schema.EvaluationConfig):
    """The language of what is written, for BLEU.

    Args:
        language: if words are not separated by spaces, or hardly (Korean): sacreBLEU splits Chinese (``zh``),
            Thai, Lao, Khmer, Burmese and Tibetan into characters, Japanese and Korean by a tokeniser that has
            to be installed with it (``pip install 'sacrebleu[ja]'`` or ``'sacrebleu[ko]'``).
    """

    language: Language | None = None


class Seq2SeqRecipe(schema.Recipe):
    """A recipe of such a task."""

    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = BeamConfig()
    evaluation: LanguageConfig = LanguageConfig()

    decoded_metrics: ClassVar[frozenset[str]] = frozenset({"bleu", "chrf"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return super().metrics() | (self.decoded_metrics if self.validation.decode != 0 else set())

    @property
    def pairing(self) -> SequenceFormat:
        """How source and target are presented to the model."""
        raise NotImplementedError


# The task -----------------------------------------------------------------------------------------------


class Seq2SeqTask(Task):
    """A task that generates one text for one source, and is scored against references."""

    recipe: Seq2SeqRecipe

    sides: ClassVar[tuple[str, str]]
    """The columns of source and target."""

    @property
    @abstractmethod
    def lowercase(self) -> bool:
        """Whether the texts that are generated have no upper case."""

    def vary(self) -> Vary | None:
        """What changes training batches anew in every epoch; None: nothing."""
        return None

    def validation_rows(self, data: PreparedData) -> list[Row]:
        """The rows that validation decodes and scores."""
        return data.valid_rows

    @property
    def keeps_rows(self) -> bool:
        """Whether validations decode, and need the references."""
        return bool(self.recipe.validation.decode != 0)

    def check_requirements(self) -> None:
        """Check that validations can compute BLEU.

        Raises:
            RequestError: if the tokeniser of ``evaluation.language`` is not installed.
        """
        if self.keeps_rows:
            check_language(self.recipe.evaluation.language)

    def data_notes(self, data: PreparedData) -> Sequence[str]:
        """What makes BLEU at validations wrong or not comparable."""
        if not self.keeps_rows:
            return []
        references = (text for row in data.valid_rows for text in references_of(row, self.sides[1]))
        return [
            f"data.valid: {note}" for note in reference_notes(references, self.recipe.evaluation.language)
        ]

    def training_data(self, data: PreparedData) -> PlannedData:
        """Pairs of similar lengths."""
        pairs, training = (
            Pairs(self.recipe.pairing, data.train, self.sides, self.vary()),
            self.recipe.training,
        )
        return PlannedData(pairs.lengths, pairs, training.tokens_per_update, training.seed)

    def validator(self, data: PreparedData, module: ModelWithLoss) -> "Validator":
        """Loss and perplexity and, if the recipe asks for it, BLEU and chrF."""
        return Validator(self, data, module)

    def answer_and_ids(
        self,
        tokenizer: Tokenizer,
        n_source: int,
        options: AnswerOptions,
        predict: Callable[..., Prediction],
    ) -> tuple[Prediction, list[int]]:
        """Return the answer, predicted or given, and its ids.

        Raises:
            RequestError: if the target is too long for the model.
        """
        if options.target is None:
            answer = predict()
            return answer, list(answer.ids)
        ids = tokenizer.encode(options.target)
        room = self.recipe.pairing.room(n_source)
        if room is not None and len(ids) + 1 > room:
            raise RequestError(f"the target must have at most {room - 1} tokens, got {len(ids)}; shorten it")
        return options.given_answer(tokenizer, ids), ids

    def encoder_decoder_input(
        self,
        model: Model,
        source: Any,
        source_axis: Axis,
        tokenizer: Tokenizer,
        target: Sequence[int],
        answer: Prediction,
    ) -> ModelInput:
        """Return the input of an encoder-decoder model.

        Args:
            model: the model.
            source: in the form of the sequence format: ids, or pixels in a row.
            source_axis: the axis of the source.
            tokenizer: of the target.
            target: ids without special tokens.
            answer: the answer with this target.
        """
        batch = self.recipe.pairing.scored([source], [target])
        axes = {
            SOURCE: source_axis,
            TARGET: text_axis(tokenizer, [*target, SPECIALS.end]),
            PREFIX: text_axis(tokenizer, [SPECIALS.start, *target]),
        }
        questions = Questions.of_tokens(model, tokenizer, batch, TARGET, range(len(target) + 1))
        return ModelInput(batch, axes, answer, questions)

    def concatenated_input(
        self,
        model: Model,
        tokenizers: Tokenizers,
        text: str,
        source: Sequence[int],
        target: Sequence[int],
        answer: Prediction,
    ) -> ModelInput:
        """Return the input ``<s> x <sep> y </s>`` of a language model; the end token only if there is room.

        The tokens of x are questions only if the model was trained to predict them. Source and target are
        axes too, for the part of the attention between them.

        Args:
            model: the model.
            tokenizers: of both.
            text: the source.
            source: its ids without special tokens.
            target: those of the target.
            answer: the answer with this target.
        """
        pairing, first_answer = self.recipe.pairing, len(source) + 2
        assert isinstance(pairing, ConcatenatedFormat)
        ids = [SPECIALS.start, *source, SPECIALS.separate, *target, SPECIALS.end][: pairing.context]
        first = first_answer if pairing.answers_only else 1
        made = running_text_input(model, tokenizers.target, ids, first, first_answer, answer)
        axes = {
            **made.axes,
            SOURCE: text_axis(tokenizers.source, [*source, SPECIALS.separate], [text]),
            TARGET: text_axis(tokenizers.target, [*target, SPECIALS.end]),
        }
        return replace(made, axes=axes)

    def quick_scores(self, texts: Sequence[str], references: Sequence[Any]) -> Mapping[str, float]:
        """BLEU and chrF of generated texts."""
        language = self.recipe.evaluation.language
        return quick_scores(texts, references, language=language, lowercase=self.lowercase)


class Validator:
    """Loss and perplexity on the validation data and, if asked for, BLEU and chrF of generated texts.

    Args:
        task: of the run.
        data: its data.
        module: runs the model and its objective.
    """

    def __init__(self, task: Seq2SeqTask, data: PreparedData, module: ModelWithLoss) -> None:
        recipe = task.recipe
        self.task, self.module, self.settings = task, module, recipe.validation
        self.rows = task.validation_rows(data)
        self.pairs = Pairs(recipe.pairing, data.valid, task.sides)
        self.batches = in_order(self.pairs.lengths, micro_batch(recipe))

    def __call__(self, model: Any) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        return {**self._likelihood(), **self._generated(model)}

    def _likelihood(self) -> dict[str, float]:
        found = means(self.module, (self.pairs.scored(samples.tolist()) for samples in self.batches))
        return {"loss": found["token"], "perplexity": math.exp(min(found["nll"], 700.0))}

    def _generated(self, model: Model) -> Mapping[str, float]:
        if self.settings.decode == 0:
            return {}
        rows = self.rows[: self.settings.decode]
        source, target = self.task.sides
        decoding = self.settings.decoding or GreedyConfig()
        predictions = self.task.predictor(model, decoding, Inference(model)).predict(
            [r[source] for r in rows]
        )
        read = [(p.text, row[target]) for p, row in zip(predictions, rows, strict=True) if p.error is None]
        return self.task.quick_scores([text for text, _ in read], [reference for _, reference in read])


# References and likelihood ------------------------------------------------------------------------------

REFERENCES = "references"
"""The column of a list of references, if a data set has several for an input."""


def references_of(row: Row, column: str) -> list[str]:
    """The list of references that a row has, or its one text in ``column``."""
    return row.get(REFERENCES) or [row[column]]


def reference_record(references: Sequence[str]) -> JsonObject:
    """The references in the record of an input."""
    return {"reference": references[0]} if len(references) == 1 else {REFERENCES: references}


FORCED_BATCH = 64

TOKENS = 8192
"""Of sources and targets that are read at one time, if one pair has not more."""


def likelihood_of(
    model: Model,
    pairing: SequenceFormat,
    read: Callable[[Sequence[int]], list[Any]],
    references: EncodedTexts,
    of_sources: str = "",
) -> list[Score]:
    """Perplexity of the references, per token of the run's own vocabulary.

    A language model that was trained to predict the sources too (``loss_on: all``) also gets theirs: the
    difference between the two is what it takes from its context.

    Bytes are counted if the ids of all references spell them; the likelihood of another text (shorter, or in
    lower case) is not one of these bytes.

    References for which the model has no positions are left out; the counts of the scores report how many
    were scored.

    Args:
        model: of the run.
        pairing: how a source and its reference are presented to it.
        read: returns the sources of some references, by their numbers, as the pairing reads them.
        references: what is predicted.
        of_sources: the fingerprint of the sources' tokenizer, if they are texts.
    """
    texts, wanted, tokenizer = references.texts, references.ids, references.tokenizer
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found: list[tuple[Likelihood, Likelihood | None]] = []
    spells = tokenizer.spells(wanted)
    for start in range(0, len(order), FORCED_BATCH):
        part = order[start : start + FORCED_BATCH]
        lengths = [len(texts[i].encode()) if spells else 0 for i in part]
        found += _predicted(model, pairing, read(part), [wanted[i] for i in part], lengths)
    scores = _summed([target for target, _ in found], tokenizer.fingerprint, "")
    return scores + _summed([source for _, source in found if source], of_sources, "source ")


def _predicted(
    model: Model,
    pairing: SequenceFormat,
    sources: Sequence[Any],
    wanted: Sequence[list[int]],
    n_bytes: Sequence[int],
) -> Iterator[tuple[Likelihood, Likelihood | None]]:
    """Of each target that fits; and of its source with the separator, if asked for."""
    rooms = [pairing.room(len(source)) for source in sources]
    fit = [
        k for k, (ids, room) in enumerate(zip(wanted, rooms, strict=True)) if room is None or len(ids) < room
    ]
    lengths = np.array([[len(sources[k]), len(wanted[k])] for k in fit]).reshape(-1, 2)
    tokens = pairing.lengths(lengths[:, 0], lengths[:, 1]).sum(axis=1).tolist()
    for group in longest_first(dict(zip(fit, tokens, strict=True)), TOKENS):
        with torch.inference_mode():
            batch = pairing.collate([sources[k] for k in group], [wanted[k] for k in group])
            results = forced(model, batch.to(next(model.parameters()).device))
        for k, result in zip(group, results, strict=True):
            log_probs = result.log_probs.double()
            cut = len(log_probs) - len(wanted[k]) - 1
            first, second = -float(log_probs[:cut].sum()), -float(log_probs[cut:].sum())
            target = Likelihood(second, len(wanted[k]) + 1, n_bytes[k])
            yield target, Likelihood(first, cut, 0) if cut else None


def _summed(parts: Sequence[Likelihood], fingerprint: str, name: str) -> list[Score]:
    """The scores of all together, with ``name`` before their names."""
    if not parts:
        return []
    scores = reduce(add, parts).scores(fingerprint[:12]).values()
    return [
        replace(score, name=f"{name}{score.name}", counts={**score.counts, "sentences": len(parts)})
        for score in scores
    ]


def left_out_notes(scores: Sequence[Score], n: int) -> list[str]:
    """How many of ``n`` references these likelihoods leave out, if any."""
    left = n - max((score.counts.get("sentences", 0) for score in scores), default=0)
    return [f"not in the perplexity, longer than the model reads: {left:,} of {n:,}"] if left else []
