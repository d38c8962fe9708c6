"""What a computation takes: operations, on which verdicts rest, and wall time, which is shown beside them."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.flop_counter import FlopCounterMode

REPEATS = 7

Given = TypeVar("Given")


def flops_of(work: Callable[[], Any]) -> int:
    """Floating-point operations of the matrix products in ``work``."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def milliseconds(work: Callable[[Given], Any], given: Callable[[], Given]) -> float:
    """The shortest of `REPEATS` times that ``work`` takes, after a first one that is not timed.

    The shortest is the one that other work on the machine has disturbed least. Nothing is counted meanwhile:
    to count takes many times what is counted.

    Args:
        work: is timed; models are built before.
        given: makes what it takes, anew for each time, which is not timed.
    """
    work(given())
    times = []
    for _ in range(REPEATS):
        taken = given()
        begun = time.perf_counter()
        work(taken)
        times.append(time.perf_counter() - begun)
    return 1e3 * min(times)
