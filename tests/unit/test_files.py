"""A file is there whole, or as it was; and others may read it as the user's own settings say."""

import os
import stat
import threading

import pytest

from heedful.cli.output import whole_file
from heedful.errors import RequestError, WorkError
from heedful.files import replacing, write_text


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


def write_whole(path, text):
    with whole_file(path) as file:
        file.write(text)


WRITERS = pytest.mark.parametrize("write", [write_text, write_whole])


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
        with pytest.raises((RequestError, WorkError), match=f"{name}: (cannot be written|is a folder)"):
            write(tmp_path / name, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "folder"]
