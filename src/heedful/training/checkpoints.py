"""Checkpoints: a folder each, complete or absent, verified by hash, without pickle.

``<run>/checkpoints/step-00000123/`` holds

| file | content |
|---|---|
| ``model.safetensors`` | the weights; a tied tensor once, with a table of its other names |
| ``optimizer.safetensors`` | the optimizer's memory, ``parameter/entry`` |
| ``state.json`` | the `TrainingState` and the optimizer's class |
| ``manifest.json`` | the version of the format, size and SHA-256 of every other file, and its own SHA-256 |

A folder is written under a temporary name, its files and itself are synced, it is renamed, and then
the parent is synced; only then may older ones go, and those are renamed before they are removed. So
whatever kills the process, a folder called ``step-…`` is whole.
"""

import json
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.artifacts.weights import (
    fit,
    load_weights,
    named_tensors,
    read_tensors,
    save_tensors,
    save_weights,
    write_tensors,
)
from heedful.errors import DamagedError, DataError, RequestError, WorkError
from heedful.files import is_intact, parse_json, require_end, sha256, stamped, sync
from heedful.training.faults import reached
from heedful.training.optimizers import load_state_tensors, state_tensors
from heedful.training.state import TrainingState

__all__ = [
    "VERSION",
    "Checkpoint",
    "clean",
    "latest_good",
    "load",
    "load_weights",
    "paths",
    "prune",
    "save",
    "save_tensors",
    "save_weights",
]

VERSION = 1
_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files were found to be what was written."""

    path: Path
    state: TrainingState
    optimizer_class: str

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Give a model and its optimizer what they were.

        Raises:
            RequestError: the checkpoint is of another model, or was made with another optimizer.
        """
        if type(optimizer).__name__ != self.optimizer_class:
            raise RequestError(
                f"{self.path}: was made with {self.optimizer_class}, and cannot be continued with "
                f"{type(optimizer).__name__}"
            )
        fit(*read_tensors(self.path / "model.safetensors"), model, str(self.path))
        tensors, _ = read_tensors(self.path / "optimizer.safetensors")
        load_state_tensors(optimizer, model, tensors)


def path_of(run: Path, update: int) -> Path:
    """Where the checkpoint of an update lies."""
    return run / "checkpoints" / f"step-{update:08d}"


def paths(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"), key=_update)


def _update(path: Path) -> int:
    digits = path.name.removeprefix("step-")
    if not digits.isdigit():
        raise DataError(f"{path}: is not the name of a checkpoint; move it elsewhere")
    return int(digits)


def save(run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> Path:
    """Write a checkpoint and return its folder; one of the same update is replaced.

    Raises:
        WorkError: it cannot be written (a full disk, say); earlier checkpoints are as they were.
    """
    reached("checkpoint-begin")
    target = path_of(run, state.update)
    temporary = _temporary(target)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write(temporary, model, optimizer, state)
        _sync(temporary)
        reached("before-rename")
        _publish(temporary, target)
    except OSError as error:
        raise WorkError(
            f"{target}: the checkpoint cannot be written: {error.strerror or error}; "
            "earlier ones are untouched"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    reached("after-rename")
    return target


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.tmp")


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def _write(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    write_tensors(folder / "model.safetensors", *named_tensors(model))
    reached("after-model-written")
    write_tensors(folder / "optimizer.safetensors", state_tensors(optimizer, model), {})
    _write_json(folder / "state.json", {"training": state.to_json(), "optimizer": type(optimizer).__name__})
    files = {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in _FILES
    }
    _write_json(folder / "manifest.json", stamped({"version": VERSION, "files": files}))


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _sync(folder: Path) -> None:
    for name in (*_FILES, "manifest.json"):
        sync(folder / name)
    sync(folder)
    reached("after-sync")


def _publish(temporary: Path, target: Path) -> None:
    """Rename; a checkpoint that is already there steps aside first, and `clean` can bring it back."""
    aside = _replaced(target)
    if target.exists():
        target.rename(aside)
        reached("while-replacing")
    temporary.rename(target)
    sync(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def clean(run: Path) -> None:
    """Tidy up what a killed process left: unfinished folders, and one that was being replaced."""
    for left in (run / "checkpoints").glob(".step-*"):
        target = left.with_name(left.name.removeprefix(".").rpartition(".")[0])
        if left.suffix == ".replaced" and not target.exists():
            left.rename(target)
        else:
            shutil.rmtree(left)


def prune(
    run: Path,
    *,
    now: int,
    last: int,
    best: Collection[int],
    in_turn: Callable[[int], bool] = lambda update: True,
) -> list[Path]:
    """Remove all checkpoints but the ``last`` newest and those of the updates ``best``.

    Those beyond update ``now`` belong to a future that was given up, and go too. So do those before it
    that are not ``in_turn``: a signal made them, and a run that was never stopped does not have them.

    Returns:
        The removed folders.
    """
    reached("before-prune")
    found = paths(run)
    past = [path for path in found if _update(path) < now and in_turn(_update(path))]
    newest = [*past, path_of(run, now)][-last:]
    doomed = [
        path for path in found if path not in newest and (_update(path) not in best or _update(path) > now)
    ]
    for path in doomed:
        _remove(path)
    return doomed


def _remove(path: Path) -> None:
    """Rename, then remove: a folder that lost some of its files must not look like a checkpoint."""
    doomed = _temporary(path)
    shutil.rmtree(doomed, ignore_errors=True)
    try:
        path.rename(doomed)
    except OSError as error:
        raise WorkError(f"{path}: could not be removed: {error.strerror or error}") from error
    reached("during-prune")
    shutil.rmtree(doomed, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Verify a checkpoint and read its state.

    Raises:
        DataError: there is none at ``path``, or it has a format that this version does not know.
        DamagedError: a file is missing or differs; the message names it, and the newest good one.
    """
    try:
        return _load(path)
    except DamagedError as error:
        others = [other for other in reversed(paths(path.parent.parent)) if other != path]
        good = next((other for other in others if _is_good(other)), None)
        offer = f"the newest good one is {good}" if good else "there is no other good one"
        raise DamagedError(f"{error}; {offer}") from error


def latest_good(run: Path) -> tuple[Checkpoint | None, list[DamagedError]]:
    """The newest checkpoint that is what was written, and what is wrong with those after it."""
    damaged: list[DamagedError] = []
    for path in reversed(paths(run)):
        try:
            return _load(path), damaged
        except DamagedError as error:
            damaged.append(error)
    return None, damaged


def _is_good(path: Path) -> bool:
    try:
        _load(path)
    except (DamagedError, DataError):
        return False
    return True


def _load(path: Path) -> Checkpoint:
    if not path.is_dir():
        raise DataError(f"{path}: there is no such checkpoint")
    version, files = _parse(path / "manifest.json", _manifest)
    if version != VERSION:
        raise DataError(
            f"{path / 'manifest.json'}: has format {version!r}; this version of heedful reads {VERSION}"
        )
    for name in _FILES:
        _verify(path / name, files.get(name, {}))
    return _parse(path / "state.json", lambda values: _checkpoint(path, values))


def _manifest(values: dict[str, Any]) -> tuple[Any, dict[str, dict[str, Any]]]:
    version = values["version"]
    if version == VERSION and not is_intact(values):
        raise ValueError("its content is not what was written")
    return version, {name: dict(entry) for name, entry in dict(values["files"]).items()}


def _checkpoint(path: Path, values: dict[str, Any]) -> Checkpoint:
    return Checkpoint(path, TrainingState.from_json(values["training"]), values["optimizer"])


def _parse(path: Path, make: Callable[[Any], Any]) -> Any:
    """Read JSON and make something of it; whatever goes wrong means that the file is damaged."""
    try:
        require_end(path)
        return make(parse_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DamagedError(f"{path}: is missing") from None
    except (ValueError, TypeError, KeyError, OSError, DataError) as error:
        raise DamagedError(f"{path}: cannot be read: {error}") from error


def _verify(path: Path, wanted: dict[str, Any]) -> None:
    if not path.is_file():
        raise DamagedError(f"{path}: is missing")
    found = {"size": path.stat().st_size, "sha256": sha256(path)}
    for key, value in found.items():
        if value != wanted.get(key):
            raise DamagedError(f"{path}: is damaged: its {key} is {value}, and {wanted.get(key)} was written")
