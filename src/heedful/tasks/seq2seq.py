"""Tasks that generate one text for one source: batches, validation, references, likelihood."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeInt
from torch import nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.links import ALIGNMENT
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.decoding.config import BeamConfig, BeamSettings, DecodingConfig, GreedyConfig
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.base import Model
from heedful.nn import layout
from heedful.recipes import schema
from heedful.tasks.base import PreparedData, Task
from heedful.tasks.evaluation import PredictedRows, perplexity
from heedful.tasks.generation.augmenting import Augmenter
from heedful.tasks.generation.reference_scores import GetSources, reference_forcing_gap
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat, Lengths, SequenceFormat
from heedful.tasks.generation.target_lengths import long_targets_note
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.translation import (
    Language,
    References,
    check_language,
    quick_scores,
    reference_notes,
)
from heedful.tasks.model_input import (
    PREFIX,
    SOURCE,
    TARGET,
    AnswerOptions,
    Axis,
    ModelInput,
    PredictionTargets,
    running_text_input,
    text_axis,
)
from heedful.tasks.prediction import Prediction, PredictOptions
from heedful.tasks.task_info import Columns
from heedful.tasks.text_scoring import TextScoring
from heedful.text.normalisation import Lowercase
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import EncodedTexts, Tokenizer
from heedful.training.loop import Validate
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.scheduled_sampling import DecayConfig, ScheduledSampling


class PairBatches:
    """Batches of sources and targets. A `Batches`.

    Args:
        sequence_format: how source and target are presented to the model.
        store: the ids.
        columns: those of source and target. If there is a column ``alignment``, training batches have its
            links (`heedful.tasks.generation.guidance`).
        augmenter: changes sources and targets in every epoch; None: nothing is changed.
        targets_only: whether the loss is that of the targets alone, as in validation.
    """

    def __init__(
        self,
        sequence_format: SequenceFormat,
        store: TokenStore,
        columns: tuple[str, str],
        augmenter: Augmenter | None = None,
        *,
        targets_only: bool = False,
    ) -> None:
        self.sequence_format, self.store, self.columns = sequence_format, store, columns
        self.augmenter, self.targets_only = augmenter, targets_only
        self.lengths = sequence_format.lengths(*(store.lengths(column) for column in columns))

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of some rows in some epoch."""
        rows = self.store.gather(samples)
        source, target = self.columns
        if self.targets_only:
            return self.sequence_format.collate_scored(rows[source], rows[target])
        if self.augmenter is not None:
            for column in self.columns:
                rows[column] = self.augmenter(column, rows[column], samples, epoch)
        batch = self.sequence_format.collate(rows[source], rows[target], samples)
        return batch.linked(rows[ALIGNMENT]) if ALIGNMENT in rows else batch


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
    """The language of what is written, for BLEU and TER.

    Args:
        forcing_gap: whether ``evaluate`` also reports how much better the references are predicted from
            correct prefixes than from the model's own (`heedful.tasks.metrics.forcing_gap`).
        language: selects the tokeniser of BLEU: Chinese (``zh``) has its own, as have Japanese and Korean
            (``pip install 'heedful[japanese]'`` or ``'heedful[korean]'``); Thai, Lao, Khmer, Burmese and
            Tibetan are split into characters. null: that of the references if their script has no spaces
            between words (characters for Japanese if its tokeniser is not installed), else sacreBLEU's
            ``13a``.
    """

    language: Language | None = None
    forcing_gap: bool = False


class ObjectiveConfig(schema.TokenObjectiveConfig):
    """Cross-entropy on the next token.

    Args:
        scheduled_sampling: in training, the decoder reads some of its own predictions in place of the
            reference, more and more of them; null: the reference alone (teacher forcing).
    """

    scheduled_sampling: DecayConfig | None = None


class Seq2SeqRecipe(schema.Recipe):
    """A recipe of such a task."""

    objective: ObjectiveConfig = ObjectiveConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = BeamConfig()
    evaluation: LanguageConfig = LanguageConfig()

    decoded_metrics: ClassVar[frozenset[str]] = frozenset({"bleu", "chrf"})

    def metric_names(self) -> set[str]:
        """What validation measures."""
        return super().metric_names() | (self.decoded_metrics if self.validation.decode != 0 else set())

    @property
    def sequence_format(self) -> SequenceFormat:
        """How source and target are presented to the model."""
        raise NotImplementedError

    @property
    def decodings(self) -> Mapping[str, DecodingConfig]:
        """All decoding settings of the run, by their keys."""
        if self.validation.decode == 0:
            return {"decoding": self.decoding}
        return {
            "decoding": self.decoding, "validation.decoding": self.validation.decoding or GreedyConfig()
        }  # fmt: skip

    @schema.check
    def _attends_for_coverage(self) -> None:
        """Check now, not after the training, that a coverage penalty has weights to sum."""
        for key, decoding in self.decodings.items():
            if not isinstance(decoding, BeamSettings) or not decoding.coverage:
                continue
            if getattr(self.model, "attention", True) is None:
                raise ValueError(
                    f"{key}.coverage={decoding.coverage:g} requires attention over the source, and "
                    f"model.attention is null; set {key}.coverage=0, or model.attention"
                )


# The task -----------------------------------------------------------------------------------------------


class Seq2SeqTask(Task, TextScoring):
    """A task that generates one text for one source, and is scored against references."""

    recipe: Seq2SeqRecipe

    sides: ClassVar[tuple[str, str]]
    """The columns of source and target."""

    @property
    @abstractmethod
    def lowercase(self) -> Lowercase:
        """Whether generated texts have no upper case, or by which rules; metrics then ignore case."""

    def augmenter(self) -> Augmenter | None:
        """Return what changes training batches in every epoch, for `batches`; None: nothing."""
        return None

    def validation_rows(self, data: PreparedData) -> Iterable[LocatedRow[Row]]:
        """Return the rows of which `validator` decodes and scores the first."""
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
        """Return notes on targets that decoding would cut, and on what makes BLEU wrong or not comparable."""
        lengths = (np.asarray(data.train.lengths(column)) for column in self.sides)
        note = long_targets_note(*self.in_tokens(*lengths), self.recipe.decoding.max_length)
        notes = [] if note is None else [note]
        if not self.keeps_rows:
            return notes
        references = (text for row in data.valid_rows for text in references_of(row.row, self.sides[1]))
        of_references = reference_notes(references, self.recipe.evaluation.language)
        return [*notes, *(f"data.valid: {note}" for note in of_references)]

    def in_tokens(self, sources: Lengths, targets: Lengths) -> tuple[Lengths, Lengths]:
        """Return the numbers of tokens of sources and targets, given those of their ids in the store."""
        return sources, targets

    def batches(self, store: TokenStore, *, training: bool) -> PairBatches:
        """Return batches of sources with their targets."""
        augmenter = self.augmenter() if training else None
        return PairBatches(
            self.recipe.sequence_format, store, self.sides, augmenter, targets_only=not training
        )

    def scheduled_sampling(self) -> ScheduledSampling | None:
        """Return the scheduled sampling of the recipe; special tokens are never read."""
        objective, seed = self.recipe.objective, self.recipe.training.seed
        if objective.scheduled_sampling is None:
            return None
        return ScheduledSampling(objective.scheduled_sampling, seed, range(len(SPECIALS)), objective.chunk)

    def forcing_gap(self, model: Model, get_sources: GetSources, references: EncodedTexts) -> list[Score]:
        """Return `heedful.tasks.metrics.forcing_gap` if the recipe asks for it, else no scores."""
        if not self.recipe.evaluation.forcing_gap:
            return []
        return reference_forcing_gap(model, self.recipe.sequence_format, get_sources, references)

    @property
    def scored(self) -> Columns:
        """Source and target."""
        return replace(self.columns, inputs=self.sides, optional_inputs=())

    def validation_metrics(self, terms: Mapping[str, float]) -> Mapping[str, float]:
        """Return loss and perplexity of the targets."""
        return {"loss": terms["token"], "perplexity": perplexity(terms["nll"])}

    def validator(self, data: PreparedData, module: ModelWithLoss) -> Validate:
        """Return a function that computes loss, perplexity and, if set, scores of generated texts."""
        validate_likelihood, settings = super().validator(data, module), self.recipe.validation
        if settings.decode == 0:
            return validate_likelihood
        rows = list(islice(self.validation_rows(data), settings.decode))
        source = self.sides[0]

        def validate(model: nn.Module) -> Mapping[str, float]:
            assert isinstance(model, Model)
            metrics = dict(validate_likelihood(model))
            options = PredictOptions(decoding=settings.decoding or GreedyConfig())
            predictor = self.predictor(Inference(model), options)
            predictions = predictor.predict([row.row[source] for row in rows])
            predicted = PredictedRows.readable("data.valid", rows, predictions, {}, drop=True)
            return {**metrics, **self.quick_scores(predicted.texts, self.references(predicted.rows))}

        return validate

    def references(self, rows: Sequence[LocatedRow[Row]]) -> References:
        """Return the texts that the answer to each row is scored against."""
        return [row.row[self.sides[1]] for row in rows]

    def quick_scores(self, texts: Sequence[str], references: References) -> dict[str, float]:
        """Return the scores of generated texts in validations: BLEU and chrF."""
        language = self.recipe.evaluation.language
        return quick_scores(texts, references, language=language, lowercase=self.lowercase)

    def answer_and_ids(
        self,
        tokenizer: Tokenizer,
        n_source: int,
        options: AnswerOptions,
        answer: Prediction,
    ) -> tuple[Prediction, list[int]]:
        """Return the answer, the predicted one or the target, and its ids.

        Raises:
            RequestError: if the target is too long for the model.
        """
        if options.target is None:
            return answer, list(answer.ids)
        ids = tokenizer.encode(options.target)
        limit = self.recipe.sequence_format.max_target_length(n_source)
        if limit is not None and len(ids) + 1 > limit:
            raise RequestError(f"the target must have at most {limit - 1} tokens, got {len(ids)}; shorten it")
        return options.given_answer(tokenizer, ids), ids

    def encoder_decoder_input(
        self,
        model: Model,
        source: layout.Ids,
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
        batch = self.recipe.sequence_format.collate_scored([source], [target])
        axes = {
            SOURCE: source_axis,
            TARGET: text_axis(tokenizer, [*target, SPECIALS.end]),
            PREFIX: text_axis(tokenizer, [SPECIALS.start, *target]),
        }
        targets = PredictionTargets.of_tokens(model, tokenizer, batch, TARGET, range(len(target) + 1))
        return ModelInput(batch, axes, answer, targets)

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

        The tokens of x are targets only if the model was trained to predict them. Source and target are
        axes too, for the part of the attention between them.

        Args:
            model: the model.
            tokenizers: of both.
            text: the source.
            source: its ids without special tokens.
            target: those of the target.
            answer: the answer with this target.
        """
        sequence_format, first_answer = self.recipe.sequence_format, len(source) + 2
        assert isinstance(sequence_format, ConcatenatedFormat)
        ids = [SPECIALS.start, *source, SPECIALS.separate, *target, SPECIALS.end][: sequence_format.context]
        first_question = first_answer if sequence_format.answers_only else 1
        model_input = running_text_input(model, tokenizers.target, ids, first_question, first_answer, answer)
        axes = {
            **model_input.axes,
            SOURCE: text_axis(tokenizers.source, [*source, SPECIALS.separate], [text]),
            TARGET: text_axis(tokenizers.target, [*target, SPECIALS.end]),
        }
        return replace(model_input, axes=axes)


# References ---------------------------------------------------------------------------------------------

REFERENCES = "references"
"""The column of a list of references, if a data set has several for an input."""


def references_of(row: Row, column: str) -> list[str]:
    """Return the references of a row, a list or one text; if it has none, its text in ``column``."""
    references = row.get(REFERENCES) or [row[column]]
    return [references] if isinstance(references, str) else references
