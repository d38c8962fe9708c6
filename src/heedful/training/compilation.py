"""Decide whether to compile a model, and where to cache the compiled code.

Measured costs and gains (`docs/performance.md`): training steps of a small Transformer take a tenth to a
third less time, more with dropout; the first step takes half a minute longer, or a few seconds if torch's
cache still holds the code of an earlier run.
"""

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from heedful.errors import RequestError
from heedful.hardware import identity

Compile = Literal["auto", "on", "off"]

# Compilation pays off if a slow machine, at this many FLOP/s, would train for at least this many seconds.
FLOPS_PER_SECOND = {"cpu": 150e9, "cuda": 50e12}
WORTH_SECONDS = 600


# Torch's cache key includes neither the processor nor the instruction sets that these variables disable.
# Code compiled for AVX-512 and loaded under AVX2 gives NaN.
_CACHE, _PREFIX = "TORCHINDUCTOR_CACHE_DIR", "heedful-"
_INSTRUCTIONS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def separate_compiled_code() -> Path:
    """Make torch cache compiled code in a folder specific to this processor and its instruction sets.

    The folder is a subfolder of ``TORCHINDUCTOR_CACHE_DIR`` (default: torch's own cache). The variable is
    set to it, so child processes use it too.
    """
    from torch._inductor.runtime.runtime_utils import cache_dir

    base = Path(cache_dir())
    # Already set by this function, here or in the parent process.
    if re.fullmatch(f"{_PREFIX}[0-9a-f]{{16}}", base.name):
        base = base.parent
    parts = (identity(), *(os.environ.get(name) for name in _INSTRUCTIONS))
    folder = base / f"{_PREFIX}{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
    os.environ[_CACHE] = str(folder)
    return folder


def find_compiler(device: torch.device) -> str | None:
    """Return the C++ compiler that torch would use on a CPU, or "triton" on a GPU; None if there is none."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return "triton" if has_triton() else None
    named = os.environ.get("CXX")
    return next((path for name in (named, "g++", "clang++") if name and (path := shutil.which(name))), None)


def choose_compile(
    wanted: Compile,
    model: nn.Module,
    n_tokens: int | None,
    max_minutes: float | None,
    device: torch.device,
) -> bool:
    """Return whether to compile the model, resolving ``auto``.

    The decision uses no time measurement, so that a resumed run makes the same one.

    Args:
        wanted: the setting in the recipe.
        model: the model to train; its cost is estimated as 6 FLOPs per parameter and token.
        n_tokens: the most tokens that the whole training reads, or None if unknown.
        max_minutes: the time limit of the training, or None.
        device: the training device.

    Raises:
        RequestError: ``wanted`` is ``on`` and no compiler is found.
    """
    if wanted == "off":
        return False
    compiler = find_compiler(device)
    if wanted == "on":
        if compiler is None:
            raise RequestError(
                "training.compile: no C++ compiler (g++ or clang++) was found; use off or auto"
            )
        return True
    if compiler is None:
        return False
    return (estimated_seconds(model, n_tokens, max_minutes, device) or 0.0) >= WORTH_SECONDS


def estimated_seconds(
    model: nn.Module, n_tokens: int | None, max_minutes: float | None, device: torch.device
) -> float | None:
    """Return the most seconds a slow machine would train, or None if unlimited; see `choose_compile`."""
    limits = [] if max_minutes is None else [60 * max_minutes]
    if n_tokens is not None:
        flops = 6 * sum(p.numel() for p in model.parameters()) * n_tokens
        limits.append(flops / FLOPS_PER_SECOND[device.type])
    return min(limits, default=None)
