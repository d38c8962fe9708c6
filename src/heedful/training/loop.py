"""The training loop: stop, validate, save, update, log."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from heedful.errors import DamagedError, RequestError, nearest
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
from heedful.training.checkpoints import Scored, TrainingState
from heedful.training.feed import PlannedData
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.schedules import Schedule, is_better
from heedful.training.settings import TrainingConfig
from heedful.training.signals import StopRequest, fault_point, stop_signals
from heedful.training.update import update_weights

Validate = Callable[[nn.Module], Mapping[str, float]]
"""Computes metrics of a model in evaluation mode, without gradients; called in the first process only."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of `fit`.

    Args:
        stopped: why training ended.
        state: the final state.
        before: number of updates at which this call resumed; 0 for a new run.
    """

    stopped: StopReason
    state: TrainingState
    before: int = 0


def fit(
    module: ModelWithLoss,
    data: PlannedData,
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

    An update is one optimizer step; it may accumulate several micro-batches. Afterwards the model has the
    weights of the last update; `heedful.training.averaging.final_weights` returns the final weights of the
    run. After SIGINT, SIGTERM or SIGHUP, the update is finished and a checkpoint is written; a second signal
    ends the process at once. With ``resume``, training continues from the newest intact checkpoint (or the
    beginning, if there is none); on the same CPU the result is bit for bit that of an uninterrupted run.

    Args:
        module: the model, on its device, and its loss; call `ModelWithLoss.compile` first to compile it.
        data: provides the samples of every update.
        optimizer: over the model's parameters; see `heedful.training.optimizers.build_optimizer`.
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
    state, damaged = _initial_state(run, module.model, optimizer, schedule, resume)
    n_before, began = state.update, time.monotonic() - state.seconds
    callbacks = callbacks if distribution.is_first() else ()
    _log(
        callbacks, Started(state.update, state.validated, settings.max_updates, distribution.world(), damaged)
    )
    module.train()
    forward, updates = distribution.wrap(module), data.updates(state.cursor)
    with stop_signals() as signals, _failure_logged(callbacks, state):
        unsaved = False
        while True:
            # Stop, validate and save: what is due after the last update, also that of an interrupted run.
            upcoming = next(updates, None)
            stopped = "data" if upcoming is None else _stop_reason(state, settings, signals)
            validated = False
            if validate is not None and _is_validation_due(state, settings, stopped):
                metrics = _metrics(validate, module.model, settings.metric)
                is_best = _record_metric(metrics[settings.metric], state, schedule, settings)
                state.seconds = time.monotonic() - began
                _log(callbacks, Validated(state.update, metrics, is_best, state.seconds))
                stopped = stopped or _out_of_patience(state, settings)
                validated = True
            if validated or (unsaved and (stopped or state.update % settings.save_every == 0)):
                if distribution.is_first():
                    path = _save(
                        run, module.model, optimizer, schedule, state, settings, validate is not None
                    )
                    _log(callbacks, Saved(state.update, path))
                unsaved = False
            if upcoming is None or stopped:
                break

            # Update: forward and backward passes of the micro-batches, clipping, an optimizer step.
            samples, cursor = upcoming
            rate, seconds_before = schedule.rate(state.update + 1), state.seconds
            stats = update_weights(
                forward, optimizer, data, settings, samples,
                epoch=state.epoch, update=state.update + 1, rate=rate, run=run, frozen=frozen,
            )  # fmt: skip
            state.advance(cursor, len(samples), stats.tokens)
            state.seconds = time.monotonic() - began
            unsaved = True
            updated = Updated(
                state.update, state.epoch, stats.loss, stats.terms, rate, stats.norm, stats.tokens,
                state.seconds - seconds_before, state.seconds,
            )  # fmt: skip
            _log(callbacks, updated)
            fault_point("after-update")
        _log(callbacks, Stopped(state.update, stopped or "data", state.seconds))
    return TrainingResult(stopped or "data", state, n_before)


def _initial_state(
    run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Schedule, resume: bool
) -> tuple[TrainingState, tuple[str, ...]]:
    """Return a new state, or that of the newest intact checkpoint after restoring everything from it.

    The second value are the errors of damaged checkpoints that were skipped.
    """
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
    schedule.load_state_dict(found.state.schedule)
    return found.state, tuple(str(error) for error in damaged)


def _log(callbacks: Sequence[Callback], event: Event) -> None:
    for callback in callbacks:
        callback(event)


@contextmanager
def _failure_logged(callbacks: Sequence[Callback], state: TrainingState) -> Iterator[None]:
    """Pass an error on to the callbacks as `Stopped`, then re-raise it."""
    try:
        yield
    except BaseException:
        for callback in callbacks:
            with suppress(Exception):  # do not hide the original error
                callback(Stopped(state.update, "failed", state.seconds))
        raise


# Stopping ---------------------------------------------------------------------------------------------------


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
    return _out_of_patience(state, settings)


def _is_late(state: TrainingState, settings: TrainingConfig) -> bool:
    return settings.max_minutes is not None and state.seconds >= 60 * settings.max_minutes


def _out_of_patience(state: TrainingState, settings: TrainingConfig) -> StopReason | None:
    """Return "patience" if too many consecutive validations did not improve, else None."""
    ends = settings.patience is not None and state.bad_validations >= settings.patience
    return "patience" if ends else None


def _stop_reason(state: TrainingState, settings: TrainingConfig, signals: StopRequest) -> StopReason | None:
    """Return why to stop now ("signal", or a limit), or None; the same on all ranks."""
    local = [int(signals.received), int(_is_late(state, settings))]
    flags = distribution.sum_over_ranks(torch.tensor(local)).tolist()
    return "signal" if flags[0] else reached_limit(state, settings, is_late=bool(flags[1]))


# Validation -------------------------------------------------------------------------------------------------


def _is_validation_due(state: TrainingState, settings: TrainingConfig, stopped: StopReason | None) -> bool:
    """Return whether to validate: at regular intervals, and at the end of training.

    After a signal, validation is skipped; the resumed run does it.
    """
    is_due = state.update % settings.validate_every == 0 or stopped is not None
    return is_due and stopped != "signal" and state.validated < state.update


def _metrics(validate: Validate, model: nn.Module, name: str) -> dict[str, float]:
    """Return the metrics computed by the first process, after checking that the one named exists."""
    found: dict[str, float] = {}
    if distribution.is_first():
        model.eval()
        with torch.no_grad():
            found = {metric: float(value) for metric, value in validate(model).items()}
        model.train()
        fault_point("during-validation")
    found = distribution.from_first(found)
    if name not in found:
        raise RequestError(
            f"training.metric: validation has no metric {name!r}{nearest(name, found)}; "
            f"available: {', '.join(found) or 'none'}"
        )
    return found


def _record_metric(metric: float, state: TrainingState, schedule: Schedule, settings: TrainingConfig) -> bool:
    """Record the metric of a validation in the state; return whether it is the best of the run.

    The validation at the end of training may not be a regular one, and may find the best model of the run. It
    is not counted for patience, the schedule or the ranking of regular checkpoints, and a resumed run
    discards it, so that all of these are the same as in an uninterrupted run.
    """
    is_regular = state.update % settings.validate_every == 0
    is_best = is_better(metric, state.best[0].metric if state.best else None, settings.direction)
    state.best = _ranked([*state.best, Scored(state.update, metric, in_turn=is_regular)], settings)
    state.validated = state.update
    if is_regular:
        if is_better(metric, state.best_in_turn, settings.direction):
            state.best_in_turn, state.bad_validations = metric, 0
        else:
            state.bad_validations += 1
        schedule.observe(metric)
    return is_best


def _ranked(scored: list[Scored], settings: TrainingConfig) -> list[Scored]:
    """Return the best regular entries and all others, finite ones only, best first, ties by update."""
    sign = 1 if settings.direction == "lower" else -1
    finite = [s for s in scored if is_better(s.metric, None, settings.direction)]
    ranked = sorted(finite, key=lambda s: (sign * s.metric, s.update))
    kept = [s for s in ranked if s.in_turn][: settings.n_best]
    return [s for s in ranked if s in kept or not s.in_turn]


def _save(
    run: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    state: TrainingState,
    settings: TrainingConfig,
    validates: bool,
) -> Path:
    """Write a checkpoint, then remove obsolete ones; return its folder."""
    state.schedule = schedule.state_dict()
    path = checkpoints.save(run, model, optimizer, state)
    intervals = [settings.save_every, *([settings.validate_every] if validates else [])]
    checkpoints.prune(
        run,
        now=state.update,
        last=settings.n_last,
        best=[scored.update for scored in state.best],
        # Whether an uninterrupted run saves a checkpoint after this update.
        in_turn=lambda update: any(update % interval == 0 for interval in intervals),
    )
    return path
