"""Classification: a label for a text, or for a pair of texts.

row -> token ids, number of the label -> `Batch` -> model -> loss              `LabelProcessor`
text -> token ids -> hidden states -> class -> label                           `Classifier.predict`
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_labels, write_json
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Location, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.objectives.classification import class_logits
from heedful.recipes.schema import ClassObjectiveConfig
from heedful.tasks.base import Columns, Log, Rows, TaskInfo
from heedful.tasks.labels import (
    FEWEST_LABELS,
    LABEL,
    LabelsConfig,
    answer,
    label_records,
    label_scores,
    learned,
    listed,
    number_of,
    unseen_labels,
)
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import AnswerOptions, ModelInput, Questions
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader
from heedful.tasks.text_task import TextBatches, TextTask, WholeTextRecipe, synthetic_texts
from heedful.tasks.texts import (
    BUDGET,
    PAIR,
    TEXT,
    WITH_CLASS,
    Template,
    TemplateLimit,
    TextReader,
    encoded,
    text_columns,
)
from heedful.tasks.unknown import unknown_in
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping


class ClassificationConfig(LabelsConfig):
    """Predict a label for a text; data columns are ``text`` and ``label``, and ``pair`` for a second text.

    Args:
        pairs: whether each input is a pair of texts.
        framed: whether special tokens are put around the texts; false (language models and single texts
            only): the text alone, as GPT-2's classifiers in other libraries read it.
    """

    kind: Literal["classification"] = "classification"
    pairs: bool = False
    framed: bool = True


class ClassificationRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: ClassificationConfig
    objective: ClassObjectiveConfig = ClassObjectiveConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}

    @property
    def pairs(self) -> bool:
        """Whether each input is a pair of texts."""
        return self.task.pairs


@dataclass(frozen=True)
class LabelProcessor:
    """The tokenizer of the texts, and the labels in the order of their numbers.

    Args:
        tokenizer: of both texts of a pair.
        labels: all there are.
    """

    tokenizer: Tokenizer
    labels: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        return f"{self.tokenizer.fingerprint}-{'|'.join(map(repr, self.labels))}"

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the vocabulary and of the set of labels."""
        return self.tokenizer.vocab_size, len(self.labels)

    @staticmethod
    def files(folder: RunFolder) -> list[Path]:
        """The tokenizer and the labels."""
        return [folder.tokenizer(TEXT), folder.labels]

    def save(self, folder: RunFolder) -> None:
        """Write both files."""
        self.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.labels, {"version": 1, "labels": list(self.labels)})

    @classmethod
    def load(cls, folder: RunFolder) -> Self:
        """Read both files."""
        return cls(Tokenizer.load(folder.tokenizer(TEXT)), read_labels(folder.labels))

    def number(self, label: str, where: Location) -> int:
        """The number of a label; see `heedful.tasks.labels.number_of`."""
        return number_of(label, self.labels, where)

    def encode(
        self, rows: Iterable[LocatedRow[Row]], columns: Sequence[str], chunk: int = 1000
    ) -> Iterator[Encoded]:
        """Yield the ids of the texts of each row, and the number of its label."""
        for row, ids in encoded(self.tokenizer, rows, columns, chunk):
            yield LocatedRow({**ids, LABEL: [self.number(row.row[LABEL], row.where)]}, row.where)

    def collate(
        self,
        parts: Sequence[Sequence[Any]],
        labels: Sequence[int],
        samples: Sequence[int] = (),
        frame: Template = WITH_CLASS,
    ) -> Batch:
        """A batch of the given texts, in such a frame."""
        classes = torch.tensor(list(labels), dtype=torch.int64)
        return replace(frame(parts, samples), classes=classes)


class Classifier(Reader):
    """A model with its processor: texts in, labels out, as many and in the same order.

    A prediction's ``text`` is the label, its ``score`` the label's log-probability, its ``alternatives``
    the next labels.

    Args:
        model: has heads ``pooled`` and ``class``; put into evaluation mode here.
        processor: of texts and labels.
        longest: the most tokens of a sequence; longer texts are truncated, and the prediction notes it.
        n_best: labels to give for each input.
        frame: the special tokens around the texts.
        budget: maximum number of tokens of a batch, with padding.
    """

    unaligned = "classification generates no text"

    def __init__(
        self,
        model: Model,
        processor: LabelProcessor,
        *,
        longest: int,
        n_best: int = 1,
        frame: Template = WITH_CLASS,
        budget: int = BUDGET,
    ) -> None:
        self.processor, self.n_best = processor, n_best
        self.reader = TextReader(
            model, processor.tokenizer, longest=longest, answer=class_logits, frame=frame, budget=budget
        )

    def answers(self, inputs: Sequence[str | Sequence[str]], progress: Progress) -> list[Prediction]:
        """Predict a label for each input, a text or a pair of texts."""
        return [self._prediction(*found) for found in self.reader.read(inputs, progress)]

    def _prediction(self, logits: torch.Tensor, note: str | None, cut: int) -> Prediction:
        found = answer(logits.log_softmax(-1), self.processor.labels, self.n_best, note)
        return replace(found, cut=cut)


class Classification(TextTask):
    """Predict a label for a text, or for a pair of texts."""

    Recipe = ClassificationRecipe
    Processor = LabelProcessor
    info = TaskInfo(
        unit="examples",
        evaluating="labelling",
        own_data=("table",),
        shorter="lower model.max_length, of a language model model.context",
        options=("n_best",),
    )
    answer = LABEL
    texts_of_all = (TEXT, PAIR)
    validation_terms: ClassVar = {"loss": "class", "accuracy": "correct"}

    recipe: ClassificationRecipe
    processor: LabelProcessor

    @property
    def texts(self) -> tuple[str, ...]:
        """One text, or two."""
        return text_columns(self.recipe.task.pairs)

    @property
    def columns(self) -> Columns:
        """The texts and the label."""
        return Columns((*self.texts, LABEL), self.texts, extra=(PAIR,), single=(LABEL,))

    def sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """With the number of labels; two if the recipe does not name them."""
        return (*vocab_sizes, len(self.recipe.task.labels or ()) or FEWEST_LABELS)

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that computes the logits of the classes."""
        return {"class": class_head(self.recipe.model.d_model, sizes[-1], self.recipe.model.dropout)}

    def processor_with(self, tokenizer: Tokenizer, rows: Rows) -> LabelProcessor:
        """Collect the labels.

        Raises:
            DataError: for a label that the recipe does not name, or fewer than two.
        """
        return LabelProcessor(tokenizer, learned(rows(), self.recipe.task.labels))

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """The ids of the texts, and the number of the label."""
        return self.processor.encode(rows, self.texts)

    def limits(self) -> Sequence[TemplateLimit]:
        """One limit, that all texts of a row share."""
        recipe = self.recipe
        return [TemplateLimit(self.texts, recipe.model.longest, recipe.frame, recipe.longest_key)]

    @property
    def n_answers(self) -> int:
        """The number of labels."""
        return len(self.processor.labels)

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Log the labels, too."""
        super().initialise(model, log)
        log(f"{len(self.processor.labels)} labels: {listed(self.processor.labels)}")

    def batches(self, store: TokenStore) -> TextBatches:
        """Texts with the numbers of their labels."""
        frame = self.recipe.frame

        def collate(texts: Sequence[Any], labels: Sequence[Any], samples: Sequence[int]) -> Batch:
            return self.processor.collate(texts, [int(label[0]) for label in labels], samples, frame)

        return TextBatches(store, self.texts, LABEL, self.recipe.model.longest, frame, collate)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Texts that differ by a token or two in length."""
        batch = synthetic_texts(sizes[0], n, length, len(self.texts), self.recipe.frame)
        return replace(batch, classes=torch.arange(n) % sizes[-1])

    def predictor(self, model: Model, decoding: Any, inference: Inference, **options: Any) -> Classifier:
        """Predicts labels."""
        longest, frame = self.recipe.model.longest, self.recipe.frame
        return Classifier(inference.ready(), self.processor, longest=longest, frame=frame, **options)

    def model_input(
        self, model: Model, given: Any, options: AnswerOptions, predict: Callable[..., Prediction]
    ) -> ModelInput:
        """Prepare a text or pair of texts; the target may be a label other than the predicted one."""
        batch, axes = self.framed_input(given)
        answer = predict()
        label = answer.text if options.target is None else options.target
        questions = Questions.of_class(model, self.processor.labels, batch, label)
        return ModelInput(batch, axes, answer, questions)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Refuse labels of another task altogether."""
        unseen_labels(rows, self.processor.labels)

    def metrics(
        self, model: Model, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]
    ) -> tuple[list[Score], list[str]]:
        """Accuracy, macro and micro F1."""
        scores, notes = label_scores(rows, predictions, self.processor.labels)
        return scores, [*notes, *unknown_in(self.processor.tokenizer, self.texts_of(rows))]

    def records(
        self, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]
    ) -> Iterator[JsonMapping]:
        """The texts, the right label, the prediction and whether it is right."""
        return label_records(rows, self.texts, predictions)
