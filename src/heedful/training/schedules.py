"""Learning rate schedules: functions of the update number, which counts from 1.

Lecture S0 derives the warm-up schedule in three attempts: ``steps^-0.5`` starts far too high;
``steps * 4000^-1.5`` grows without bound; the last is the smaller of the two, printed piecewise without the
factor ``d_model^-0.5`` of the paper's equation 3. Without it the peak at 4000 updates is 0.0158 instead of
6.99e-4 (d_model = 512). `Warmup` includes the factor.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self, TypeGuard

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from heedful.config import Config
from heedful.errors import RequestError
from heedful.records import Count, Record, checked
from heedful.typing import JsonObject

Direction = Literal["lower", "higher"]


def is_better(metric: float, best: float | None, direction: Direction) -> bool:
    """Return whether ``metric`` is finite and strictly better than a ``best`` that is finite too, if any."""
    if not math.isfinite(metric):
        return False
    if best is None or not math.isfinite(best):
        return True
    return metric < best if direction == "lower" else metric > best


class Schedule(ABC):
    """A learning rate schedule; those that depend on validation metrics also have a state."""

    @abstractmethod
    def rate(self, step: int) -> float:
        """Return the learning rate of update ``step`` (the first update is 1)."""

    def observe(self, metric: float) -> None:  # noqa: B027
        """Update the state with the metric of one validation."""

    def state_dict(self) -> JsonObject:
        """Return the state to save in a checkpoint, as JSON values."""
        return {}

    def load_state_dict(self, state: JsonObject) -> None:  # noqa: B027
        """Load a state returned by `state_dict`.

        Raises:
            ValueError: it is not such a state.
        """


@dataclass(frozen=True)
class Warmup(Schedule):
    """``factor * d_model^-0.5 * min(s^-0.5, s * warmup^-1.5)`` (Vaswani et al. 2017, eq. 3).

    Linear warm-up to update ``warmup``, where the rate peaks, then inverse square root decay.
    """

    d_model: int
    warmup: int = 4000
    factor: float = 1.0

    def rate(self, step: int) -> float:
        """Return the learning rate of update ``step``."""
        return self.factor * self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Linear warm-up from ``warmup_from`` to ``peak`` at ``warmup``, then ``peak * sqrt(warmup / s)``."""

    peak: float
    warmup: int
    warmup_from: float = 0.0

    def rate(self, step: int) -> float:
        """Return the learning rate of update ``step``."""
        if step < self.warmup:
            return self.warmup_from + (self.peak - self.warmup_from) * step / self.warmup
        return self.peak * math.sqrt(self.warmup / step)


@dataclass(frozen=True)
class Constant(Schedule):
    """Linear warm-up from 0 over the first ``warmup`` updates, then constant ``peak``."""

    peak: float
    warmup: int = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of update ``step``."""
        return self.peak * step / self.warmup if step < self.warmup else self.peak


@dataclass(frozen=True)
class _Decay(Schedule):
    """Linear warm-up from 0 to ``peak`` at ``warmup``, then decay to ``floor`` at ``updates``."""

    peak: float
    updates: int
    warmup: int = 0
    floor: float = 0.0

    def rate(self, step: int) -> float:
        """Return the learning rate of update ``step``."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        if step >= self.updates:
            return self.floor
        return self._decayed((step - self.warmup) / (self.updates - self.warmup))

    @abstractmethod
    def _decayed(self, progress: float) -> float:
        """Return the rate after the share ``progress`` of the decay."""


class Cosine(_Decay):
    """Linear warm-up from 0 to ``peak``, then cosine decay to ``floor`` at ``updates``, then constant.

    ``floor + (peak - floor) / 2 * (1 + cos(pi * (s - warmup) / (updates - warmup)))``
    (Loshchilov and Hutter 2017, eq. 5, without restarts).
    """

    def _decayed(self, progress: float) -> float:
        return self.floor + (self.peak - self.floor) / 2 * (1 + math.cos(math.pi * progress))


class Linear(_Decay):
    """Linear warm-up from 0 to ``peak`` at ``warmup``, then linear decay to ``floor`` at ``updates``."""

    def _decayed(self, progress: float) -> float:
        return self.peak + (self.floor - self.peak) * progress


class PlateauState(Record):
    """The state of `Plateau`."""

    scale: Annotated[float, Field(ge=0, le=1)]
    best: float | None
    bad: Count


@dataclass
class Plateau(Schedule):
    """`Constant`, multiplied by ``factor`` after more than ``patience`` validations without improvement.

    A reduction resets the count of bad validations; the rate never falls below ``floor``.
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
        """Return the learning rate of update ``step``, given the metrics observed so far."""
        return max(Constant(self.peak, self.warmup).rate(step) * self.scale, self.floor)

    def observe(self, metric: float) -> None:
        """Update the state with the metric of one validation."""
        if is_better(metric, self.best, self.direction):
            self.best, self.bad = metric, 0
            return
        self.bad += 1
        if self.bad > self.patience:
            self.scale, self.bad = self.scale * self.factor, 0

    def state_dict(self) -> JsonObject:
        """Return the reduction so far, the best metric, and the number of validations since it."""
        return {"scale": self.scale, "best": self.best, "bad": self.bad}

    def load_state_dict(self, state: JsonObject) -> None:
        """Load a state returned by `state_dict`."""
        record = checked(state, PlateauState)
        self.scale, self.best, self.bad = record.scale, record.best, record.bad


# Configurations ---------------------------------------------------------------------------------------------


class _PeakConfig(Config):
    """A rate that never exceeds its peak."""

    below_peak: ClassVar[tuple[str, ...]] = ()
    """Keys of other rates."""

    peak: PositiveFloat = 5e-4

    @model_validator(mode="after")
    def _peaks(self) -> Self:
        for key in self.below_peak:
            if (rate := getattr(self, key)) > self.peak:
                raise ValueError(f"{key}={rate:g} must be at most peak={self.peak:g}, the largest rate")
        return self


class WarmupConfig(Config):
    """Linear warm-up, then inverse square root decay, scaled by the model width (`Warmup`).

    Args:
        factor: factor of ``d_model^-0.5 min(s^-0.5, s warmup^-1.5)``, the rate at update s.
        warmup: the update of the largest rate.
    """

    kind: Literal["warmup"] = "warmup"
    factor: PositiveFloat = 1.0
    warmup: PositiveInt = 4000


class InverseSqrtConfig(_PeakConfig):
    """Linear warm-up to ``peak`` at update ``warmup``, then ``peak sqrt(warmup / s)`` at update s.

    Args:
        peak: the largest rate.
        warmup: the update of the largest rate.
        warmup_from: the rate at update 0.
    """

    below_peak = ("warmup_from",)

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    peak: PositiveFloat = 5e-4
    warmup: PositiveInt = 4000
    warmup_from: NonNegativeFloat = 1e-7


class _DecayConfig(_PeakConfig):
    """Decay to ``floor`` at a last update.

    Args:
        peak: the largest rate.
        warmup: the update of the largest rate; or, if it is less than 1, its share of all updates.
        floor: the rate at the end of the decay and after it.
        updates: the update at which the decay ends; null: where ``training.max_updates`` or
            ``training.max_epochs`` ends the training, whichever comes first. ``training.max_minutes`` and
            ``patience`` may end it earlier.
    """

    below_peak = ("floor",)

    kind: str
    peak: PositiveFloat = 5e-4
    warmup: NonNegativeInt | Annotated[float, Field(gt=0, lt=1)] = 0
    floor: NonNegativeFloat = 0.0
    updates: PositiveInt | None = None

    def warmup_updates(self, updates: int) -> int:
        """Return the update of the largest rate, given the last update."""
        return self.warmup if isinstance(self.warmup, int) else round(self.warmup * updates)


class CosineConfig(_DecayConfig):
    """Linear warm-up from 0 to ``peak`` at update ``warmup``, then cosine decay to ``floor``."""

    kind: Literal["cosine"] = "cosine"


class LinearConfig(_DecayConfig):
    """Linear warm-up from 0 to ``peak`` at update ``warmup``, then linear decay to ``floor``."""

    kind: Literal["linear"] = "linear"


class ConstantConfig(Config):
    """Linear warm-up from 0, then the constant rate ``peak``.

    Args:
        peak: the rate after warm-up.
        warmup: number of warm-up updates.
    """

    kind: Literal["constant"] = "constant"
    peak: PositiveFloat = 5e-4
    warmup: NonNegativeInt = 0


class PlateauConfig(_PeakConfig):
    """Reduce the rate whenever ``training.metric`` stops improving.

    Args:
        peak: the largest rate.
        factor: factor of each reduction.
        patience: number of consecutive validations without improvement before a reduction; one more
            triggers it.
        warmup: number of updates of linear warm-up from 0.
        floor: the smallest rate.
    """

    below_peak = ("floor",)

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
    """Build the schedule that ``config`` describes.

    Args:
        config: the schedule and its settings.
        d_model: the model width, for `Warmup`.
        max_updates: the number of updates that the limits of the training allow, for `Cosine` and `Linear`.
        direction: whether a lower or higher validation metric is better, for `Plateau`.

    Raises:
        RequestError: the schedule needs a number of updates and none is set, or it ends within its warm-up.
    """
    settings = config.model_dump(exclude={"kind"})
    match config:
        case WarmupConfig():
            return Warmup(d_model, **settings)
        case InverseSqrtConfig():
            return InverseSqrt(**settings)
        case CosineConfig() | LinearConfig():
            last = last_update(config, max_updates)
            settings |= {"updates": last, "warmup": config.warmup_updates(last)}
            return (Cosine if isinstance(config, CosineConfig) else Linear)(**settings)
        case ConstantConfig():
            return Constant(**settings)
        case PlateauConfig():
            return Plateau(direction=direction, **settings)


def ends_with_training(config: ScheduleConfig) -> TypeGuard[CosineConfig | LinearConfig]:
    """Return whether the rate decays until the training ends."""
    return isinstance(config, CosineConfig | LinearConfig) and config.updates is None


def ends_at_zero(config: ScheduleConfig, last_update: int | None) -> str | None:
    """Describe a decay to a rate of zero before the training's last update; None if there is none."""
    if not isinstance(config, CosineConfig | LinearConfig) or config.updates is None or config.floor:
        return None
    if last_update is None or config.updates >= last_update:
        return None
    return (
        f"schedule.updates={config.updates} decays the learning rate to schedule.floor=0, so the training "
        f"would change nothing after it, until its last update {last_update}; remove it "
        "(schedule.updates=null: the decay ends with the training), or set schedule.floor"
    )


def last_update(config: CosineConfig | LinearConfig, max_updates: int | None) -> int:
    """Return the update at which the rate reaches its floor.

    Raises:
        RequestError: it is not set, or it is not after the warm-up.
    """
    updates = config.updates or max_updates
    if updates is None:
        raise RequestError(
            f"schedule.kind={config.kind} needs a last update: set schedule.updates, training.max_updates or "
            "training.max_epochs"
        )
    if updates <= config.warmup_updates(updates):
        raise RequestError(
            f"schedule.warmup={config.warmup} must be smaller than "
            f"{'schedule.updates' if config.updates else 'training.max_updates'}={updates}; lower it"
        )
    return updates
