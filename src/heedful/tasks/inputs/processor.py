"""Processors: what a task learns from its training rows before it has a model, saved in the run's folder."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from heedful.artifacts.run_folder import RunFolder, read_labels, write_json
from heedful.data.report import Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.records import Record, read_record
from heedful.tasks.inputs.images import ImageReader, read_image_reader
from heedful.tasks.inputs.texts import encode_columns
from heedful.text.tokenizer import Tokenizer

Numbers = TypeVar("Numbers", float, NDArray[np.float64], Tensor)


@dataclass(frozen=True)
class Scale:
    """The scale of numbers, which a model reads standardised: ``z = (number - mean) / deviation``.

    Args:
        mean: of the training data's numbers.
        deviation: their standard deviation (over n).
    """

    mean: float
    deviation: float

    def standardised(self, numbers: Numbers) -> Numbers:
        """Return z, given numbers."""
        return (numbers - self.mean) / self.deviation

    def restored(self, standardised: Numbers) -> Numbers:
        """Return the numbers, given z."""
        return self.mean + self.deviation * standardised


LARGEST = 1e100
"""Largest magnitude of a target, so that sums of squares are finite."""

Magnitude = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class ScaleRecord(Record):
    """Content of ``scale.json``."""

    version: Literal[1] = 1
    mean: Magnitude
    deviation: Magnitude = Field(gt=0)


@dataclass(frozen=True)
class TaskProcessor:
    """Base class of processors: a frozen dataclass, each of whose fields is saved in a file of its own.

    | field | file |
    |---|---|
    | any name: `Tokenizer` | the tokenizer of the column with this name |
    | ``labels``: tuple of texts | all labels, in the order of their numbers |
    | ``scale``: `Scale` | mean and standard deviation |
    | ``reader``: `ImageReader` | how images are read |
    """

    @property
    def fingerprint(self) -> str:
        """Differs if anything is encoded differently, apart from text that is not in NFC."""
        return "-".join(_fingerprint(getattr(self, field.name)) for field in fields(self))

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers, by column."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in parts.items() if isinstance(part, Tokenizer)}

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the vocabularies, then the number of labels, if any: see `Task.build_model`."""
        vocabularies = [tokenizer.vocab_size for tokenizer in self.tokenizers.values()]
        parts = [getattr(self, field.name) for field in fields(self)]
        return (*vocabularies, *(len(part) for part in parts if isinstance(part, tuple)))

    def vocabulary_notes(self) -> list[str]:
        """Return a note for each tokenizer whose vocabulary is smaller than its configuration asks for."""
        notes: dict[str, str] = {}
        for name, tokenizer in self.tokenizers.items():
            asked = getattr(tokenizer.model.config, "vocab_size", None)
            if asked is not None and tokenizer.vocab_size < asked:
                notes.setdefault(
                    tokenizer.fingerprint,
                    f"the vocabulary has {tokenizer.vocab_size:,} tokens, fewer than vocab_size={asked} "
                    f"({name})",
                )
        return [*notes.values()]

    @classmethod
    def files(cls, folder: RunFolder) -> list[Path]:
        """The files that `save` writes, in order. If the last one exists, saving was completed."""
        special_paths = {"labels": folder.labels, "scale": folder.scale, "reader": folder.images}
        return [special_paths.get(field.name, folder.tokenizer(field.name)) for field in fields(cls)]

    def save(self, folder: RunFolder) -> None:
        """Write the files."""
        for field, path in zip(fields(self), self.files(folder), strict=True):
            part = getattr(self, field.name)
            if isinstance(part, Tokenizer):
                part.save(path)
            elif isinstance(part, ImageReader):
                write_json(path, {"version": 1, "reader": part.to_dict()})
            elif isinstance(part, Scale):
                write_json(path, {"version": 1, **asdict(part)})
            else:
                write_json(path, {"version": 1, "labels": list(part)})

    @classmethod
    def load(cls, folder: RunFolder) -> Self:
        """Read what `save` wrote."""
        names = (field.name for field in fields(cls))
        return cls(*(_loaded(name, path) for name, path in zip(names, cls.files(folder), strict=True)))


Part = Tokenizer | ImageReader | Scale | tuple[str, ...]
"""A field of a processor."""


def _fingerprint(part: Part) -> str:
    if isinstance(part, Scale):
        return f"{part.mean!r}-{part.deviation!r}"
    return "|".join(map(repr, part)) if isinstance(part, tuple) else part.fingerprint


def _loaded(name: str, path: Path) -> Part:
    if name == "labels":
        return read_labels(path)
    if name == "scale":
        record = read_record(path, ScaleRecord)
        return Scale(record.mean, record.deviation)
    if name == "reader":
        return read_image_reader(path)
    return Tokenizer.load(path)


@dataclass(frozen=True)
class TextProcessor(TaskProcessor):
    """The tokenizer of all texts."""

    text: Tokenizer


SOURCE, TARGET = COLUMNS = ("source", "target")


@dataclass(frozen=True)
class Tokenizers(TaskProcessor):
    """One tokenizer for each side; both may share a subword model."""

    source: Tokenizer
    target: Tokenizer

    def encode(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[Encoded]:
        """Yield the ids of both columns of each row, in order."""
        for row, ids in encode_columns({SOURCE: self.source, TARGET: self.target}, rows):
            yield LocatedRow(ids, row.location)
