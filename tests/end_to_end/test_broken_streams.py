"""Messages and progress never end the work, whatever becomes of standard error; only results can."""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from heedful.api.run import load

TRAIN = ("train", "tiny.yaml", "--out", "run")


@contextmanager
def pipe(folder):
    """A pipe, and what reads its first line and leaves, as ``head -1`` does."""
    path = folder / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    yield path, lambda: leave(reader)


@contextmanager
def terminal(folder):
    """A terminal that vanishes after its first line, and whose hang-up the process does not hear."""
    held, slave = os.openpty()
    path = Path(os.ttyname(slave))
    yield path, lambda: (leave(held), os.close(slave))


def leave(reader):
    while not (chunk := os.read(reader, 1)):  # nobody has opened it yet
        time.sleep(0.01)
    while chunk != b"\n":
        chunk = os.read(reader, 1)
    os.close(reader)


@contextmanager
def full(folder):
    yield Path("/dev/full"), lambda: None


BROKEN = {"pipe": pipe, "terminal": terminal, "full": full}


def is_whole(run):
    """Whether a training has ended as it should."""
    return (run / "run.json").is_file() and load(run).predict(["red dog"]) is not None


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_standard_error_does_not_end_a_training(heedful, corpus, broken):
    with BROKEN[broken](corpus) as (path, breaks):
        started = heedful.start(*TRAIN, cwd=corpus, err=path)
        breaks()
        done = started.wait()
    assert (done.status, done.out) == (0, "run\n")
    assert is_whole(corpus / "run")


@pytest.mark.parametrize(("broken", "status"), [("pipe", 0), ("terminal", 0), ("full", 1)])
def test_a_training_whose_result_nobody_can_read_is_saved(heedful, corpus, broken, status):
    with BROKEN[broken](corpus) as (path, breaks):
        started = heedful.start(*TRAIN, cwd=corpus, out=path, err=path)
        breaks()
        done = started.wait()
    assert done.status == status
    assert is_whole(corpus / "run")


def test_a_training_that_is_stopped_says_so_by_its_status_to_whom_nobody_listens(heedful, corpus):
    with pipe(corpus) as (path, breaks):
        started = heedful.start(*TRAIN, "training.max_updates=100000", cwd=corpus, out=path, err=path)
        breaks()
        while not (corpus / "run" / "checkpoints" / "step-00000010").exists():
            time.sleep(0.01)
        os.kill(started.pid, signal.SIGTERM)
        done = started.wait()
    assert done.status == 130
    assert is_whole(corpus / "run")


def test_inputs_that_fail_do_so_without_a_message_and_the_others_are_answered(heedful, transformer, tmp_path):
    given = b"red\nd\xf6g\ncat\n"
    done = heedful("predict", transformer, cwd=tmp_path, stdin=given, err=Path("/dev/full"))
    shown = heedful("predict", transformer, cwd=tmp_path, stdin=given)
    assert (done.status, done.out) == (shown.status, shown.out)
    assert (done.status, done.out.count("\n")) == (1, 3)


def test_a_standard_output_that_is_full_is_named(heedful, transformer, tmp_path):
    done = heedful("predict", transformer, cwd=tmp_path, stdin=b"red\n", out=Path("/dev/full"))
    assert done.status == 1
    assert done.err.endswith("heedful: standard output cannot be written: No space left on device\n")
