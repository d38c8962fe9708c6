"""What runs of regressions do in their own way."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_entry, write_json
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.models.encoder import class_head
from heedful.objectives.regression import VALUE
from heedful.objectives.terms import Objective
from heedful.runs.encoders.kind import EncoderKind, TextBatches, made_up
from heedful.runs.kind import Log, Rows, Scoring, Trained
from heedful.runs.regression.recipe import RegressionRecipe
from heedful.runs.regression.scoring import Evaluation, scored
from heedful.tasks.labels import LABEL
from heedful.tasks.regression import NumberProcessor, Regressor, number
from heedful.tasks.texts import PAIR, TEXT, TemplateLimit, text_columns
from heedful.text.tokenizer import Tokenizer

MEASURES = {"loss": VALUE}


class Regression(EncoderKind):
    """See `heedful.runs.kind.Kind`."""

    recipe = RegressionRecipe
    unit = "examples"
    single = (LABEL,)
    scoring = "estimating"
    shorter = "lower model.max_length, of a language model model.context"
    readable = (TEXT, PAIR)
    besides = (PAIR,)
    answer = LABEL
    measures = MEASURES

    def texts(self, recipe: RegressionRecipe) -> tuple[str, ...]:
        """One or two."""
        return text_columns(recipe.task.pairs)

    def heads(self, recipe: RegressionRecipe, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that makes one number."""
        return {VALUE: class_head(recipe.model.d_model, 1, recipe.model.dropout)}

    def files(self, folder: RunFolder) -> list[Path]:
        """The tokenizer and the scale."""
        return [folder.tokenizer(TEXT), folder.scale]

    def processor(self, recipe: RegressionRecipe, tokenizer: Tokenizer, rows: Rows) -> NumberProcessor:
        """With the mean and the deviation.

        Raises:
            DataError: a label is no number, or all are alike.
        """
        numbers = np.array([number(row.row[LABEL], row.where) for row in rows()])
        if len(numbers) == 0 or np.ptp(numbers) == 0:
            found = f"is {numbers[0]:g}" if len(numbers) else "is missing"
            raise DataError(f"every label {found}: two different numbers are needed at least")
        return NumberProcessor(tokenizer, float(numbers.mean()), float(numbers.std()))

    def save(self, processor: NumberProcessor, folder: RunFolder) -> None:
        """Both files."""
        processor.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.scale, {"version": 1, "mean": processor.mean, "deviation": processor.deviation})

    def load(self, folder: RunFolder) -> NumberProcessor:
        """Both files."""
        mean, deviation = (read_entry(folder.scale, key, float) for key in ("mean", "deviation"))
        return NumberProcessor(Tokenizer.load(folder.tokenizer(TEXT)), mean, deviation)

    def ids(
        self,
        recipe: RegressionRecipe,
        processor: NumberProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """The ids of the texts, and the number."""
        return processor.encode(rows, self.texts(recipe))

    def limits(self, recipe: RegressionRecipe) -> Sequence[TemplateLimit]:
        """The texts together fill a sequence."""
        return [TemplateLimit(self.texts(recipe), recipe.model.longest, recipe.frame, recipe.longest_key)]

    def n_answers(self, processor: NumberProcessor) -> int:
        """Numbers are kept as bytes."""
        return 256

    def objective(self, recipe: RegressionRecipe) -> Objective:
        """The number of each text."""
        return recipe.objective.make()

    def begin(self, recipe: RegressionRecipe, processor: NumberProcessor, model: Any, log: Log) -> None:
        """Say what the numbers are like."""
        super().begin(recipe, processor, model, log)
        log(f"numbers around {processor.mean:.6g}, with a deviation of {processor.deviation:.6g}")

    def batches(self, recipe: RegressionRecipe, processor: NumberProcessor, store: TokenStore) -> TextBatches:
        """Texts with their numbers."""
        collate = partial(processor.collate, frame=recipe.frame)
        return TextBatches(
            store, self.texts(recipe), self.answer, recipe.model.longest, recipe.frame, collate
        )

    def example(
        self, recipe: RegressionRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Texts that differ by a token or two in length."""
        batch = made_up(sizes[0], n, length, len(self.texts(recipe)), recipe.frame)
        return replace(batch, values=torch.linspace(-1, 1, n))

    def predictor(
        self,
        recipe: RegressionRecipe,
        processor: NumberProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Regressor:
        """Numbers."""
        longest, frame = recipe.model.longest, recipe.frame
        return Regressor(inference.ready(), processor, longest=longest, frame=frame, **options)

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Correlations and the squared error."""
        return scored(run, split, rows, how)
