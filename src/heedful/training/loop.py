"""The training loop: finish the last update (stop, evaluate, save a checkpoint), then make the next one."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from heedful.errors import DamagedError, DataError, RequestError, nearest
from heedful.nn.modes import evaluating
from heedful.records import RESTORE
from heedful.training import checkpoints, distribution
from heedful.training.callbacks import (
    Callback,
    Event,
    Saved,
    Started,
    Stopped,
    StopReason,
    Updated,
    Validated,
)
from heedful.training.checkpoints import ScoredCheckpoint, TrainingState
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.schedules import Direction, Schedule, is_better
from heedful.training.settings import TrainingConfig
from heedful.training.signals import StopRequest, fault_point, stop_signals
from heedful.training.update import PlannedData, update_weights
from heedful.typing import JsonMapping

Validate = Callable[[nn.Module], Mapping[str, float]]
"""Computes metrics of a model in evaluation mode, without gradients; called in the first process only."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of `Training.fit`.

    Args:
        stop_reason: why training ended.
        state: the final state.
        resumed_at: number of updates at which this call resumed; 0 for a new run.
    """

    stop_reason: StopReason
    state: TrainingState
    resumed_at: int = 0


@dataclass
class Training:
    """One training run: its parts, and the loop `fit` that puts them together.

    Args:
        module: the model, on its device, and its loss; call `ModelWithLoss.compile` first to compile it.
        data: provides the samples of every update.
        optimizer: over the model's parameters; see `heedful.training.optimizers.build_optimizer`.
        schedule: provides the learning rate of every update.
        settings: limits, intervals and numbers of checkpoints. ``tokens_per_update``, ``precision``,
            ``compile``, ``processes``, ``threads`` and ``log_every`` are used by what builds the other parts.
        run: the run folder; checkpoints go to its subfolder ``checkpoints``.
        validate: evaluates the model; must return the metric named by ``settings.metric``.
        frozen: for each frozen parameter, the number of initial updates in which it does not change.
        callbacks: called with every event, in the first process only.
        direction: whether a lower or higher value of ``settings.metric`` is better.
        last_update: the update at which ``max_updates`` or ``max_epochs`` ends the training, for progress;
            None: as ``settings.max_updates`` says.
        state: where the training stands; `fit` restores it when it resumes.
    """

    module: ModelWithLoss
    data: PlannedData
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    settings: TrainingConfig
    run: Path
    validate: Validate | None = None
    frozen: Mapping[nn.Parameter, int] = field(default_factory=dict)
    callbacks: Sequence[Callback] = ()
    direction: Direction = "lower"
    last_update: int | None = None
    state: TrainingState = field(default_factory=TrainingState)
    is_stopped_by_callback: bool = field(default=False, init=False)

    def fit(self, *, resume: bool = False) -> TrainingResult:
        """Train until a limit is reached, the data end, validation stops improving, or a signal arrives.

        An update is one optimizer step; it may accumulate several micro-batches. Afterwards the model has the
        weights of the last update; `heedful.training.checkpoints.final_weights` returns the final weights of
        the run. After SIGINT, SIGTERM or SIGHUP, the update is finished and a checkpoint is written; a second
        signal ends the process at once. With ``resume``, training continues from the newest intact checkpoint
        (from the beginning if there are no checkpoints); on the same CPU the result is bit for bit that of an
        uninterrupted run.

        Raises:
            RequestError: if the run has checkpoints and ``resume`` is not set, if the checkpoint does not
                match the model or the optimizer, or if validation does not return ``settings.metric``.
            DamagedError: if ``resume`` is set and all checkpoints are damaged.
            WorkError: if the loss is NaN or infinite, or a checkpoint cannot be written.
        """
        self._begin(resume=resume)
        state, resumed_at = self.state, self.state.update
        start_time = time.monotonic() - state.seconds
        forward, updates = distribution.wrap(self.module), self._updates()
        self.module.train()
        is_unsaved = False
        with stop_signals() as signals, self._notify_failure():
            while True:
                # First complete the update just made: decide whether to stop, validate, save. On resume, this
                # catches up on what a signal had skipped. Custom data may be finite, so `next` looks ahead.
                next_update = next(updates, None)
                stop_reason = "data" if next_update is None else self._stop_reason(signals)
                if is_evaluated := self._is_evaluation_due(stop_reason):
                    metrics, is_best = self._evaluate()
                    state.seconds = time.monotonic() - start_time
                    self._notify(Validated(state.update, metrics, is_best, state.seconds))
                    # This validation may have exhausted the patience, of the settings or of a callback.
                    stop_reason = stop_reason or _out_of_patience(state, self.settings)
                    stop_reason = stop_reason or self._callback_reason()
                is_due = stop_reason or state.update % self.settings.save_every == 0
                if is_evaluated or (is_unsaved and is_due):
                    self._checkpoint()
                    is_unsaved = False
                if next_update is None or stop_reason:
                    break

                # Then make the next one: forward, backward, clip, step (`update_weights`).
                samples, cursor = next_update
                lr, seconds_before = self.schedule.rate(state.update + 1), state.seconds
                stats = update_weights(
                    forward, self.optimizer, self.data, self.settings, samples, epoch=state.epoch,
                    update=state.update + 1, lr=lr, run=self.run, frozen=self.frozen,
                )  # fmt: skip
                state.advance(cursor, len(samples), stats.tokens)
                state.seconds = time.monotonic() - start_time
                is_unsaved = True
                updated = Updated(
                    state.update, state.epoch, stats.loss, stats.terms, lr, stats.norm, stats.tokens,
                    state.seconds - seconds_before, state.seconds,
                )  # fmt: skip
                self._notify(updated)
                fault_point("after-update")  # tests end the process here
        self._notify(Stopped(state.update, stop_reason or "data", state.seconds))
        return TrainingResult(stop_reason or "data", state, resumed_at)

    def _updates(self) -> Iterator[tuple[Sequence[int], JsonMapping]]:
        """Return the updates from the cursor on.

        Raises:
            DamagedError: the checkpoint's cursor is not one of these data.
        """
        try:
            return self.data.updates(self.state.cursor)
        except DataError as error:
            path = checkpoints.path_of(self.run, self.state.update) / "state.json"
            raise DamagedError(f"{path}: damaged: {error}; {RESTORE}") from None

    def _begin(self, *, resume: bool) -> None:
        """Restore everything from the newest intact checkpoint, if there is one."""
        if distribution.is_first():
            checkpoints.clean(self.run)
        distribution.barrier()
        if not resume and checkpoints.paths(self.run):
            raise RequestError(
                f"{self.run}: already has checkpoints; resume it (--resume, or heedful.resume), or train "
                "into another folder"
            )
        checkpoint, damaged = checkpoints.latest_intact(self.run)
        if checkpoint is not None:
            checkpoint.restore(self.module.model, self.optimizer)
            try:
                self.schedule.load_state_dict(checkpoint.state.schedule)
            except ValueError as error:
                path = checkpoint.path / "state.json"
                raise DamagedError(f"{path}: damaged: training.schedule: {error}; {RESTORE}") from None
            self.state = checkpoint.state
        elif damaged:
            raise DamagedError(f"{self.run}: all checkpoints are damaged; the newest: {damaged[0]}")
        self._notify(
            Started(
                self.state.update,
                self.state.validated,
                self.last_update or self.settings.max_updates,
                distribution.world(),
                tuple(str(error) for error in damaged),
            )
        )

    def _notify(self, event: Event) -> None:
        for callback in self.callbacks if distribution.is_first() else ():
            answer = callback(event)
            if answer is not None and not isinstance(answer, bool | np.bool_):
                name = getattr(callback, "__qualname__", type(callback).__name__)
                raise RequestError(
                    f"callback {name}: expected True (stop the training), False or None as its result, got "
                    f"{answer!r:.60}; return bool(…) or nothing"
                )
            self.is_stopped_by_callback |= bool(answer)

    @contextmanager
    def _notify_failure(self) -> Iterator[None]:
        """Pass an error on to the callbacks as `Stopped`, then re-raise it."""
        try:
            yield
        except BaseException:
            for callback in self.callbacks if distribution.is_first() else ():
                with suppress(Exception):  # do not hide the original error
                    callback(Stopped(self.state.update, "failed", self.state.seconds))
            raise

    def _stop_reason(self, signals: StopRequest) -> StopReason | None:
        """Return why to stop now ("signal", a limit, or "callback"), or None; the same on all ranks."""
        is_out_of_time = _is_out_of_time(self.state, self.settings)
        local = [int(signals.received), int(is_out_of_time)]
        has_signal, out_of_time = distribution.sum_over_ranks(torch.tensor(local)).tolist()
        if has_signal:
            return "signal"
        limit = reached_limit(self.state, self.settings, is_out_of_time=bool(out_of_time))
        return limit or self._callback_reason()

    def _callback_reason(self) -> StopReason | None:
        """Return "callback" if a callback of the first process asked to stop, else None."""
        asked = distribution.sum_over_ranks(torch.tensor([int(self.is_stopped_by_callback)]))
        return "callback" if asked.item() else None

    def _is_evaluation_due(self, stop_reason: StopReason | None) -> bool:
        """Return whether to validate: at regular intervals, and at the end of training.

        After a signal, validation is skipped; the resumed run does it.
        """
        is_due = self.state.update % self.settings.validate_every == 0 or stop_reason is not None
        is_new = self.state.validated < self.state.update
        return self.validate is not None and is_due and stop_reason != "signal" and is_new

    def _evaluate(self) -> tuple[dict[str, float], bool]:
        """Validate in the first process; return the metrics, and whether the model is the best of the run.

        The validation at the end of training may fall between two regular ones. Its model can become the best
        of the run, but it does not count for patience, the schedule or the ranking of regular checkpoints. If
        training is resumed later, `TrainingState.advance` drops it, so that all of these are the same as in
        an uninterrupted run.
        """
        metrics: dict[str, float] = {}
        if distribution.is_first():
            assert self.validate is not None
            with evaluating(self.module.model), torch.no_grad():
                metrics = {name: float(value) for name, value in self.validate(self.module.model).items()}
            fault_point("during-validation")
        metrics = distribution.from_first(metrics)
        if (name := self.settings.metric) not in metrics:
            raise RequestError(
                f"training.metric: validation has no metric {name!r}{nearest(name, metrics)}; "
                f"available: {', '.join(metrics) or 'none'}"
            )
        state, metric, direction = self.state, metrics[name], self.direction
        is_regular = state.update % self.settings.validate_every == 0
        is_best = is_better(metric, state.best[0].metric if state.best else None, direction)
        checkpoint = ScoredCheckpoint(state.update, metric, is_regular=is_regular)
        state.best = _ranked([*state.best, checkpoint], direction, self.settings.n_best)
        state.validated = state.update
        if is_regular:
            if is_better(metric, state.best_regular, direction):
                state.best_regular, state.bad_validations = metric, 0
            else:
                state.bad_validations += 1
            self.schedule.observe(metric)
        return metrics, is_best

    def _checkpoint(self) -> None:
        """Write a checkpoint in the first process, then remove obsolete ones."""
        if not distribution.is_first():
            return
        state, settings = self.state, self.settings
        state.schedule = self.schedule.state_dict()
        path = checkpoints.save(self.run, self.module.model, self.optimizer, state)
        intervals = (
            [settings.save_every] if self.validate is None else [settings.save_every, settings.validate_every]
        )
        checkpoints.prune(
            self.run,
            current=state.update,
            n_last=settings.n_last,
            best=[checkpoint.update for checkpoint in state.best],
            # Whether an uninterrupted run saves a checkpoint after this update.
            is_regular=lambda update: any(update % interval == 0 for interval in intervals),
        )
        self._notify(Saved(state.update, path))


def reached_limit(
    state: TrainingState, settings: TrainingConfig, *, is_out_of_time: bool | None = None
) -> StopReason | None:
    """Return the limit that the training has reached, or None.

    Args:
        state: the current training state.
        settings: the limits.
        is_out_of_time: whether the time limit is reached; None: compute it from ``state``.
    """
    if settings.max_updates is not None and state.update >= settings.max_updates:
        return "updates"
    if settings.max_epochs is not None and state.epoch >= settings.max_epochs:
        return "epochs"
    if _is_out_of_time(state, settings) if is_out_of_time is None else is_out_of_time:
        return "minutes"
    return _out_of_patience(state, settings)


def _is_out_of_time(state: TrainingState, settings: TrainingConfig) -> bool:
    return settings.max_minutes is not None and state.seconds >= 60 * settings.max_minutes


def _out_of_patience(state: TrainingState, settings: TrainingConfig) -> StopReason | None:
    """Return "patience" if too many consecutive validations did not improve, else None."""
    ends = settings.patience is not None and state.bad_validations >= settings.patience
    return "patience" if ends else None


def _ranked(checkpoints: list[ScoredCheckpoint], direction: Direction, n_best: int) -> list[ScoredCheckpoint]:
    """Sort the checkpoints with a finite metric, best first; of the regular ones, keep only ``n_best``."""
    sign = 1 if direction == "lower" else -1
    finite = [s for s in checkpoints if math.isfinite(s.metric)]
    ranked = sorted(finite, key=lambda s: (sign * s.metric, s.update))
    best_regular = [s for s in ranked if s.is_regular][:n_best]
    return [s for s in ranked if s in best_regular or not s.is_regular]
