"""The parts of a training for a loop of your own: `prepare`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.api.checks import check_switches, folder_of
from heedful.api.given import DataLike, RecipeLike, Settings
from heedful.api.progress import Progress, check_progress
from heedful.api.run import Run
from heedful.api.training import ignore, loaded, read, show
from heedful.artifacts.environment import choose_device
from heedful.artifacts.run_folder import RunFolder, emptied_on_failure
from heedful.checks import whole_number
from heedful.config import LARGEST_WHOLE
from heedful.data.batch import Batch
from heedful.data.memory import HeldRows
from heedful.errors import RequestError, WorkError, type_name
from heedful.models.base import Model
from heedful.nn.modes import evaluating
from heedful.objectives.terms import Term
from heedful.plugins import allow_plugins
from heedful.runs.resuming import locked_run, with_fixed_processes
from heedful.runs.train import OWN_ENTRIES, prepare_training, seal
from heedful.tasks.base import PreparedData, Task
from heedful.training.callbacks import finite
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.update import PlannedData


@dataclass(repr=False)
class Setup:
    """A recipe ready to be trained: data encoded, model built.

    Args:
        task: the task, with its processor.
        module: the model, ``module.model``, with its objective.
        data: the training data, planned in updates of ``training.tokens_per_update``.
        folder: the run's folder, which has the recipe and the processor already.
        prepared: the encoded rows, also those for validation.
    """

    task: Task
    module: ModelWithLoss
    data: PlannedData
    folder: RunFolder
    prepared: PreparedData
    held: Sequence[HeldRows] = ()

    def __repr__(self) -> str:
        """Show the folder, the task and the number of updates."""
        kind = self.task.recipe.task.kind
        return f"<heedful.Setup {self.folder.path}: {kind}, {self.updates_per_epoch:,} updates per epoch>"

    @property
    def model(self) -> Model:
        """The model, a ``torch.nn.Module``."""
        model = self.module.model
        assert isinstance(model, Model)
        return model

    @property
    def updates_per_epoch(self) -> int:
        """The number of batches of the first epoch; that of later ones may differ slightly."""
        return len(self.data.epoch(0))

    def batches(self, epochs: int = 1, *, first_epoch: int = 0) -> Iterator[Batch]:
        """Yield the batch of each update, on the model's device, in the order that `heedful.train` has.

        Args:
            epochs: the number of passes over the data; each is shuffled and augmented differently.
            first_epoch: the number of the first.
        """
        epochs, first_epoch = (
            whole_number("epochs", epochs),
            whole_number("first_epoch", first_epoch, least=0),
        )
        device = next(self.model.parameters()).device
        for epoch in range(first_epoch, first_epoch + epochs):
            for samples in self.data.epoch(epoch):
                yield self.data.collate(samples.tolist(), epoch).to(device)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, a scalar to call ``backward`` on."""
        return self.loss_and_terms(batch)[0]

    def loss_and_terms(self, batch: Batch) -> tuple[Tensor, list[Term]]:
        """Return the loss of a batch, and the terms of which it is the weighted sum.

        Raises:
            RequestError: it is not a batch.
        """
        if not isinstance(batch, Batch):
            raise RequestError(
                f"batch: expected a heedful.data.batch.Batch, got {type_name(batch)}; setup.batches() yields "
                "batches"
            )
        return self.module(batch, self.module.counts(batch))

    def validate(self) -> dict[str, float]:
        """Return the metrics of the validation data, the same that `heedful.train` computes: ``loss`` etc.

        The model computes them in evaluation mode, without gradients; afterwards it has its former modes.
        """
        with evaluating(self.model), torch.no_grad():
            metrics = self.task.validator(self.prepared, self.module)(self.model)
        return {name: float(value) for name, value in metrics.items()}

    def finish(self, **facts: "int | float | str | np.number[Any] | Tensor") -> Run:
        """Write the weights (and tuned thresholds), which makes the folder a run, and load it.

        It may be called several times, for example after each validation that is the best so far: the weights
        of the last call stay. The state of the optimizer is yours to save (``torch.save``).

        Args:
            **facts: entries of the run's card about the training, such as ``updates=300``.

        Raises:
            RequestError: a fact is not a number or text, or has the name of another entry of the card.
            WorkError: a parameter of the model is NaN or infinite.
        """
        entries = {name: _fact(name, value) for name, value in facts.items()}
        _check_finite(self.model)
        tuned = self.task.tune(self.model, self.prepared, ignore)
        seal(self.folder, self.task.recipe, self.model, entries, tuned)
        return loaded(self.folder.path, str(next(self.model.parameters()).device), self.held)


def _fact(name: str, value: object) -> object:
    """Return a fact as the card has it: a number that is not finite becomes None, as in ``metrics.jsonl``.

    Raises:
        RequestError: it is not a number or text, or has the name of another entry of the card.
    """
    if name in OWN_ENTRIES:
        raise RequestError(f"{name}: the run's card has an entry of this name; give the fact another one")
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, int | float | str):
        raise RequestError(f"{name}: expected a number or text, got {type_name(value)}")
    if name in ("updates", "seconds") and not (isinstance(value, int | float) and value >= 0):
        raise RequestError(f"{name}: expected a number of at least 0, got {value!r}")
    if name == "stopped" and not isinstance(value, str):
        raise RequestError(f"{name}: expected a text, got {value!r}")
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise RequestError(f"{name}: expected a whole number of at most 64 bits; give it as text")
    return finite(value)


def _check_finite(model: Model) -> None:
    """Check the parameters of a model.

    Raises:
        WorkError: one is NaN or infinite.
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            problem = "NaN" if parameter.isnan().any() else "infinity"
            raise WorkError(
                f"the model's parameter {name} contains {problem}: training diverged; lower the learning "
                "rate, or clip gradients (torch.nn.utils.clip_grad_norm_)"
            )


@torch.inference_mode(False)
def prepare(
    recipe: RecipeLike,
    out: str | Path,
    *,
    overrides: Settings | None = None,
    data: DataLike | None = None,
    columns: Mapping[str, str | int] | None = None,
    overwrite: bool = False,
    device: str = "auto",
    plugins: Sequence[str] = (),
    progress: Progress = True,
) -> Setup:
    """Prepare a training for a loop of your own: fit the tokenizer, encode the data, build the model.

    Examples:
        >>> setup = heedful.prepare("phrasebook-ta", "runs/mine")
        >>> optimizer = torch.optim.AdamW(setup.model.parameters(), lr=1e-3)
        >>> best = float("inf")
        >>> for epoch in range(3):
        ...     for batch in setup.batches(first_epoch=epoch):
        ...         setup.loss(batch).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...     if (loss := setup.validate()["loss"]) < best:
        ...         best, run = loss, setup.finish(epochs=epoch + 1)

    Args:
        recipe: as of `heedful.train`, like all that follow; ``optimizer``, ``schedule`` and limits of
            ``training`` have no effect.
        out: the run's folder.
        overrides: see there.
        data: see there.
        columns: see there.
        overwrite: see there.
        device: see there.
        plugins: see there.
        progress: see there; a function is called with the number of training rows, once they are encoded.

    Raises:
        RequestError: the recipe is invalid, or the folder has a run.
        DataError: the data cannot be used.
    """
    allow_plugins(plugins)
    check_switches(overwrite=overwrite)
    check_progress(progress)
    folder = RunFolder(folder_of(out, "out"))
    log = show if progress is True else ignore
    settings, held = read(recipe, overrides, data, columns, log)
    torch_device = choose_device(device)
    with locked_run(folder, resume=False, overwrite=overwrite), emptied_on_failure(folder.path):
        settings, prepared, module, planned = prepare_training(
            settings, folder, torch_device, resume=False, log=log
        )
        with_fixed_processes(folder, settings, 1)
    module.train()
    if callable(progress):
        progress(len(prepared.train))
    return Setup(prepared.task, module, planned, folder, prepared, held)
