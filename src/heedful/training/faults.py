"""Fault injection for tests: kill the process at a named point to check that a run can be resumed.

If the environment variable ``HEEDFUL_FAULT`` is ``point`` or ``point:n``, the process kills itself with
SIGKILL (no cleanup runs) the n-th time it reaches the point (n is 1 by default). If it is not set,
`fault_point` does nothing. The variable is read once, at the first point.
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
"""All points, in the order of an update that ends with a checkpoint.

``while-replacing`` is only reached if a checkpoint of the same update already exists.
"""


_left: int | None = None


def fault_point(point: str) -> None:
    """Mark that the process has reached ``point``; kill it if a fault is set for this point."""
    global _left
    fault, count = _fault()
    if point != fault:
        return
    _left = (count if _left is None else _left) - 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


@functools.cache
def _fault() -> tuple[str, int]:
    point, _, count = os.environ.get("HEEDFUL_FAULT", "").partition(":")
    return point, int(count or 1)
