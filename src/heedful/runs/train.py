"""Train a recipe into a run (``heedful train``)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock

import torch
from torch import nn

from heedful import __version__
from heedful.artifacts.environment import choose_device
from heedful.artifacts.run_folder import (
    CALIBRATION,
    FORMAT,
    TUNED,
    RunFolder,
    emptied_on_failure,
    write_card,
    write_json,
)
from heedful.artifacts.weights import load_tensors, save_weights
from heedful.errors import HeedfulError, RequestError, WorkError
from heedful.forks import PerProcess
from heedful.memory import keep_freed_memory, memory_errors_as
from heedful.models.base import Model
from heedful.nn.modes import evaluating
from heedful.nn.norms import PowerNorm
from heedful.recipes.schema import Recipe
from heedful.runs.first_rows import check_first_rows
from heedful.runs.memory_budget import (
    REMEDY,
    TOO_LARGE,
    check_model,
    rehearse,
    require_memory,
    run_once,
    too_wide,
)
from heedful.runs.prepare import prepare
from heedful.runs.resuming import begin_folder, finished_result, locked_run, with_fixed_processes
from heedful.runs.schedules import last_update, log_unfinished_decay, training_schedule
from heedful.runs.warm_start import freeze, rate_note, rate_shares, take_weights
from heedful.tasks.base import Log, PreparedData, Task
from heedful.tasks.calibration import NOT_TUNED, Tuned, scaled_head
from heedful.tasks.pretrained import frozen_tables
from heedful.tasks.registry import task_for
from heedful.training import checkpoints, distribution
from heedful.training.callbacks import Callback
from heedful.training.checkpoints import average, final_weights
from heedful.training.distribution import start_processes, using_threads
from heedful.training.fast_paths import choose_compile, choose_precision, choose_processes
from heedful.training.loop import Training, TrainingResult
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import build_optimizer
from heedful.training.schedules import is_better
from heedful.training.update import PlannedData, seed_of
from heedful.typing import JsonMapping

_training = PerProcess(Lock)
"""Held during a training: random generators and numbers of threads belong to the whole process."""


@contextmanager
def _only_training() -> Iterator[None]:
    """Refuse a training while another one runs in this process; it would change the weights of both.

    Raises:
        RequestError: another one runs.
    """
    lock = _training.value
    if not lock.acquire(blocking=False):
        raise RequestError(
            "a training is running in another thread of this process, or this one was started in a callback; "
            "wait until it has ended, or train in another process"
        )
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class Trained:
    """Result of a training, and the run's folder; ``is_first`` is true in the process that reports it."""

    folder: RunFolder
    result: TrainingResult
    is_first: bool = True


@torch.inference_mode(False)  # this also enables gradients, under torch.no_grad too
def train_run(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    callbacks: Callable[[RunFolder], Sequence[Callback]] = lambda folder: (),
    log: Log = lambda line: None,
) -> Trained:
    """Train a recipe, into the folder ``out``.

    Args:
        recipe: validated.
        out: the run's folder; must not hold a run, unless it is resumed.
        resume: continue from the newest intact checkpoint in ``out``, on the same CPU bit for bit; a finished
            run is left as it is.
        overwrite: whether to remove the run that the folder holds.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        callbacks: returns the callbacks of the training; called once the folder exists.
        log: called with lines about the preparation.

    Raises:
        RequestError: the recipe or the folder is refused, or another training runs in this process.
    """
    keep_freed_memory()
    if not resume:
        _check_warm_up(recipe)
    with ExitStack() as stack:
        stack.enter_context(_only_training())
        stack.enter_context(using_threads(recipe.training.threads))
        torch_device = stack.enter_context(distribution.process_group(choose_device(device)))
        folder = RunFolder(out)
        log_once = log if distribution.is_first() else lambda line: None
        if distribution.is_first():
            stack.enter_context(locked_run(folder, resume, overwrite=overwrite))
        previous_result = finished_result(folder, recipe) if resume else None
        if previous_result is not None:
            return Trained(folder, previous_result, distribution.is_first())
        cleans_up = distribution.is_first() and not resume
        with emptied_on_failure(folder.path) if cleans_up else nullcontext():
            recipe, data, training = _set_up(recipe, folder, torch_device, stack, resume=resume, log=log_once)
            training.callbacks = callbacks(folder)
        result = training.fit(resume=resume)
        if result.stop_reason == "callback" and not result.state.update:
            raise RequestError(
                f"{out}: a callback stopped the training before the first update, so there are no weights; "
                "return True only at a later event, such as Updated"
            )
        if distribution.is_first():
            model = training.module.model
            assert isinstance(model, Model)
            load_tensors(*final_weights(folder.path, recipe.training), model, "the final weights")
            _keep_better_weights(training, result, log_once)
            log_unfinished_decay(training, result, log_once)
            _log_warm_up(recipe, model, log_once)
            finish(folder, recipe, model, result, data.task.tune(model, data, log_once))
        return Trained(folder, result, distribution.is_first())


def _set_up(
    recipe: Recipe, folder: RunFolder, device: torch.device, stack: ExitStack, *, resume: bool, log: Log
) -> tuple[Recipe, PreparedData, Training]:
    """Prepare data, model and optimizer; refuse whatever does not fit, before the first update.

    Args:
        recipe: validated.
        folder: the run's folder.
        device: where the model is trained.
        stack: receives the context of the other processes.
        resume: whether the run continues.
        log: called with lines about the preparation.

    Returns:
        The recipe with the number of processes, the data, and the training.
    """
    recipe, prepared, module, data = prepare_training(recipe, folder, device, resume=resume, log=log)
    task = prepared.task
    last = last_update(recipe.training, data)
    schedule = training_schedule(recipe, last, log)
    n_processes = choose_processes(recipe.training, module, _n_tokens(recipe, data), device)
    recipe = with_fixed_processes(folder, recipe, n_processes)
    n_threads = torch.get_num_threads()
    stack.enter_context(start_processes(n_processes, folder.path, recipe.training.threads))
    choose_fast_path(recipe, module, data, device, log)
    if not resume:
        n_parts = distribution.world() * recipe.training.accumulate
        rehearse(module, data, n_parts, device, partial(too_wide, recipe, prepared.longest))
    # It runs in the first process while the others wait.
    validate = using_threads(n_threads)(task.validator(prepared, module))
    frozen = {p: n for p, n in frozen_tables(recipe, module.model).items() if n is not None}
    optimizer = build_optimizer(recipe.optimizer, module.model, rate_shares(recipe, module.model), frozen)
    settings = recipe.training
    training = Training(
        module, data, optimizer, schedule, settings, folder.path, validate, frozen,
        direction=recipe.direction, last_update=last,
    )  # fmt: skip
    return recipe, prepared, training


def prepare_training(
    recipe: Recipe, folder: RunFolder, device: torch.device, *, resume: bool, log: Log
) -> tuple[Recipe, PreparedData, ModelWithLoss, PlannedData]:
    """Check the recipe, encode its data and build its model.

    Args:
        recipe: validated.
        folder: the run's folder.
        device: where the model is trained.
        resume: whether the run continues.
        log: called with lines about the preparation.

    Returns:
        The recipe as the folder has it, the rows, the model with its loss, and the training data in updates.
    """
    task_for(recipe).check_requirements()
    has_weights = resume and bool(checkpoints.paths(folder.path))
    check_model(recipe, device, is_new=not has_weights)
    if distribution.is_first():
        if not resume:
            check_first_rows(recipe)
        recipe = begin_folder(folder, recipe, resume, device)
        prepared = prepare(recipe, folder, log)
    distribution.barrier()
    if not distribution.is_first():
        prepared = prepare(recipe, folder, log)
    task = prepared.task
    task.check_data(prepared)
    task.check_metric(prepared)
    sizes = task.processor.vocabulary_notes() if recipe.start is None else []
    for note in (*sizes, *task.data_notes(prepared)):
        log(note)
    data = task.training_data(prepared)  # before the model: it refuses weights of unknown labels
    module = build_module(task, device, None if has_weights else log)
    return recipe, prepared, module, data


def _keep_better_weights(training: Training, result: TrainingResult, log: Log) -> None:
    """Validate a model with averaged weights; replace them by the best checkpoint if that is better.

    Averaging helps a training that has converged, and harms one that still improves.
    """
    settings, model = training.settings, training.module.model
    if not settings.average or result.stop_reason == "signal":
        return
    averaged = checkpoints.select_checkpoints(training.run, settings)
    if (n := len(averaged)) < settings.average:
        log(
            f"training.average={settings.average}: the run has only {n} to average; a smaller "
            "training.save_every gives more"
        )
    best_paths = [checkpoints.path_of(training.run, best.update) for best in result.state.best[:1]]
    if not best_paths or averaged == best_paths or settings.keep_average == "always":
        return
    assert training.validate is not None
    with evaluating(model), torch.no_grad():
        metric = float(training.validate(model)[settings.metric])
    best = result.state.best[0]
    better, plural = is_better(best.metric, metric, training.direction), "s" * (n > 1)
    if better:
        path = best_paths[0]
        load_tensors(*average([path / "model.safetensors"]), model, str(path))
    log(
        f"validation {settings.metric}: {metric:.4g} of the average of {n} checkpoint{plural}, "
        f"{best.metric:.4g} of the best one (update {best.update:,}); "
        f"the run keeps the {'best one' if better else 'average'}"
    )


def _check_warm_up(recipe: Recipe) -> None:
    """Check that power normalisation leaves its warm-up; recipes check it for a number of updates.

    Raises:
        RequestError: patience may end the training before that.
    """
    batches = recipe.batches_within_warm_up(recipe.training.fewest_updates)
    if batches is not None and recipe.norm_warmup is not None:
        key, warmup = recipe.norm_warmup
        raise RequestError(
            f"{key}.warmup={warmup}: training.patience may end the run after "
            f"{batches} batches, during or shortly after the warm-up of power normalisation; set it to at "
            f"most {batches // 2}, or set training.max_updates"
        )


def _log_warm_up(recipe: Recipe, model: nn.Module, log: Log) -> None:
    """Log if the time limit, or the end of the data, came within the warm-up of power normalisation."""
    norms = [part for part in model.modules() if isinstance(part, PowerNorm)]
    if not norms or (n_batches := int(norms[0].n_batches)) >= norms[0].warmup:
        return
    key = recipe.norm_warmup[0] if recipe.norm_warmup is not None else "model.layer.norm"
    log(
        f"power normalisation is still in its warm-up ({n_batches:,} of {norms[0].warmup:,} batches): it was "
        "trained on statistics of single batches, and predicts by running ones; lower "
        f"{key}.warmup, or train longer"
    )


def build_module(task: Task, device: torch.device, log: Log | None = None) -> ModelWithLoss:
    """Build the model with its first weights, and its objective.

    Args:
        task: the task, with its processor.
        device: where the model is trained.
        log: called with a line about what the recipe starts from (another run, pretrained vectors). None: do
            not read these, because a checkpoint has the weights.
    """
    recipe = task.recipe
    module = new_module(task, task.processor.sizes, device)
    if log is not None:
        transfer = take_weights(recipe, module.model, partial(task.warm_start.weights, recipe))
        if recipe.start is not None:
            log(f"starting from the weights of {recipe.start.run}{transfer}")
        if note := rate_note(recipe):
            log(note)
        task.initialise(module.model, log)
    return module.to(device)


def new_module(task: Task, sizes: Sequence[int], device: torch.device) -> ModelWithLoss:
    """Build the newly initialised model and its objective, for ``device``, without moving it there."""
    recipe = task.recipe
    require_memory(recipe, sizes, device)
    torch.manual_seed(seed_of(recipe.training.seed, 0))
    try:
        with memory_errors_as(f"{TOO_LARGE}; {REMEDY}"):
            model = task.build_model(sizes)
        freeze(recipe, model)
        auxiliary = task.auxiliary_losses(model)
    except ValueError as error:
        raise RequestError(f"model: {error}") from None
    precision = choose_precision(recipe.training.precision, device)
    return ModelWithLoss(model, task.objective(), precision, auxiliary, task.scheduled_sampling())


N_TRIED = 8
"""Number of samples on which a compiled model is tried."""


def choose_fast_path(
    recipe: Recipe, module: ModelWithLoss, data: PlannedData, device: torch.device, log: Log
) -> None:
    """Compile the model if that saves time, and log the choices."""
    if choose_compile(recipe.training, module.model, _n_tokens(recipe, data), device):
        module.compile()
        _check_compiled(recipe, module, data, device, log)
    compilation = "compiled (the first updates wait for it)" if module.compiled else "not compiled"
    processes = f"processes: {distribution.world()}, " if distribution.world() > 1 else ""
    threads = f"threads{' of each' if processes else ''}: {torch.get_num_threads()}"
    log(f"training on {device.type} in {module.precision}, {processes}{threads}, {compilation}")


def _check_compiled(
    recipe: Recipe, module: ModelWithLoss, data: PlannedData, device: torch.device, log: Log
) -> None:
    """Run the compiled model once; if it fails (torch's compiler has bugs), train without compiling.

    Raises:
        WorkError: it fails, and the recipe asks for it (``training.compile: on``).
    """
    if not module.compiled:
        return
    samples = range(min(N_TRIED, len(data.lengths)))  # to plan an epoch would take time
    try:
        with memory_errors_as(f"{TOO_LARGE}; {REMEDY}"):
            run_once(module, data.collate(samples, 0).to(device))
    except HeedfulError:  # the training itself says more of it
        return
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        reason = f"torch's compiler failed ({type(error).__name__}: {line})"
        if recipe.training.compile == "on":
            raise WorkError(
                f"training.compile: {reason}; set training.compile=off, or update torch"
            ) from error
        module.uncompile()
        log(f"{reason}; training without compiling")


def _n_tokens(recipe: Recipe, data: PlannedData) -> int | None:
    """Return the most tokens that the training reads; None if the recipe does not limit them."""
    settings, lengths = recipe.training, data.lengths
    columns = lengths.shape[1] if lengths.ndim > 1 else 1
    return settings.n_tokens(int(lengths.sum()), settings.tokens_per_update * columns)


def finish(folder: RunFolder, recipe: Recipe, model: nn.Module, result: TrainingResult, tuned: Tuned) -> None:
    """Write the weights that predictions use, then the card that makes the folder a run; see `seal`."""
    facts = {
        "updates": result.state.update,
        "stopped": result.stop_reason,
        "seconds": round(result.state.seconds, 3),
    }
    seal(folder, recipe, model, facts, tuned)


OWN_ENTRIES = ("version", "heedful", "created", "task", "files", "sha256", "imported")
"""Entries of the card that are not facts about the training."""


def seal(
    folder: RunFolder,
    recipe: Recipe,
    model: nn.Module,
    facts: JsonMapping,
    tuned: Tuned = NOT_TUNED,
) -> None:
    """Write a model's weights, then the card that makes the folder a run.

    Args:
        folder: has the recipe and the processor.
        recipe: the same.
        model: with the weights that predictions use.
        facts: entries of the card about the training, as JSON values; none of `OWN_ENTRIES`.
        tuned: the result of `Task.tune`; the stored head is divided by its temperature.
    """
    # Remove the old card first: its hash would not match the new weights.
    folder.card.unlink(missing_ok=True)
    calibration = tuned.calibration
    scaled = scaled_head(model, tuned.head, calibration.temperature) if calibration else {}
    save_weights(folder.weights, model, scaled)
    files = [folder.recipe, *task_for(recipe).Processor.files(folder), folder.weights]
    records = dict(tuned.records)
    if calibration:
        records[CALIBRATION] = calibration.model_dump()
    for name in TUNED:
        path = folder.path / name
        path.unlink(missing_ok=True)
        if name in records:
            write_json(path, records[name])
            files.append(path)
    write_card(
        folder.card,
        {
            "version": FORMAT,
            "heedful": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "task": recipe.task.kind,
            **facts,
            "files": folder.hashes(files),
        },
    )
    folder.started.unlink(missing_ok=True)
