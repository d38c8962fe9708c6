"""Where the limits of a recipe end its training, and the schedule of learning rates until there."""

from heedful.errors import RequestError
from heedful.recipes.schema import Recipe
from heedful.runs.learning_rates import schedule_of
from heedful.tasks.base import Log
from heedful.training.loop import Training, TrainingResult
from heedful.training.schedules import Schedule, ends_at_zero, ends_with_training
from heedful.training.settings import TrainingConfig
from heedful.training.update import PlannedData


def last_update(settings: TrainingConfig, data: PlannedData) -> int | None:
    """Return the update at which updates or epochs end the training; None if neither is limited.

    All epochs count like the first, though their numbers of updates may differ slightly.
    """
    if settings.max_epochs is None:
        return settings.max_updates
    of_epochs = settings.max_epochs * len(data.epoch(0))
    return of_epochs if settings.max_updates is None else min(settings.max_updates, of_epochs)


def training_schedule(recipe: Recipe, last: int | None, log: Log) -> Schedule:
    """Return the schedule; a decay ends with the training, be it limited by updates or by epochs.

    Raises:
        RequestError: the training ends within the warm-up of a decay, or goes on after it at a rate of zero.
    """
    decay, settings = recipe.schedule, recipe.training
    by_epochs = last != settings.max_updates
    if ends_with_training(decay) and by_epochs and last is not None:
        if last <= decay.warmup_updates(last):
            raise RequestError(
                f"training.max_epochs={settings.max_epochs} ends the training after {last} updates, "
                f"within schedule.warmup={decay.warmup}; lower it"
            )
        log(
            f"training.max_epochs={settings.max_epochs}: {last:,} updates, over which the learning "
            "rate decays"
        )
    if problem := ends_at_zero(decay, last):
        raise RequestError(problem)
    schedule = schedule_of(recipe, last)
    warmup = int(getattr(schedule, "warmup", 0))
    if last is not None and last < warmup:
        log(
            f"the training ends after {last:,} updates, within schedule.warmup={warmup}: the learning "
            f"rate rises to {schedule.rate(last):.2e} and not to its peak of "
            f"{schedule.rate(warmup):.2e}; lower schedule.warmup, or train longer"
        )
    return schedule


def log_unfinished_decay(training: Training, result: TrainingResult, log: Log) -> None:
    """Log if the training ended before its learning rate had decayed; a signal does not end a training."""
    schedule, n = training.schedule, result.state.update
    last = getattr(schedule, "updates", None)
    if last is None or result.stop_reason == "signal" or n >= min(last, training.last_update or last):
        return
    log(
        f"the training ended after {n:,} updates ({result.stop_reason}), and the learning rate decays over "
        f"{last:,}: it was still {schedule.rate(n):.2e}; with training.max_updates={n} it decays to its end "
        "in this time"
    )
