"""Load a run: its task, with recipe and processor, and its model, with weights."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, Self, SupportsIndex, TypedDict, Unpack

import torch

from heedful.artifacts.environment import choose_device
from heedful.artifacts.run_folder import RunFolder
from heedful.artifacts.weights import load_tensors, load_weights
from heedful.checks import check_function, check_text
from heedful.decoding.config import DecodingConfig
from heedful.decoding.protocol import OnStep
from heedful.engine.choosing import Inference, inference_of
from heedful.errors import DamagedError
from heedful.forks import PerProcess
from heedful.memory import memory_errors_as
from heedful.models.base import Model
from heedful.plugins import allow_plugins
from heedful.recipes.schema import Recipe
from heedful.runs.arguments import at_least_one, checked_options, decoding_of, refuse_options, with_beam
from heedful.runs.reading import saved_recipe
from heedful.tasks.base import Task
from heedful.tasks.prediction import PredictOptions, Predictor, Progress
from heedful.tasks.registry import task_for
from heedful.training import checkpoints
from heedful.training.checkpoints import final_weights
from heedful.typing import JsonMapping

_preparing = PerProcess(Lock)
"""Held while an `Inference` is prepared: one thread prepares it for all."""

_is_used = False
"""Whether this process has created a run."""


def _after_fork() -> None:
    """Make a process that was forked from one with a run compute on one thread.

    The threads of torch and of the native engine do not exist in the new process, so work that is divided
    among several would wait for them forever.
    """
    if _is_used:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class TaskOptions(TypedDict, total=False):
    """Options of a predictor that only some tasks support; None: not given."""

    max_new_tokens: int | None
    stop: Sequence[str] | None
    prefix: str | None
    regex: str | None
    json_schema: JsonMapping | Path | str | None
    gap: str | None
    words: str | None


class RunOptions(TaskOptions, total=False):
    """Options that determine a predictor."""

    beam: int | None
    n_best: int | None
    decoding: DecodingConfig | JsonMapping | None
    precision: str


class LoadedRun:
    """The parts of a run in memory: its folder, task and model. `heedful.Run` adds what is done with them.

    Several threads may use it at the same time; a forked process computes on one thread.

    Args:
        folder: its folder.
        task: its task, with recipe and processor.
        model: its model, with weights; set to evaluation mode.
    """

    def __init__(self, folder: RunFolder, task: Task, model: Model) -> None:
        self.folder, self.task, self.model = folder, task, model.eval()
        global _is_used
        _is_used = True
        self._inferences: dict[str, Inference] = {}

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or deep-copied.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a Run cannot be pickled or deep-copied; load it again, in each process: "
            f"heedful.load({str(self.folder.path)!r})"
        )

    def __copy__(self) -> Self:
        """Return a run with the same model and task."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the run."""
        return self.task.recipe

    @property
    def processor(self) -> Any:
        """Return the processor, which encodes inputs and decodes outputs."""
        return self.task.processor

    def predictor(
        self,
        *,
        beam: int | None = None,
        n_best: int | None = None,
        decoding: DecodingConfig | JsonMapping | None = None,
        precision: str = "auto",
        attention: bool = False,
        progress: Progress = lambda n: None,
        on_step: OnStep | None = None,
        **options: Unpack[TaskOptions],
    ) -> Predictor:
        """Return a predictor for many calls; the arguments are those of `heedful.Run.predict`.

        ``on_step`` is called after every step of tasks that generate text (`PredictOptions`). Word alignments
        are added by `heedful.Run.aligning`.

        Raises:
            RequestError: the task does not support an option.
        """
        beam, n_best = at_least_one("beam", beam), at_least_one("n_best", n_best)
        supported = self.task.info.options
        # Some tasks have several answers without a search.
        search_n_best, task_n_best = (None, n_best) if "n_best" in supported else (n_best, None)
        settings = with_beam(decoding_of(decoding, self.recipe.decoding), beam, search_n_best)
        check_function("progress", progress)
        given = {name: value for name, value in options.items() if value is not None}
        refuse_options(given, supported, self.task)
        predict_options = PredictOptions(
            task_n_best,
            decoding=settings,
            attention=attention,
            progress=progress,
            on_step=on_step,
            **checked_options(given),
        )
        return self.task.predictor(self.inference(precision), predict_options)

    def inference(self, precision: str = "auto") -> Inference:
        """Return the model prepared for decoding, which is kept for further calls.

        Raises:
            RequestError: the precision is not available for this model on this machine.
        """
        check_text("precision", precision)
        with _preparing.value:
            if precision not in self._inferences:
                self._inferences[precision] = inference_of(self.model, precision)
            return self._inferences[precision]


@torch.inference_mode(False)  # parameters need gradients and versions, also if they are loaded in this mode
def load_run(
    path: Path | str, *, device: str = "auto", verify: bool = True, plugins: Sequence[str] = ()
) -> LoadedRun:
    """Load the parts of a run.

    Args:
        path: its folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        verify: whether to compare the hashes of the files with those on the run's card.
        plugins: packages and files whose classes the run's recipe may name (`heedful.plugins`).

    Raises:
        RequestError: the folder is not a run.
        DamagedError: a file is damaged.
    """
    allow_plugins(plugins)
    folder = RunFolder(path)
    torch_device = choose_device(device)
    unfinished = folder.is_unfinished
    card = None if unfinished else folder.read_card()
    if verify:
        folder.check_started()
        if card is not None:
            folder.check_files(card)
    recipe = saved_recipe(folder)
    task = task_for(recipe)
    task.load(folder)
    with memory_errors_as(f"{folder.recipe}: the model does not fit in memory"):
        model = task.build_model()
    if unfinished:
        _refuse_damaged_checkpoints(folder)
        load_tensors(*final_weights(folder.path, recipe.training), model, str(folder.path))
    else:
        task.load_tuned(folder)
        load_weights(folder.weights, model)
    return LoadedRun(folder, task, model.to(torch_device))


def _refuse_damaged_checkpoints(folder: RunFolder) -> None:
    """Refuse to predict with an older checkpoint than the newest.

    Raises:
        DamagedError: the newest is damaged.
    """
    intact, damaged = checkpoints.latest_intact(folder.path)
    if damaged and intact is not None:
        raise DamagedError(
            f"{damaged[0]}; `heedful train {folder.path} --resume` (in Python, heedful.resume) continues "
            f"from {intact.path}"
        )
    if damaged:
        raise DamagedError(f"{damaged[0]}; there is no other good checkpoint")
