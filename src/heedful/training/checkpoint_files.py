"""Schemas of the JSON files of checkpoints (`heedful.training.checkpoints`)."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PositiveInt

from heedful.records import Count, Digest, Record, StampedRecord

VERSION = 2
"""Format version of checkpoints."""


class FileEntry(Record):
    """Size and hash of a file."""

    size: Count
    sha256: Digest


class Manifest(StampedRecord):
    """Content of ``manifest.json``."""

    version: Literal[2]
    files: dict[str, FileEntry]


class ScoredEntry(Record):
    """See `ScoredCheckpoint`."""

    update: Count
    metric: float
    is_regular: bool = True


class SegmentEntry(Record):
    """See `heedful.data.plan.Segment`; those of older checkpoints have one more key."""

    model_config = ConfigDict(extra="allow")

    tokens_per_update: PositiveInt
    samples: Count


class CursorEntry(Record):
    """See `heedful.data.plan.Cursor`; data of one's own may have other keys."""

    model_config = ConfigDict(extra="allow")

    epoch: Count
    segments: list[SegmentEntry] | None = None


class TrainingEntry(Record):
    """See `TrainingState`."""

    update: Count
    cursor: CursorEntry | None
    validated: Count
    best: list[ScoredEntry]
    best_regular: float | None
    bad_validations: Count
    schedule: dict[str, bool | int | float | str | None]
    seconds: Annotated[float, Field(ge=0)]
    tokens: Count
    samples: Count


class StateFile(Record):
    """Content of ``state.json``."""

    training: TrainingEntry
    optimizer: str
