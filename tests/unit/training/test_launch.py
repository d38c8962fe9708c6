import subprocess
import sys

import pytest
import torch

from heedful.errors import WorkError
from heedful.training import distribution


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_one_process_alone_is_left_as_it_is(tmp_path, threads):
    threads(2)
    with distribution.start_processes(1, tmp_path):
        assert torch.get_num_threads() == 2
    assert list(tmp_path.iterdir()) == []


def test_work_while_the_others_wait_has_all_threads(threads):
    threads(1)
    validate = distribution.using_threads(2)(lambda x, y: (x, y, torch.get_num_threads()))
    assert validate(3, 5) == validate(3, 5) == (3, 5, 2)
    assert torch.get_num_threads() == 1
    with pytest.raises(ZeroDivisionError):
        distribution.using_threads(2)(lambda: 1 // 0)()
    assert torch.get_num_threads() == 1


@pytest.mark.slow
def test_a_process_that_cannot_start_is_named_with_its_error(tmp_path, threads):
    threads(2)
    with (
        pytest.raises(Exception, match=r"process 2 of 2 ended \(exit status 2\): .*no such run") as caught,
        distribution.start_processes(2, tmp_path / "nowhere"),
    ):
        pass
    assert type(caught.value).__name__ == "WorkError"
    assert torch.get_num_threads() == 2


@pytest.mark.slow
def test_a_process_imports_what_this_one_imports(tmp_path, threads, monkeypatch):
    """And nothing that lies in the current folder by chance."""
    threads(2)
    (tmp_path / "heedful.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(WorkError, match="no such run"),
        distribution.start_processes(2, tmp_path / "nowhere"),
    ):
        pass


@pytest.mark.parametrize(("of_each", "got"), [(None, 2), (4, 4), (1, 1)])
def test_threads_per_process_are_set_or_shared(tmp_path, threads, monkeypatch, of_each, got):
    threads(4)
    begun = []

    def start(rank, n, each, run, place):
        begun.append((rank, n, each))
        return subprocess.Popen([sys.executable, "-c", ""])

    def stop(started, place):
        assert torch.get_num_threads() == got
        raise WorkError

    monkeypatch.setattr(distribution, "_start", start)
    monkeypatch.setattr(distribution, "_wait_until_ready", stop)
    with pytest.raises(WorkError), distribution.start_processes(2, tmp_path, of_each):
        pass
    assert begun == [(1, 2, got)]
    assert torch.get_num_threads() == 4


def test_processes_are_killed_if_a_later_one_cannot_be_started(tmp_path, threads, monkeypatch):
    threads(4)
    begun = []

    def start(rank, *context):
        if rank == 2:
            raise OSError("no memory")
        begun.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return begun[-1]

    monkeypatch.setattr(distribution, "_start", start)
    with pytest.raises(OSError, match="no memory"), distribution.start_processes(3, tmp_path):
        pass
    assert [process.poll() for process in begun] == [-9]
    assert torch.get_num_threads() == 4


LOST = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer"


@pytest.mark.slow
def test_the_process_that_failed_first_is_named(tmp_path):
    """Though it is the last to end."""
    codes = [f"raise RuntimeError({LOST!r})", "import time; time.sleep(1.5); raise MemoryError('its own')"]
    started = []
    for rank, code in enumerate(codes, 1):
        with (tmp_path / f"{rank}.err").open("wb") as errors:
            started.append(subprocess.Popen([sys.executable, "-c", code], stderr=errors))
    with (
        pytest.raises(WorkError, match=r"process 3 of 3 ended \(exit status 1\): MemoryError: its own"),
        distribution._explain_failures(started, tmp_path),
    ):
        raise RuntimeError(LOST)
