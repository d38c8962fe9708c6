"""A contender: a library at one setting, with the unit of work that it repeats."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Work = Callable[[int], None]
"""Does the work of one round; rounds differ in their batch, and all contenders get the same."""


@dataclass(frozen=True)
class Contender:
    """A library at one setting.

    Args:
        library: who; ``heedful`` is set against the best of all others.
        setting: how, for instance ``bf16, compiled``.
        build: makes what is needed and returns the work. Not called before it is its turn.
        compiled: whether the first calls compile; their time is then reported.
        note: stands in the table.
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
        """Library and setting."""
        return f"{self.library}, {self.setting}"


def choose(contenders: Sequence[Contender], pattern: str | None, has_bf16: bool = True) -> list[Contender]:
    """Those whose name contains a match of ``pattern``; all without one.

    Where bf16 is emulated, hundreds of times slower, those that need it do not take part.
    """
    contenders = [c for c in contenders if has_bf16 or not c.bf16]
    if pattern is None:
        return contenders
    chosen = [c for c in contenders if re.search(pattern, c.name)]
    if not chosen:
        names = "\n  ".join(c.name for c in contenders)
        raise SystemExit(f"--only {pattern!r} matches none of\n  {names}")
    return chosen
