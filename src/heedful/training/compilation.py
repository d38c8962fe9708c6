"""Whether compiling a model is worth its while, and where the result is kept.

What a compiler gains and costs was measured (`docs/performance.md`): steps of a small Transformer take
a tenth to a third less time, more with dropout; the first one takes half a minute longer, or a few
seconds where the result of an earlier run is still in torch's cache.
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

# A run that a slow machine (so many FLOP/s) would be busy with for so long earns its compilation back.
FLOPS_PER_SECOND = {"cpu": 150e9, "cuda": 50e12}
WORTH_SECONDS = 600


# Torch's key of compiled code holds neither the processor nor what these variables leave of its instructions.
# Code for AVX-512 that is read under AVX2 gives NaN.
_CACHE, _OWN = "TORCHINDUCTOR_CACHE_DIR", "heedful-"
_INSTRUCTIONS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def separate_compiled_code() -> Path:
    """Make torch keep compiled code of this processor and these instruction sets in a folder of its own.

    It lies in the folder that ``TORCHINDUCTOR_CACHE_DIR`` names (by default, torch's own), and the variable
    then names it, also for processes that are started from here.
    """
    from torch._inductor.runtime.runtime_utils import cache_dir

    base = Path(cache_dir())
    # Set by this function, perhaps in the process that started this one.
    if re.fullmatch(f"{_OWN}[0-9a-f]{{16}}", base.name):
        base = base.parent
    parts = (identity(), *(os.environ.get(name) for name in _INSTRUCTIONS))
    folder = base / f"{_OWN}{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
    os.environ[_CACHE] = str(folder)
    return folder


def find_compiler(device: torch.device) -> str | None:
    """The C++ compiler that torch would call on a CPU, or "triton" on a GPU; None: there is none."""
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
    """Settle ``auto``, by numbers that a resumed run finds again: never by a clock.

    Args:
        wanted: what the recipe says.
        model: what will be trained; its cost is taken as 6 operations a parameter and token.
        n_tokens: how many the whole training will read at most, or None where that is not known.
        max_minutes: how long it will take at most, or None.
        device: where.

    Raises:
        RequestError: ``on``, and there is no compiler.
    """
    if wanted == "off":
        return False
    compiler = find_compiler(device)
    if wanted == "on":
        if compiler is None:
            raise RequestError(
                "training.compile: no C++ compiler was found (g++ or clang++); use off or auto"
            )
        return True
    if compiler is None:
        return False
    return (estimated_seconds(model, n_tokens, max_minutes, device) or 0.0) >= WORTH_SECONDS


def estimated_seconds(
    model: nn.Module, n_tokens: int | None, max_minutes: float | None, device: torch.device
) -> float | None:
    """Return how long a slow machine trains at most, or None if nothing limits it; see `choose_compile`."""
    limits = [] if max_minutes is None else [60 * max_minutes]
    if n_tokens is not None:
        flops = 6 * sum(p.numel() for p in model.parameters()) * n_tokens
        limits.append(flops / FLOPS_PER_SECOND[device.type])
    return min(limits, default=None)
