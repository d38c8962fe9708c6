"""Describe the machine, and measure the peak speed of its matrix products."""

import platform
import resource
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


@dataclass(frozen=True)
class Machine:
    """Hardware and software that a measurement depends on."""

    processor: str
    cores: int
    flags: tuple[str, ...]
    memory_gib: float
    system: str
    python: str
    torch: str
    threads: int
    device: str

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores ({' '.join(self.flags)}), {self.memory_gib:.0f} GiB, "
            f"{self.system}, Python {self.python}, torch {self.torch}, threads: {self.threads}, "
            f"device {self.device}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def describe(device: str = "cpu") -> Machine:
    """Return the description of this machine."""
    info = _read("/proc/cpuinfo")
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    cpu_flags = set(fields.get("flags", "").split())
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    kib = next((line.split()[1] for line in _read("/proc/meminfo").splitlines() if "MemTotal" in line), "0")
    return Machine(
        processor=f"{fields.get('model name', platform.processor() or '?')} ({family})",
        cores=info.count("processor\t:") or 1,
        flags=tuple(flag for flag in FLAGS if flag in cpu_flags),
        memory_gib=int(kib) / 2**20,
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name() if device == "cuda" else "cpu",
    )


@lru_cache
def has_bf16(device: str) -> bool:
    """Return whether the hardware multiplies bf16; emulation takes hundreds of times as long."""
    fp32, bf16 = (_product(256, dtype, device) for dtype in (torch.float32, torch.bfloat16))
    return bf16 > fp32 / 4


def product_peaks(device: str) -> dict[str, float]:
    """Measure FLOP/s of large square products in fp32, and in bf16 if the hardware supports it."""
    types = {"fp32": torch.float32} | ({"bf16": torch.bfloat16} if has_bf16(device) else {})
    return {
        name: max(_product(n, dtype, device) for n in (1024, 2048, 4096)) for name, dtype in types.items()
    }


def _product(n: int, dtype: torch.dtype, device: str, seconds: float = 1 / 3) -> float:
    """Measure FLOP/s of a square product, the best of many.

    It has the form that linear layers use, ``x @ w.T``, at torch's default precision for fp32.
    """
    x, w = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    x @ w.T
    best, deadline = 0.0, time.perf_counter() + seconds
    while True:
        synchronise(device)
        start = time.perf_counter()
        x @ w.T
        synchronise(device)
        now = time.perf_counter()
        best = max(best, 2 * n**3 / (now - start))
        if now > deadline:
            return best


def synchronise(device: str) -> None:
    """Wait for the GPU; do nothing on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.exists() else ""


def peak_resident() -> int:
    """Return the peak resident bytes of this process, since it was reset if it was (`harness.memory`)."""
    return status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def status_bytes(key: str) -> int:
    """Return a number of bytes in the status of this process; 0 if the system does not report it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = status.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)
