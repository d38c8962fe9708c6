import errno
import io
import json
import math
import re
import sys
from pathlib import Path

import pytest

from heedful.errors import RequestError, WorkError
from heedful.training.callbacks import (
    JsonLines,
    Progress,
    Saved,
    Started,
    Stopped,
    TensorBoard,
    Updated,
    Validated,
    read_metrics,
)


def _updated(update, loss=1.5):
    return Updated(update, 0, loss, {"token": loss}, 1e-3, 0.7, 2000, 0.5, 0.5 * update)


def _validated(update, loss=2.5):
    return Validated(update, {"loss": loss}, True, 0.5 * update)


def _lines(path):
    return [(line["event"], line["update"]) for line in map(json.loads, path.read_text().splitlines())]


def test_lines_hold_the_fields_of_the_events(tmp_path):
    write = JsonLines(tmp_path / "metrics.jsonl")
    for event in (_updated(1, math.nan), _validated(1), Saved(1, Path("x")), Stopped(1, "data", 3.0)):
        write(event)
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        {
            "version": 1,
            "event": "updated",
            "update": 1,
            "epoch": 0,
            "loss": None,
            "terms": {"token": None},
            "rate": 0.001,
            "norm": 0.7,
            "tokens": 2000,
            "seconds": 0.5,
            "elapsed": 0.5,
        },
        {
            "version": 1,
            "event": "validated",
            "update": 1,
            "metrics": {"loss": 2.5},
            "best": True,
            "elapsed": 0.5,
        },
        {"version": 1, "event": "stopped", "update": 1, "reason": "data", "elapsed": 3.0},
    ]


def test_only_every_so_many_updates(tmp_path):
    write = JsonLines(tmp_path / "m", every=3)
    for update in range(1, 8):
        write(_updated(update))
    assert _lines(tmp_path / "m") == [("updated", 3), ("updated", 6)]


def test_what_comes_after_the_checkpoint_is_dropped_on_resume(tmp_path):
    path = tmp_path / "m"
    write = JsonLines(path)
    for event in (Started(0), _updated(1), _validated(1), _updated(2), _validated(2), _updated(3)):
        write(event)
    with path.open("a") as file:
        file.write('{"version": 1, "event": "upda')
    write(Started(2, validated=1))
    write(_validated(2))
    assert _lines(path) == [
        ("started", 0),
        ("updated", 1),
        ("validated", 1),
        ("updated", 2),
        ("started", 2),
        ("validated", 2),
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


STOPPED = b'{"version": 1, "event": "stopped", "update": %d, "reason": "data", "elapsed": 1.0}\n'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\xff", "it is not UTF-8"),
        (b"[1]", "expected an object with an event"),
        (b"", "Expecting value"),
        (b'{"event": "ended"}', "expected an object with an event"),
        (STOPPED.strip() % 10**30, "at most 64 bits"),
        (STOPPED.strip().replace(b"1.0", b"NaN") % 2, "elapsed|finite"),
        (STOPPED.strip().replace(b'"data"', b"3") % 2, "reason: expected "),
        (STOPPED.strip().replace(b"}", b', "x": 1}') % 2, "x: unknown key"),
        (b"[" * 100_000, "too deeply"),
    ],
)
def test_damaged_lines_are_left_out_with_a_note(tmp_path, line, problem):
    path, notes = tmp_path / "m", []
    path.write_bytes(STOPPED % 1 + line + b"\n" + STOPPED % 3 + b'{"upd')
    assert [read["update"] for read in read_metrics(path, notes.append)] == [1, 3]
    (note,) = notes
    assert note.startswith(f"{path}:2: damaged: ")
    assert re.search(problem, note)
    JsonLines(path, log=notes.append)(Started(3))
    assert notes == [note, note]
    assert _lines(path) == [("stopped", 1), ("stopped", 3), ("started", 3)]


def test_a_file_that_cannot_be_written_is_an_error_with_its_name():
    with pytest.raises(WorkError, match="/dev/full: cannot be written: No space left"):
        JsonLines(Path("/dev/full"))(_updated(1))


def test_plain_lines_where_there_is_no_terminal(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("heedful.training.callbacks.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    show = Progress(seconds=30.0, stream=stream)
    show(Started(0, max_updates=7200, damaged=("step-8 is missing",)))
    for update in range(1, 7):
        show(_updated(update))
        now[0] += 10
    show(_validated(6))
    show(Stopped(6, "signal", 3661.0))
    assert stream.getvalue().splitlines() == [
        "warning: skipped a damaged checkpoint: step-8 is missing",
        "update 1/7200: epoch 0, loss 1.5000, rate 1.00e-03, 4,000 tokens/s, 1:00:00 left",
        "update 4/7200: epoch 0, loss 1.5000, rate 1.00e-03, 4,000 tokens/s, 59:58 left",
        "update 6: validation: loss 2.5 (best)",
        "stopped after update 6 (signal), 1:01:01",
    ]


def test_without_a_known_end_no_remaining_time_is_shown():
    stream = io.StringIO()
    show = Progress(seconds=0.0, stream=stream)
    for event in (Started(4), _updated(5)):
        show(event)
    assert stream.getvalue().splitlines() == [
        "resuming after update 4",
        "update 5: epoch 0, loss 1.5000, rate 1.00e-03, 4,000 tokens/s",
    ]


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    show = Progress(stream=stream)
    for event in (
        Started(0, max_updates=9),
        _updated(1),
        _validated(1),
        _updated(2),
        Stopped(2, "data", 1.0),
    ):
        show(event)
    text = stream.getvalue()
    assert "2/9" in text
    assert "loss 1.5000" in text
    assert "update 1: validation: loss 2.5 (best)" in text
    assert text.endswith("stopped after update 2 (data), 0:01\n")


def test_standard_error_is_the_default(capsys):
    Progress()(Stopped(3, "data", 1.0))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "stopped after update 3 (data), 0:01\n"


def test_tensorboard_hides_what_is_done_again(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = TensorBoard(tmp_path)
    for event in (Started(0), _updated(1), _updated(2), _updated(3, 9.0), Stopped(3, "signal", 1.0)):
        first(event)
    second = TensorBoard(tmp_path, every=3)
    for event in (Started(2), _updated(3, 4.0), _updated(4), _validated(4), Stopped(4, "data", 1.0)):
        second(event)
    read = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(s.step, s.value) for s in read.Scalars("train/loss")] == [(1, 1.5), (2, 1.5), (3, 4.0)]
    assert [(s.step, s.value) for s in read.Scalars("validation/loss")] == [(4, 2.5)]
    assert [s.value for s in read.Scalars("train/tokens_per_second")] == [4000.0] * 3


def test_tensorboard_not_installed_raises_request_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RequestError, match=r"pip install 'heedful\[tensorboard\]'"):
        TensorBoard(tmp_path)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_write_errors_of_the_stream_are_ignored(is_terminal):
    class Vanished(io.StringIO):
        def isatty(self):
            return is_terminal

        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    show = Progress(seconds=0.0, stream=Vanished())
    for event in (Started(0, max_updates=9), _updated(1), _validated(1), Stopped(2, "data", 1.0)):
        show(event)
