"""What runs of classifiers do in their own way."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_labels, write_json
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.models.encoder import class_head
from heedful.objectives.terms import Objective
from heedful.runs.classification.recipe import ClassificationRecipe
from heedful.runs.classification.scoring import Evaluation, scored
from heedful.runs.encoders.kind import EncoderKind, TextBatches, made_up
from heedful.runs.kind import Log, Rows, Scoring, Trained
from heedful.tasks.classification import Classifier, LabelProcessor
from heedful.tasks.labels import FEWEST_LABELS, LABEL, learned, listed
from heedful.tasks.texts import PAIR, TEXT, Template, TemplateLimit, text_columns
from heedful.text.tokenizer import Tokenizer

MEASURES = {"loss": "class", "accuracy": "correct"}


class Classification(EncoderKind):
    """See `heedful.runs.kind.Kind`."""

    recipe = ClassificationRecipe
    unit = "examples"
    single = (LABEL,)
    scoring = "labelling"
    options = ("n_best",)
    shorter = "lower model.max_length, of a language model model.context"
    readable = (TEXT, PAIR)
    besides = (PAIR,)
    answer = LABEL
    measures = MEASURES

    def texts(self, recipe: ClassificationRecipe) -> tuple[str, ...]:
        """One or two."""
        return text_columns(recipe.task.pairs)

    def sizes(self, recipe: ClassificationRecipe, vocabularies: Sequence[int]) -> tuple[int, ...]:
        """With the number of labels; two where the recipe does not name them."""
        return (*vocabularies, len(recipe.task.labels or ()) or FEWEST_LABELS)

    def heads(self, recipe: ClassificationRecipe, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that makes the classes' logits."""
        return {"class": class_head(recipe.model.d_model, sizes[-1], recipe.model.dropout)}

    def processor(self, recipe: ClassificationRecipe, tokenizer: Tokenizer, rows: Rows) -> LabelProcessor:
        """With the labels.

        Raises:
            DataError: a label that the recipe does not name, or fewer than two.
        """
        return LabelProcessor(tokenizer, learned(rows(), recipe.task.labels))

    def files(self, folder: RunFolder) -> list[Path]:
        """The tokenizer and the labels."""
        return [folder.tokenizer(TEXT), folder.labels]

    def save(self, processor: LabelProcessor, folder: RunFolder) -> None:
        """Both files."""
        processor.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.labels, {"version": 1, "labels": list(processor.labels)})

    def load(self, folder: RunFolder) -> LabelProcessor:
        """Both files."""
        return LabelProcessor(Tokenizer.load(folder.tokenizer(TEXT)), read_labels(folder.labels))

    def ids(
        self,
        recipe: ClassificationRecipe,
        processor: LabelProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """The ids of the texts, and the number of the label."""
        return processor.encode(rows, self.texts(recipe))

    def limits(self, recipe: ClassificationRecipe) -> Sequence[TemplateLimit]:
        """The texts together fill a sequence."""
        return [TemplateLimit(self.texts(recipe), recipe.model.longest, recipe.frame, recipe.longest_key)]

    def n_answers(self, processor: LabelProcessor) -> int:
        """As many as there are labels."""
        return len(processor.labels)

    def objective(self, recipe: ClassificationRecipe) -> Objective:
        """The class of each text."""
        return recipe.objective.make()

    def begin(self, recipe: ClassificationRecipe, processor: LabelProcessor, model: Any, log: Log) -> None:
        """Say what the classes are."""
        super().begin(recipe, processor, model, log)
        log(f"{len(processor.labels)} labels: {listed(processor.labels)}")

    def batches(
        self, recipe: ClassificationRecipe, processor: LabelProcessor, store: TokenStore
    ) -> TextBatches:
        """Texts with the numbers of their labels."""
        collate = partial(_collate, processor, recipe.frame)
        return TextBatches(
            store, self.texts(recipe), self.answer, recipe.model.longest, recipe.frame, collate
        )

    def example(
        self, recipe: ClassificationRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Texts that differ by a token or two in length."""
        batch = made_up(sizes[0], n, length, len(self.texts(recipe)), recipe.frame)
        return replace(batch, classes=torch.arange(n) % sizes[-1])

    def predictor(
        self,
        recipe: ClassificationRecipe,
        processor: LabelProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Classifier:
        """Labels."""
        longest, frame = recipe.model.longest, recipe.frame
        return Classifier(inference.ready(), processor, longest=longest, frame=frame, **options)

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Accuracy and F1."""
        return scored(run, split, rows, how)


def _collate(
    processor: LabelProcessor,
    frame: Template,
    texts: Sequence[Any],
    labels: Sequence[Any],
    samples: Sequence[int],
) -> Batch:
    return processor.collate(texts, [int(label[0]) for label in labels], samples, frame)
