"""What runs of masked language models do in their own way."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.masking import Masking
from heedful.data.plan import in_order
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT, TextSource
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.attention_stack import activation_of
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.nn.output import BoundaryHead, MaskedHead
from heedful.objectives.classification import SequenceClass
from heedful.objectives.masked import Several, SpanBoundary
from heedful.objectives.terms import Objective
from heedful.runs.kind import Evaluation, Kind, Log, Prepared, Rows, Scoring, Trained
from heedful.runs.language_modelling.kind import LanguageModelling
from heedful.runs.masked_language_modelling.recipe import MaskedLanguageModellingRecipe
from heedful.runs.masked_language_modelling.scoring import scored
from heedful.runs.measuring import means, micro_batch
from heedful.runs.vectors import fill_vectors
from heedful.tasks.language_modelling import TextProcessor
from heedful.tasks.masking import MaskFiller, Maskings, word_beginnings
from heedful.tasks.texts import PAIR
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.training.feed import PlannedData
from heedful.training.step import Step

TEXTS = LanguageModelling()
"""Running text is learned, kept and encoded as for language models."""


class MaskedLanguageModelling(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe = MaskedLanguageModellingRecipe
    unit = "tokens"
    scoring = "filling in"
    scored_by_writing = False
    own_data = ("text",)
    shorter = "lower model.max_length"
    options = ("n_best", "gap")

    def columns(self, recipe: MaskedLanguageModellingRecipe) -> tuple[str, ...]:
        """The text."""
        return (TEXT,)

    def inputs(self, recipe: MaskedLanguageModellingRecipe) -> tuple[str, ...]:
        """The text with gaps."""
        return (TEXT,)

    def optional(self, recipe: MaskedLanguageModellingRecipe) -> tuple[str, ...]:
        """A second text, where the model tells two apart."""
        return (PAIR,) if recipe.model.segments > 1 else ()

    def model(self, recipe: MaskedLanguageModellingRecipe, sizes: Sequence[int]) -> nn.Module:
        """The encoder, with heads for hidden tokens and whatever else is asked."""
        encoder: Any = build_model(recipe.model, *sizes)
        table, eps = encoder.embedding.weight, recipe.model.norm_eps
        encoder.heads["token"] = MaskedHead(table, activation_of(recipe.model), eps)
        if recipe.objective.boundary:
            encoder.heads["boundary"] = BoundaryHead(table, recipe.objective.longest_span, eps)
        if recipe.task.next_sentence:
            encoder.heads["next"] = class_head(recipe.model.d_model, 2, recipe.model.dropout)
        return encoder

    def files(self, folder: RunFolder) -> list[Path]:
        """One tokenizer."""
        return TEXTS.files(folder)

    def learn(self, recipe: MaskedLanguageModellingRecipe, rows: Rows) -> TextProcessor:
        """From all documents."""
        processor = TEXTS.learn(recipe, rows)  # type: ignore[arg-type]
        _masking(recipe, processor)  # whether words can be told, before anything else is done
        return processor

    def save(self, processor: TextProcessor, folder: RunFolder) -> None:
        """The tokenizer."""
        TEXTS.save(processor, folder)

    def load(self, folder: RunFolder) -> TextProcessor:
        """The tokenizer."""
        return TEXTS.load(folder)

    def report(self, processor: TextProcessor) -> DataReport:
        """Counts unknown tokens."""
        return TEXTS.report(processor)

    def encode(
        self,
        recipe: MaskedLanguageModellingRecipe,
        processor: TextProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """All documents."""
        yield from TEXTS.encode(recipe, processor, rows, report)  # type: ignore[arg-type]
        if report.columns[TEXT].tokens < 2:
            raise DataError("there are fewer than two tokens of text")

    def objective(self, recipe: MaskedLanguageModellingRecipe) -> Objective:
        """Hidden tokens, and where asked for, span boundaries and next sentences."""
        parts = [recipe.objective.make()]
        if recipe.objective.boundary:
            parts.append(SpanBoundary(recipe.objective.chunk))
        if recipe.task.next_sentence:
            parts.append(SequenceClass(head="next"))
        return Several(*parts)

    def begin(
        self, recipe: MaskedLanguageModellingRecipe, processor: TextProcessor, model: Any, log: Log
    ) -> None:
        """Word vectors, if the recipe names some."""
        fill_vectors(recipe, {TEXT: processor.text}, model, log)

    def feed(self, recipe: MaskedLanguageModellingRecipe, prepared: Prepared) -> PlannedData:
        """Windows of the stream, in random order; other tokens are hidden every epoch."""
        stream = prepared.train.stream(TEXT)
        make = maskings(recipe, prepared.processor, stream, seed=recipe.training.seed)
        return PlannedData(
            lengths=make.lengths,
            make=make,
            tokens_per_update=recipe.training.tokens_per_update,
            seed=recipe.training.seed,
        )

    def validator(self, recipe: MaskedLanguageModellingRecipe, prepared: Prepared, step: Step) -> "Validator":
        """Loss and perplexity of hidden tokens."""
        return Validator(recipe, prepared, step)

    def example(
        self,
        recipe: MaskedLanguageModellingRecipe,
        sizes: Sequence[int],
        n: int,
        length: int,
        source_length: int,
    ) -> Batch:
        """Windows of the longest sequences; what begins a word is made up too."""
        draw = np.random.default_rng(0)
        ids = draw.integers(len(SPECIALS), sizes[0], n * recipe.model.max_length)
        masking = _hiding(recipe, sizes[0], draw.random(sizes[0]) < 0.7)
        signs = SentenceSigns.made_up(sizes[0]) if recipe.task.next_sentence else None
        make = Maskings(ids, recipe.model.max_length, masking, signs=signs, seed=0)
        return make(range(n), 0)

    def predictor(
        self,
        recipe: MaskedLanguageModellingRecipe,
        processor: TextProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> MaskFiller:
        """Fills gaps."""
        return MaskFiller(inference.ready(), processor, longest=recipe.model.max_length, **options)

    def source_of(self, recipe: MaskedLanguageModellingRecipe, files: Sequence[Path]) -> TextSource:
        """Files of text, each a document."""
        return TextSource(paths=[str(path.resolve()) for path in files])

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Perplexity and accuracy of hidden tokens."""
        return scored(run, split, rows, how, maskings)


def maskings(
    recipe: MaskedLanguageModellingRecipe, processor: TextProcessor, ids: NDArray[Any], *, seed: int
) -> Maskings:
    """Batches of a stream of ids, as the recipe says."""
    signs = SentenceSigns.of(processor.text) if recipe.task.next_sentence else None
    return Maskings(ids, recipe.model.max_length, _masking(recipe, processor), signs=signs, seed=seed)


def _masking(recipe: MaskedLanguageModellingRecipe, processor: TextProcessor) -> Masking:
    if (hide := recipe.objective.hide) == "tokens":
        return _hiding(recipe, processor.text.vocab_size, None)
    try:
        words = word_beginnings(processor.text)
    except RequestError as error:
        raise RequestError(f"objective.hide={hide}: {error}") from None
    return _hiding(recipe, processor.text.vocab_size, words)


def _hiding(
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


class Validator:
    """Loss and perplexity of hidden tokens of the validation text, always the same ones."""

    def __init__(self, recipe: MaskedLanguageModellingRecipe, prepared: Prepared, step: Step) -> None:
        self.step = step
        self.make = maskings(recipe, prepared.processor, prepared.valid.stream(TEXT), seed=0)
        self.batches = in_order(self.make.lengths, micro_batch(recipe))

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        found = means(self.step, (self.make(samples.tolist(), 0) for samples in self.batches))
        loss = sum(found[name] for name in ("token", "boundary", "next") if name in found)
        return {"loss": loss, "perplexity": math.exp(min(found["nll"], 700.0))}
