"""Classification: a label for a text, or for a pair of texts.

row -> token ids, number of the label -> `Batch` -> model -> loss              `LabelProcessor`
text -> token ids -> hidden states -> class -> label                           `Classifier.predict`
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from heedful.data.batch import Batch
from heedful.data.report import Encoded
from heedful.data.sources import LocatedRow, Location, Row
from heedful.objectives.classification import class_logits
from heedful.tasks.labels import LABEL, answer, number_of
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader
from heedful.tasks.texts import BUDGET, WITH_CLASS, Template, TextReader, encoded
from heedful.text.tokenizer import Tokenizer


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

    def number(self, label: str, where: Location) -> int:
        """The number of a label; see `heedful.tasks.labels.number_of`."""
        return number_of(label, self.labels, where)

    def encode(
        self, rows: Iterable[LocatedRow[Row]], columns: Sequence[str], chunk: int = 1000
    ) -> Iterator[Encoded]:
        """The ids of the texts and the number of the label, row by row."""
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
        longest: the most tokens of a sequence; longer texts are cut, and the prediction says so.
        n_best: labels to give for each input.
        frame: the special tokens around the texts.
        budget: tokens of the rectangle that is read together; bounds the memory.
    """

    unaligned = "a classifier writes nothing"

    def __init__(
        self,
        model: Any,
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
        """Label the inputs, each a text or a pair of inputs."""
        return [self._prediction(*found) for found in self.reader.read(inputs, progress)]

    def _prediction(self, logits: torch.Tensor, note: str | None, cut: int) -> Prediction:
        found = answer(logits.log_softmax(-1), self.processor.labels, self.n_best, note)
        return replace(found, cut=cut)
