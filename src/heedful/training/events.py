"""What a training tells whoever listens: plain callables that are given one of these events."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

StopReason = Literal["updates", "epochs", "minutes", "patience", "data", "signal"]
"""Which condition ended the training: a limit, early stopping, no more data, or a signal."""


@dataclass(frozen=True)
class Started:
    """The training begins, or goes on.

    Args:
        update: the updates already made (0: from the beginning).
        validated: the update that was last validated.
        max_updates: where it will end, if that is known.
        world: how many processes take part.
        damaged: what is wrong with the newer checkpoints that had to be passed over.
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
        update: its number, from 1.
        epoch: how many times the data has been gone through.
        loss: the weighted sum of the terms.
        terms: each term's mean over the update.
        rate: the learning rate.
        norm: the norm of the gradients before clipping.
        tokens: tokens that were read for it, over all ranks.
        seconds: how long it took.
        elapsed: seconds of training so far, resumed parts together.
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
    """Validation ran after an update; ``best`` says whether its metric is the best so far."""

    update: int
    metrics: dict[str, float]
    best: bool
    elapsed: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint was made."""

    update: int
    path: Path


@dataclass(frozen=True)
class Stopped:
    """The training is over; ``failed`` when an error ended it."""

    update: int
    reason: StopReason | Literal["failed"]
    elapsed: float


Event = Started | Updated | Validated | Saved | Stopped
Callback = Callable[[Event], None]
