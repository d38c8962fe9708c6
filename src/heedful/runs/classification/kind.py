"""What runs of classifiers do in their own way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from heedful.data.batch import Batch
from heedful.data.plan import plan
from heedful.data.report import DataReport, Encoded, keep
from heedful.data.sources import JsonlSource, Located, Row, TsvSource
from heedful.data.store import TokenStore
from heedful.errors import RequestError
from heedful.inference.choosing import Inference
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.objectives.classification import SequenceClass
from heedful.runs.classification.recipe import ClassificationRecipe
from heedful.runs.classification.scoring import Evaluation, scored
from heedful.runs.folder import RunFolder, read_json, write_json
from heedful.runs.kind import Kind, Prepared, Rows, Say, Scoring
from heedful.runs.measuring import means, micro_batch
from heedful.runs.starting import tokenizer_of
from heedful.tasks.classification import (
    N_SPECIALS,
    TEXT,
    Classifier,
    LabelCodec,
    fitted,
    text_columns,
)
from heedful.tasks.labels import FEWEST_LABELS, LABEL, learned, listed
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer
from heedful.training.feed import PlannedData
from heedful.training.step import Step

if TYPE_CHECKING:
    from heedful.runs.run import Run


class Classification(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe = ClassificationRecipe
    unit = "examples"
    scoring = "labelling"
    scored_by_writing = False
    own_data = "--table FILE"
    shorter = "lower model.max_length"
    options = ("n_best",)

    def columns(self, recipe: ClassificationRecipe) -> tuple[str, ...]:
        """One or two texts, and the label."""
        return (*self.inputs(recipe), LABEL)

    def inputs(self, recipe: ClassificationRecipe) -> tuple[str, ...]:
        """One or two texts."""
        return text_columns(recipe.task.pairs)

    def sizes(self, recipe: ClassificationRecipe, vocabularies: Sequence[int]) -> tuple[int, ...]:
        """With the number of labels; two where the recipe does not name them."""
        return (*vocabularies, len(recipe.task.labels or ()) or FEWEST_LABELS)

    def model(self, recipe: ClassificationRecipe, sizes: Sequence[int]) -> nn.Module:
        """The encoder, with a layer that makes the classes' logits."""
        vocabulary, n_classes = sizes
        encoder: Any = build_model(recipe.model, vocabulary)
        encoder.heads["class"] = class_head(recipe.model.d_model, n_classes, recipe.model.dropout)
        return encoder

    def files(self, folder: RunFolder) -> list[Path]:
        """The tokenizer and the labels."""
        return [folder.tokenizer(TEXT), folder.labels]

    def learn(self, recipe: ClassificationRecipe, rows: Rows) -> LabelCodec:
        """A tokenizer for all texts, and the labels.

        Raises:
            DataError: a label that the recipe does not name, or fewer than two.
        """
        columns = text_columns(recipe.task.pairs)
        texts = (row.row[column] for row in rows() for column in columns)
        tokenizer = tokenizer_of(recipe, TEXT)
        if tokenizer is None:
            tokenizer = train_tokenizer(recipe.tokenizer.subwords, texts, recipe.tokenizer.text)
        return LabelCodec(tokenizer, learned(rows(), recipe.task.labels))

    def save(self, codec: LabelCodec, folder: RunFolder) -> None:
        """Both files."""
        codec.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.labels, {"version": 1, "labels": list(codec.labels)})

    def load(self, folder: RunFolder) -> LabelCodec:
        """Both files."""
        return LabelCodec(Tokenizer.load(folder.tokenizer(TEXT)), tuple(read_json(folder.labels)["labels"]))

    def report(self, codec: LabelCodec) -> DataReport:
        """Counts unknown tokens."""
        return DataReport({TEXT: codec.tokenizer.specials.unknown})

    def encode(
        self,
        recipe: ClassificationRecipe,
        codec: LabelCodec,
        rows: Iterable[Located[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """What passes the filter."""
        yield from keep(codec.encode(rows, text_columns(recipe.task.pairs)), recipe.data.filter, report)
        del report.columns[LABEL]  # its lengths say nothing

    def objective(self, recipe: ClassificationRecipe) -> SequenceClass:
        """The class of each text."""
        return SequenceClass(recipe.objective.label_smoothing)

    def begin(self, recipe: ClassificationRecipe, codec: LabelCodec, model: Any, say: Say) -> None:
        """Say what the classes are."""
        say(f"{len(codec.labels)} labels: {listed(codec.labels)}")

    def feed(self, recipe: ClassificationRecipe, prepared: Prepared) -> PlannedData:
        """Neighbours in length."""
        make = _Maker(recipe, prepared.codec, prepared.train)
        return PlannedData(
            lengths=make.lengths,
            make=make,
            tokens_per_update=recipe.training.tokens_per_update,
            seed=recipe.training.seed,
        )

    def validator(self, recipe: ClassificationRecipe, prepared: Prepared, step: Step) -> "Validator":
        """Loss and accuracy."""
        return Validator(recipe, prepared, step)

    def example(
        self, recipe: ClassificationRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Texts that differ by a token or two in length."""
        draw = np.random.default_rng(0)
        n_texts = len(text_columns(recipe.task.pairs))
        shares = [max(0, length - 1 - n_texts + (0, -1, 1)[i % 3]) for i in range(n)]
        parts = [
            fitted(
                [draw.integers(len(SPECIALS), sizes[0], -(-share // n_texts))] * n_texts, share + n_texts + 1
            )
            for share in shares
        ]
        return Batch.labelled(
            parts,
            draw.integers(sizes[-1], size=n).tolist(),
            classify=SPECIALS.classify,
            separate=SPECIALS.separate,
        )

    def predictor(
        self,
        recipe: ClassificationRecipe,
        codec: LabelCodec,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Classifier:
        """Labels."""
        return Classifier(inference.ready(), codec, longest=recipe.model.max_length, **options)

    def source_of(self, recipe: ClassificationRecipe, files: Sequence[Path]) -> TsvSource | JsonlSource:
        """A table with a header, or JSON lines, with the columns of the task."""
        if len(files) != 1:
            raise RequestError(
                f"a classifier is scored on one table (--table FILE), not on {len(files)} files"
            )
        path, columns = str(files[0].resolve()), {column: column for column in self.columns(recipe)}
        if files[0].name.removesuffix(".gz").endswith(".jsonl"):
            return JsonlSource(paths=path, columns=columns)
        return TsvSource(paths=path, columns=dict(columns), header=True)

    def scored(self, run: "Run", split: str, rows: Iterator[Located[Row]], how: Scoring) -> Evaluation:
        """Accuracy and F1."""
        return scored(run, split, rows, how)


class _Maker:
    """Batches of a store.

    Args:
        recipe: says how long a sequence may be.
        codec: of the run.
        store: the ids.
    """

    def __init__(self, recipe: ClassificationRecipe, codec: LabelCodec, store: TokenStore) -> None:
        self.codec, self.store = codec, store
        self.longest = recipe.model.max_length
        self.columns = text_columns(recipe.task.pairs)
        tokens = sum(store.lengths(column) for column in self.columns)
        self.lengths = np.minimum(tokens + N_SPECIALS + len(self.columns) - 1, self.longest)

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        rows = self.store.gather(samples)
        texts = zip(*(rows[column] for column in self.columns), strict=True)
        labels = [int(label[0]) for label in rows[LABEL]]
        return self.codec.collate([fitted(parts, self.longest) for parts in texts], labels, samples)


class Validator:
    """Loss and accuracy on the validation data."""

    def __init__(self, recipe: ClassificationRecipe, prepared: Prepared, step: Step) -> None:
        self.step, self.make = step, _Maker(recipe, prepared.codec, prepared.valid)
        budget = micro_batch(recipe)
        self.batches = plan(self.make.lengths, tokens_per_update=budget, seed=0, epoch=0, shuffle=False)

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        found = means(self.step, (self.make(samples.tolist(), 0) for samples in self.batches))
        return {"loss": found["class"], "accuracy": found["correct"]}
