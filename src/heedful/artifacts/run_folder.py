"""The layout of a run's folder, and how its small files are written.

run.json              what this is: format version, task, created, files with their hashes, its own hash
started.json          while a training is under way: the hashes of its recipe and its tokenizers, labels …
recipe.yaml           the resolved recipe
source.tokenizer.json, target.tokenizer.json (text.tokenizer.json of one text, caption… of captions)
labels.json           of a classifier or tagger
scale.json            of a regression: the mean and the deviation of its numbers
images.json         how images are read, where some are
weights.safetensors   what predict uses: best, last or averaged, as the recipe says
metrics.jsonl         what happened, one JSON object a line
data.json             the data report, with hashes of what was read
environment.json      versions, machine, command
checkpoints/          to resume from
cache/                tokenised training data; may be deleted
tensorboard/          where asked for
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from heedful.errors import DamagedError, HeedfulError, RequestError
from heedful.files import is_intact, json_text, parse_json, require_end, sha256, stamped, write_text
from heedful.typing import JsonMapping, JsonObject

FORMAT = 1
T = TypeVar("T")


class RunFolder:
    """Paths inside a run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def card(self) -> Path:
        """``run.json``: its presence is what makes a folder a run."""
        return self.path / "run.json"

    @property
    def started(self) -> Path:
        """``started.json``: what a training that is under way, or was interrupted, is made from."""
        return self.path / "started.json"

    @property
    def recipe(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.yaml"

    @property
    def weights(self) -> Path:
        """The weights that predictions use."""
        return self.path / "weights.safetensors"

    @property
    def metrics(self) -> Path:
        """Events, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def data_report(self) -> Path:
        """What was read, kept and dropped."""
        return self.path / "data.json"

    @property
    def environment(self) -> Path:
        """Versions and machine."""
        return self.path / "environment.json"

    @property
    def cache(self) -> Path:
        """Tokenised training data."""
        return self.path / "cache"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's event files."""
        return self.path / "tensorboard"

    def tokenizer(self, side: str) -> Path:
        """The tokenizer of ``source`` or ``target``."""
        return self.path / f"{side}.tokenizer.json"

    @property
    def labels(self) -> Path:
        """The labels of a classifier or tagger, in the order of their numbers."""
        return self.path / "labels.json"

    @property
    def scale(self) -> Path:
        """The mean and the deviation of the numbers that a regression learned from."""
        return self.path / "scale.json"

    @property
    def images(self) -> Path:
        """How images are read: their size, mean and deviation."""
        return self.path / "images.json"

    @property
    def has_ended(self) -> bool:
        """Whether a training or an import wrote its result here, even if the card is missing now.

        A training that is killed between new weights and new card leaves ``started.json``: it has not ended.
        """
        return self.card.is_file() or (self.weights.is_file() and not self.started.is_file())

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is any checkpoint, good or not."""
        return any((self.path / "checkpoints").glob("step-*"))

    def require(self) -> JsonObject:
        """The run's card; an error that says what is missing when this is no run."""
        if not self.path.exists():
            raise RequestError(f"{self.path}: no such run")
        if self.path.is_file():
            there = (self.path.parent / self.card.name).is_file()
            instead = f" {self.path.parent}" if there else ""
            raise RequestError(f"{self.path} is not a run: it is a file; give the run's folder{instead}")
        if not self.card.is_file():
            raise self._no_card()
        card = read_json(self.card)
        if not isinstance(card, dict):
            raise DamagedError(f"{self.card}: damaged: it holds no JSON object; {self._advice}")
        version = card.get("version")
        if not isinstance(version, int):
            raise DamagedError(
                f"{self.card}: damaged: it does not say of which format version it is; {self._advice}"
            )
        if version != FORMAT:
            newer = "; a newer heedful has made it: upgrade heedful" if version > FORMAT else ""
            raise RequestError(
                f"{self.card}: format version {version}, but this heedful reads {FORMAT}{newer}"
            )
        if not is_intact(card):
            raise DamagedError(f"{self.card}: damaged: its content is not what was written; {self._advice}")
        if not isinstance(card.get("files"), dict):
            raise DamagedError(f"{self.card}: damaged: it does not list the run's files; {self._advice}")
        return card

    def _no_card(self) -> HeedfulError:
        """The error for a folder without ``run.json``."""
        if self.has_ended:
            return DamagedError(
                f"{self.card}: missing, though the run has {self.weights.name}; {self._advice}"
            )
        if self.recipe.is_file():
            return RequestError(
                f"{self.path}: training has not made its first checkpoint; "
                "continue it with `heedful train --resume`"
            )
        return RequestError(f"{self.path} is not a run: it has no {self.card.name}")

    @property
    def _advice(self) -> str:
        """How a damaged card comes back."""
        return "restore it from a copy" + (
            ", or train with --resume to write it again" if self.has_checkpoints else ""
        )

    def hashes(self, paths: Iterable[Path]) -> dict[str, JsonObject]:
        """Size and hash of some of the run's files, by their names, as the card lists them."""
        return {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in paths}


def write_card(path: Path, card: JsonMapping) -> None:
    """Write ``run.json`` or ``started.json`` with its own hash."""
    write_json(path, stamped(card))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, whole or not at all."""
    write_text(path, json_text(value, indent=2) + "\n")


def read_text(path: Path) -> str:
    """Read a text file of a run.

    Raises:
        RequestError: there is no such file, or a device in its place.
        DamagedError: it cannot be read, or is not UTF-8.
    """
    require_end(path)
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise RequestError(f"{path}: no such file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DamagedError(f"{path}: damaged: line {line} is not UTF-8; restore it from a copy") from error
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> Any:
    """Read a JSON file of a run; raises like `read_text`."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise DamagedError(f"{path}: damaged ({error}); restore it from a copy") from error


def read_entry(path: Path, key: str, kind: type[T]) -> T:
    """What a JSON file of a run has under ``key``.

    Raises:
        DamagedError: nothing, or a value of another kind.
    """
    value = read_json(path)
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise DamagedError(f"{path}: damaged: it has no {key!r}; restore the file from a copy")
    return found


def read_labels(path: Path) -> tuple[str, ...]:
    """The labels of a run, in the order of their numbers.

    Raises:
        DamagedError: the file holds none.
    """
    labels = read_entry(path, "labels", list)
    if not labels or not all(isinstance(label, str) for label in labels):
        raise DamagedError(f"{path}: damaged: its labels are no texts; restore the file from a copy")
    return tuple(labels)
