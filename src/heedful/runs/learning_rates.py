"""The learning rates of a recipe: its schedule, and the curve over all updates (``describe --plot``)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from torch import nn

from heedful.errors import RequestError
from heedful.recipes.schema import Recipe
from heedful.runs.warm_start import freeze, rate_shares
from heedful.training.optimizers import MuonConfig, build_optimizer
from heedful.training.schedules import PlateauConfig, Schedule, build_schedule, ends_with_training
from heedful.typing import JsonObject

POINTS = 500
"""Maximum number of updates of a curve, besides the end of the warm-up."""

UNLIMITED = 10_000
"""Fewest updates of the curve of a training whose number of updates the recipe does not determine."""


@dataclass(frozen=True)
class Point:
    """The learning rate of an update; the first update is 1."""

    update: int
    rate: float


@dataclass(frozen=True)
class RateGroup:
    """Parameters with the same share of the rate.

    Args:
        share: factor of the schedule's rate (``start.layer_share``, or Muon's ``adam_share``).
        parameters: number of trained parameters.
    """

    share: float
    parameters: int


@dataclass(frozen=True)
class LearningRates:
    """The learning rate over the updates of a training.

    Args:
        name: of the recipe.
        kind: of its schedule.
        updates: number of updates of the curve.
        warmup: last update of the warm-up; 0: none.
        points: from the first update to the last, the end of the warm-up among them.
        groups: of parameters, those with the largest share first.
        notes: what the curve does not show.
    """

    name: str
    kind: str
    updates: int
    warmup: int
    points: tuple[Point, ...]
    groups: tuple[RateGroup, ...]
    notes: tuple[str, ...]

    @property
    def peak(self) -> Point:
        """The first point with the largest rate, which is the largest of all updates."""
        return max(self.points, key=lambda point: point.rate)

    def to_dict(self) -> JsonObject:
        """Return the object of ``docs/schemas/schedule.schema.json``."""
        return {
            "version": 1,
            "name": self.name,
            "kind": self.kind,
            "updates": self.updates,
            "warmup": self.warmup,
            "peak": asdict(self.peak),
            "points": [asdict(point) for point in self.points],
            "groups": [asdict(group) for group in self.groups],
            "notes": list(self.notes),
        }


def schedule_of(recipe: Recipe, max_updates: int | None) -> Schedule:
    """Return the schedule of a training.

    Args:
        recipe: the recipe.
        max_updates: the number of updates that the limits of the training allow; None: any number.

    Raises:
        RequestError: it needs a number of updates and none is set, or it ends within its warm-up.
    """
    return build_schedule(
        recipe.schedule,
        d_model=getattr(recipe.model, "d_model", None) or recipe.model.d_hidden,
        max_updates=max_updates,
        direction=recipe.direction,
    )


def learning_rates(name: str, recipe: Recipe, model: nn.Module) -> LearningRates:
    """Return the learning rates of a recipe.

    Args:
        name: of the recipe.
        recipe: the recipe.
        model: its model, of any device; parameters that are not trained are marked so.

    Raises:
        RequestError: the schedule, or a share of the rate, does not suit the recipe or the model; or the
            schedule ends with an epoch, and the number of updates of an epoch depends on the data.
    """
    decays = ends_with_training(recipe.schedule)
    if decays and recipe.training.max_updates is None:
        raise RequestError(
            f"schedule.kind={recipe.schedule.kind} decays until training.max_epochs="
            f"{recipe.training.max_epochs}, after a number of updates that depends on the data; set "
            "training.max_updates=N to plot N updates"
        )
    schedule = schedule_of(recipe, recipe.training.max_updates)
    warmup = int(getattr(schedule, "warmup", 0))
    updates = recipe.training.max_updates or getattr(recipe.schedule, "updates", None)
    updates = updates or max(UNLIMITED, 5 * warmup)
    spread = (round(1 + i * (updates - 1) / (POINTS - 1)) for i in range(POINTS))
    shown = sorted({*spread, min(max(1, warmup), updates)})
    points = tuple(Point(update, schedule.rate(update)) for update in shown)
    groups = tuple(_groups(recipe, model))
    return LearningRates(
        name, recipe.schedule.kind, updates, warmup, points, groups, tuple(_notes(recipe, groups, decays))
    )


def _groups(recipe: Recipe, model: nn.Module) -> Iterator[RateGroup]:
    freeze(recipe, model)
    optimizer = build_optimizer(recipe.optimizer, model, rate_shares(recipe, model))
    sizes: dict[float, int] = {}
    for group in optimizer.param_groups:
        share = float(group.get("share", 1.0))
        sizes[share] = sizes.get(share, 0) + sum(p.numel() for p in group["params"])
    for share in sorted(sizes, reverse=True):
        yield RateGroup(share, sizes[share])


def _notes(recipe: Recipe, groups: tuple[RateGroup, ...], decays: bool) -> Iterator[str]:
    training = recipe.training
    ends = {name: getattr(training, name) for name in ("max_epochs", "max_minutes", "patience")}
    others = " and ".join(f"training.{name}={n:g}" for name, n in ends.items() if n is not None)
    if training.max_updates is None:
        yield (f"the number of updates depends on {others}; training.max_updates=N shows the first N of them")
    elif others:
        decay = " (and then the decay, too)" if decays and training.max_epochs is not None else ""
        yield f"{others} may end the training earlier{decay}"
    if isinstance(recipe.schedule, PlateauConfig):
        yield "without reductions, which depend on the validations"
    if len(groups) > 1:
        key = "optimizer.adam_share" if isinstance(recipe.optimizer, MuonConfig) else "start.layer_share"
        yield f"{key}: parameters with a share of s are trained with s times this rate"
