from dataclasses import replace

import pytest
import torch

from heedful.training.callbacks import Stopped, Updated, Validated
from heedful.training.notices import ContentionNotice, LossNotice, seconds_waited

UPDATED = Updated(1, 0, 1.0, {}, 1e-3, 1.0, 7, 1.0, 1.0)
VALIDATED = Validated(1, {"loss": 1.0}, True, 1.0)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def warnings(events, times, waits, tokens=2048):
    """Return the warnings for events at these times and seconds waited so far."""
    lines, times, waits = [], iter(times), iter(waits)
    notice = ContentionNotice(lines.append, tokens, clock=lambda: next(times), waited=lambda: next(waits))
    for event in events:
        notice(event)
    return lines


def test_waiting_is_warned_of_once(threads):
    (line,) = warnings([UPDATED] * 5, [100, 115, 131, 170, 210], [7, 9, 17, 60, 99])
    assert "waited for it 16% of the time" in line  # 10 s of 31 by two threads
    assert "training.processes=2" in line


def test_updates_of_few_tokens_are_best_left_to_one_thread(threads):
    """Several processes are slower there (docs/benchmarks/performance.md, Beside other work)."""
    (line,) = warnings([UPDATED] * 2, [0, 31], [0, 30], tokens=2047)
    assert "training.threads=1" in line
    assert "processes=" not in line


def test_no_warning_below_a_tenth(threads):
    assert warnings([UPDATED] * 4, [0, 31, 62, 93], [0, 6, 12, 18]) == []


def test_a_validation_does_not_count(threads):
    assert warnings([UPDATED, VALIDATED, UPDATED, UPDATED], [0, 20, 51], [0, 20, 22]) == []


@pytest.mark.parametrize("case", ["one thread", "unknown"])
def test_no_warning_for_one_thread_or_unknown_waiting(threads, case):
    threads(1 if case == "one thread" else 2)
    waits = [0, 30, 60] if case == "one thread" else [None]
    assert warnings([UPDATED] * 3, [0, 40, 80], waits) == []


def test_the_waiting_of_all_threads_is_added_up(tmp_path):
    for name, text in (("11", "5 3000000000 7"), ("12", "1 500000000 2"), ("13", ""), ("14", "ended")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    assert seconds_waited(tmp_path) == 3.5
    assert seconds_waited(tmp_path / "nowhere") is None


def test_linux_reports_seconds():
    waited = seconds_waited()
    assert waited is None or 0 <= waited < 1e6


def loss_warnings(losses, reason="updates"):
    lines = []
    notice = LossNotice(lines.append)
    for number, loss in enumerate(losses, 1):
        notice(replace(UPDATED, update=number, loss=loss))
    notice(Stopped(len(losses), reason, 1.0))
    return lines


@pytest.mark.parametrize(
    ("losses", "first", "last"),
    [
        ([6.5] * 10 + [3.0] * 20 + [228_245.0] * 10, "6.5", "2.282e+05"),
        ([7.0, 6.0, 6.9, 7.1], "6.5", "7"),
        ([1.0, 3.0], "1", "3"),
        ([0.1] * 12 + [4.0] * 3, "0.1", "1.27"),
        ([1.8] + [9e5] * 9 + [14_000.0] * 20, "1.8", "1.4e+04"),
    ],
)
def test_a_loss_that_rises_is_warned_of(losses, first, last):
    (line,) = loss_warnings(losses)
    assert f"ended at {last} and began at {first};" in line
    assert "schedule.peak" in line


@pytest.mark.parametrize(
    "losses",
    [[], [9.0], [7.0, 6.9], [2.0] * 30, [2.0] * 10 + [9.0] * 50 + [2.03] * 10, [0.4, 3.0, 1.5, 2.5, 0.6] * 9],
)
def test_no_warning_for_other_losses(losses):
    assert loss_warnings(losses) == []


@pytest.mark.parametrize("reason", ["failed", "signal"])
def test_no_warning_after_a_failure_or_signal(reason):
    assert loss_warnings([1.0, 9.0], reason) == []
