"""Trainings killed at random moments and points end, once resumed, bit for bit like one that never was."""

import os
import shutil
import signal
import time

import pytest
from killing import ELSEWHERE, begin, finish, outcome

from heedful.training.signals import POINTS

REACHED = [point for point in POINTS if point not in ELSEWHERE]
LONGEST = 0.6
"""Seconds that a training is given before it is killed, at most; it takes about half a second."""


def killed(heedful, corpus, draw):
    """Begin the training, or go on with it, and kill it; return how it ended."""
    if draw.random() < 0.5:
        fault = f"{draw.choice(REACHED)}:{draw.randint(1, 6)}"
        return begin(heedful, corpus, env={"HEEDFUL_FAULT": fault}).wait().status
    process = begin(heedful, corpus)
    time.sleep(draw.uniform(0.0, LONGEST))
    os.kill(process.pid, signal.SIGKILL)
    return process.wait().status


@pytest.mark.full
@pytest.mark.parametrize("attack", range(25))
def test_four_kills_and_then_to_the_end(heedful, corpus, whole, draw, attack):
    """A hundred in all. One that comes after the end of the training does not count: it is begun anew."""
    kills = 0
    while kills < 4:
        status = killed(heedful, corpus, draw)
        if status == 0:
            assert outcome(corpus / "run") == whole
            shutil.rmtree(corpus / "run")
        else:
            assert status == -signal.SIGKILL
            kills += 1
    assert finish(heedful, corpus) == whole
