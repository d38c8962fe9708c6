"""Choice of the device, and the record of versions, machine and command in a run's folder."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import torch

from heedful import __version__
from heedful.errors import RequestError
from heedful.hardware import cpu_fields
from heedful.typing import JsonObject

PACKAGES = ("torch", "tokenizers", "numpy", "safetensors", "sacrebleu", "sacremoses", "pydantic", "pillow")


def choose_device(name: str) -> torch.device:
    """Resolve ``auto``: a GPU if there is one, else the CPU.

    Raises:
        RequestError: the device is unknown, or this machine does not have it.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise RequestError(f"device {name}: no such device; use auto, cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RequestError(f"device {name}: this machine has no GPU that torch can use; use cpu or auto")
    if device.type not in {"cpu", "cuda"}:
        raise RequestError(f"device {name}: heedful runs on cpu and cuda")
    return device


def environment(device: torch.device) -> JsonObject:
    """Return the content of ``environment.json``."""
    return {
        "version": 1,
        "heedful": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": cpu_fields().get("model name") or platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
