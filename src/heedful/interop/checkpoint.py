"""The folder in which the transformers library keeps a model: config.json, model.safetensors and more."""

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

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "tf_model.h5",
    "flax_model.msgpack",
)


_OF_ITS_OWN = 1_000_000
"""Parameters that a model may have beyond those of the file: heads, rows of special tokens."""


class Checkpoint:
    """A folder that is read; it remembers which files were, and which tensors hold what is no finite number.

    Args:
        path: of the folder.

    Raises:
        RequestError: it is no such folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read: list[Path] = []
        self.strange: list[str] = []
        if path.is_file():
            raise RequestError(f"{path}: is a file; give the folder that holds it, with its {CONFIG}")
        if not path.is_dir():
            raise RequestError(
                f"{path}: no such folder; heedful imports what lies on this machine: a folder with "
                f"{CONFIG} and {WEIGHTS}, as the `save_pretrained` of transformers writes it"
            )
        if not (path / CONFIG).is_file():
            raise RequestError(f"{path}: has no {CONFIG}, so it is no model of transformers")

    def has(self, name: str) -> bool:
        """Whether the folder has such a file."""
        return (self.path / name).is_file()

    def file(self, name: str) -> Path:
        """The path of a file that is about to be read.

        Raises:
            RequestError: there is none.
        """
        path = self.path / name
        if not path.is_file():
            raise RequestError(f"{path}: no such file")
        if path not in self.read:
            self.read.append(path)
        return path

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file that holds an object.

        Raises:
            RequestError: there is none.
            DamagedError: it holds something else.
        """
        path = self.file(name)
        try:
            found = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DamagedError(f"{path}: cannot be read as JSON: {error}") from None
        if not isinstance(found, dict):
            raise DamagedError(f"{path}: holds no JSON object")
        return found

    @property
    def config(self) -> "Settings":
        """The configuration."""
        return Settings(self.json(CONFIG), str(self.path / CONFIG))

    @property
    def weights(self) -> Path:
        """How messages call the weights."""
        return self.path / (WEIGHTS if self.has(WEIGHTS) or not self.has(INDEX) else INDEX)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, of one file or of several.

        Raises:
            RequestError: there is no file of safetensors.
            DamagedError: a file cannot be read.
        """
        if self.has(WEIGHTS):
            return self._tensors(WEIGHTS)
        if self.has(INDEX):
            parts = self.json(INDEX).get("weight_map")
            if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
                raise DamagedError(f"{self.path / INDEX}: has no weight_map")
            return {
                name: tensor
                for file in sorted({*parts.values()})
                for name, tensor in self._tensors(file).items()
            }
        if pickles := [name for name in PICKLES if self.has(name)]:
            raise RequestError(
                f"{self.path / pickles[0]}: is not read: loading such a file can run any program that "
                f"it holds. Where you trust it, load it with transformers and save it with "
                f"`save_pretrained(folder)`, which writes {WEIGHTS}; then import that folder"
            )
        raise RequestError(f"{self.path}: has no {WEIGHTS}")

    def _tensors(self, name: str) -> dict[str, Tensor]:
        if Path(name).name != name:
            raise DamagedError(f"{self.path / INDEX}: names a file of another folder: {name}")
        path = self.file(name)
        with opened(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.strange += [name for name, tensor in tensors.items() if not _is_finite(tensor)]
        return tensors

    def model_of(self, held: Mapping[str, Tensor], make: Callable[[], nn.Module]) -> nn.Module:
        """Make the model that the configuration describes, if the file holds about as many numbers.

        Args:
            held: what the file holds.
            make: builds the model; called on torch's ``meta`` device first, where nothing takes memory.

        Raises:
            RequestError: the configuration declares sizes that the weights cannot fill.
        """
        with torch.device("meta"):
            wanted = sum(parameter.numel() for parameter in make().parameters())
        there = sum(tensor.numel() for tensor in held.values())
        if wanted > 2 * there + _OF_ITS_OWN:
            raise RequestError(
                f"{self.path / CONFIG}: declares a model of {wanted:,} parameters, and {self.weights} holds "
                f"{there:,} numbers"
            )
        return make()

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file that was read, by its name."""
        return {path.name: sha256(path) for path in self.read}


def _is_finite(tensor: Tensor) -> bool:
    """Whether all of it are numbers; of what torch cannot look through (8 bits), that is believed."""
    return not tensor.is_floating_point() or tensor.itemsize == 1 or bool(tensor.isfinite().all())


class Settings:
    """The values of a configuration file; every one that is asked for is remembered.

    Args:
        values: by their keys.
        source: how messages call the file.
    """

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source
        self.known: set[str] = set()

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of a key, or the default where it is missing or null.

        Raises:
            RequestError: it is of another type.
        """
        self.known.add(key)
        value = self.values.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # True is a whole number to Python.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(_KINDS[kind] for kind in kinds)
            raise self.wrong(key, f"expected {wanted}, found {value!r}")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1.

        Raises:
            RequestError: it is something else, or missing.
        """
        value = self.get(key, int, default)
        if value is None:
            raise RequestError(f"{self.source}: {key}: is missing")
        if value < 1:
            raise self.wrong(key, f"expected at least 1, found {value}")
        return int(value)

    def rate(self, key: str, default: float) -> float:
        """A number from 0 to 1, 1 excluded.

        Raises:
            RequestError: it is something else.
        """
        value = float(self.get(key, (int, float), default))
        if not 0.0 <= value < 1.0:
            raise self.wrong(key, f"expected a number from 0 up to 1, found {value}")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty if the key is missing.

        Raises:
            RequestError: it is something else.
        """
        found = self.get(key, list, [])
        if not all(isinstance(each, str) for each in found):
            raise self.wrong(key, f"expected a list of texts, found {found!r}")
        return list(found)

    def choice(self, key: str, choices: Mapping[str, str], default: str) -> str:
        """What heedful calls the value of a key.

        Raises:
            RequestError: it knows no such thing.
        """
        value = self.get(key, str, default)
        if value not in choices:
            raise self.wrong(key, f"{value!r} is not known to heedful; known are {', '.join(choices)}")
        return choices[value]

    def refuse(self, key: str, why: str, allowed: tuple[Any, ...] = (None, False)) -> None:
        """Refuse any value that is not allowed.

        Raises:
            RequestError: with the reason.
        """
        self.known.add(key)
        value = self.values.get(key)
        if not any(value is good or (type(value) is type(good) and value == good) for good in allowed):
            raise self.wrong(key, f"{value!r}: {why}")

    def wrong(self, key: str, why: str) -> RequestError:
        """An error about a key."""
        return RequestError(f"{self.source}: {key}: {why}")

    def unread(self, harmless: frozenset[str]) -> list[str]:
        """The keys that nobody asked for and that are not known to be harmless."""
        return sorted(key for key in self.values if key not in self.known and key not in harmless)


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}

HARMLESS = frozenset(
    {
        "_name_or_path", "architectures", "model_type", "torch_dtype", "dtype", "transformers_version",
        "use_cache", "task_specific_params", "initializer_range", "init_std", "output_attentions",
        "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate", "torchscript",
        "use_bfloat16", "gradient_checkpointing", "id2label", "label2id", "num_labels", "problem_type",
        "is_encoder_decoder", "is_decoder", "_num_labels", "finetuning_task", "attn_implementation",
        "_attn_implementation", "_attn_implementation_autoset", "tokenizer_class", "prefix",
        "chunk_size_feed_forward", "pruned_heads",
        # How transformers generates by default; heedful's recipe says it for itself.
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
        "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
        "num_return_sequences", "remove_invalid_values", "exponential_decay_length_penalty",
        "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
        "sep_token_id",
    }
)  # fmt: skip
"""Keys that change nothing about what a model computes from ids."""


def write_checkpoint(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write weights and configuration into a folder, the configuration last.

    Raises:
        WorkError: a file cannot be written.
    """
    with replacing(folder / WEIGHTS) as temporary:
        try:
            # transformers wants to be told whose tensors these are.
            save_file(dict(tensors), temporary, {"format": "pt"})
        except SafetensorError as error:
            raise WorkError(f"{folder / WEIGHTS}: cannot be written ({error})") from None
    write_object(folder / CONFIG, config)


def write_object(path: Path, value: Any) -> None:
    """Write indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
