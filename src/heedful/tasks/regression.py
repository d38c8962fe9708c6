"""Regression: a number for a text, or for a pair of texts.

row -> token ids, the number -> batch with standardised values -> model -> loss     `NumberProcessor`
text -> token ids -> hidden states -> value -> number                               `Regressor.predict`
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.report import Encoded
from heedful.data.sources import LocatedRow, Location, Row
from heedful.errors import DataError
from heedful.objectives.regression import values
from heedful.tasks.labels import LABEL
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader
from heedful.tasks.texts import BUDGET, WITH_CLASS, Template, TextReader, encoded
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Estimate(Prediction):
    """A prediction whose answer is a number; ``text`` has six of its digits, nothing is ranked by ``score``.

    Args:
        value: the number, in the unit of the training data.
    """

    value: float = 0.0


def number(text: str, where: Location) -> float:
    """The number that a label is.

    Raises:
        DataError: it is none, or not finite.
    """
    try:
        # Python also reads the digits of other scripts, and 1_000, as numbers; other programs do not.
        found = float(text if text.isascii() and "_" not in text else "")
    except ValueError:
        raise DataError(f"{where}: the label {text!r} is not a number") from None
    if not math.isfinite(found):
        raise DataError(f"{where}: the label {text!r} is not a finite number; leave the row out")
    return found


@dataclass(frozen=True)
class NumberProcessor:
    """The tokenizer of the texts, and the scale of the numbers: z = (number - mean) / deviation.

    Args:
        tokenizer: of both texts of a pair.
        mean: of the training data's numbers.
        deviation: their standard deviation (over n).
    """

    tokenizer: Tokenizer
    mean: float
    deviation: float

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        return f"{self.tokenizer.fingerprint}-{self.mean!r}-{self.deviation!r}"

    @property
    def sizes(self) -> tuple[int]:
        """The size of the vocabulary."""
        return (self.tokenizer.vocab_size,)

    def encode(self, rows: Iterable[LocatedRow[Row]], columns: Sequence[str]) -> Iterator[Encoded]:
        """The ids of the texts and the eight bytes of the number, row by row."""
        for row, ids in encoded(self.tokenizer, rows, columns):
            plain = np.array([number(row.row[LABEL], row.where)], dtype="<f8")
            yield LocatedRow({**ids, LABEL: plain.view(np.uint8).tolist()}, row.where)

    def collate(
        self,
        parts: Sequence[Sequence[Any]],
        labels: Sequence[Any],
        samples: Sequence[int] = (),
        frame: Template = WITH_CLASS,
    ) -> Batch:
        """A batch of texts with their numbers, standardised; ``labels`` are as `encode` gives them."""
        plain = np.concatenate([np.asarray(label, dtype=np.uint8).view("<f8") for label in labels])
        standardised = torch.from_numpy((plain - self.mean) / self.deviation).float()
        return replace(frame(parts, samples), values=standardised)


class Regressor(Reader):
    """A model with its processor: texts in, numbers out, as many and in the same order.

    Args:
        model: has heads ``pooled`` and ``value``; put into evaluation mode here.
        processor: of texts and numbers.
        longest: the most tokens of a sequence; longer texts are cut, and the prediction says so.
        frame: the special tokens around the texts.
        budget: tokens of the rectangle that is read together; bounds the memory.
    """

    unaligned = "a regression writes nothing"

    def __init__(
        self,
        model: Any,
        processor: NumberProcessor,
        *,
        longest: int,
        frame: Template = WITH_CLASS,
        budget: int = BUDGET,
    ) -> None:
        self.processor = processor
        self.reader = TextReader(
            model, processor.tokenizer, longest=longest, answer=values, frame=frame, budget=budget
        )

    def answers(self, inputs: Sequence[str | Sequence[str]], progress: Progress) -> list[Prediction]:
        """Give each input, a text or a pair of inputs, its number."""
        return [self._estimate(*found) for found in self.reader.read(inputs, progress)]

    def _estimate(self, standardised: torch.Tensor, note: str | None, cut: int) -> Estimate:
        found = self.processor.mean + self.processor.deviation * standardised.item()
        return Estimate(f"{found:.6g}", note=note, value=found, cut=cut)
