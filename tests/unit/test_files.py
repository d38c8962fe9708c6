"""A file is there whole, or as it was; and others may read it as the user's own settings say."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from heedful import files
from heedful.errors import RequestError, WorkError
from heedful.files import (
    is_intact,
    is_temporary,
    parse_json,
    remove_scratch_folders,
    remove_temporaries,
    replacing,
    scratch_folder,
    stamped,
    temporary_beside,
    whole_file,
    write_text,
)


def write_whole(path, text):
    with whole_file(path) as file:
        file.write(text)


WRITERS = pytest.mark.parametrize("write", [write_text, write_whole])


def test_a_text_is_written_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ü\n")
    assert path.read_bytes() == "zwei ü\n".encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "w") as temporary:
            # As safetensors does, whatever the umask.
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        os.umask(before)
    assert (tmp_path / "w").stat().st_mode & 0o777 == mode


def test_the_umask_of_the_process_is_never_touched(tmp_path, monkeypatch):
    """Setting it, if only for a moment, opens what other threads write in that moment to everyone."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
    write_text(tmp_path / "a.txt", "text")
    write_whole(tmp_path / "b.txt", "text")


@WRITERS
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444])
def test_an_existing_file_keeps_its_mode(tmp_path, write, mode):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(mode)
    write(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o7777 == mode


def test_while_a_private_file_is_replaced_its_content_stays_private(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path) as temporary:
        temporary.write_text("secret")
        assert temporary.stat().st_mode & 0o077 == 0


@WRITERS
def test_two_writers_at_once_each_publish_a_whole_file(tmp_path, write):
    """The second begins while the first is half way; each has a file of its own."""
    path = tmp_path / "a.txt"
    with whole_file(path) as file:
        file.write("first, ")
        file.flush()
        write(path, "second")
        assert path.read_text() == "second"
        file.write("all of it")
    assert path.read_text() == "first, all of it"
    assert list(tmp_path.iterdir()) == [path]


@WRITERS
def test_a_planted_link_is_not_followed(tmp_path, write, monkeypatch):
    """Even where its name is the one that the temporary file is about to get."""
    path, victim = tmp_path / "a.txt", tmp_path / "victim"
    victim.write_text("untouched")
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "0" * 2 * n)
    with replacing(path) as temporary:
        name = temporary.name
    for planted in (name, ".a.txt.tmp", f".a.txt.{os.getpid()}.tmp"):
        (tmp_path / planted).symlink_to(victim)
    with pytest.raises((RequestError, WorkError), match=r"a\.txt: cannot be written \(File exists\)"):
        write(path, "text")
    assert victim.read_text() == "untouched"


@WRITERS
def test_content_is_on_the_disk_before_it_has_the_name(tmp_path, write, monkeypatch):
    path, order = tmp_path / "a.txt", []
    fsync, replace = os.fsync, type(path).replace

    def noting_sync(handle):
        order.append(os.fstat(handle).st_size if stat.S_ISREG(os.fstat(handle).st_mode) else "folder")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(type(path), "replace", lambda *to: (order.append("replace"), replace(*to))[1])
    write(path, "12345")
    assert order == [5, "replace", "folder"]


@WRITERS
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path, write):
    path = tmp_path / ("ü" * 127)
    write(path, "text")
    assert path.read_text() == "text"


def test_what_a_killed_writer_leaves_is_recognised(tmp_path):
    with replacing(tmp_path / "weights.safetensors") as temporary:
        assert is_temporary(temporary)
        temporary.touch()
    assert not any(map(is_temporary, tmp_path.iterdir()))
    assert not is_temporary(Path(".recipe.yaml.tmp"))
    assert is_temporary(Path(".tmpcOKd45"))  # safetensors, while it writes


@pytest.mark.parametrize("text", ["[" * 200_000, "{", "", "1" * 5000, b"\xff", b"[" * 200_000])
def test_json_that_cannot_be_parsed_is_one_kind_of_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_a_stamped_record_vouches_for_itself():
    record = stamped({"a": [1, 2.5, "ü"], "b": {"c": None}})
    assert is_intact(record)
    assert is_intact(json.loads(json.dumps(record)))
    assert not is_intact({"a": 1})
    for changed in ({"a": [1, 2.5, "u"]}, {"b": {"c": False}}, {"d": 1}, {"sha256": "0" * 64}):
        assert not is_intact({**record, **changed})
    assert is_intact(stamped({**record, "a": 3}))


def fail_half_way(path):
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(WorkError, match=r"a\.txt: cannot be written \(No space"):
        fail_half_way(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@WRITERS
def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path, write):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.txt", tmp_path / "link"
    link.symlink_to("there/a.txt")
    for text in ("made", "made anew"):
        write(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert list(target.parent.iterdir()) == [target]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]


@WRITERS
@pytest.mark.parametrize("through_link", [False, True])
def test_the_reader_of_a_fifo_gets_what_is_written(tmp_path, write, through_link):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    name = fifo
    if through_link:
        name = tmp_path / "link"
        name.symlink_to(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()), daemon=True)
    reader.start()
    write(name, "all of it\n")
    reader.join(timeout=10)
    assert read == ["all of it\n"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert name.is_symlink() == through_link


@WRITERS
def test_links_in_a_circle_and_folders_are_refused(tmp_path, write):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "folder").mkdir()
    for name in ("a", "folder"):
        refused = f"{name}: (cannot be written|expected a file, got a folder)"
        with pytest.raises((RequestError, WorkError), match=refused):
            write(tmp_path / name, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "folder"]


# Scratch folders --------------------------------------------------------------------------------------------

KILLED = "import os; from heedful.files import scratch_folder as s\nwith s() as f: os.kill(os.getpid(), 9)"


def test_scratch_folders_of_killed_processes_are_removed_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = [tmp_path / name for name in ("heedful-datasets", "heedful-scratch-notes")]
    for folder in others:
        folder.mkdir()
    with scratch_folder() as mine:
        (mine / "a").write_text("a")
        killed = subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(tmp_path)})
        assert killed.returncode == -signal.SIGKILL
        (left,) = {*tmp_path.iterdir()} - {mine, *others}
        (left / "b").write_text("b")
        with scratch_folder() as second:
            assert {*tmp_path.iterdir()} == {mine, second, *others}
        remove_scratch_folders()
        assert {*tmp_path.iterdir()} == {mine, *others}
        assert (mine / "a").read_text() == "a"
    assert {*tmp_path.iterdir()} == {*others}


def test_a_scratch_folder_goes_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(FileNotFoundError), scratch_folder() as folder:
        (folder / "a" / "b").mkdir()
    assert [*tmp_path.iterdir()] == []


def test_temporaries_are_removed_as_files_and_as_folders(tmp_path):
    (tmp_path / "kept").mkdir()
    file, folder = temporary_beside(tmp_path / "a.json"), temporary_beside(tmp_path / "train")
    file.write_text("x")
    (folder / "deep").mkdir(parents=True)
    remove_temporaries(tmp_path)
    assert [*tmp_path.iterdir()] == [tmp_path / "kept"]
    remove_temporaries(tmp_path / "nowhere")
