"""Choose the precision, the compilation and the number of processes of a training on this machine.

No choice depends on a measured time, so that a resumed run makes the same ones. The measurements behind the
rules are in `docs/benchmarks/performance.md`: training steps of a small Transformer take a tenth to a third
less time when they are compiled (more with dropout), but the first step takes half a minute longer, or a few
seconds if torch's cache still holds the code of an earlier run.
"""

import hashlib
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from heedful.errors import RequestError
from heedful.hardware import cpu_fields, identity
from heedful.nn.declarations import claims
from heedful.training import distribution
from heedful.training.settings import TrainingConfig

Precision = Literal["fp32", "bf16"]


def choose_precision(precision: Literal["auto", "fp32", "bf16"], device: torch.device | str) -> Precision:
    """Resolve ``auto``: bf16 if it is faster than fp32 on this hardware, else fp32.

    Raises:
        RequestError: bf16 was requested on a GPU that does not support it.
    """
    kind = torch.device(device).type
    if precision == "bf16" and kind == "cuda" and not _bf16_is_faster_on_gpu():
        raise RequestError("training.precision: this GPU does not support bf16; use fp32 or auto")
    if precision == "auto":
        is_faster = {"cpu": _bf16_is_faster_on_cpu, "cuda": _bf16_is_faster_on_gpu}.get(kind, bool)
        return "bf16" if is_faster() else "fp32"
    return precision


def _bf16_is_faster_on_gpu() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _bf16_is_faster_on_cpu() -> bool:
    """Return whether matrix products are faster in bf16 than in fp32 on this CPU.

    | large products on two cores, GFLOP/s | fp32 | bf16 |
    |---|---|---|
    | AMD Zen 4, AVX-512 with bf16 | 198 | 445 |
    | Intel (family 6, model 207), AVX-512 with bf16, AMX disabled by the host | 320 | 165 |

    Intel's matrix units (AMX) are 4 to 5 times as fast in bf16. Its vector units need at least twice the time
    for an instruction of twice the work, so bf16 gains nothing without AMX.
    """
    # torch has no public probe for the CPU; without AMX or AVX-512 bf16, bf16 is emulated and slow.
    if _cpu_has("_is_amx_tile_supported"):
        return True
    vendor = cpu_fields().get("vendor_id") or platform.processor()
    return _cpu_has("_is_avx512_bf16_supported") and "GenuineIntel" not in vendor


def _cpu_has(probe: str) -> bool:
    return bool(getattr(torch.cpu, probe, bool)())


# Compilation ------------------------------------------------------------------------------------------------

# Compilation pays off if a slow machine, at this many FLOP/s, would train for at least this many seconds.
# On a GPU, small models wait for Python: at least so many seconds per update (docs/benchmarks/results.md).
FLOPS_PER_SECOND = {"cpu": 150e9, "cuda": 50e12}
SECONDS_PER_UPDATE = {"cpu": 0.0, "cuda": 0.02}
WORTH_COMPILING = {"cpu": 600, "cuda": 60}

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
    cxx = os.environ.get("CXX")
    return next((path for name in (cxx, "g++", "clang++") if name and (path := shutil.which(name))), None)


def choose_compile(
    settings: TrainingConfig, model: nn.Module, n_tokens: int | None, device: torch.device
) -> bool:
    """Return whether to compile the model, resolving ``auto``.

    Args:
        settings: ``compile`` and ``max_minutes`` are used here.
        model: the model to train.
        n_tokens: the most tokens that the whole training reads, or None if unknown.
        device: the training device.

    Raises:
        RequestError: ``compile`` is ``on`` and no compiler is found.
    """
    if settings.compile == "off":
        return False
    has_compiler = find_compiler(device) is not None
    if settings.compile == "on" and not has_compiler:
        raise RequestError("training.compile: no C++ compiler (g++ or clang++) was found; use off or auto")
    if settings.compile == "on" or not has_compiler:
        return has_compiler
    return (estimated_seconds(settings, model, n_tokens, device) or 0.0) >= WORTH_COMPILING[device.type]


def estimated_seconds(
    settings: TrainingConfig, model: nn.Module, n_tokens: int | None, device: torch.device
) -> float | None:
    """Return the most seconds a slow machine would train, or None if unlimited; see `choose_compile`.

    The cost of the model is estimated as 6 FLOPs per parameter and token.
    """
    limits = [] if settings.max_minutes is None else [60 * settings.max_minutes]
    if n_tokens is not None:
        flops = 6 * sum(p.numel() for p in model.parameters()) * n_tokens
        waiting = n_tokens / settings.tokens_per_update * SECONDS_PER_UPDATE[device.type]
        limits.append(max(flops / FLOPS_PER_SECOND[device.type], waiting))
    return min(limits, default=None)


# Processes --------------------------------------------------------------------------------------------------

LARGEST = 20_000_000
"""The most parameters for which ``auto`` uses several processes: each holds weights and optimizer state."""

FEWEST_TOKENS = 1024
"""The fewest tokens per update and process: below this, reducing gradients costs more than it saves."""

WORTH_PROCESSES = 60
"""The shortest training, in seconds, for which ``auto`` starts processes: each takes seconds to start."""


def choose_processes(
    settings: TrainingConfig, model: nn.Module, n_tokens: int | None, device: torch.device
) -> int:
    """Return the number of training processes; 1 if `torchrun` has already started several.

    ``auto`` uses one process per torch thread if the device is a CPU, the number of threads is not set, the
    model has at most `LARGEST` parameters and neither a module nor a loss that couples the sequences of a
    batch (splitting an update would change its results), and the estimated training time is at least
    `WORTH_PROCESSES`. The result is saved in the run's recipe, so a resumed run uses the same number.

    Args:
        settings: ``processes``, ``threads``, ``tokens_per_update`` and ``max_minutes`` are used here.
        model: the model to train, with its loss.
        n_tokens: the most tokens that the whole training reads; None: unknown, assumed to be many.
        device: the training device.
    """
    if distribution.world() > 1 or device.type != "cpu":
        return 1
    if settings.processes != "auto":
        return settings.processes
    seconds = estimated_seconds(settings, model, n_tokens, device)
    is_small = sum(p.numel() for p in model.parameters()) <= LARGEST and not claims(model, "couples_batch")
    if settings.threads or not is_small or (seconds is not None and seconds < WORTH_PROCESSES):
        return 1
    return max(1, min(torch.get_num_threads(), settings.tokens_per_update // FEWEST_TOKENS))
