"""Choose the precision of matrix products for training on this machine."""

import platform
from typing import Literal

import torch

from heedful.errors import RequestError
from heedful.hardware import described

Precision = Literal["fp32", "bf16"]


def choose_precision(wanted: Literal["auto", "fp32", "bf16"], device: torch.device | str) -> Precision:
    """Resolve ``auto``: bf16 if it is faster than fp32 on this hardware, else fp32.

    The choice depends on the hardware and not on measured times, so that a resumed run makes the same one.

    Raises:
        RequestError: bf16 was requested on a GPU that does not support it.
    """
    kind = torch.device(device).type
    if wanted == "bf16" and kind == "cuda" and not _bf16_is_faster_on_gpu():
        raise RequestError("training.precision: this GPU does not support bf16; use fp32 or auto")
    if wanted == "auto":
        is_faster = {"cpu": _bf16_is_faster_on_cpu, "cuda": _bf16_is_faster_on_gpu}.get(kind, bool)
        return "bf16" if is_faster() else "fp32"
    return wanted


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
    vendor = described().get("vendor_id") or platform.processor()
    return _cpu_has("_is_avx512_bf16_supported") and "GenuineIntel" not in vendor


def _cpu_has(probe: str) -> bool:
    return bool(getattr(torch.cpu, probe, bool)())
