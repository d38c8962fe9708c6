"""What runs of taggers do in their own way."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_labels, write_json
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.models.encoder import class_head
from heedful.objectives.tagging import TAG
from heedful.objectives.terms import Objective
from heedful.runs.encoders.kind import EncoderKind, made_up
from heedful.runs.kind import Log, Rows, Scoring, Trained
from heedful.runs.tagging.batches import TagBatches
from heedful.runs.tagging.recipe import TaggingRecipe
from heedful.runs.tagging.scoring import Evaluation, scored
from heedful.tasks.labels import FEWEST_LABELS, listed
from heedful.tasks.tagging import TAGS, WORDS, Tagger, TagProcessor, WordLimit, words_and_tags
from heedful.tasks.texts import TEXT
from heedful.text.tokenizer import Tokenizer

MEASURES = {"loss": TAG, "accuracy": "correct"}


class Tagging(EncoderKind):
    """See `heedful.runs.kind.Kind`."""

    recipe = TaggingRecipe
    unit = "words"
    listed = (WORDS, TAGS)
    scoring = "tagging"
    reads_words = True
    shorter = "lower model.max_length, of a language model model.context"
    readable = (WORDS,)
    answer = TAGS
    measures = MEASURES

    def texts(self, recipe: TaggingRecipe) -> tuple[str, ...]:
        """The words."""
        return (WORDS,)

    def sizes(self, recipe: TaggingRecipe, vocabularies: Sequence[int]) -> tuple[int, ...]:
        """With the number of tags, of which nothing is known before there are data."""
        return (*vocabularies, FEWEST_LABELS)

    def heads(self, recipe: TaggingRecipe, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that makes the tags' logits."""
        return {TAG: class_head(recipe.model.d_model, sizes[-1], recipe.model.dropout)}

    def files(self, folder: RunFolder) -> list[Path]:
        """The tokenizer and the tags."""
        return [folder.tokenizer(TEXT), folder.labels]

    def processor(self, recipe: TaggingRecipe, tokenizer: Tokenizer, rows: Rows) -> TagProcessor:
        """With the tags that occur, sorted.

        Raises:
            DataError: words and tags of a row are not as many, or there are fewer than two tags.
        """
        tags = sorted({tag for row in rows() for tag in words_and_tags(row)[1]})
        if len(tags) < FEWEST_LABELS:
            raise DataError(f"there is only the tag {next(iter(tags), None)!r}: two are needed at least")
        return TagProcessor(tokenizer, tuple(tags))

    def save(self, processor: TagProcessor, folder: RunFolder) -> None:
        """Both files."""
        processor.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.labels, {"version": 1, "labels": list(processor.tags)})

    def load(self, folder: RunFolder) -> TagProcessor:
        """Both files."""
        tags = read_labels(folder.labels)
        return TagProcessor(Tokenizer.load(folder.tokenizer(TEXT)), tags)

    def ids(
        self,
        recipe: TaggingRecipe,
        processor: TagProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """The ids of the words, and a mark where each begins."""
        return processor.encode(rows)

    def limits(self, recipe: TaggingRecipe) -> Sequence[WordLimit]:
        """Long rows are read in stretches; a word is not."""
        return [WordLimit(recipe.room, f"{recipe.longest_key}={recipe.model.longest}")]

    def n_answers(self, processor: TagProcessor) -> int:
        """Tags, and no tag."""
        return len(processor.tags) + 1

    def objective(self, recipe: TaggingRecipe) -> Objective:
        """The tag of each word."""
        return recipe.objective.make()

    def begin(self, recipe: TaggingRecipe, processor: TagProcessor, model: Any, log: Log) -> None:
        """Say what the tags are."""
        super().begin(recipe, processor, model, log)
        log(f"{len(processor.tags)} tags: {listed(processor.tags)}")

    def batches(self, recipe: TaggingRecipe, processor: TagProcessor, store: TokenStore) -> TagBatches:
        """Rows, or stretches of long ones."""
        return TagBatches(store, recipe.model.longest, recipe.words)

    def example(
        self, recipe: TaggingRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Rows that differ by a token or two in length; two words of three are one token."""
        batch = made_up(sizes[0], n, length, 1, recipe.frame)
        marks = [
            [1 + i % sizes[-1] if i % 4 else 0 for i in range(k - 2)] for k in batch.inputs.layout.lengths
        ]
        return batch.tagged(marks)

    def predictor(
        self,
        recipe: TaggingRecipe,
        processor: TagProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Tagger:
        """Tags."""
        return Tagger(
            inference.ready(), processor, longest=recipe.model.longest, frame=recipe.words, **options
        )

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Accuracy and F1 of words, and of spans where the tags say them."""
        return scored(run, split, rows, how)
