"""From a recipe to a trained run: the one function behind ``heedful train``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful import __version__
from heedful.artifacts.environment import choose_device, environment
from heedful.artifacts.run_folder import (
    FORMAT,
    RunFolder,
    emptied_on_failure,
    locked,
    write_card,
    write_json,
    write_text,
)
from heedful.artifacts.weights import load_tensors, save_weights
from heedful.errors import DamagedError, RequestError
from heedful.files import is_temporary, remove_temporaries
from heedful.memory import keep_freed_memory, room_for
from heedful.recipes.schema import Recipe
from heedful.recipes.yaml import dump_yaml
from heedful.runs.completed import at_its_end
from heedful.runs.memory_budget import TOO_LARGE, WAY_OUT, check_model, rehearse, require_room, too_wide
from heedful.runs.prepare import prepare
from heedful.runs.run import check_files, check_started
from heedful.runs.saved import saved_recipe
from heedful.runs.warm_start import freeze, rate_shares, take_weights
from heedful.runs.warm_up import check_warm_up, log_warm_up
from heedful.tasks.base import Log, Task
from heedful.tasks.registry import task_for
from heedful.tasks.vectors import frozen_tables
from heedful.training import checkpoints, distribution
from heedful.training.callbacks import Callback
from heedful.training.checkpoints import average, final_weights
from heedful.training.distribution import launched, with_threads
from heedful.training.fast_paths import choose_compile, choose_precision, choose_processes
from heedful.training.loop import TrainingResult, Validate, fit
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import build_optimizer
from heedful.training.schedules import build_schedule, is_better
from heedful.training.settings import TrainingConfig
from heedful.training.update import PlannedData, seed_of
from heedful.typing import JsonMapping

# What may differ between a recipe and the run that it resumes: how long and how to look, not what is made.
_MAY_CHANGE = {"training", "validation", "decoding", "evaluation", "expected", "description", "root"}
# The metric too: what was best by one cannot be compared with what another measures.
_MUST_STAY = (("training", "seed"), ("training", "metric"), ("training", "direction"))


@dataclass(frozen=True)
class Trained:
    """How a training ended, and where the run is; ``is_first`` in the process that reports it."""

    folder: RunFolder
    result: TrainingResult
    is_first: bool = True


def train_run(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    callbacks: Callable[[RunFolder], Sequence[Callback]] = lambda folder: (),
    log: Log = lambda line: None,
) -> Trained:
    """Train a recipe, into the folder ``out``.

    Args:
        recipe: validated.
        out: the run's folder; must not hold a run, unless it is resumed.
        resume: continue from the newest good checkpoint in ``out``, on the same CPU bit for bit; a finished
            run is left as it is.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        callbacks: made once the folder exists; observe the training.
        log: called with lines about the preparation.
    """
    keep_freed_memory()
    if not resume:
        check_warm_up(recipe)
    task_for(recipe).check_requirements()
    with ExitStack() as stack:
        stack.enter_context(_threads(recipe.training.threads))
        place = stack.enter_context(distribution.process_group(choose_device(device)))
        folder = RunFolder(out)
        quiet = log if distribution.is_first() else lambda line: None
        if distribution.is_first():
            stack.enter_context(_own(folder, resume))
        ended = at_its_end(folder, recipe) if resume else None
        if ended is not None:
            return Trained(folder, ended, distribution.is_first())
        cleans_up = distribution.is_first() and not resume
        with emptied_on_failure(folder.path) if cleans_up else nullcontext():
            ready = _set_up(recipe, folder, place, stack, resume=resume, log=quiet)
            observers = callbacks(folder)
        recipe, module = ready.recipe, ready.module
        result = fit(
            module,
            ready.data,
            ready.optimizer,
            _schedule(recipe),
            recipe.training,
            folder.path,
            validate=ready.validate,
            callbacks=observers,
            resume=resume,
            frozen=ready.frozen,
        )
        if distribution.is_first():
            load_tensors(*final_weights(folder.path, recipe.training), module.model, "the final weights")
            _keep_the_better(folder, recipe.training, module.model, ready.validate, result, quiet)
            log_warm_up(module.model, quiet)
            finish(folder, recipe, module.model, result)
        return Trained(folder, result, distribution.is_first())


@dataclass(frozen=True)
class _Ready:
    """What the training loop needs.

    Args:
        recipe: with the number of processes.
        module: the model with its first weights, and its objective.
        data: batches to train on.
        optimizer: of the model's parameters.
        validate: measures the model.
        frozen: parameters that are frozen for the first updates, and for how many.
    """

    recipe: Recipe
    module: ModelWithLoss
    data: PlannedData
    optimizer: torch.optim.Optimizer
    validate: Validate
    frozen: dict[nn.Parameter, int]


def _set_up(
    recipe: Recipe, folder: RunFolder, place: torch.device, stack: ExitStack, *, resume: bool, log: Log
) -> _Ready:
    """Prepare data, model and optimizer; whatever does not fit is refused here, before the first update.

    Args:
        recipe: validated.
        folder: of the run.
        place: where the model is trained.
        stack: ends the other processes.
        resume: whether the run goes on from a checkpoint.
        log: reports what is prepared.
    """
    begun = resume and bool(checkpoints.paths(folder.path))
    check_model(recipe, place, is_new=not begun)
    if distribution.is_first():
        recipe = _open(folder, recipe, resume, place)
        prepared = prepare(recipe, folder, log)
    distribution.barrier()
    if not distribution.is_first():
        prepared = prepare(recipe, folder, log)
    task = prepared.task
    for note in task.data_notes(prepared):
        log(note)
    module, data = build_module(task, place, None if begun else log), task.training_data(prepared)
    _schedule(recipe)  # refuses a warm-up that does not fit
    n_processes = choose_processes(recipe.training, module.model, _n_tokens(recipe, data), place)
    recipe = _settled(folder, recipe, n_processes)
    n_threads = torch.get_num_threads()
    stack.enter_context(launched(n_processes, folder.path, recipe.training.threads))
    choose_fast_path(recipe, module, data, place, log)
    if not resume:
        n_parts = distribution.world() * recipe.training.accumulate
        rehearse(module, data, n_parts, place, partial(too_wide, recipe, prepared.longest))
    validate = with_threads(n_threads, task.validator(prepared, module))
    frozen = {p: n for p, n in frozen_tables(recipe, module.model).items() if n is not None}
    optimizer = build_optimizer(recipe.optimizer, module.model, rate_shares(recipe, module.model), frozen)
    return _Ready(recipe, module, data, optimizer, validate, frozen)


def _keep_the_better(
    folder: RunFolder,
    settings: TrainingConfig,
    model: nn.Module,
    validate: Validate,
    result: TrainingResult,
    log: Log,
) -> None:
    """Where the model holds an average, measure it; a better single checkpoint takes its place.

    An average helps a training that has settled, and harms one that still learns.
    """
    if settings.average < 2 or not result.state.best or result.stopped == "signal":
        return
    model.eval()
    with torch.no_grad():
        metric = float(validate(model)[settings.metric])
    best = result.state.best[0]
    better = is_better(best.metric, metric, settings.direction)
    if better:
        path = checkpoints.path_of(folder.path, best.update)
        load_tensors(*average([path / "model.safetensors"]), model, str(path))
    log(
        f"validation {settings.metric}: {metric:.4g} of the average of checkpoints, {best.metric:.4g} of the "
        f"best one (update {best.update:,}); the run keeps the {'best one' if better else 'average'}"
    )


def build_module(task: Task, device: torch.device, log: Log | None = None) -> ModelWithLoss:
    """Build the model with its first weights, and its objective.

    Args:
        task: with its processor.
        device: where the model is trained.
        log: reports what the recipe starts from (another run, pretrained vectors). Without it, for a resumed
            run, whose checkpoint has the weights, nothing of that is read.
    """
    recipe = task.recipe
    module = new_module(task, task.processor.sizes, device)
    if log is not None:
        taken = take_weights(recipe, module.model, partial(task.warm_start.weights, recipe))
        if recipe.start is not None:
            log(f"starting from the weights of {recipe.start.run}{taken}")
        task.initialise(module.model, log)
    return module.to(device)


def new_module(task: Task, sizes: Sequence[int], device: torch.device) -> ModelWithLoss:
    """Build the freshly initialised model and its objective, for ``device``, to which it is not moved yet."""
    recipe = task.recipe
    require_room(recipe, sizes, device)
    torch.manual_seed(seed_of(recipe.training.seed, 0))
    try:
        with room_for(f"{TOO_LARGE}; {WAY_OUT}"):
            model = task.build_model(sizes)
        freeze(recipe, model)
        auxiliary = task.auxiliary_losses(model)
    except ValueError as error:
        raise RequestError(f"model: {error}") from None
    precision = choose_precision(recipe.training.precision, device)
    return ModelWithLoss(model, task.objective(), precision, auxiliary)


def choose_fast_path(
    recipe: Recipe, module: ModelWithLoss, data: PlannedData, device: torch.device, log: Log
) -> None:
    """Compile where it pays, and tell all that was chosen."""
    if choose_compile(recipe.training, module.model, _n_tokens(recipe, data), device):
        module.compile()
    how = "compiled (the first updates wait for it)" if module.compiled else "not compiled"
    together = f"processes: {distribution.world()}, " if distribution.world() > 1 else ""
    threads = f"threads{' of each' if together else ''}: {torch.get_num_threads()}"
    log(f"training on {device.type} in {module.precision}, {together}{threads}, {how}")


def _n_tokens(recipe: Recipe, data: PlannedData) -> int | None:
    """How many tokens the whole training reads at most; None: nothing in the recipe limits them."""
    settings, lengths = recipe.training, data.lengths
    columns = lengths.shape[1] if lengths.ndim > 1 else 1
    return settings.n_tokens(int(lengths.sum()), settings.tokens_per_update * columns)


@contextmanager
def _threads(wanted: int | None) -> Iterator[None]:
    """Let torch use so many threads in the context; None: as many as it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _settled(folder: RunFolder, recipe: Recipe, n_processes: int) -> Recipe:
    """The recipe with the number of processes, which the run keeps: its results depend on it.

    From here on ``started.json`` vouches for the recipe and what was prepared with it.
    """
    settings = recipe.training.model_copy(update={"processes": n_processes})
    settled = recipe.model_copy(update={"training": settings})
    if distribution.is_first():
        write_text(folder.recipe, dump_yaml(settled.model_dump(mode="json")))
        made_from = [folder.recipe, *task_for(recipe).Processor.files(folder)]
        write_card(folder.started, {"version": FORMAT, "files": folder.hashes(made_from)})
    return settled


def _with_processes_of(folder: RunFolder, recipe: Recipe) -> Recipe:
    """The recipe of a resumed run: by ``auto`` it goes on with as many processes as it began with."""
    settings = recipe.training
    if settings.processes != "auto" or distribution.world() > 1:
        return recipe
    before = saved_recipe(folder).training.processes
    return recipe.model_copy(update={"training": settings.model_copy(update={"processes": before})})


@contextmanager
def _own(folder: RunFolder, resume: bool) -> Iterator[None]:
    """Hold the folder of the run that is to be made or resumed.

    Raises:
        RequestError: it cannot be made there, there is none to resume, or another process trains it.
    """
    if resume:
        _require_begun(folder)
    else:
        _refuse_what_saved_nothing(folder)
        _refuse_to_overwrite(folder)
    with locked(folder.path):
        if not resume:
            _refuse_to_overwrite(folder)  # what another made in between
        remove_temporaries(folder.path)
        yield


def _require_begun(folder: RunFolder) -> None:
    if not folder.recipe.exists():
        raise RequestError(f"{folder.path}: there is no run to resume; leave --resume away to start one")


def _open(folder: RunFolder, recipe: Recipe, resume: bool, device: torch.device) -> Recipe:
    """Begin the run's folder, or check that it is the one to resume; the recipe as it holds for this run."""
    if not resume:
        write_json(folder.environment, environment(device))
    else:
        check_started(folder)
        _prepare_card(folder)
        same_recipe(folder, recipe)
        recipe = _with_processes_of(folder, recipe)
        folder.started.unlink(missing_ok=True)
    write_text(folder.recipe, dump_yaml(recipe.model_dump(mode="json")))
    return recipe


def _prepare_card(folder: RunFolder) -> None:
    """Let the card of a finished run no longer vouch for the recipe, which is about to change.

    The run can then be used, with its old weights, until training is over, and also if that fails.
    """
    if not folder.has_ended:
        return
    if not folder.has_checkpoints:
        raise RequestError(
            f"{folder.path}: is finished and has no checkpoints to go on from; train into another folder"
        )
    try:
        card = folder.require()
    except (RequestError, DamagedError):
        return  # it is missing or damaged, and written at the end
    kept = {name: entry for name, entry in card["files"].items() if name != folder.weights.name}
    check_files(folder, {"files": kept})
    card["files"].pop(folder.recipe.name, None)
    write_card(folder.card, card)


def _refuse_what_saved_nothing(folder: RunFolder) -> None:
    """Tell a training that ended before its first checkpoint from a run, unless another process is at it."""
    if folder.recipe.exists() and not (folder.has_ended or folder.has_checkpoints):
        with locked(folder.path):
            raise RequestError(
                f"{folder.path}: a training was begun here, and nothing of it was saved; delete the folder, "
                "or choose another with --out (--resume begins the same training again)"
            )


def _refuse_to_overwrite(folder: RunFolder) -> None:
    if folder.path.exists() and not folder.path.is_dir():
        raise RequestError(f"{folder.path}: is a file; choose another folder with --out")
    if folder.recipe.exists():
        raise RequestError(
            f"{folder.path}: there is a run already; go on with it with --resume, "
            "or choose another folder with --out"
        )
    # What a process leaves that was killed as it began is no reason to refuse.
    found = folder.path.iterdir() if folder.path.exists() else ()
    strange = [path.name for path in found if path != folder.environment and not is_temporary(path)]
    if strange:
        raise RequestError(
            f"{folder.path}: is not empty (it has {sorted(strange)[0]!r}); choose another folder with --out"
        )


def same_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Refuse to resume a run with a recipe that would have made another one."""
    old, new = (r.model_dump(mode="json") for r in (saved_recipe(folder), recipe))
    keys = [key for key in dict.fromkeys((*old, *new)) if key not in _MAY_CHANGE]
    changed = [key for key in keys if old.get(key) != new.get(key)]  # another task has other sections
    if old["training"]["metric"] in recipe.decoded_metrics and old["validation"] != new["validation"]:
        # What is decoded, and how, decides what "best" means.
        changed.append("validation")
    changed += [".".join(path) for path in _MUST_STAY if old[path[0]][path[1]] != new[path[0]][path[1]]]
    if "task" in changed:
        changed = ["task"]  # all else follows
    if changed:
        raise RequestError(
            f"{folder.path}: cannot be resumed with another {', '.join(changed)} than it was started with"
        )


def _schedule(recipe: Recipe) -> Any:
    model: Any = recipe.model
    return build_schedule(
        recipe.schedule,
        d_model=getattr(model, "d_model", None) or model.d_hidden,
        max_updates=recipe.training.max_updates,
        direction=recipe.training.direction,
    )


def finish(folder: RunFolder, recipe: Recipe, model: nn.Module, result: TrainingResult) -> None:
    """Write the weights that predictions use, then the card that makes the folder a run."""
    facts = {
        "updates": result.state.update,
        "stopped": result.stopped,
        "seconds": round(result.state.seconds, 3),
    }
    seal(folder, recipe, model, facts)


def seal(folder: RunFolder, recipe: Recipe, model: nn.Module, facts: JsonMapping) -> None:
    """Write a model's weights, then the card that makes the folder a run.

    Args:
        folder: has the recipe and the processor.
        recipe: the same.
        model: with the weights that predictions use.
        facts: for the card, about how they came to be.
    """
    # Between new weights and new card there must be no old card: it would call the weights damaged.
    folder.card.unlink(missing_ok=True)
    save_weights(folder.weights, model)
    files = [folder.recipe, *task_for(recipe).Processor.files(folder), folder.weights]
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
