"""The folder of a run: the names of its files, reading and writing the small ones, and locking it.

| file | content |
|---|---|
| ``run.json`` | the card: format version, task, date, the other files with their hashes, its own hash |
| ``started.json`` | during a training: the hashes of its recipe and of what its processor stores |
| ``recipe.yaml`` | the resolved recipe |
| ``source.tokenizer.json``, ``target.tokenizer.json`` | tokenizers (``text…``: of one text, ``caption…``) |
| ``labels.json`` | of a classifier or tagger: the labels in the order of their indices |
| ``scale.json`` | of a regression: mean and standard deviation of the training data |
| ``images.json`` | of a task with images: their size, mean and standard deviation |
| ``weights.safetensors`` | the weights for prediction: best, last or averaged, as the recipe says |
| ``calibration.json`` | of a classifier: the temperature by which its head is divided |
| ``residuals.json`` | of a regression: errors on validation rows, for intervals |
| ``thresholds.json`` | of a multi-label classifier: thresholds tuned with these weights |
| ``transitions.json`` | of a tagger whose training tags are well-formed: their scheme |
| ``metrics.jsonl`` | the events of the training, one JSON object per line |
| ``data.json`` | the data report: what was read, kept and dropped, with hashes |
| ``environment.json`` | versions, machine, command |
| ``checkpoints/`` | needed to resume |
| ``cache/`` | tokenised training data; may be deleted |
| ``tensorboard/`` | TensorBoard's event files, if requested |
"""

import difflib
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from heedful.errors import DamagedError, HeedfulError, RequestError
from heedful.files import file_in_the_way, json_text, remove, sha256, stamped, write_text
from heedful.records import (
    MAX_SHOWN,
    RESTORE,
    Count,
    Digest,
    Record,
    StampedRecord,
    Text,
    Versioned,
    read_record,
)
from heedful.typing import JsonMapping, JsonObject

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

FORMAT = 1


class FileEntry(Record):
    """Hash and size of a file of a run."""

    sha256: Digest
    bytes: Count


def _in_folder(name: str) -> str:
    if Path(name).name != name:
        raise ValueError(f"expected the name of a file in the run's folder, got {name[:MAX_SHOWN]!r}")
    return name


class FileList(StampedRecord):
    """Content of ``started.json``."""

    version: Literal[1]
    files: dict[Annotated[str, AfterValidator(_in_folder)], FileEntry]


class Source(Record):
    """What a run was imported from, with the hashes of the files."""

    format: str
    name: Text
    files: dict[Text, Digest]


class Card(FileList):
    """Content of ``run.json``; a training in a loop of one's own may add entries."""

    model_config = ConfigDict(extra="allow")

    heedful: str | None = None
    created: str | None = None
    task: str | None = None
    updates: Count | Annotated[float, Field(ge=0)] | None = None
    stopped: str | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None
    imported: Source | None = None


CALIBRATION, RESIDUALS, THRESHOLDS = "calibration.json", "residuals.json", "thresholds.json"
TRANSITIONS = "transitions.json"
TUNED = (CALIBRATION, RESIDUALS, THRESHOLDS, TRANSITIONS)
"""Files with what was chosen once training was over."""


class RunFolder:
    """Paths of the files in a run's folder; the module docstring describes them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.card = self.path / "run.json"
        self.started = self.path / "started.json"
        self.recipe = self.path / "recipe.yaml"
        self.labels = self.path / "labels.json"
        self.scale = self.path / "scale.json"
        self.images = self.path / "images.json"
        self.weights = self.path / "weights.safetensors"
        self.calibration = self.path / CALIBRATION
        self.residuals = self.path / RESIDUALS
        self.thresholds = self.path / THRESHOLDS
        self.transitions = self.path / TRANSITIONS
        self.metrics = self.path / "metrics.jsonl"
        self.data_report = self.path / "data.json"
        self.environment = self.path / "environment.json"
        self.cache = self.path / "cache"
        self.tensorboard = self.path / "tensorboard"

    def tokenizer(self, side: str) -> Path:
        """Return the path of the tokenizer of ``source``, ``target``, ``text`` or ``caption``."""
        return self.path / f"{side}.tokenizer.json"

    @property
    def results(self) -> tuple[Path, ...]:
        """The files that the end of a training writes; it writes them again if it is resumed."""
        return self.weights, *(self.path / name for name in TUNED)

    @property
    def has_ended(self) -> bool:
        """Return whether a training or an import wrote its result here, even if the card is missing now.

        A training that is killed between writing weights and card leaves ``started.json``: it has not ended.
        """
        return self.card.is_file() or (self.weights.is_file() and not self.started.is_file())

    @property
    def has_checkpoints(self) -> bool:
        """Return whether there is a checkpoint, intact or damaged."""
        return any((self.path / "checkpoints").glob("step-*"))

    @property
    def is_unfinished(self) -> bool:
        """Return whether a training has written checkpoints, but no result and thus no card."""
        return not self.has_ended and self.has_checkpoints

    def read_card(self) -> JsonObject:
        """Return the run's card.

        Raises:
            RequestError: the folder is not a run, or has another format version.
            DamagedError: the card is missing or damaged.
        """
        if not self.path.exists():
            raise missing_run(self.path)
        if self.path.is_file():
            has_card = (self.path.parent / self.card.name).is_file()
            suggestion = f" {self.path.parent}" if has_card else ""
            raise RequestError(f"{self.path} is not a run: it is a file; give the run's folder{suggestion}")
        if not self.card.is_file():
            raise self._missing_card()
        version = read_record(self.card, Versioned, self._remedy).version
        if version != FORMAT:
            hint = "; written by a newer version: upgrade heedful" if version > FORMAT else ""
            raise RequestError(
                f"{self.card}: format version {version}, but this heedful reads {FORMAT}{hint}"
            )
        return read_record(self.card, Card, self._remedy).model_dump(exclude_unset=True)

    def _missing_card(self) -> HeedfulError:
        if self.has_ended:
            return DamagedError(
                f"{self.card}: missing, though the run has {self.weights.name}; {self._remedy}"
            )
        if self.recipe.is_file():
            return RequestError(
                f"{self.path}: training has not written its first checkpoint; "
                "continue it with `heedful train --resume` (in Python: heedful.resume)"
            )
        return self.not_a_run(self.card, _runs_in(self.path))

    def not_a_run(self, missing: Path, hint: str = "") -> RequestError:
        """Return the error for a folder without a file that every run has; of a model, with the remedy."""
        if (self.path / "config.json").is_file():
            command = f"heedful import {shlex.quote(str(self.path))} RUN"
            hint = (
                f"; for a model of transformers, import it first: {command} (in Python: heedful.import_model)"
            )
        return RequestError(f"{self.path} is not a run: it has no {missing.name}{hint}")

    @property
    def _remedy(self) -> str:
        alternative = (
            ", or train with --resume to write it again (in Python: heedful.resume)"
            if self.has_checkpoints
            else ""
        )
        return f"{RESTORE}{alternative}"

    def check_started(self) -> None:
        """Check the files of an unfinished training against the hashes in ``started.json``.

        Raises:
            DamagedError: a file or the list of files does not match its hash.
        """
        if not self.started.exists():
            return
        self.check_files(read_record(self.started, FileList).model_dump())

    def check_files(self, card: JsonMapping) -> None:
        """Check the run's files against the sizes and hashes on its card.

        Raises:
            DamagedError: a file is missing, or does not match its size or hash.
        """
        for name, expected in card["files"].items():
            path = self.path / name
            # Training writes only its results again, from checkpoints.
            remedy = self._remedy if path in self.results else RESTORE
            if not path.is_file():
                raise DamagedError(f"{path}: missing, though it belongs to the run; {remedy}")
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise DamagedError(
                    f"{path}: damaged: expected {expected['bytes']} bytes, got {size}; {remedy}"
                )
            if sha256(path) != expected["sha256"]:
                raise DamagedError(f"{path}: damaged: its content does not match its SHA-256; {remedy}")

    def hashes(self, paths: Iterable[Path]) -> dict[str, JsonObject]:
        """Return hash and size of files of the run by name, as the card lists them."""
        return {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in paths}


# Other runs -------------------------------------------------------------------------------------------------

N_LISTED = 10
DEFAULT_FOLDER = Path("runs")
"""The folder that training writes runs into, unless another is given."""


def missing_run(path: Path) -> RequestError:
    """Return the error for a run that does not exist: it names the nearest run, and those in its folder."""
    return RequestError(f"{path}: no such run{other_runs(path)}")


def other_runs(path: Path) -> str:
    """Return a suggestion for a run that does not exist: the nearest name, and the runs in its folder.

    A name without a folder may also be that of a run in ``runs``.
    """
    folder = path.parent
    if not folder.is_dir():
        return f" (no folder {folder})"
    folders = [folder, DEFAULT_FOLDER] if folder == Path() else [folder]
    runs = [run for place in folders for run in _runs(place)]
    names = difflib.get_close_matches(path.name, [run.name for run in runs], n=1)
    near = next((f" (did you mean {str(run)!r}?)" for run in runs if run.name in names), "")
    return near + next((listed for place in folders if (listed := _runs_in(place))), "")


def _runs_in(folder: Path) -> str:
    """List the newest runs in a folder, for a message; empty if there is none."""
    runs = _runs(folder)
    if not runs:
        return ""
    more = f" and {len(runs) - N_LISTED:,} more" if len(runs) > N_LISTED else ""
    where = "this folder" if folder == Path() else folder
    return f"; runs in {where}, newest first: {', '.join(run.name for run in runs[:N_LISTED])}{more}"


def _runs(folder: Path) -> list[Path]:
    """Return the runs in a folder, finished and unfinished, newest first."""
    ages = {}
    with suppress(OSError):
        for path in folder.iterdir():
            run = RunFolder(path)
            with suppress(OSError):
                ages[path] = (run.card if run.card.is_file() else run.recipe).stat().st_mtime
    return sorted(ages, key=lambda path: (-ages[path], path))


# Reading and writing ----------------------------------------------------------------------------------------


def write_card(path: Path, card: JsonMapping) -> None:
    """Write a JSON file with its own hash: ``run.json``, ``started.json`` or another."""
    write_json(path, stamped(card))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically."""
    write_text(path, json_text(value, indent=2) + "\n")


class Labels(Record):
    """Content of ``labels.json``."""

    version: Literal[1] = 1
    labels: Annotated[list[Text], Field(min_length=1)]


def read_labels(path: Path) -> tuple[str, ...]:
    """Return the labels of a run, in the order of their indices.

    Raises:
        DamagedError: the file has no labels, or one twice.
    """
    labels = read_record(path, Labels).labels
    if len({*labels}) < len(labels):
        raise DamagedError(f"{path}: damaged: a label occurs twice; {RESTORE}")
    return tuple(labels)


# Locking ----------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; create it if it is missing, and remove it again if it is left empty.

    The lock is advisory and kept by the system: it is released when the process ends, in whatever way. On
    systems without such locks (Windows, some network file systems), nothing is locked.

    Raises:
        RequestError: another process has locked it, or the folder cannot be created.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    handle = _lock(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty, or a parent is in use by others
            for path in created:
                path.rmdir()
        if handle is not None:
            os.close(handle)


def _lock(folder: Path) -> int | None:
    """Create, open and lock the folder; return None if the system has no locks."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = file_in_the_way(folder)
            reason = f": {problem}" if problem else f" ({error.strerror})"
            raise RequestError(f"{folder}: cannot create the folder{reason}") from None
        if fcntl is None:
            return None
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If the previous holder has removed the folder, this lock is on a deleted folder: try again.
            if os.path.samestat(folder.stat(), os.fstat(handle)):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise RequestError(
                f"{folder}: locked by another process that writes to it; wait for that process, or stop it"
            ) from None
        except (FileNotFoundError, NotADirectoryError):
            pass  # removed: create it again
        except OSError:
            os.close(handle)
            return None
        os.close(handle)


@contextmanager
def emptied_on_failure(folder: Path) -> Iterator[None]:
    """Empty a folder if the work in it fails; only for a folder that was empty and is locked."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            empty(folder)
        raise


def empty(folder: Path) -> None:
    """Remove all that a folder contains."""
    for path in folder.iterdir():
        remove(path)
