"""Read and write model folders of the transformers library: config.json, model.safetensors and more."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from heedful.artifacts.weights import opened
from heedful.errors import DamagedError, RequestError, WorkError
from heedful.files import parse_json, replacing, sha256, write_text
from heedful.typing import JsonMapping, JsonObject

ENCODING = "utf-8-sig"
"""UTF-8, without the byte order mark that editors on Windows write."""

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX, ADAPTER = f"{WEIGHTS}.index.json", "adapter_config.json"
PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "tf_model.h5",
    "flax_model.msgpack",
)


_EXTRA_PARAMETERS = 1_000_000
"""Parameters that a model may have in addition to those in the file: heads, rows of special tokens."""


class Checkpoint:
    """A model folder to read; records which files were read.

    Raises:
        RequestError: it is not a model folder of transformers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files_read: list[Path] = []
        self._settings: dict[str, Settings] = {}
        if path.is_file():
            raise RequestError(
                f"{path}: expected a folder with {CONFIG}, got a file; give the folder that contains it"
            )
        if not path.is_dir():
            raise RequestError(
                f"{path}: no such folder; expected a local folder with {CONFIG} and {WEIGHTS}, as written by "
                "`save_pretrained` of transformers"
            )
        if (path / ADAPTER).is_file():
            raise RequestError(
                f"{path / ADAPTER}: an adapter changes what the model computes, and is not read. Load the "
                "model with peft, call `merge_and_unload()` and `save_pretrained(folder)`, and import that "
                "folder"
            )
        if not (path / CONFIG).is_file():
            raise RequestError(f"{path}: expected a model of transformers, but the folder has no {CONFIG}")

    def has(self, name: str) -> bool:
        """Return whether the folder contains the file `name`."""
        return (self.path / name).is_file()

    def file(self, name: str) -> Path:
        """Return the path of a file and record it as read.

        Raises:
            RequestError: the file does not exist.
        """
        path = self.path / name
        if not path.is_file():
            raise RequestError(f"{path}: no such file")
        if path not in self.files_read:
            self.files_read.append(path)
        return path

    def text(self, name: str) -> str:
        """Read a UTF-8 file.

        Raises:
            RequestError: the file does not exist.
            DamagedError: it cannot be read.
        """
        path = self.file(name)
        try:
            return path.read_text(encoding=ENCODING)
        except (OSError, ValueError) as error:
            raise DamagedError(f"{path}: cannot be read: {error}") from None

    def json(self, name: str) -> JsonObject:
        """Load a JSON file that contains an object.

        Raises:
            RequestError: the file does not exist.
            DamagedError: it does not contain a JSON object.
        """
        content = self._parsed(name)
        if not isinstance(content, dict):
            raise DamagedError(f"{self.path / name}: expected a JSON object")
        return content

    def json_list(self, name: str) -> list[Any]:
        """Load a JSON file that contains a list.

        Raises:
            RequestError: the file does not exist.
            DamagedError: it does not contain a JSON list.
        """
        content = self._parsed(name)
        if not isinstance(content, list):
            raise DamagedError(f"{self.path / name}: expected a JSON list")
        return content

    def _parsed(self, name: str) -> object:
        path = self.file(name)
        try:
            return parse_json(path.read_text(encoding=ENCODING))
        except (OSError, ValueError) as error:
            raise DamagedError(f"{path}: cannot be read as JSON: {error}") from None

    def settings(self, name: str) -> "Settings":
        """Return the settings in a JSON file, the same object in every call; empty if there is no file."""
        if name not in self._settings:
            values = self.json(name) if self.has(name) else {}
            self._settings[name] = Settings(values, str(self.path / name))
        return self._settings[name]

    @property
    def all_settings(self) -> Mapping[str, "Settings"]:
        """The settings that were read so far, by file name."""
        return self._settings

    @property
    def config(self) -> "Settings":
        """The configuration of the model."""
        return self.settings(CONFIG)

    @property
    def weights(self) -> Path:
        """Path of the weights in messages."""
        return self.path / (WEIGHTS if self.has(WEIGHTS) or not self.has(INDEX) else INDEX)

    def tensors(self) -> dict[str, Tensor]:
        """Load all tensors, from one file or from shards.

        Raises:
            RequestError: there is no safetensors file.
            DamagedError: a file cannot be read.
        """
        if self.has(WEIGHTS):
            return self._tensors(WEIGHTS)
        if self.has(INDEX):
            weight_map = self.json(INDEX).get("weight_map")
            if not isinstance(weight_map, dict) or not all(
                isinstance(name, str) for name in weight_map.values()
            ):
                raise DamagedError(f"{self.path / INDEX}: has no weight_map")
            return {k: t for file in sorted({*weight_map.values()}) for k, t in self._tensors(file).items()}
        if pickles := [name for name in PICKLES if self.has(name)]:
            raise RequestError(
                f"{self.path / pickles[0]}: not supported, since loading such a file can execute arbitrary "
                f"code. If you trust it, load it with transformers, save it with `save_pretrained(folder)`, "
                f"which writes {WEIGHTS}, and import that folder"
            )
        raise RequestError(f"{self.path}: has no {WEIGHTS}")

    def _tensors(self, name: str) -> dict[str, Tensor]:
        if Path(name).name != name:
            raise DamagedError(f"{self.path / INDEX}: must name files of the same folder, got {name}")
        path = self.file(name)
        with opened(path) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def model_of(self, tensors: Mapping[str, Tensor], make: Callable[[], nn.Module]) -> nn.Module:
        """Build the model after checking that its parameter count matches the file.

        Args:
            tensors: tensors of the file.
            make: builds the model; first called on the ``meta`` device, which allocates no memory.

        Raises:
            RequestError: the configuration declares far more parameters than the file contains.
        """
        with torch.device("meta"):
            expected = sum(parameter.numel() for parameter in make().parameters())
        available = sum(tensor.numel() for tensor in tensors.values())
        if expected > 2 * available + _EXTRA_PARAMETERS:
            raise RequestError(
                f"{self.path / CONFIG}: declares a model of {expected:,} parameters, but {self.weights} "
                f"holds {available:,}"
            )
        return make()

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every file that was read, by file name."""
        return {path.relative_to(self.path).as_posix(): sha256(path) for path in self.files_read}


class Settings:
    """Values of a configuration file; records which keys were read.

    Args:
        values: values by key.
        source: name of the file in messages.
    """

    def __init__(self, values: JsonMapping, source: str) -> None:
        self.values, self.source = values, source
        self.keys_read: set[str] = set()

    def get(self, key: str, kind: type | tuple[type, ...], default: object = None) -> Any:
        """Return the value of a key, or the default if it is missing or null.

        Raises:
            RequestError: the value has another type.
        """
        self.keys_read.add(key)
        value = self.values.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # bool is a subclass of int.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(_KINDS[kind] for kind in kinds)
            raise self.error(key, f"expected {expected}, got {value!r}")
        return value

    def positive_int(self, key: str, default: int | None = None) -> int:
        """Return an integer of at least 1.

        Raises:
            RequestError: it is something else, or missing.
        """
        value = self.get(key, int, default)
        if value is None:
            raise RequestError(f"{self.source}: {key}: required key is missing")
        if value < 1:
            raise self.error(key, f"must be at least 1, got {value}")
        return int(value)

    def rate(self, key: str, default: float) -> float:
        """Return a number in [0, 1).

        Raises:
            RequestError: it is something else.
        """
        value = float(self.get(key, (int, float), default))
        if not 0.0 <= value < 1.0:
            raise self.error(key, f"must be in [0, 1), got {value}")
        return value

    def strings(self, key: str) -> list[str]:
        """Return a list of strings; empty if the key is missing.

        Raises:
            RequestError: it is something else.
        """
        texts = self.get(key, list, [])
        if not all(isinstance(text, str) for text in texts):
            raise self.error(key, f"expected a list of strings, got {texts!r}")
        return list(texts)

    def choice(self, key: str, choices: Mapping[str, str], default: str) -> str:
        """Return heedful's name for the value of a key.

        Raises:
            RequestError: the value is not supported.
        """
        value = self.get(key, str, default)
        if value not in choices:
            raise self.error(key, f"expected one of {', '.join(choices)}, got {value!r}")
        return choices[value]

    def refuse(self, key: str, reason: str, allowed: tuple[object, ...] = (None, False)) -> None:
        """Check that the value of a key is one of `allowed`.

        Raises:
            RequestError: it is not; the message contains `reason`.
        """
        self.keys_read.add(key)
        value = self.values.get(key)
        if not any(
            value is choice or (type(value) is type(choice) and value == choice) for choice in allowed
        ):
            raise self.error(key, f"{value!r}: {reason}")

    def error(self, key: str, reason: str) -> RequestError:
        """Return an error about a key."""
        return RequestError(f"{self.source}: {key}: {reason}")


_KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def write_checkpoint(folder: Path, config: JsonMapping, tensors: Mapping[str, Tensor]) -> None:
    """Write weights, then the configuration, into a folder.

    Raises:
        WorkError: a file cannot be written.
    """
    with replacing(folder / WEIGHTS) as temporary:
        try:
            # transformers requires this metadata.
            save_file(dict(tensors), temporary, {"format": "pt"})
        except SafetensorError as error:
            raise WorkError(f"{folder / WEIGHTS}: cannot be written ({error})") from None
    write_text(folder / CONFIG, indented(config))


def indented(value: JsonMapping) -> str:
    """Return the content of a JSON file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
