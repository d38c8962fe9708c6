"""What the system says of its processor."""

import platform
from pathlib import Path

_MODEL = (
    *("vendor_id", "cpu family", "model", "model name"),  # x86
    *("CPU implementer", "CPU architecture", "CPU part", "cpu", "uarch"),  # ARM, POWER, RISC-V
)
_ABILITIES = ("flags", "Features", "features", "isa")


def described() -> dict[str, str]:
    """What Linux says of the first processor, by names (``model name``, ``flags``); empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def identity() -> str:
    """Return a text that is the same only on machines that can run each other's compiled code.

    It holds the processor's model and instruction sets; where the system does not list these, it also
    holds the machine's name, so that nothing is shared with another machine.
    """
    own = described()
    parts = [
        platform.machine(),
        platform.processor(),
        *(own.get(name, "") for name in (*_MODEL, *_ABILITIES)),
    ]
    if not any(name in own for name in _ABILITIES):
        parts.append(platform.node())
    return repr(parts)
