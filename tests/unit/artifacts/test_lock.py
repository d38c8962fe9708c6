"""A run's folder is locked by one process, as long as it lives."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from heedful.artifacts.run_folder import locked
from heedful.errors import RequestError

HOLDER = """
import sys, time
from pathlib import Path
from heedful.artifacts.run_folder import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_another_is_refused_until_the_first_is_killed(tmp_path):
    folder = tmp_path / "runs" / "x"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        (folder / "recipe.yaml").write_text("its own")
        with (
            pytest.raises(RequestError, match=r"runs/x: locked by another process that writes to it"),
            locked(folder),
        ):
            pass
        assert [path.name for path in folder.iterdir()] == ["recipe.yaml"]
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with locked(folder):
        pass
    assert (folder / "recipe.yaml").read_text() == "its own"


def test_what_was_made_and_is_empty_goes_again(tmp_path):
    (tmp_path / "old").mkdir()
    with locked(tmp_path / "new" / "a"), locked(tmp_path / "old"):
        assert (tmp_path / "new" / "a").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_what_was_written_stays(tmp_path):
    with locked(tmp_path / "a"):
        (tmp_path / "a" / "b").touch()
    assert (tmp_path / "a" / "b").exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot create the folder"), locked(tmp_path / "file" / "x"):
        pass


def test_a_folder_that_its_last_holder_removed_is_made_again_and_locked(tmp_path, monkeypatch):
    """Locking the removed one would lock nothing: two processes would hold the folder of the same name."""
    folder, flock, calls = tmp_path / "a", fcntl.flock, []
    folder.mkdir()

    def removed_just_before(handle, how):
        calls.append(handle)
        if len(calls) == 1:
            folder.rmdir()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed_just_before)
    with locked(folder):
        assert len(calls) == 2
        with pytest.raises(RequestError, match="locked by another process that writes to it"), locked(folder):
            pass
