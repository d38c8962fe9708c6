"""Language modelling: running text in the column ``text``, and prompts that are continued.

text -> token ids, documents end to end -> `Windows` -> `Batch` -> model -> loss
prompt -> token ids -> state and step -> chosen ids -> text                         `Completer.predict`
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.data.text import TEXT
from heedful.data.windows import Span, Windows, circular_sections, spans
from heedful.decoding.config import DecodingConfig, SampleConfig
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.base import Model
from heedful.models.language_model import LanguageModelConfig
from heedful.recipes import schema
from heedful.tasks.base import PreparedData
from heedful.tasks.embedding import CAUSAL, EmbeddingInputs
from heedful.tasks.evaluation import (
    Evaluation,
    EvaluationOptions,
    Predict,
    mean_terms,
    micro_batch_tokens,
    perplexity,
)
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.inputs.texts import BARE_TEMPLATE, counted_notes, group_by_length
from heedful.tasks.language_modelling.continuing import (
    Completer,
    Limits,
    Stops,
    check_min_length,
    refuse_source,
)
from heedful.tasks.metrics.likelihood import Likelihood, count_words
from heedful.tasks.metrics.loads import count_expert_loads
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import AnswerOptions, ModelInput, running_text_input, text_in
from heedful.tasks.prediction import (
    BATCH_TOKENS,
    DEFAULT_OPTIONS,
    Prediction,
    PredictOptions,
    Progress,
    TaskInput,
    as_text,
)
from heedful.tasks.running_text import RunningTextRecipe, RunningTextTask, rows_in_proportion
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_scoring import TextScoring, scored_prediction
from heedful.text.specials import SPECIALS
from heedful.training.loop import Validate
from heedful.training.model_with_loss import ModelWithLoss
from heedful.typing import JsonMapping

# Recipes ------------------------------------------------------------------------------------------------


class LanguageModellingConfig(Config):
    """Predict the next token of running text; the data have the column ``text``."""

    kind: Literal["language-modelling"] = "language-modelling"


class ObjectiveConfig(schema.TokenObjectiveConfig):
    """Cross-entropy on the next token, as it is: perplexity is what counts."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class ValidationConfig(Config):
    """What a validation measures: loss and perplexity, in windows that do not overlap.

    Args:
        tokens: how many tokens, from the first on; null: all.
    """

    tokens: PositiveInt | None = None


class CompletionConfig(Config):
    """Where a completion ends, if the model does not end it.

    Args:
        max_new_tokens: the most tokens to write.
        stop: texts at which it ends; they are not part of it.
    """

    max_new_tokens: PositiveInt = 200
    stop: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _stops_somewhere(self) -> "CompletionConfig":
        if "" in self.stop:
            raise ValueError("stop: texts must not be empty")
        return self

    @property
    def limits(self) -> Limits:
        """The same, as a `Completer` takes it."""
        return Limits(self.max_new_tokens, self.stop)


class EvaluationConfig(Config):
    """How ``evaluate`` reads the text.

    Args:
        stride: besides windows that do not overlap, as in validation, also score windows that move on by
            this many tokens, of which only the last ones, as many, count: then each has at least context -
            stride tokens before it. Smaller is better and slower.
    """

    stride: PositiveInt | None = None


class LanguageModellingRecipe(RunningTextRecipe):
    """A whole recipe.

    Args:
        completion: where a completion ends.
    """

    task: LanguageModellingConfig
    data: schema.DataConfig
    model: LanguageModelConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = SampleConfig()
    completion: CompletionConfig = CompletionConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @schema.check
    def _strides_within_the_context(self) -> None:
        stride, context = self.evaluation.stride, self.model.context
        if stride is not None and stride > context:
            raise ValueError(f"evaluation.stride={stride} is longer than model.context={context}")

    @schema.check
    def _decoding_fits(self) -> None:
        try:
            refuse_source(self.decoding)
            check_min_length(self.decoding, self.completion.max_new_tokens)
        except RequestError as error:
            raise ValueError(str(error)) from None


# The task -----------------------------------------------------------------------------------------------


class LanguageModelling(RunningTextTask, TextScoring):
    """Predict the next token of running text, and continue prompts."""

    Recipe = LanguageModellingRecipe
    info = TaskInfo(
        unit="tokens",
        evaluation_verb="reading",
        memory_advice="lower model.context",
        options=("max_new_tokens", "stop", "prefix", "regex", "json_schema"),
        windows=True,
        writes=True,
    )

    recipe: LanguageModellingRecipe

    @property
    def columns(self) -> Columns:
        """The text; an input is a prompt."""
        return Columns((TEXT,), ("prompt",), trained_as={"prompt": TEXT}, running_text=True)

    def batches(self, store: TokenStore, *, training: bool) -> "WindowBatches":
        """Return batches of windows of the stream, at random offsets in training."""
        context, seed = self.recipe.model.context, self.recipe.training.seed
        return WindowBatches(Windows(store.stream(TEXT), context, seed))

    def validator(self, data: PreparedData, module: ModelWithLoss) -> Validate:
        """Return a function that computes loss and perplexity in validation windows that do not overlap."""
        ids, context = data.valid.stream(TEXT), self.recipe.model.context
        n_tokens = min(len(ids), self.recipe.validation.tokens or len(ids))

        def validate(model: nn.Module) -> Mapping[str, float]:
            windows = window_batches(ids, n_tokens, context, context, micro_batch_tokens(self.recipe))
            terms = mean_terms(module, (batch for batch, _ in windows))
            return {"loss": terms["token"], "perplexity": perplexity(terms["nll"])}

        return validate

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return windows of the model's context."""
        size = (n, self.recipe.model.context + 1)
        return Batch.windows(np.random.default_rng(0).integers(len(SPECIALS), sizes[-1], size))

    def predictor(self, inference: Inference, options: PredictOptions = DEFAULT_OPTIONS) -> Completer:
        """Return a `Completer`; ``max_new_tokens`` and ``stop`` override those of the recipe."""
        return Completer(
            inference.model,
            self.processor.text,
            options.decoding or self.recipe.decoding,
            context=self.recipe.model.context,
            options=options,
            limits=self.recipe.completion.limits,
            inference=inference,
        )

    @property
    def scored(self) -> Columns:
        """A text."""
        return Columns((TEXT,), (TEXT,), running_text=True)

    def score(self, model: Model, inputs: Sequence[TaskInput], progress: Progress) -> list[Prediction]:
        """Score texts as documents: the first token is given the end token, which is also scored at the end.

        A document of more tokens than the context is read in windows that do not overlap, as by `evaluate`.
        """
        tokenizer, texts = self.processor.text, [as_text(task_input) for task_input in inputs]
        encoded = tokenizer.encode_batch(texts)
        log_probs = score_documents(model, encoded, self.recipe.model.context, progress)
        return [scored_prediction(tokenizer, *row) for row in zip(texts, encoded, log_probs, strict=True)]

    def most_new_tokens(self, task_input: TaskInput) -> int | None:
        """Return the most tokens that prompt and completion leave in the context."""
        _, remaining = self._prompt(text_in(task_input, self.recipe.task.kind))
        return min(self.recipe.completion.limits.max_new_tokens, remaining)

    def _prompt(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a prompt, and how many tokens may follow it.

        Raises:
            RequestError: none may.
        """
        context, prompt = self.recipe.model.context, self.processor.text.encode(text) or [SPECIALS.end]
        remaining = context - len(prompt)
        if remaining < 1:
            raise RequestError(
                f"the prompt must have at most {context - 1:,} tokens (context {context:,}), got "
                f"{len(prompt):,}; shorten it"
            )
        return prompt, remaining

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare the prompt with its completion, including the end token if the model generated it.

        After a stop text generation always ends, so the end token is omitted. An empty prompt is replaced by
        the end token, as in `heedful.tasks.language_modelling.continuing.Completer`.
        """
        tokenizer, text = self.processor.text, text_in(task_input, self.recipe.task.kind)
        prompt, remaining = self._prompt(text)
        if options.target is not None:
            return self._given_completion(model, text, prompt, options)
        limits = self.recipe.completion.limits
        ids = [*prompt, *answer.ids]
        if len(answer.log_probs) > len(answer.ids):
            stops, has_prompt = Stops(tokenizer, tuple(limits.stop)), prompt != [SPECIALS.end]
            if not stops.reached(answer.ids, is_continuation=has_prompt):
                ids.append(SPECIALS.end)
        elif remaining < limits.max_new_tokens:
            note = f"cut after {remaining} tokens, the rest of the model's context"
            answer = replace(answer, notes=(note,))
        return running_text_input(model, tokenizer, ids, 1, len(prompt), answer)

    def _given_completion(
        self, model: Model, text: str, prompt: list[int], options: AnswerOptions
    ) -> ModelInput:
        """Prepare a prompt with a given completion, encoded as one text.

        A token with characters of both counts as part of the completion.
        """
        tokenizer, context = self.processor.text, self.recipe.model.context
        assert options.target is not None
        ids = tokenizer.encode(text + options.target)
        if prompt == [SPECIALS.end]:  # of a text without tokens
            ids = [*prompt, *ids]
        pairs = zip(prompt, ids, strict=False)
        n_shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(ids)))
        first = max(1, n_shared)
        if len(ids) <= first:
            raise RequestError(
                "the target must add at least one token to the prompt; to explain a text without a prompt, "
                'use an empty prompt, "", and the text as the target'
            )
        if len(ids) > context:
            raise RequestError(
                f"prompt and target must have at most {context:,} tokens (the context), got {len(ids):,}; "
                "shorten them"
            )
        answer = options.given_answer(tokenizer, ids[first:])
        return running_text_input(model, tokenizer, ids, 1, first, answer)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return texts as prompts are read: an empty one as the end token, of long ones the last tokens."""
        context = self.recipe.model.context
        return EmbeddingInputs.of_texts(
            self.processor.text, inputs, BARE_TEMPLATE, context, poolings=CAUSAL, keep="last"
        )

    def evaluate(
        self,
        model: Model,
        predict: Predict,
        split: str,
        rows: Iterator[LocatedRow[Row]],
        options: EvaluationOptions,
    ) -> Evaluation:
        """Score how well each token is predicted from those before it.

        The text is read in windows that do not overlap and, if asked for, in sliding ones too. Every token
        counts, and the end token of every document. Bits per byte and character and the perplexity of a word
        are left out if the tokens do not decode to the very text, which would make them meaningless. Of a
        model with experts, their load in the last kind of windows is reported too.

        Raises:
            DataError: if there is no text.
            RequestError: if the stride is longer than the context.
        """
        context = self.recipe.model.context
        stride = options.stride or self.recipe.evaluation.stride or context
        if stride > context:
            raise RequestError(f"stride {stride}: is longer than the model's context of {context} tokens")
        documents = list(islice(rows, options.limit))
        ids, report = self.stream(split, documents)
        texts = [row.row[TEXT] for row in documents] if self.spells(report) else []
        sizes = [[*map(count, texts)] for count in (lambda text: len(text.encode()), len, count_words)]
        ends = np.flatnonzero(ids == self.processor.text.specials.end)
        scores: list[Score] = []
        steps = sorted({context, stride}, reverse=True)
        progress = rows_in_proportion(options.progress, len(documents), len(ids) * len(steps))
        for step in steps:
            with count_expert_loads(model) as loads:
                log_probs = score_stream(model, ids, context, step, progress)
            likelihood = Likelihood(-float(log_probs.sum()), len(ids), *map(sum, sizes))
            signature = f"context:{context}|stride:{step}"
            of_documents = partial(_likelihoods, ends, log_probs, sizes)
            scores += likelihood.scores(self.processor.fingerprint[:12], signature, of_documents)
        scores += loads()
        notes = counted_notes(self.processor.text, "", report.columns[TEXT], predicted=True)
        locations = [str(row.location) for row in documents]
        return Evaluation(
            split,
            scores,
            notes=notes,
            records=lambda: _documents(locations, ends, log_probs),
            locations=locations,
        )


class WindowBatches:
    """Batches of windows of running text. A `Batches`."""

    def __init__(self, windows: Windows) -> None:
        self.windows, self.lengths = windows, windows.lengths

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of some windows in some epoch."""
        return Batch.windows(self.windows.rows(samples, epoch), samples)


def _documents(
    locations: Sequence[str], ends: NDArray[np.int64], log_probs: NDArray[np.float64]
) -> Iterator[JsonMapping]:
    """Yield a record for each document: its tokens (with the end token) and their negative log-likelihood."""
    for location, (nll, tokens) in zip(locations, _likelihoods(ends, log_probs).tolist(), strict=True):
        yield {"version": 1, "document": location, "tokens": int(tokens), "nll": nll}


def _likelihoods(
    ends: NDArray[np.int64], log_probs: NDArray[np.float64], sizes: Sequence[Sequence[int]] = ()
) -> NDArray[np.float64]:
    """Return the negative log-likelihood, the tokens and the sizes of each document; unknown sizes are 0."""
    starts = np.concatenate([[0], ends[:-1] + 1])
    numbers = [-np.add.reduceat(log_probs, starts), ends + 1 - starts]
    return np.stack([*numbers, *(size or np.zeros(len(ends)) for size in sizes)], axis=1)


@torch.inference_mode()
def score_stream(
    model: Model,
    ids: NDArray[np.int64],
    context: int,
    stride: int,
    progress: Progress = lambda n: None,
) -> NDArray[np.float64]:
    """Return the log-probability of each token of a stream, ``[tokens]``.

    Args:
        model: a language model.
        ids: the stream.
        context: the most tokens that the model reads.
        stride: how far windows move on (`heedful.data.windows.spans`).
        progress: called with the number of tokens just scored.
    """
    device = next(model.parameters()).device
    scores = np.zeros(len(ids))
    for batch, group in window_batches(ids, len(ids), context, stride, BATCH_TOKENS):
        for span, target_scores in zip(group, score_targets(model, batch.to(device)), strict=True):
            log_probs = target_scores.log_probs[span.scored - span.begin :]
            scores[span.scored : span.end] = log_probs.double().cpu().numpy()
        progress(sum(span.end - span.scored for span in group))
    return scores


@torch.inference_mode()
def score_documents(
    model: Model, documents: Sequence[Sequence[int]], context: int, progress: Progress
) -> list[list[float]]:
    """Return the log-probability of each token of each document, and of the end token after it.

    Short documents are read together; each longer one is a stream of its own (`score_stream`).

    Args:
        model: a language model.
        documents: ids without the end token.
        context: the most tokens that the model reads.
        progress: called with the number of documents just scored.
    """
    device = next(model.parameters()).device
    log_probs: list[list[float]] = [[] for _ in documents]
    short = {i: len(ids) + 1 for i, ids in enumerate(documents) if len(ids) < context}
    for group in group_by_length(short, BATCH_TOKENS):
        texts = [documents[i] for i in group]
        batch = Batch.teacher_forced(None, texts, start=SPECIALS.end, end=SPECIALS.end)
        for i, scores in zip(group, score_targets(model, batch.to(device)), strict=True):
            log_probs[i] = scores.log_probs.double().tolist()
        progress(len(group))
    for i, ids in enumerate(documents):
        if i not in short:
            stream = np.array([*ids, SPECIALS.end], dtype=np.int64)
            log_probs[i] = score_stream(model, stream, context, context).tolist()
            progress(1)
    return log_probs


def window_batches(
    ids: np.ndarray, n: int, context: int, stride: int, budget: int
) -> Iterator[tuple[Batch, Sequence[Span]]]:
    """Yield the spans of the first ``n`` tokens of a stream, in batches of equal lengths."""
    group: list[Span] = []
    for span in spans(n, context, stride):
        if group and (_length(group[0]) != _length(span) or (len(group) + 1) * _length(span) > budget):
            yield _batch(ids, group), group
            group = []
        group.append(span)
    if group:
        yield _batch(ids, group), group


def _length(span: Span) -> int:
    return span.end - span.begin


def _batch(ids: np.ndarray, group: Sequence[Span]) -> Batch:
    starts = np.array([span.begin - 1 for span in group], dtype=np.int64)
    return Batch.windows(circular_sections(ids, starts, _length(group[0]) + 1))
