"""Masked language modelling: hidden tokens of running text are predicted, and masks in texts are filled.

text -> token ids, documents end to end -> windows with hidden tokens -> model -> loss    `MaskedBatches`
text with masks -> token ids -> hidden states -> ids for the masks -> text                `MaskFiller`
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.masking import Masking, SpanLengths
from heedful.data.plan import in_order
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.data.text import TEXT
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.encoder import EncoderConfig, class_head
from heedful.models.registry import build_model
from heedful.models.sections import ACTIVATIONS
from heedful.nn.modes import evaluating
from heedful.nn.output import STD, BoundaryHead, MaskedHead
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.objectives.cross_entropy import SpanBoundary
from heedful.objectives.registry import MASKED_TOKEN, Losses
from heedful.objectives.terms import CombinedObjective, Objective
from heedful.recipes import schema
from heedful.tasks.base import PreparedData, RowReader
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import Evaluation, EvaluationOptions, Predict, perplexity
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, PAIR, counted_notes
from heedful.tasks.masked_language_modelling.masking import (
    WITHOUT_WORDS,
    MaskedBatches,
    MaskFiller,
    input_tokens,
    word_beginnings,
)
from heedful.tasks.masked_language_modelling.pseudo_likelihood import pseudo_log_probs
from heedful.tasks.metrics.score import Score
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
    BATCH_TOKENS,
    DEFAULT_OPTIONS,
    EMPTY,
    Prediction,
    PredictOptions,
    Progress,
    TaskInput,
    TaskPredictor,
    as_text,
)
from heedful.tasks.running_text import RunningTextRecipe, RunningTextTask, rows_in_proportion
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_scoring import TextScoring, scored_prediction
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.typing import JsonMapping

# Recipes ------------------------------------------------------------------------------------------------


class MaskedLanguageModellingConfig(Config):
    """Predict hidden tokens of running text; the data have the column ``text``.

    Args:
        next_sentence: whether the model also learns to distinguish the continuation of a text from text of
            another document.
    """

    kind: Literal["masked-language-modelling"] = "masked-language-modelling"
    next_sentence: bool = False


class ObjectiveConfig(schema.VocabularyObjectiveConfig):
    """What is hidden, and how (Devlin et al. 2019, section 3.1; spans: Joshi et al. 2020).

    Args:
        rate: the share of the tokens that is chosen; S1 says "up to 15 %".
        masked: of these, the share that becomes the mask.
        random: of these, the share that becomes any token; the rest stays as it is.
        hide: single ``tokens``, whole ``words``, or ``spans`` of words.
        span_p: of the geometric law of the spans' lengths in words.
        longest_span: the most words of a span.
        boundary: of spans, whether they are also predicted from the tokens next to them.
    """

    losses: ClassVar[Losses] = MASKED_TOKEN

    rate: float = Field(default=0.15, gt=0, lt=1)
    masked: float = Field(default=0.8, ge=0, le=1)
    random: float = Field(default=0.1, ge=0, le=1)
    hide: Literal["tokens", "words", "spans"] = "tokens"
    span_p: float = Field(default=0.2, gt=0, lt=1)
    longest_span: PositiveInt = 10
    boundary: bool = False

    @model_validator(mode="after")
    def _shares(self) -> "ObjectiveConfig":
        if self.masked + self.random > 1:
            raise ValueError(f"masked={self.masked} and random={self.random} must not add up to more than 1")
        if self.boundary and self.hide != "spans":
            raise ValueError("boundary=true requires hide=spans")
        return self

    @property
    def spans(self) -> SpanLengths | None:
        """The law of the spans' lengths, where spans are hidden."""
        return SpanLengths(self.span_p, self.longest_span) if self.hide == "spans" else None


class MaskedLanguageModellingRecipe(RunningTextRecipe):
    """A whole recipe."""

    task: MaskedLanguageModellingConfig
    data: schema.DataConfig
    model: EncoderConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    validation: schema.NoValidationConfig = schema.NoValidationConfig()
    decoding: schema.NoDecodingConfig | None = None
    evaluation: schema.NoEvaluationConfig = schema.NoEvaluationConfig()

    @schema.check
    def _has_words_to_hide(self) -> None:
        hide, kind = self.objective.hide, self.tokenizer.subwords.kind
        if hide != "tokens" and kind in WITHOUT_WORDS:
            raise ValueError(
                f"objective.hide={hide} requires tokens that show where words begin, but "
                f"tokenizer.subwords.kind={kind} has none; set objective.hide=tokens, or use subwords"
            )

    @schema.check
    def _fits_a_text(self) -> None:
        fewest = 4 + self.task.next_sentence
        if self.model.max_length < fewest:
            raise ValueError(f"model.max_length={self.model.max_length} must be at least {fewest}")
        if self.task.next_sentence and self.model.segments < 2:
            raise ValueError("task.next_sentence requires model.segments=2 (one for each text of a pair)")
        self.model.check_combination(is_tied=self.model.tie)


# The task -----------------------------------------------------------------------------------------------


class MaskedLanguageModelling(RunningTextTask, TextScoring):
    """Predict hidden tokens of running text, and fill masks."""

    Recipe = MaskedLanguageModellingRecipe
    info = TaskInfo(
        unit="tokens",
        evaluation_verb="filling in",
        memory_advice="lower model.max_length",
        options=("n_best", "gap"),
    )

    recipe: MaskedLanguageModellingRecipe

    @property
    def columns(self) -> Columns:
        """The text; an input is a text with masks, or two if the model has segments."""
        pair = (PAIR,) if self.recipe.model.segments > 1 else ()
        return Columns((TEXT,), (TEXT,), optional_inputs=pair, running_text=True)

    def make_processor(self, read_rows: RowReader) -> TextProcessor:
        """Train a tokenizer on all documents; check that it shows words, if words are hidden."""
        processor = super().make_processor(read_rows)
        _masking(self.recipe, processor)
        return processor

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of all documents."""
        yield from super().encode(rows, report)
        if report.columns[TEXT].tokens < 2:
            raise DataError("the text must have at least two tokens")

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build an encoder, with heads for masked tokens and the other losses of the recipe."""
        recipe, sizes = self.recipe, self.processor.sizes if sizes is None else sizes
        encoder = build_model(recipe.model, *sizes)
        layer, table = recipe.model.layer, encoder.get_parameter("embedding.weight")
        # Custom modules may have no ε and no activation; then they are those of BERT.
        eps, activation = getattr(layer.norm, "eps", 1e-12), getattr(layer.channels, "activation", "gelu")
        if not recipe.model.tie:
            table = nn.Parameter(nn.init.normal_(torch.empty(len(table), recipe.model.d_model), std=STD))
        encoder.heads["token"] = MaskedHead(table, ACTIVATIONS[activation](), eps)
        if recipe.objective.boundary:
            encoder.heads["boundary"] = BoundaryHead(table, recipe.objective.longest_span, eps)
        if recipe.task.next_sentence:
            encoder.heads["next"] = class_head(recipe.model.d_model, 2, recipe.model.dropout)
        return encoder

    def objective(self) -> Objective:
        """Return the loss of masked tokens and, if set, those of span boundaries and next sentences."""
        recipe = self.recipe
        parts = [recipe.objective.make()]
        if recipe.objective.boundary:
            parts.append(SpanBoundary(recipe.objective.chunk))
        if recipe.task.next_sentence:
            parts.append(SequenceClass(head="next"))
        return CombinedObjective(*parts)

    def check_data(self, data: PreparedData) -> None:
        """Check that both sets have tokens to mask; special tokens, also unknown ones, are never masked."""
        for part, store in (("train", data.train), ("valid", data.valid)):
            if (store.stream(TEXT) < len(SPECIALS)).all():
                raise DataError(
                    f"data.{part}: the tokenizer knows no token of the text, so none can be masked; lower "
                    "tokenizer.subwords.min_frequency, or give more text"
                )

    def batches(self, store: TokenStore, *, training: bool) -> MaskedBatches:
        """Return batches of windows; in training, other tokens are masked in every epoch."""
        seed = self.recipe.training.seed if training else 0
        return masked_batches(self.recipe, self.processor, store.stream(TEXT), seed=seed)

    def validation_metrics(self, terms: Mapping[str, float]) -> Mapping[str, float]:
        """Return loss and perplexity of masked tokens."""
        loss = sum(terms[name] for name in ("token", "boundary", "next") if name in terms)
        return {"loss": loss, "perplexity": perplexity(terms["nll"])}

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return windows of maximum length; the beginnings of words are random, too."""
        recipe, draw = self.recipe, np.random.default_rng(0)
        ids = draw.integers(len(SPECIALS), sizes[0], n * recipe.model.max_length)
        masking = _build_masking(recipe, sizes[0], draw.random(sizes[0]) < 0.7)
        signs = SentenceSigns.synthetic(sizes[0]) if recipe.task.next_sentence else None
        batches = MaskedBatches(ids, recipe.model.max_length, masking, signs=signs, seed=0)
        return batches(range(n), 0)

    def predictor(self, inference: Inference, options: PredictOptions = DEFAULT_OPTIONS) -> TaskPredictor:
        """Return a predictor that fills masks; the `MaskFiller` is made once, not in every call."""
        filler = self._filler(inference.ready(), options)
        return TaskPredictor(self.recipe.task.kind, evaluating(inference.model)(filler.predict), options)

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Fill the masks of each input, a text or a pair; see `MaskFiller`."""
        return self._filler(model, options).predict(inputs)

    def _filler(self, model: Model, options: PredictOptions = DEFAULT_OPTIONS) -> MaskFiller:
        longest = self.recipe.model.max_length
        return MaskFiller(model, self.processor.text, longest=longest, options=options)

    @property
    def scored(self) -> Columns:
        """A text."""
        return Columns((TEXT,), (TEXT,), running_text=True)

    def score(self, model: Model, inputs: Sequence[TaskInput], progress: Progress) -> list[Prediction]:
        """Return the pseudo-log-likelihood of texts (`pseudo_log_probs`); the class token is before each."""
        tokenizer, predictions = self.processor.text, []
        for text in map(as_text, inputs):
            ids = tokenizer.encode(text)
            (log_probs,) = pseudo_log_probs(model, [ids], self.recipe.model.max_length)
            predictions.append(scored_prediction(tokenizer, text, ids, log_probs, () if ids else (EMPTY,)))
            progress(1)
        return predictions

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a text or pair with masks; the axis shows the mask tokens, not the predicted ones."""
        options.refuse_target(self.recipe.task.kind, "replace the masks in the input by words")
        tokenizer = self.processor.text
        masked = self._filler(model).masked(texts_in(task_input, self.columns, self.recipe.task.kind))
        refuse_empty(*masked.texts)
        inputs = input_tokens([masked])
        positions = (inputs.ids == SPECIALS.mask).nonzero().flatten()
        batch = Batch(inputs, torch.tensor(answer.ids, dtype=torch.int64), rows=positions)
        targets = PredictionTargets.of_tokens(model, tokenizer, batch, INPUT, positions.tolist())
        return ModelInput(batch, {INPUT: text_axis(tokenizer, ids_in(batch))}, answer, targets)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return texts or pairs between special tokens; long ones are truncated."""
        longest = self.recipe.model.max_length
        return EmbeddingInputs.of_texts(self.processor.text, inputs, CLASS_TEMPLATE, longest)

    @torch.inference_mode()
    def evaluate(
        self,
        model: Model,
        predict: Predict,
        split: str,
        rows: Iterator[LocatedRow[Row]],
        options: EvaluationOptions,
    ) -> Evaluation:
        """Hide tokens as in training, always the same ones, and score how well they are predicted.

        From their own hidden states (perplexity and accuracy) and, if the model learned it, from those beside
        their span (boundary perplexity); and how often a pair is correctly classified as continuous or not.

        Raises:
            DataError: if there is no text, or no token that can be hidden.
        """
        ids, report = self.stream(split, islice(rows, options.limit))
        batches = masked_batches(self.recipe, self.processor, ids, seed=0)
        progress = rows_in_proportion(options.progress, report.rows, len(batches.lengths))
        counts = self._counts(model, batches, progress)
        if not counts["tokens"]:
            raise DataError(f"{split}: no token can be hidden: all are unknown to the tokenizer")
        notes = counted_notes(self.processor.text, "", report.columns[TEXT])
        return Evaluation(split, self._scores(counts, batches), notes=notes)

    def _counts(self, model: Model, batches: MaskedBatches, progress: Progress) -> dict[str, float]:
        """Return sums over all batches: tokens and pairs, correct predictions, and nats."""
        counts: Counter[str] = Counter()
        nats = {"nats": 0.0, "boundary nats": 0.0}
        device = next(model.parameters()).device
        for samples in in_order(batches.lengths, BATCH_TOKENS):
            batch = batches(samples.tolist(), 0).to(device)
            hidden = model(batch.inputs)
            log_probs = model.heads["token"](batch.picked(hidden)).float().log_softmax(-1)
            nats["nats"] -= log_probs.gather(1, batch.targets[:, None]).double().sum().item()
            counts["right"] += int((log_probs.argmax(-1) == batch.targets).sum())
            counts["tokens"] += len(batch.targets)
            if "boundary" in model.heads:
                (boundary,) = SpanBoundary(self.recipe.objective.chunk)(hidden, model.heads, batch)
                nats["boundary nats"] += boundary.sum.double().item()
                counts["boundary tokens"] += boundary.count
            if batch.classes is not None:
                logits = class_logits(hidden, model.heads, batch.inputs.layout, "next")
                counts["next right"] += int((logits.argmax(-1) == batch.classes).sum())
                counts["pairs"] += len(batch.classes)
            progress(len(samples))
        return {**dict.fromkeys(("tokens", "boundary tokens", "pairs"), 0), **counts, **nats}

    def _scores(self, counts: JsonMapping, batches: MaskedBatches) -> list[Score]:
        signature = _signature(self.recipe, batches)
        tokenizer_signature = f"{signature}|tok:{self.processor.fingerprint[:12]}"
        n = counts["tokens"]
        scores = [
            Score(
                "masked perplexity", perplexity(counts["nats"] / n), tokenizer_signature, {}, {"tokens": n}
            ),
            Score("masked accuracy", counts["right"] / n, signature, {}, {"tokens": n}),
        ]
        if n := counts["boundary tokens"]:
            value = perplexity(counts["boundary nats"] / n)
            scores.append(Score("boundary perplexity", value, tokenizer_signature, {}, {"tokens": n}))
        if n := counts["pairs"]:
            accuracy = counts["next right"] / n
            scores.append(Score("next-sentence accuracy", accuracy, signature, {}, {"pairs": n}))
        return scores


def masked_batches(
    recipe: MaskedLanguageModellingRecipe, processor: TextProcessor, ids: NDArray[np.integer], *, seed: int
) -> MaskedBatches:
    """Return the batches of a stream of ids, with the masking of the recipe."""
    signs = SentenceSigns.of(processor.text) if recipe.task.next_sentence else None
    return MaskedBatches(ids, recipe.model.max_length, _masking(recipe, processor), signs=signs, seed=seed)


def _masking(recipe: MaskedLanguageModellingRecipe, processor: TextProcessor) -> Masking:
    if (hide := recipe.objective.hide) == "tokens":
        return _build_masking(recipe, processor.text.vocab_size, None)
    try:
        words = word_beginnings(processor.text)
    except RequestError as error:
        raise RequestError(f"objective.hide={hide}: {error}") from None
    return _build_masking(recipe, processor.text.vocab_size, words)


def _build_masking(
    recipe: MaskedLanguageModellingRecipe, vocab_size: int, words: NDArray[np.bool_] | None
) -> Masking:
    settings = recipe.objective
    return Masking(
        mask=SPECIALS.mask,
        first=len(SPECIALS),
        last=vocab_size,
        rate=settings.rate,
        masked=settings.masked,
        random=settings.random,
        begins_word=None if settings.hide == "tokens" else words,
        spans=settings.spans,
    )


def _signature(recipe: MaskedLanguageModellingRecipe, batches: MaskedBatches) -> str:
    """Return the settings of the masking, for signatures."""
    settings = recipe.objective
    signature = f"hide:{settings.hide}"
    if settings.spans is not None:
        signature += f"|span_p:{settings.span_p}|longest_span:{settings.longest_span}"
    return (
        f"{signature}|rate:{settings.rate}|length:{recipe.model.max_length}|seed:0{_pair_signature(batches)}"
    )


def _pair_signature(batches: MaskedBatches) -> str:
    """Return how pairs were made, for signatures; empty without pairs."""
    if batches.sentences is None:
        return ""
    is_single = len(batches.sentences.documents) == 1
    return f"|pairs:sentences|strangers:{'same-document' if is_single else 'other-documents'}"
