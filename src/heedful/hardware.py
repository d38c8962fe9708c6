"""Description and identity of the processor, as reported by the system."""

import platform
from pathlib import Path

_MODEL = (
    *("vendor_id", "cpu family", "model", "model name"),  # x86
    *("CPU implementer", "CPU architecture", "CPU part", "cpu", "uarch"),  # ARM, POWER, RISC-V
)
_FEATURES = ("flags", "Features", "features", "isa")


def cpu_fields() -> dict[str, str]:
    """Return the fields of the first processor in ``/proc/cpuinfo``; empty on other systems than Linux."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def identity() -> str:
    """Return a string that is equal only for machines that can run each other's compiled code.

    It contains the processor model and instruction sets; if the system does not list these, it also contains
    the machine name, so that compiled code is not shared with other machines.
    """
    processor = cpu_fields()
    parts = [
        platform.machine(),
        platform.processor(),
        *(processor.get(name, "") for name in (*_MODEL, *_FEATURES)),
    ]
    if not any(name in processor for name in _FEATURES):
        parts.append(platform.node())
    return repr(parts)
