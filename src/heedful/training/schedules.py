"""Learning rates as functions of the update number, which counts from 1.

The lectures (S0) arrive at the warm-up schedule in three attempts. First ``steps^-0.5``, which starts
far too high; then ``steps * 4000^-1.5``, a line that never comes down; then the smaller of the two,
printed piecewise without the factor ``d_model^-0.5`` that equation 3 of the paper has. Without that
factor the peak at 4000 updates is 0.0158 instead of 6.99e-4 (d_model = 512). `Warmup` has it.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from heedful.config import Config
from heedful.errors import RequestError

Direction = Literal["lower", "higher"]


class Schedule(Protocol):
    """Something that knows the learning rate of every update."""

    def rate(self, step: int) -> float:
        """The learning rate of update ``step`` (the first one is 1)."""
        ...


@runtime_checkable
class Observing(Protocol):
    """A schedule that also depends on what validation measured, and so has a state."""

    def observe(self, metric: float) -> None:
        """Take note of the metric of one validation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to what `state_dict` returned."""
        ...


def is_better(metric: float, than: float | None, direction: Direction) -> bool:
    """Whether ``metric`` is strictly better; anything finite is better than nothing, NaN never is."""
    if not math.isfinite(metric):
        return False
    if than is None:
        return True
    return metric < than if direction == "lower" else metric > than


def _ramp(step: int, warmup: int, start: float, peak: float) -> float:
    """The line from ``start`` at update 0 to ``peak`` at update ``warmup``."""
    return start + (peak - start) * step / warmup


@dataclass(frozen=True)
class Warmup:
    """``factor * d_model^-0.5 * min(s^-0.5, s * warmup^-1.5)`` (Vaswani et al. 2017, eq. 3).

    A line up to update ``warmup``, then the inverse square root; the peak lies where they meet.
    """

    d_model: int
    warmup: int = 4000
    factor: float = 1.0

    def rate(self, step: int) -> float:
        """The learning rate of update ``step``."""
        return self.factor * self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


@dataclass(frozen=True)
class InverseSqrt:
    """A line from ``warmup_from`` to ``peak`` at update ``warmup``, then ``peak * sqrt(warmup / s)``."""

    peak: float
    warmup: int
    warmup_from: float = 0.0

    def rate(self, step: int) -> float:
        """The learning rate of update ``step``."""
        if step < self.warmup:
            return _ramp(step, self.warmup, self.warmup_from, self.peak)
        return self.peak * math.sqrt(self.warmup / step)


@dataclass(frozen=True)
class Cosine:
    """A line from 0 to ``peak``, then half a cosine to ``floor`` at ``updates``; ``floor`` from there.

    ``floor + (peak - floor) / 2 * (1 + cos(pi * (s - warmup) / (updates - warmup)))``
    (Loshchilov and Hutter 2017, eq. 5, without restarts).
    """

    peak: float
    updates: int
    warmup: int = 0
    floor: float = 0.0

    def rate(self, step: int) -> float:
        """The learning rate of update ``step``."""
        if step < self.warmup:
            return _ramp(step, self.warmup, 0.0, self.peak)
        if step >= self.updates:
            return self.floor
        done = (step - self.warmup) / (self.updates - self.warmup)
        return self.floor + (self.peak - self.floor) / 2 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True)
class Linear:
    """A line from 0 to ``peak`` at update ``warmup``, then one to ``floor`` at ``updates``."""

    peak: float
    updates: int
    warmup: int = 0
    floor: float = 0.0

    def rate(self, step: int) -> float:
        """The learning rate of update ``step``."""
        if step < self.warmup:
            return _ramp(step, self.warmup, 0.0, self.peak)
        if step >= self.updates:
            return self.floor
        done = (step - self.warmup) / (self.updates - self.warmup)
        return self.peak + (self.floor - self.peak) * done


@dataclass(frozen=True)
class Constant:
    """``peak``, after a line from 0 over the first ``warmup`` updates."""

    peak: float
    warmup: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of update ``step``."""
        return _ramp(step, self.warmup, 0.0, self.peak) if step < self.warmup else self.peak


@dataclass
class Plateau:
    """`Constant`, times ``factor`` whenever more than ``patience`` validations brought nothing better.

    After a reduction the count of bad validations starts again; the rate never falls below ``floor``.
    """

    peak: float
    factor: float
    patience: int
    direction: Direction
    warmup: int = 0
    floor: float = 0.0
    scale: float = field(default=1.0, init=False)
    best: float | None = field(default=None, init=False)
    bad: int = field(default=0, init=False)

    def rate(self, step: int) -> float:
        """The learning rate of update ``step``, given what was observed so far."""
        return max(Constant(self.peak, self.warmup).rate(step) * self.scale, self.floor)

    def observe(self, metric: float) -> None:
        """Take note of the metric of one validation."""
        if is_better(metric, self.best, self.direction):
            self.best, self.bad = metric, 0
            return
        self.bad += 1
        if self.bad > self.patience:
            self.scale, self.bad = self.scale * self.factor, 0

    def state_dict(self) -> dict[str, Any]:
        """The reduction so far, the best metric, and how many validations did not reach it."""
        return {"scale": self.scale, "best": self.best, "bad": self.bad}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to what `state_dict` returned."""
        self.scale, self.best, self.bad = state["scale"], state["best"], state["bad"]


class WarmupConfig(Config):
    """A line up to update ``warmup``, then the inverse square root, by the model's width (`Warmup`).

    Args:
        factor: times ``d_model^-0.5 min(s^-0.5, s warmup^-1.5)`` at update s.
        warmup: the update of the largest rate.
    """

    kind: Literal["warmup"] = "warmup"
    factor: PositiveFloat = 1.0
    warmup: PositiveInt = 4000


class InverseSqrtConfig(Config):
    """A line up to ``peak`` at update ``warmup``, then ``peak sqrt(warmup / s)`` at update s.

    Args:
        peak: the largest rate.
        warmup: the update of the largest rate.
        warmup_from: where the line begins.
    """

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    peak: PositiveFloat = 5e-4
    warmup: PositiveInt = 4000
    warmup_from: NonNegativeFloat = 1e-7


class CosineConfig(Config):
    """A line from 0 to ``peak`` at update ``warmup``, then half a cosine to ``floor``.

    Args:
        peak: the largest rate.
        warmup: the update of the largest rate.
        floor: the rate at the end, and after it.
        updates: when the end is reached; null: at ``training.max_updates``.
    """

    kind: Literal["cosine"] = "cosine"
    peak: PositiveFloat = 5e-4
    warmup: NonNegativeInt = 0
    floor: NonNegativeFloat = 0.0
    updates: PositiveInt | None = None


class LinearConfig(Config):
    """A line from 0 to ``peak`` at update ``warmup``, then one to ``floor``.

    Args:
        peak: the largest rate.
        warmup: the update of the largest rate.
        floor: the rate at the end, and after it.
        updates: when the end is reached; null: at ``training.max_updates``.
    """

    kind: Literal["linear"] = "linear"
    peak: PositiveFloat = 5e-4
    warmup: NonNegativeInt = 0
    floor: NonNegativeFloat = 0.0
    updates: PositiveInt | None = None


class ConstantConfig(Config):
    """``peak``, after a line from 0.

    Args:
        peak: the rate.
        warmup: updates of the line.
    """

    kind: Literal["constant"] = "constant"
    peak: PositiveFloat = 5e-4
    warmup: NonNegativeInt = 0


class PlateauConfig(Config):
    """Smaller whenever ``training.metric`` stands still at validations.

    Args:
        peak: the largest rate.
        factor: what the rate is multiplied by then.
        patience: how many validations in a row may bring nothing better before that.
        warmup: updates of a line from 0 to the peak.
        floor: the smallest rate.
    """

    kind: Literal["plateau"] = "plateau"
    peak: PositiveFloat = 5e-4
    factor: float = Field(default=0.5, gt=0, lt=1)
    patience: NonNegativeInt = 3
    warmup: NonNegativeInt = 0
    floor: NonNegativeFloat = 0.0


ScheduleConfig = Annotated[
    WarmupConfig | InverseSqrtConfig | CosineConfig | LinearConfig | ConstantConfig | PlateauConfig,
    Field(discriminator="kind"),
]


def build_schedule(
    config: ScheduleConfig,
    *,
    d_model: int,
    max_updates: int | None = None,
    direction: Direction = "lower",
) -> Schedule:
    """Make the schedule that ``config`` describes.

    Args:
        config: one of the kinds.
        d_model: the model's width, for `Warmup`.
        max_updates: the length of the training, for `Cosine` and `Linear`.
        direction: which way the validation metric improves, for `Plateau`.

    Raises:
        RequestError: the schedule needs a number of updates that nobody gave, or one beyond its warm-up.
    """
    match config:
        case WarmupConfig():
            return Warmup(d_model, config.warmup, config.factor)
        case InverseSqrtConfig():
            return InverseSqrt(config.peak, config.warmup, config.warmup_from)
        case CosineConfig():
            return Cosine(config.peak, last_update(config, max_updates), config.warmup, config.floor)
        case LinearConfig():
            return Linear(config.peak, last_update(config, max_updates), config.warmup, config.floor)
        case ConstantConfig():
            return Constant(config.peak, config.warmup)
        case PlateauConfig():
            return Plateau(
                config.peak, config.factor, config.patience, direction, config.warmup, config.floor
            )


def last_update(config: CosineConfig | LinearConfig, max_updates: int | None) -> int:
    """The update at which the rate comes to its floor.

    Raises:
        RequestError: nobody gave it, or it does not lie beyond the warm-up.
    """
    updates = config.updates or max_updates
    if updates is None:
        raise RequestError(
            f"schedule.kind={config.kind} must know where it ends: "
            "set schedule.updates or training.max_updates"
        )
    if updates <= config.warmup:
        raise RequestError(
            f"schedule.warmup={config.warmup} leaves none of the {updates} updates of "
            f"{'schedule.updates' if config.updates else 'training.max_updates'}: lower it"
        )
    return updates
