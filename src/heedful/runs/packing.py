"""Copy runs without what only training needs, and remove it from runs: ``heedful pack`` and ``clean``."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heedful.artifacts.run_folder import RunFolder, emptied_on_failure, locked
from heedful.errors import DamagedError, RequestError
from heedful.files import is_temporary, remove, sync
from heedful.runs.reading import saved_recipe
from heedful.training import checkpoints

ALIGNMENT = "alignment.json"
"""The head that aligns best (`heedful.explain.alignment.best_head`), which the card does not list."""


def pack(run: Path, out: Path) -> RunFolder:
    """Copy the files of a finished run that prediction, evaluation and explanation need into a new folder.

    These are the files on its card, whose hashes are checked before and after, the card, and
    ``alignment.json``.

    Args:
        run: the run's folder.
        out: the new folder; must be empty or not exist.

    Raises:
        RequestError: training has not finished or is in progress, or the new folder is not empty.
        DamagedError: a file of the run is damaged.
    """
    source, target = RunFolder(run), RunFolder(out)
    if out.exists() and (not out.is_dir() or any(path for path in out.iterdir() if not is_temporary(path))):
        raise RequestError(f"{out}: is not an empty folder; choose another one, or empty it")
    if run.resolve() == out.resolve() or run.resolve() in out.resolve().parents:
        raise RequestError(f"{out}: is in the run's folder; choose another one")
    with _finished(source, "packed"):
        card = source.read_card()
        source.check_files(card)
        extra = [ALIGNMENT] if (run / ALIGNMENT).is_file() else []
        with locked(out), emptied_on_failure(out):
            for name in (*card["files"], *extra):
                shutil.copyfile(run / name, out / name)
                sync(out / name)
            target.check_files(card)
            shutil.copyfile(source.card, target.card)  # last: it makes the folder a run
            sync(target.card)
            sync(out)
    return target


@dataclass(frozen=True)
class Removable:
    """Files of a run that prediction, evaluation and explanation do not need.

    Args:
        run: the run's folder.
        sizes: bytes of each folder that can be removed.
    """

    run: Path
    sizes: dict[Path, int]

    @property
    def total(self) -> int:
        """Bytes of all together."""
        return sum(self.sizes.values())

    def lines(self) -> Iterator[str]:
        """Yield a line for each folder, and their sum."""
        for path, size in self.sizes.items():
            yield f"{path}  {size:,} bytes"
        yield f"{self.total:,} bytes in all" if self.sizes else f"{self.run}: nothing to remove"


@contextmanager
def cleaning(run: Path, *, resumable: bool = False) -> Iterator[Removable]:
    """Yield what can be removed from a run, which is locked until the end of the block (`remove_all`).

    These are the tokenised data and the checkpoints, with the states of the optimizer.

    Args:
        run: the run's folder.
        resumable: keep the checkpoints that continuing its training needs: the newest one, and those that the
            final weights are made of. Then its training need not be finished.

    Raises:
        RequestError: the folder is not a run, or its training is in progress or, unless ``resumable``, not
            finished.
        DamagedError: the card or a file on it is damaged, so that the checkpoints may be needed to repair it.
    """
    folder = RunFolder(run)
    kept: set[Path] = set()
    with _locked_run(folder) if resumable else _finished(folder, "cleaned", "--resumable (resumable=True)"):
        if folder.has_ended:
            folder.check_files(folder.read_card())
        if resumable:
            kept = _needed_to_resume(folder)
        obsolete = [folder.cache, *checkpoints.paths(run)]
        if not kept:
            obsolete = [folder.cache, run / "checkpoints"]
        found = [path for path in obsolete if path.is_dir() and not path.is_symlink() and path not in kept]
        yield Removable(run, {path: _size(path) for path in found})


def remove_all(removable: Removable) -> None:
    """Remove what `cleaning` found.

    Raises:
        RequestError: some of it cannot be removed.
    """
    for path in removable.sizes:
        remove(path)
        if path.exists():
            raise RequestError(f"{path}: cannot be removed completely; check the permissions of its files")


def _needed_to_resume(folder: RunFolder) -> set[Path]:
    """Return the checkpoints that a resumed training reads, and its final weights are made of."""
    if not folder.has_checkpoints:
        return set()
    newest, damaged = checkpoints.latest_intact(folder.path)
    if newest is None:
        raise DamagedError(f"{damaged[0]}; there is no other good checkpoint")
    settings = saved_recipe(folder).training
    best = {checkpoints.path_of(folder.path, checkpoint.update) for checkpoint in newest.state.best}
    selected = checkpoints.select_checkpoints(folder.path, settings)
    return {newest.path, *best, *selected}


@contextmanager
def _finished(folder: RunFolder, done: str, otherwise: str | None = None) -> Iterator[None]:
    """Lock the folder of a run whose training is finished.

    Args:
        folder: the run's folder.
        done: what is refused for others.
        otherwise: an argument with which it is not.

    Raises:
        RequestError: training is not finished, or in progress.
    """
    with _locked_run(folder):
        stopped = folder.read_card().get("stopped") if folder.has_ended else "signal"
        if stopped == "signal":
            remedy = f", or add {otherwise}" if otherwise else ""
            raise RequestError(
                f"{folder.path}: training has not finished, so the run cannot be {done}; continue it with "
                f"`heedful train {folder.path} --resume` (in Python: heedful.resume){remedy}"
            )
        yield


@contextmanager
def _locked_run(folder: RunFolder) -> Iterator[None]:
    """Lock the folder of a run.

    Raises:
        RequestError: it is not a run, or another process writes to it.
    """
    if not (folder.has_ended or folder.recipe.is_file()):
        folder.read_card()  # raises the error that fits
    with locked(folder.path):
        yield


def _size(path: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir() or file.is_symlink())
