"""Classification of images.

row -> pixels, number of the label -> `Batch.of_images` -> model -> loss     `ImageProcessor`
path -> pixels -> hidden states -> class -> label                              `ImageClassifier.predict`
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from heedful.data.images import IMAGE, LazyImage
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.nn.patches import Images
from heedful.objectives.classification import class_logits
from heedful.tasks.images import LEFT_OUT, ImageReader
from heedful.tasks.labels import LABEL, Labels, answer, number_of
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader

BUDGET = 8192
"""Tokens of the images that are read together."""


@dataclass(frozen=True)
class ImageProcessor:
    """How images are read, and the labels in the order of their numbers."""

    reader: ImageReader
    labels: Labels

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        return f"{self.reader.fingerprint}-{'|'.join(map(repr, self.labels))}"

    @property
    def sizes(self) -> tuple[int]:
        """The size of the set of labels."""
        return (len(self.labels),)

    def number(self, label: str, where: Any) -> int:
        """The number of a label; see `heedful.tasks.labels.number_of`."""
        return number_of(label, self.labels, where)

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport, *, drop: bool) -> Iterator[Encoded]:
        """The pixels of the images, in one row of numbers each, and the number of the label.

        Args:
            rows: with images and labels.
            report: counts rows, those dropped, and the labels.
            drop: leave out an image that cannot be read.

        Raises:
            DataError: a label is unknown, an image cannot be read and is not to be dropped, or none is left.
        """
        for row in rows:
            report.rows += 1
            number = self.number(row.row[LABEL], row.where)
            try:
                pixels = self.reader.pixels(row.row[IMAGE])
            except DataError as error:
                if not drop:
                    raise DataError(f"{error} ({LEFT_OUT})") from None
                report.drop("unreadable", row.where)
                continue
            report.kept += 1
            report.classes[row.row[LABEL]] += 1
            ids: dict[str, Any] = {IMAGE: pixels.reshape(-1), LABEL: [number]}
            yield LocatedRow(ids, row.where)
        if report.kept == 0:
            raise DataError("\n  ".join(["no row can be used", *report.lines()]))


class ImageClassifier(Reader):
    """A model with its processor: images in, labels out, as many and in the same order.

    A prediction's ``text`` is the label, its ``score`` the label's log-probability, its ``alternatives``
    the next labels. Of an image that cannot be read, the prediction has an ``error`` and no text.

    Args:
        model: has heads ``pooled`` and ``class``; put into evaluation mode here.
        processor: of images and labels.
        n_tokens: of an image.
        n_best: labels to give for each input.
        budget: tokens of the images that are read together; bounds the memory.
    """

    unaligned = "a classifier writes nothing"

    def __init__(
        self, model: Any, processor: ImageProcessor, *, n_tokens: int, n_best: int = 1, budget: int = BUDGET
    ) -> None:
        self.model, self.processor = model.eval(), processor
        self.n_tokens, self.n_best = n_tokens, n_best
        self.size = max(1, budget // n_tokens)
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def answers(self, inputs: Sequence[Any], progress: Progress) -> list[Prediction]:
        """Label the inputs: paths of files, `LazyImage` objects, arrays or images of Pillow's."""
        results: list[Prediction] = []
        for start in range(0, len(inputs), self.size):
            group = inputs[start : start + self.size]
            results += self._answers(group)
            progress(len(group))
        return results

    def _answers(self, group: Sequence[Any]) -> list[Prediction]:
        results, pixels = [Prediction("") for _ in group], {}
        for i, given in enumerate(group):
            try:
                pixels[i] = self.processor.reader.pixels(LazyImage.of(given))
            except DataError as error:
                results[i] = Prediction("", error=str(error))
        if pixels:
            normalised = self.processor.reader.normalised(np.stack(list(pixels.values())))
            images = Images.of(normalised, self.n_tokens).to(self.device)
            logits = class_logits(self.model(images), self.model.heads, images.layout)
            for i, row in zip(pixels, logits.log_softmax(-1).cpu(), strict=True):
                results[i] = answer(row, self.processor.labels, self.n_best)
        return results
