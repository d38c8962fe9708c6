"""Cost of a computation: operation counts, which decide verdicts, and wall time, which is only reported."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.flop_counter import FlopCounterMode

REPEATS = 7

Given = TypeVar("Given")


def flops_of(work: Callable[[], Any]) -> int:
    """Count the floating-point operations of the matrix products in ``work``."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def milliseconds(work: Callable[[Given], Any], given: Callable[[], Given]) -> float:
    """Return the shortest of `REPEATS` wall times of ``work``, after one untimed warm-up call.

    The shortest time is the one least disturbed by other processes. Operations are not counted at the same
    time, since counting takes many times longer than the computation itself.

    Args:
        work: function to time; it must not build models.
        given: makes the argument of ``work``, anew for each call; its own time is not included.
    """
    work(given())
    times = []
    for _ in range(REPEATS):
        taken = given()
        begun = time.perf_counter()
        work(taken)
        times.append(time.perf_counter() - begun)
    return 1e3 * min(times)
