"""A testing aid: kill the process at a named point, to show that a run survives it.

When the environment variable ``HEEDFUL_FAULT`` is ``point`` or ``point:n``, the process kills itself
with SIGKILL (so that nothing can be tidied up) the n-th time that it reaches the point. Without the
variable, `reached` does nothing. The variable is read once, when the first point is reached.
"""

import functools
import os
import signal

POINTS = (
    "after-update",
    "during-validation",
    "checkpoint-begin",
    "after-model-written",
    "after-sync",
    "before-rename",
    "while-replacing",
    "after-rename",
    "before-prune",
    "during-prune",
)
"""Every point, in the order of an update that ends in a checkpoint.

``while-replacing`` is only reached where a checkpoint of the same update is there already.
"""


_left: int | None = None


def reached(point: str) -> None:
    """Say that the process has come to ``point``; it may not come back from here."""
    global _left
    wanted, count = _wanted()
    if point != wanted:
        return
    _left = (count if _left is None else _left) - 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


@functools.cache
def _wanted() -> tuple[str, int]:
    point, _, count = os.environ.get("HEEDFUL_FAULT", "").partition(":")
    return point, int(count or 1)
