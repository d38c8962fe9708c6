"""Save, verify, load, prune and average checkpoints: one folder each, written atomically, without pickle.

``<run>/checkpoints/step-00000123/`` holds

| file | content |
|---|---|
| ``model.safetensors`` | the weights; each tied tensor once, with a table of its aliases |
| ``optimizer.safetensors`` | the optimizer state, keyed by ``parameter/entry`` |
| ``state.json`` | the `TrainingState` and the optimizer class |
| ``manifest.json`` | format version, size and SHA-256 of every other file, and its own SHA-256 |

A folder is written under a temporary name, it and its files are synced, it is renamed, and the parent
is synced. Only then are older folders removed, and they are renamed first. A folder named ``step-…``
is therefore complete even if the process is killed at any point.

The final weights of a run are those of the last or best checkpoint, or an average of several: Vaswani et al.
2017 (section 6.1) average the last 5 checkpoints of their base models and the last 20 of the big ones; the
lectures omit this step.
"""

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from heedful.artifacts.weights import (
    check_finite_file,
    load_weights,
    named_tensors,
    opened,
    read_aliases,
    read_tensors,
    write_tensors,
)
from heedful.errors import DamagedError, DataError, RequestError, WorkError
from heedful.files import sha256, stamped, sync
from heedful.records import Record, Versioned, read_record
from heedful.training.checkpoint_files import VERSION, FileEntry, Manifest, StateFile, TrainingEntry
from heedful.training.optimizers import load_state_tensors, state_tensors
from heedful.training.settings import TrainingConfig
from heedful.training.signals import fault_point
from heedful.typing import JsonMapping, JsonObject

R = TypeVar("R", bound=Record)

_TENSORS = ("model.safetensors", "optimizer.safetensors")
_FILES = (*_TENSORS, "state.json")


@dataclass(frozen=True)
class ScoredCheckpoint:
    """A checkpoint and its validation metric.

    Args:
        update: number of the update.
        metric: the validation metric after it.
        is_regular: whether the validation was a regular one, which an uninterrupted run also makes.
    """

    update: int
    metric: float
    is_regular: bool = True


@dataclass
class TrainingState:
    """The training state saved as ``state.json`` in every checkpoint.

    Args:
        update: number of updates made; also the number of the last one, since they count from 1.
        cursor: the position in the data after them, in the format of the training data.
        validated: the update after which validation last ran; 0 before the first.
        best: the best validated updates, best first: the kept regular ones, and the last update if training
            ended there between two regular validations.
        best_regular: the best metric of a regular validation so far.
        bad_validations: number of consecutive regular validations without improvement.
        schedule: the state of a schedule that observes metrics.
        seconds: training time, including earlier parts of a resumed run.
        tokens: number of tokens the model has processed, on both sides.
        samples: number of samples it has processed.
    """

    update: int = 0
    cursor: JsonObject | None = None
    validated: int = 0
    best: list[ScoredCheckpoint] = field(default_factory=list)
    best_regular: float | None = None
    bad_validations: int = 0
    schedule: JsonObject = field(default_factory=dict)
    seconds: float = 0.0
    tokens: int = 0
    samples: int = 0

    def advance(self, cursor: JsonMapping, n_samples: int, n_tokens: int) -> None:
        """Count an update; a best checkpoint outside the regular validations is forgotten."""
        self.update += 1
        self.cursor = dict(cursor)
        self.best = [checkpoint for checkpoint in self.best if checkpoint.is_regular]
        self.tokens += n_tokens
        self.samples += n_samples

    def to_json(self) -> JsonObject:
        """Return the state as plain JSON values."""
        return asdict(self)

    @classmethod
    def of(cls, record: TrainingEntry) -> Self:
        """Build a state from the entries of ``state.json``."""
        values = record.model_dump(exclude_unset=True)
        return cls(**{**values, "best": [ScoredCheckpoint(**checkpoint) for checkpoint in values["best"]]})

    @property
    def epoch(self) -> int:
        """Return the number of completed passes over the data."""
        return 0 if self.cursor is None else int(self.cursor["epoch"])


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files passed verification."""

    path: Path
    state: TrainingState
    optimizer_class: str

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load the saved weights and optimizer state into a model and its optimizer.

        Raises:
            RequestError: the checkpoint does not fit the model, or has another optimizer class.
        """
        if type(optimizer).__name__ != self.optimizer_class:
            raise RequestError(
                f"{self.path}: saved with optimizer {self.optimizer_class}; it cannot be resumed with "
                f"{type(optimizer).__name__}"
            )
        load_weights(self.path / "model.safetensors", model)
        path = self.path / "optimizer.safetensors"
        tensors, _ = read_tensors(path)
        try:
            load_state_tensors(optimizer, model, tensors)
        except RequestError as error:
            raise RequestError(f"{path}: {error}") from None


def path_of(run: Path, update: int) -> Path:
    """Return the folder of the checkpoint after ``update``."""
    return run / "checkpoints" / f"step-{update:08d}"


def paths(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"), key=_update)


def _update(path: Path) -> int:
    digits = path.name.removeprefix("step-")
    if not digits.isdigit():
        raise DataError(f"{path}: expected a folder named step-<update>; move it elsewhere")
    return int(digits)


def save(run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> Path:
    """Write a checkpoint, replacing one of the same update, and return its folder.

    Raises:
        WorkError: it cannot be written (for example, the disk is full), or the weights or the optimizer's
            state are not finite; earlier checkpoints are unchanged.
    """
    fault_point("checkpoint-begin")
    _check_not_diverged(model, optimizer, state.update)
    target = path_of(run, state.update)
    temporary = _temporary(target)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write(temporary, model, optimizer, state)
        for name in (*_FILES, "manifest.json"):
            sync(temporary / name)
        sync(temporary)
        fault_point("after-sync")
        fault_point("before-rename")
        _publish(temporary, target)
    except OSError as error:
        raise WorkError(
            f"{target}: the checkpoint cannot be written: {error.strerror or error}; "
            "earlier checkpoints are unchanged"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fault_point("after-rename")
    return target


def _check_not_diverged(model: nn.Module, optimizer: torch.optim.Optimizer, update: int) -> None:
    """Check the weights: those that no recent sample used may be NaN although every loss was finite.

    Raises:
        WorkError: one of them, or of the optimizer's state, is not finite.
    """
    for tensors in (named_tensors(model)[0], state_tensors(optimizer, model)):
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not tensor.isfinite().all():
                value = "NaN" if tensor.isnan().any() else "infinity"
                raise WorkError(
                    f"update {update}: training diverged: {name} contains {value}; start a new run "
                    "(--resume, or heedful.resume, keeps the schedule) with a lower learning rate or more "
                    "warm-up; for Adam, raise optimizer.eps if it is far below 1e-8"
                )


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.tmp")


def _write(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    write_tensors(folder / "model.safetensors", *named_tensors(model))
    fault_point("after-model-written")
    write_tensors(folder / "optimizer.safetensors", state_tensors(optimizer, model), {})
    _write_json(folder / "state.json", {"training": state.to_json(), "optimizer": type(optimizer).__name__})
    files = {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in _FILES
    }
    _write_json(folder / "manifest.json", stamped({"version": VERSION, "files": files}))


def _write_json(path: Path, values: JsonObject) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _publish(temporary: Path, target: Path) -> None:
    """Rename ``temporary`` to ``target``; an existing target is renamed first, so `clean` can restore it."""
    backup = target.with_name(f".{target.name}.replaced")
    if target.exists():
        target.rename(backup)
        fault_point("while-replacing")
    temporary.rename(target)
    sync(target.parent)
    shutil.rmtree(backup, ignore_errors=True)


def clean(run: Path) -> None:
    """Remove unfinished folders of a killed process, and restore a checkpoint that was being replaced."""
    for leftover in (run / "checkpoints").glob(".step-*"):
        target = leftover.with_name(leftover.name.removeprefix(".").rpartition(".")[0])
        if leftover.suffix == ".replaced" and not target.exists():
            leftover.rename(target)
        else:
            shutil.rmtree(leftover)


def prune(
    run: Path,
    *,
    current: int,
    n_last: int,
    best: Collection[int],
    is_regular: Callable[[int], bool] = lambda update: True,
) -> list[Path]:
    """Remove all checkpoints except the ``n_last`` newest ones and those of the updates ``best``.

    Checkpoints after update ``current`` are also removed: the run was resumed from an earlier one. So are
    earlier ones that are not ``is_regular``: a signal caused them, and an uninterrupted run has none.

    Returns:
        The removed folders.
    """
    fault_point("before-prune")
    folders = paths(run)
    earlier = [path for path in folders if _update(path) < current and is_regular(_update(path))]
    newest = [*earlier, path_of(run, current)][-n_last:]
    obsolete = [
        path
        for path in folders
        if path not in newest and (_update(path) not in best or _update(path) > current)
    ]
    for path in obsolete:
        _remove(path)
    return obsolete


def _remove(path: Path) -> None:
    """Rename, then remove, so that a partly removed folder does not look like a checkpoint."""
    renamed = _temporary(path)
    shutil.rmtree(renamed, ignore_errors=True)
    try:
        path.rename(renamed)
    except OSError as error:
        raise WorkError(f"{path}: cannot be removed: {error.strerror or error}") from error
    fault_point("during-prune")
    shutil.rmtree(renamed, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Verify a checkpoint and read its state.

    Raises:
        DataError: ``path`` does not exist, or its format version is not supported.
        DamagedError: a file is missing or damaged, or a tensor is not finite; the message names it and the
            newest intact checkpoint.
    """
    try:
        return _load(path)
    except DamagedError as error:
        candidates = [candidate for candidate in reversed(paths(path.parent.parent)) if candidate != path]
        intact = next((candidate for candidate in candidates if _is_intact(candidate)), None)
        hint = f"the newest intact checkpoint is {intact}" if intact else "no other checkpoint is intact"
        raise DamagedError(f"{error}; {hint}") from error


def latest_intact(run: Path) -> tuple[Checkpoint | None, list[DamagedError]]:
    """Return the newest intact checkpoint (or None), and the errors of the newer, damaged ones."""
    damaged: list[DamagedError] = []
    for path in reversed(paths(run)):
        try:
            return _load(path), damaged
        except DamagedError as error:
            damaged.append(error)
    return None, damaged


def _is_intact(path: Path) -> bool:
    try:
        _load(path)
    except (DamagedError, DataError):
        return False
    return True


def _load(path: Path) -> Checkpoint:
    if not path.is_dir():
        raise DataError(f"{path}: no such checkpoint")
    manifest = path / "manifest.json"
    version = _read(manifest, Versioned).version
    if version != VERSION:
        raise DataError(
            f"{manifest}: expected format version {VERSION}, got {version!r}; "
            "use the version of heedful that wrote it"
        )
    files = _read(manifest, Manifest).files
    for name in _FILES:
        if name not in files:
            raise DamagedError(f"{manifest}: damaged: files.{name}: missing")
        _verify(path / name, files[name])
    for name in _TENSORS:
        check_finite_file(path / name)
    record = _read(path / "state.json", StateFile)
    if record.training.update != _update(path):
        raise DamagedError(
            f"{path / 'state.json'}: damaged: training.update: expected {_update(path)}, as the folder is "
            f"named, got {record.training.update}"
        )
    return Checkpoint(path, TrainingState.of(record.training), record.optimizer)


def _read(path: Path, schema: type[R]) -> R:
    """Read a JSON file of a checkpoint; raise `DamagedError` on any failure."""
    try:
        return read_record(path, schema)
    except RequestError as error:  # it is missing, or a device
        raise DamagedError(f"{path}: file is missing" if not path.exists() else str(error)) from None


def _verify(path: Path, expected: FileEntry) -> None:
    if not path.is_file():
        raise DamagedError(f"{path}: file is missing")
    actual = {"size": path.stat().st_size, "sha256": sha256(path)}
    for key, actual_value in actual.items():
        if actual_value != getattr(expected, key):
            raise DamagedError(
                f"{path}: file is damaged: expected {key} {getattr(expected, key)}, got {actual_value}"
            )


Weights = tuple[dict[str, Tensor], dict[str, str]]
"""Tensors by name, and the aliases of tied tensors."""


def average(files: Sequence[Path]) -> Weights:
    """Return the element-wise mean of the weights in several files, summed in fp64.

    Integer tensors (counters) are taken from the last file. Besides the result, only one tensor is in
    memory at a time.

    Raises:
        RequestError: ``files`` is empty, or the files differ in tensor names or shapes.
    """
    if not files:
        raise RequestError("expected at least one weights file to average, got none")
    with opened(files[-1]) as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    for path in files:
        _compare(path, shapes, files[-1])
    return {name: _mean(files, name) for name in shapes}, read_aliases(files[-1])


def _compare(path: Path, shapes: dict[str, list[int]], reference: Path) -> None:
    with opened(path) as file:
        file_shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    differing = sorted(
        name for name in file_shapes.keys() | shapes.keys() if file_shapes.get(name) != shapes.get(name)
    )
    if differing:
        raise RequestError(f"{path} and {reference} differ in {differing[0]}; they cannot be averaged")


def _mean(files: Sequence[Path], name: str) -> Tensor:
    total = None
    for path in files:
        with opened(path) as file:
            tensor = file.get_tensor(name)
        if tensor.is_floating_point():
            total = tensor.double() if total is None else total.add_(tensor.double())
    return tensor if total is None else (total / len(files)).to(tensor.dtype)


def select_checkpoints(run: Path, settings: TrainingConfig) -> list[Path]:
    """Return the checkpoints that the final weights of a run come from.

    If ``settings.average`` is above 0, these are that many of the last or best checkpoints, or as many
    as exist; otherwise the checkpoint with the best validation, or the last one if none was validated.

    Raises:
        RequestError: the run has no checkpoint.
        DamagedError: a selected checkpoint is damaged.
    """
    newest, _ = latest_intact(run)
    if newest is None:
        raise RequestError(f"{run}: no checkpoint to load weights from")
    best = [path_of(run, checkpoint.update) for checkpoint in newest.state.best]
    if settings.average and settings.average_of == "last":
        folders = paths(run)
        intact = folders[: folders.index(newest.path) + 1]  # later checkpoints are damaged
        selected = intact[-settings.average :]
    else:
        selected = best[: max(settings.average, 1)] or [newest.path]
    return [load(path).path for path in selected]


def final_weights(run: Path, settings: TrainingConfig) -> Weights:
    """Return the weights of `select_checkpoints`, averaged if there are several checkpoints."""
    return average([path / "model.safetensors" for path in select_checkpoints(run, settings)])
