"""A contender of a benchmark: a library with one setting, and the work that it repeats."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Work = Callable[[int], None]
"""Runs the work of one round, given its number; the batch depends on the round only."""


@dataclass(frozen=True)
class Contender:
    """A library with one setting.

    Args:
        library: its name; ``heedful`` is compared with the best of all others.
        setting: precision and mode, for example ``bf16, compiled``.
        build: builds model and batches and returns the work; called when its measurement starts.
        compiled: whether the first calls compile; if so, their time is reported.
        note: remark for the table.
        bf16: whether torch multiplies in bf16, which some processors only emulate.
    """

    library: str
    setting: str
    build: Callable[[], Work]
    compiled: bool = False
    note: str = ""
    bf16: bool = False

    @property
    def name(self) -> str:
        """Return library and setting."""
        return f"{self.library}, {self.setting}"


def choose(contenders: Sequence[Contender], pattern: str | None, has_bf16: bool = True) -> list[Contender]:
    """Return the contenders whose name matches ``pattern``, or all without a pattern.

    Contenders that need bf16 are left out without hardware support (emulation is hundreds of times slower).
    """
    contenders = [c for c in contenders if has_bf16 or not c.bf16]
    if pattern is None:
        return contenders
    matches = [c for c in contenders if re.search(pattern, c.name)]
    if not matches:
        names = "\n  ".join(c.name for c in contenders)
        raise SystemExit(f"--only {pattern!r} matches none of\n  {names}")
    return matches
