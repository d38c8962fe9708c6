"""What runs of language models do in their own way."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT, TextSource
from heedful.data.windows import Windows
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.objectives.terms import Objective
from heedful.runs.kind import Evaluation, Kind, Log, Prepared, Rows, Scoring, Trained
from heedful.runs.language_modelling.recipe import LanguageModellingRecipe
from heedful.runs.language_modelling.scoring import batches, scored
from heedful.runs.measuring import means, micro_batch
from heedful.runs.vectors import fill_vectors
from heedful.runs.warm_start import own_tokenizer
from heedful.tasks.language_modelling import COLUMNS, Completer, TextProcessor
from heedful.text.long import cut
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.training.feed import PlannedData
from heedful.training.step import Step


class LanguageModelling(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe = LanguageModellingRecipe
    unit = "tokens"
    scoring = "reading"
    scored_by_writing = False
    own_data = ("text",)
    shorter = "lower model.context"
    options = ("max_new_tokens", "stop", "prefix")
    strides = True

    def columns(self, recipe: LanguageModellingRecipe) -> tuple[str, ...]:
        """The text."""
        return COLUMNS

    def inputs(self, recipe: LanguageModellingRecipe) -> tuple[str, ...]:
        """The prompt."""
        return ("prompt",)

    def files(self, folder: RunFolder) -> list[Path]:
        """One tokenizer."""
        return [folder.tokenizer(TEXT)]

    def learn(self, recipe: LanguageModellingRecipe, rows: Rows) -> TextProcessor:
        """From all documents, a piece of a long one at a time."""
        pieces = (piece for row in rows() for piece in cut(row.row[TEXT]))
        return TextProcessor(own_tokenizer(recipe, TEXT, pieces))

    def save(self, processor: TextProcessor, folder: RunFolder) -> None:
        """The tokenizer."""
        processor.text.save(folder.tokenizer(TEXT))

    def load(self, folder: RunFolder) -> TextProcessor:
        """The tokenizer."""
        return TextProcessor(Tokenizer.load(folder.tokenizer(TEXT)))

    def report(self, processor: TextProcessor) -> DataReport:
        """Counts unknown tokens."""
        return DataReport({TEXT: processor.text.specials.unknown})

    def encode(
        self,
        recipe: LanguageModellingRecipe,
        processor: TextProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """All documents; what is empty ends at once."""
        yield from processor.encode(rows, report)
        if not report.columns[TEXT].tokens:
            raise DataError("there is no text")

    def objective(self, recipe: LanguageModellingRecipe) -> Objective:
        """The next token, at every position."""
        return recipe.objective.make()

    def begin(self, recipe: LanguageModellingRecipe, processor: TextProcessor, model: Any, log: Log) -> None:
        """Word vectors, if the recipe names some."""
        fill_vectors(recipe, {TEXT: processor.text}, model, log)

    def feed(self, recipe: LanguageModellingRecipe, prepared: Prepared) -> PlannedData:
        """Windows of the stream, in random order."""
        windows = Windows(prepared.train.stream(TEXT), recipe.model.context, recipe.training.seed)

        def make(samples: Sequence[int], epoch: int) -> Batch:
            return Batch.windows(windows.rows(samples, epoch), samples)

        return PlannedData(
            lengths=windows.lengths,
            make=make,
            tokens_per_update=recipe.training.tokens_per_update,
            seed=recipe.training.seed,
        )

    def validator(self, recipe: LanguageModellingRecipe, prepared: Prepared, step: Step) -> "Validator":
        """Loss and perplexity."""
        return Validator(recipe, prepared, step)

    def example(
        self, recipe: LanguageModellingRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Windows of the model's context."""
        size = (n, recipe.model.context + 1)
        return Batch.windows(np.random.default_rng(0).integers(len(SPECIALS), sizes[-1], size))

    def predictor(
        self,
        recipe: LanguageModellingRecipe,
        processor: TextProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        *,
        prefix: str = "",
        **options: Any,
    ) -> Completer:
        """Completes; ``max_new_tokens`` and ``stop`` stand before those of the recipe."""
        return Completer(
            model,
            processor,
            decoding,
            context=recipe.model.context,
            prefix=prefix,
            limits=replace(recipe.completion.limits, **options),
            inference=inference,
        )

    def source_of(self, recipe: LanguageModellingRecipe, files: Sequence[Path]) -> TextSource:
        """Files of text, each a document."""
        return TextSource(paths=[str(path.resolve()) for path in files])

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """How well the text is foretold."""
        return scored(run, split, rows, how)


class Validator:
    """Loss and perplexity on the validation text, in windows that do not overlap."""

    def __init__(self, recipe: LanguageModellingRecipe, prepared: Prepared, step: Step) -> None:
        self.recipe, self.step = recipe, step
        self.ids = prepared.valid.stream(TEXT)

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        context = self.recipe.model.context
        n = min(len(self.ids), self.recipe.validation.tokens or len(self.ids))
        spans = batches(self.ids, n, context, context, micro_batch(self.recipe))
        found = means(self.step, (batch for batch, _ in spans))
        return {"loss": found["token"], "perplexity": math.exp(min(found["nll"], 700.0))}
