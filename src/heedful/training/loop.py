"""The training loop: updates, validation, checkpoints and stopping conditions."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from heedful.errors import DamagedError, RequestError, nearest
from heedful.training import checkpoints, distribution
from heedful.training.events import Callback, Event, Saved, Started, Stopped, StopReason, Updated, Validated
from heedful.training.faults import fault_point
from heedful.training.feed import TrainingData
from heedful.training.schedules import Observing, Schedule, is_better
from heedful.training.settings import TrainingConfig
from heedful.training.signals import StopRequest, stop_signals
from heedful.training.state import Scored, TrainingState
from heedful.training.step import Step
from heedful.training.update import Updater
from heedful.typing import JsonMapping

Validate = Callable[[nn.Module], Mapping[str, float]]
"""Computes metrics of a model in evaluation mode, without gradients; called in the first process only."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of `train`.

    Args:
        stopped: why training ended.
        state: the final state.
        before: number of updates at which this call resumed; 0 for a new run.
    """

    stopped: StopReason
    state: TrainingState
    before: int = 0


def train(
    step: Step,
    data: TrainingData,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    settings: TrainingConfig,
    run: Path,
    *,
    validate: Validate | None = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    frozen: Mapping[nn.Parameter, int] | None = None,
) -> TrainingResult:
    """Train until a limit is reached, the data end, validation stops improving, or a signal arrives.

    An update is one optimizer step; it may accumulate several micro-batches.

    Afterwards the model has the weights of the last update; `averaging.final_weights` returns the final
    weights of the run. After SIGINT, SIGTERM or SIGHUP, the update is finished and a checkpoint is written;
    a second signal ends the process at once. With ``resume``, training continues from the newest intact
    checkpoint (or the beginning, if there is none); on the same CPU the result is bit for bit that of an
    uninterrupted run.

    Args:
        step: the model, on its device, and its objective; call `Step.compile` first to compile it.
        data: provides the samples of every update.
        optimizer: over the model's parameters; see `optimizers.build_optimizer`.
        schedule: provides the learning rate of every update.
        settings: limits, intervals and numbers of checkpoints. ``tokens_per_update``, ``precision``,
            ``average`` and ``log_every`` are not used here, but by the code that builds the other arguments.
        run: the run folder; checkpoints go to its subfolder ``checkpoints``.
        validate: evaluates the model; must return the metric named by ``settings.metric``.
        callbacks: called with every event, in the first process only.
        resume: continue from the newest intact checkpoint of the run.
        frozen: for each frozen parameter, the number of first updates in which it does not change.

    Raises:
        RequestError: if the run has checkpoints and ``resume`` is not set, if the checkpoint does not match
            the model or the optimizer, or if validation does not return ``settings.metric``.
        DamagedError: if ``resume`` is set and no checkpoint is intact.
        WorkError: if the loss is NaN or infinite, or a checkpoint cannot be written.
    """
    state, damaged = _begin(run, step.model, optimizer, schedule, resume)
    training = _Training(step, data, optimizer, schedule, settings, run, validate, callbacks, state, frozen)
    before = state.update
    training.notify(
        Started(state.update, state.validated, settings.max_updates, distribution.world(), damaged)
    )
    step.train()
    stopped: StopReason | None = "data"
    with stop_signals() as request, training.failure_notified():
        for samples, cursor in data.updates(state.cursor):
            if stopped := training.limit(request):
                break
            training.validate_and_save()
            if stopped := training.early_stop():
                break
            training.advance(samples, cursor)
        stopped = stopped or "data"
        training.validate_and_save(stopped)
        training.notify(Stopped(state.update, stopped, state.seconds))
    return TrainingResult(stopped, state, before)


def reached_limit(
    state: TrainingState, settings: TrainingConfig, *, is_late: bool | None = None
) -> StopReason | None:
    """Return the limit that the training has reached, or None.

    Args:
        state: the current training state.
        settings: the limits.
        is_late: whether the time limit is reached; None: compute it from ``state``.
    """
    if settings.max_updates is not None and state.update >= settings.max_updates:
        return "updates"
    if settings.max_epochs is not None and state.epoch >= settings.max_epochs:
        return "epochs"
    if _is_late(state, settings) if is_late is None else is_late:
        return "minutes"
    return "patience" if _is_out_of_patience(state, settings) else None


def _is_late(state: TrainingState, settings: TrainingConfig) -> bool:
    return settings.max_minutes is not None and state.seconds >= 60 * settings.max_minutes


def _is_out_of_patience(state: TrainingState, settings: TrainingConfig) -> bool:
    return settings.patience is not None and state.bad_validations >= settings.patience


def _begin(
    run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Schedule, resume: bool
) -> tuple[TrainingState, tuple[str, ...]]:
    """Return a new state, or that of the newest intact checkpoint after restoring everything from it."""
    if distribution.is_first():
        checkpoints.clean(run)
    distribution.barrier()
    if not resume and checkpoints.paths(run):
        raise RequestError(f"{run}: already has checkpoints; resume the run, or train into another folder")
    found, damaged = checkpoints.latest_good(run)
    if found is None:
        if damaged:
            raise DamagedError(f"{run}: all checkpoints are damaged; the newest: {damaged[0]}")
        return TrainingState(), ()
    found.restore(model, optimizer)
    if isinstance(schedule, Observing):
        schedule.load_state_dict(found.state.schedule)
    return found.state, tuple(str(error) for error in damaged)


class _Training:
    """The steps of the training loop; the arguments are those of `train`."""

    def __init__(
        self,
        step: Step,
        data: TrainingData,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        settings: TrainingConfig,
        run: Path,
        validate: Validate | None,
        callbacks: Sequence[Callback],
        state: TrainingState,
        frozen: Mapping[nn.Parameter, int] | None,
    ) -> None:
        self.model, self.optimizer, self.schedule = step.model, optimizer, schedule
        self.settings, self.run, self.state = settings, run, state
        self.measure = validate
        self.callbacks = callbacks if distribution.is_first() else ()
        self.update = Updater(
            step,
            distribution.wrap(step),
            optimizer,
            data,
            settings.accumulate,
            settings.seed,
            settings.clip_norm,
            next(step.parameters()).device,
            frozen or {},
        )
        self.changed = False  # since the last checkpoint
        self.began = time.monotonic() - state.seconds

    def notify(self, event: Event) -> None:
        """Call every callback with the event."""
        for callback in self.callbacks:
            callback(event)

    @contextlib.contextmanager
    def failure_notified(self) -> Iterator[None]:
        """Notify the callbacks of an error, then re-raise it."""
        try:
            yield
        except BaseException:
            for callback in self.callbacks:
                with contextlib.suppress(Exception):  # do not hide the original error
                    callback(Stopped(self.state.update, "failed", self.state.seconds))
            raise

    def limit(self, request: StopRequest) -> StopReason | None:
        """Return why to stop now ("signal", or a limit), or None; the same on all ranks."""
        local = [int(request.received), int(_is_late(self.state, self.settings))]
        flags = distribution.sum_over_ranks(torch.tensor(local)).tolist()
        return "signal" if flags[0] else reached_limit(self.state, self.settings, is_late=bool(flags[1]))

    def early_stop(self) -> StopReason | None:
        """Return "patience" if too many consecutive validations did not improve, else None."""
        return "patience" if _is_out_of_patience(self.state, self.settings) else None

    def advance(self, samples: Sequence[int], cursor: JsonMapping) -> None:
        """Make one update."""
        state = self.state
        number = state.update + 1
        rate = self.schedule.rate(number)
        stats = self.update(samples, epoch=state.epoch, update=number, rate=rate, run=self.run)
        before = state.seconds
        state.update, state.cursor = number, dict(cursor)
        state.best = [scored for scored in state.best if scored.in_turn]
        state.tokens += stats.tokens
        state.samples += len(samples)
        state.seconds = time.monotonic() - self.began
        self.changed = True
        duration = state.seconds - before
        self.notify(
            Updated(
                number,
                state.epoch,
                stats.loss,
                stats.terms,
                rate,
                stats.norm,
                stats.tokens,
                duration,
                state.seconds,
            )
        )
        fault_point("after-update")

    def validate_and_save(self, stopped: StopReason | None = None) -> None:
        """Validate and save if the update number is due, or if training ends here.

        After a signal, validation is skipped; the resumed run does it.
        """
        state, settings = self.state, self.settings
        scheduled = state.update % settings.validate_every == 0
        due = state.validated < state.update and (scheduled or stopped is not None) and stopped != "signal"
        validates = self.measure is not None and due
        if validates:
            self._validate(scheduled)
        if self.changed and (validates or stopped or state.update % settings.save_every == 0):
            self._save()

    def _validate(self, scheduled: bool) -> None:
        """Evaluate the model and record the metrics.

        A final validation that is not scheduled may find the best model of the run. It is not counted for
        patience, the schedule or the ranking of scheduled checkpoints, and a resumed run discards it, so that
        all of these are the same as in an uninterrupted run.
        """
        state, settings = self.state, self.settings
        metrics = self._metrics()
        metric = metrics[settings.metric]
        best = is_better(metric, state.best[0].metric if state.best else None, settings.direction)
        state.best = _ranked([*state.best, Scored(state.update, metric, in_turn=scheduled)], settings)
        state.validated = state.update
        if scheduled:
            self._observe(metric)
        state.seconds = time.monotonic() - self.began
        self.changed = True
        self.notify(Validated(state.update, metrics, best, state.seconds))

    def _observe(self, metric: float) -> None:
        """Update patience and schedule with the metric of a scheduled validation."""
        state = self.state
        if is_better(metric, state.best_in_turn, self.settings.direction):
            state.best_in_turn, state.bad_validations = metric, 0
        else:
            state.bad_validations += 1
        if isinstance(self.schedule, Observing):
            self.schedule.observe(metric)

    def _metrics(self) -> dict[str, float]:
        """Return the metrics computed by the first process, after checking that the chosen one exists."""
        found: dict[str, float] = {}
        if distribution.is_first() and self.measure is not None:
            self.model.eval()
            with torch.no_grad():
                found = {name: float(value) for name, value in self.measure(self.model).items()}
            self.model.train()
            fault_point("during-validation")
        found = distribution.from_first(found)
        name = self.settings.metric
        if name not in found:
            raise RequestError(
                f"training.metric: validation has no metric {name!r}{nearest(name, found)}; "
                f"available: {', '.join(found) or 'none'}"
            )
        return found

    def _is_in_turn(self, update: int) -> bool:
        """Return whether an uninterrupted run saves a checkpoint after this update."""
        intervals = [self.settings.save_every, *([self.settings.validate_every] if self.measure else [])]
        return any(update % interval == 0 for interval in intervals)

    def _save(self) -> None:
        """Write a checkpoint, then prune the old ones."""
        state, settings = self.state, self.settings
        self.changed = False
        if not distribution.is_first():
            return
        if isinstance(self.schedule, Observing):
            state.schedule = self.schedule.state_dict()
        path = checkpoints.save(self.run, self.model, self.optimizer, state)
        best = [scored.update for scored in state.best]
        checkpoints.prune(
            self.run, now=state.update, last=settings.n_last, best=best, in_turn=self._is_in_turn
        )
        self.notify(Saved(state.update, path))


def _ranked(scored: list[Scored], settings: TrainingConfig) -> list[Scored]:
    """Return the best scheduled entries and all others, finite ones only, best first, ties by update."""
    sign = 1 if settings.direction == "lower" else -1
    finite = [s for s in scored if is_better(s.metric, None, settings.direction)]
    ranked = sorted(finite, key=lambda s: (sign * s.metric, s.update))
    kept = [s for s in ranked if s.in_turn][: settings.n_best]
    return [s for s in ranked if s in kept or not s.in_turn]
