"""Save and load module weights as safetensors: each tied tensor once, with a table of its aliases."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from heedful.errors import DamagedError, DataError, RequestError, nearest
from heedful.files import is_unicode, parse_json, replacing
from heedful.records import RESTORE

_FORMAT = "heedful-weights-1"


def named_tensors(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the parameters and persistent buffers of a module, each once, and the aliases of tied ones.

    Returns:
        Tensors by name, in the order of the state dict; and ``alias -> name`` for every tied tensor.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for name, tensor in module.state_dict().items():
        storage = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and storage in seen:
            aliases[name] = seen[storage]
        else:
            seen[storage] = name
            tensors[name] = tensor
    return tensors, aliases


def write_tensors(path: Path, tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    """Write tensors and the table of aliases to a safetensors file.

    Raises:
        OSError: the file cannot be written.
    """
    cpu_tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Use a single metadata entry: safetensors writes several in an order that varies between runs.
    record = {"format": _FORMAT, "aliases": dict(sorted(aliases.items()))}
    metadata = {"heedful": json.dumps(record)}
    path.touch()
    mode = path.stat().st_mode & 0o777  # what the umask allows; safetensors would leave 0600
    try:
        save_file(cpu_tensors, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:
        raise OSError(str(error)) from error


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file for reading.

    safetensors opens only UTF-8 paths; other paths are opened by file descriptor.

    Raises:
        DamagedError: the file cannot be read.
    """
    try:
        if is_unicode(str(path)):
            with safe_open(path, framework="pt") as file:
                yield file
        else:
            with path.open("rb") as raw, safe_open(f"/dev/fd/{raw.fileno()}", framework="pt") as file:
                yield file
    except (SafetensorError, OSError) as error:
        is_cut = any(word in str(error).lower() for word in ("incomplete", "header length", "too small"))
        reason = "the file is incomplete; copy or download it again" if is_cut else error
        raise DamagedError(f"{path}: cannot be read as safetensors: {reason}") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and aliases written by `write_tensors`, on the CPU.

    Raises:
        DataError: the file does not exist, or heedful did not write it.
        DamagedError: the file cannot be read.
    """
    aliases = read_aliases(path)
    with opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, aliases  # noqa: SIM118


def read_aliases(path: Path) -> dict[str, str]:
    """Read the aliases of tied tensors in a file; raises the same errors as `read_tensors`."""
    if not path.is_file():
        raise DataError(f"{path}: no such weights file")
    with opened(path) as file:
        names, metadata = {*file.keys()}, file.metadata() or {}
    try:
        record = parse_json(metadata.get("heedful", "{}"))
        if not isinstance(record, dict):
            raise ValueError("expected a JSON object")
    except ValueError as error:
        raise DamagedError(f"{path}: the metadata cannot be read: {error}") from error
    if record.get("format") != _FORMAT:
        raise DataError(f"{path}: expected format {_FORMAT!r}, got {record.get('format')!r}")
    aliases = record.get("aliases")
    if not isinstance(aliases, dict) or not all(isinstance(name, str) for name in aliases.values()):
        raise DamagedError(f"{path}: the metadata has no table of tied tensors ('aliases')")
    if invalid := sorted(({*aliases.values()} - names) | (aliases.keys() & names)):
        raise DamagedError(f"{path}: the table of tied tensors has an invalid entry {invalid[0]!r}")
    return aliases


def save_weights(path: Path, module: nn.Module, replaced: Mapping[str, Tensor] | None = None) -> None:
    """Write the weights of a module to ``path`` atomically.

    Args:
        path: the file.
        module: the module.
        replaced: tensors, by name, in place of its own.

    Raises:
        WorkError: the file cannot be written.
    """
    tensors, aliases = named_tensors(module)
    save_tensors(path, {**tensors, **(replaced or {})}, aliases)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    """Write tensors that belong to no module (an average, for example), like `save_weights`."""
    with replacing(path) as temporary:
        write_tensors(temporary, tensors, aliases)


def load_weights(path: Path, module: nn.Module) -> None:
    """Load the weights of a file into a module, which changes only if all of them fit.

    Raises:
        DataError: the file does not exist, or heedful did not write it.
        DamagedError: the file cannot be read.
        RequestError: names or shapes differ; the message lists every difference.
    """
    tensors, aliases = read_tensors(path)
    load_tensors(tensors, aliases, module, str(path))


def load_tensors(
    tensors: Mapping[str, Tensor], aliases: Mapping[str, str], module: nn.Module, source: str
) -> None:
    """Copy tensors into a module after comparing names, shapes and ties.

    Raises:
        RequestError: they differ; the message names ``source`` and lists every difference.
        DamagedError: a tensor contains NaN or infinity.
    """
    parameters, model_aliases = named_tensors(module)
    names, expected = {*tensors, *aliases}, {*parameters, *model_aliases}
    problems = [
        *(f"unknown: {name}{nearest(name, expected - names)}" for name in sorted(names - expected)),
        *(f"missing: {name}" for name in sorted(expected - names)),
        *(
            f"{name} has shape {list(tensor.shape)} in the file, {list(parameters[name].shape)} in the model"
            for name, tensor in sorted(tensors.items())
            if name in parameters and parameters[name].shape != tensor.shape
        ),
        *(
            f"{name} has type {_type_name(tensor)} in the file, {_type_name(parameters[name])} in the model"
            for name, tensor in sorted(tensors.items())
            if name in parameters and not _converts(tensor.dtype, parameters[name].dtype)
        ),
        *_ties(tensors, aliases, model_aliases),
    ]
    if problems:
        raise RequestError("\n  ".join([f"{source}: weights do not fit the model:", *problems]))
    check_finite(tensors, source)
    with torch.no_grad():
        for name, tensor in parameters.items():
            tensor.copy_(tensors[aliases.get(name, name)])


_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def _converts(stored: torch.dtype, needed: torch.dtype) -> bool:
    """Return whether numbers of a type can be copied into a tensor of another."""
    return stored == needed or {stored, needed} <= _FLOATS


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def check_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Check that tensors are finite real numbers; otherwise every output would be NaN.

    Raises:
        DamagedError: a tensor contains NaN, infinity or complex numbers; the message names ``source`` and the
            tensor.
    """
    for name, tensor in tensors.items():
        if tensor.is_complex():
            raise DamagedError(f"{source}: damaged: {name} contains complex numbers; {RESTORE}")
        if tensor.dtype in _FLOATS and not tensor.isfinite().all():
            problem = "NaN" if tensor.isnan().any() else "infinity"
            raise DamagedError(f"{source}: damaged: {name} contains {problem}; {RESTORE}")


def check_finite_file(path: Path) -> None:
    """Check the tensors of a file as `check_finite` does, one after another.

    Raises:
        DamagedError: the file cannot be read, or a tensor contains NaN or infinity.
    """
    with opened(path) as file:
        for name in file.keys():  # noqa: SIM118
            check_finite({name: file.get_tensor(name)}, str(path))


def _ties(
    tensors: Mapping[str, Tensor], aliases: Mapping[str, str], model_aliases: Mapping[str, str]
) -> list[str]:
    """Return a message for each tie that the model lacks or that the file's tensors contradict."""
    file_names = {**{name: name for name in tensors}, **aliases}
    model_names = {**{name: name for name in file_names}, **model_aliases}
    problems = [
        f"{alias} is tied to {name} in the file, but not in the model"
        for alias, name in sorted(aliases.items())
        if name in model_names and model_names[alias] != model_names[name]
    ]
    for alias, name in sorted(model_aliases.items()):
        sources = [file_names[n] for n in (alias, name) if n in file_names]
        if len(set(sources)) == 2 and not torch.equal(tensors[sources[0]], tensors[sources[1]]):
            problems.append(f"{alias} is tied to {name} in the model, but a different tensor in the file")
    return problems
