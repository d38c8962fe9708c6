"""Answers come while the input stays open."""

import os
import select
import subprocess
import sys
import time

import pytest


def lines_from(stream, n, seconds=240.0):
    """So many lines of a pipe, or what has come of them in that time."""
    found, until = b"", time.monotonic() + seconds
    while found.count(b"\n") < n and select.select([stream], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(stream.fileno(), 4096)
        if not chunk:
            break
        found += chunk
    return found.decode().splitlines()


@pytest.mark.slow
def test_a_process_answers_while_its_input_stays_open(letters):
    command = [sys.executable, "-m", "heedful", "predict", str(letters), "--device", "cpu"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            answers = []
            for given in (b"a\nb\n", b"b\n"):
                process.stdin.write(given)
                answers.append(lines_from(process.stdout, given.count(b"\n")))
            process.stdin.close()
            rest = lines_from(process.stdout, 1)
            assert process.wait(120) == 0
        finally:
            process.kill()
    assert [len(each) for each in (*answers, rest)] == [2, 1, 0]
    assert answers[1] == answers[0][1:]
    assert {*answers[0], *answers[1]} <= {"a", "b"}
