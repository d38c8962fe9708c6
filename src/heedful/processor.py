"""What the system says of its processor."""

from pathlib import Path


def described() -> dict[str, str]:
    """What Linux says of the first processor, by names (``model name``, ``flags``); empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
