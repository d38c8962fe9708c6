"""Events that the training loop passes to its callbacks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

StopReason = Literal["updates", "epochs", "minutes", "patience", "data", "signal"]
"""Which condition ended the training: a limit, early stopping, no more data, or a signal."""


@dataclass(frozen=True)
class Started:
    """Training starts or resumes.

    Args:
        update: number of updates already made (0 for a new run).
        validated: the last validated update.
        max_updates: the last update, if limited.
        world: number of processes.
        damaged: error messages of the damaged checkpoints that were skipped.
    """

    update: int
    validated: int = 0
    max_updates: int | None = None
    world: int = 1
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Updated:
    """One update was made.

    Args:
        update: its number, starting at 1.
        epoch: number of completed passes over the data.
        loss: the weighted sum of the loss terms.
        terms: the mean of each loss term over the update.
        rate: the learning rate.
        norm: the gradient norm before clipping.
        tokens: number of tokens in the update, over all ranks.
        seconds: duration of the update.
        elapsed: total training time in seconds, including earlier parts of a resumed run.
    """

    update: int
    epoch: int
    loss: float
    terms: dict[str, float]
    rate: float
    norm: float
    tokens: int
    seconds: float
    elapsed: float


@dataclass(frozen=True)
class Validated:
    """Validation ran after an update; ``best`` is true if its metric is the best so far."""

    update: int
    metrics: dict[str, float]
    best: bool
    elapsed: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    update: int
    path: Path


@dataclass(frozen=True)
class Stopped:
    """Training ended; ``reason`` is ``failed`` if an error ended it."""

    update: int
    reason: StopReason | Literal["failed"]
    elapsed: float


Event = Started | Updated | Validated | Saved | Stopped
Callback = Callable[[Event], None]
