"""In which precision a training multiplies on this machine."""

import platform
from typing import Literal

import torch

from heedful.errors import RequestError
from heedful.hardware import described

Precision = Literal["fp32", "bf16"]


def choose_precision(wanted: Literal["auto", "fp32", "bf16"], device: torch.device | str) -> Precision:
    """Settle ``auto``: bf16 where the chip multiplies faster in it, else fp32.

    It is found by what the chip is, never by a clock, so that a resumed run finds the same.

    Raises:
        RequestError: bf16 was asked for on a GPU that has none.
    """
    kind = torch.device(device).type
    if wanted == "bf16" and kind == "cuda" and not _pays_on_gpu():
        raise RequestError("training.precision: this GPU has no bf16; use fp32 or auto")
    if wanted == "auto":
        pays = {"cpu": _pays_on_cpu, "cuda": _pays_on_gpu}.get(kind, bool)
        return "bf16" if pays() else "fp32"
    return wanted


def _pays_on_gpu() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _pays_on_cpu() -> bool:
    """Whether products run faster in bf16 than in fp32 here.

    | large products on two cores, GFLOP/s | fp32 | bf16 |
    |---|---|---|
    | AMD Zen 4, AVX-512 with bf16 | 198 | 445 |
    | Intel (family 6, model 207), AVX-512 with bf16, its matrix units hidden by the host | 320 | 165 |

    Intel's matrix units (AMX) are 4 to 5 times as fast in bf16. Its vector units take twice as long for an
    instruction of twice the work, or longer, so that without matrix units nothing is gained.
    """
    # torch has no public probe for the CPU; without either of these, bf16 is emulated and slow.
    if _cpu_has("_is_amx_tile_supported"):
        return True
    vendor = described().get("vendor_id") or platform.processor()
    return _cpu_has("_is_avx512_bf16_supported") and "GenuineIntel" not in vendor


def _cpu_has(probe: str) -> bool:
    return bool(getattr(torch.cpu, probe, bool)())
