"""A file is there whole, or as it was; and others may read it as the user's own settings say."""

import os

import pytest

from heedful.errors import WorkError
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
