import errno
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from heedful.engine import native
from heedful.engine.native import UnavailableError, build


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "heedful"


def has_compiler():
    try:
        return bool(native._compiler())
    except UnavailableError:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler here")
FAST = ["-O0", "-std=gnu11", "-fPIC", "-shared", "-w"]


@needs_compiler
def test_it_is_compiled_once_and_cached_privately(cache, monkeypatch):
    build(FAST)
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    monkeypatch.setattr(native, "_compile", lambda *_: pytest.fail("compiled again"))
    build(FAST)
    assert list(cache.iterdir()) == [kept]


@needs_compiler
def test_copies_that_killed_processes_left_are_removed_and_those_of_others_kept(cache):
    cache.mkdir(mode=0o700)
    for name, age in (("old.tmp", 2 * native._STALE), ("new.tmp", 1), ("old.other", 2 * native._STALE)):
        (cache / name).touch()
        os.utime(cache / name, (time.time() - age,) * 2)
    build(FAST)
    kept = {path.name for path in cache.iterdir() if path.suffix != ".so"}
    assert kept == {"new.tmp", "old.other"}


@needs_compiler
def test_other_sources_give_another_library(cache, tmp_path, monkeypatch):
    build(FAST)
    changed = tmp_path / "source"
    changed.mkdir()
    for path in native.SOURCES.iterdir():
        (changed / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(native, "SOURCES", changed)
    build(FAST)
    assert len(list(cache.iterdir())) == 2


@needs_compiler
def test_a_folder_that_others_may_write_to_is_not_used(cache):
    cache.mkdir()
    cache.chmod(0o777)
    build(FAST)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_without_file_owners_the_library_is_not_cached(cache, monkeypatch):
    """As on Windows, where nothing tells whose a folder is."""
    monkeypatch.delattr(os, "getuid")
    build(FAST)
    assert list(cache.iterdir()) == []


DAMAGES = {
    "cut to a page": lambda content: content[:4096],
    "empty": lambda content: b"",
    "one bit": lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
    "no library": lambda content: b"hello\n",
}


def in_another_process(code):
    """The result of Python code that a damaged library may kill."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SRC}
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout.strip()


SRC = str(Path(native.__file__).parents[2])
BUILD = f"from heedful.engine.native import build; print(build({FAST})._name)"


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_library_is_compiled_again_and_never_loaded(cache, damage):
    kept = Path(in_another_process(BUILD))
    content = kept.read_bytes()
    kept.write_bytes(damage(content))
    assert in_another_process(BUILD) == str(kept)
    assert list(cache.iterdir()) == [kept]
    assert kept.read_bytes() == content


@needs_compiler
def test_a_library_that_does_not_load_is_compiled_again(cache, monkeypatch):
    """It is what was written, but for another system: another libc, say."""
    build(FAST)
    (kept,) = cache.iterdir()
    wanted = kept.read_bytes()
    foreign = native._cached_name(kept.name[: -len("-.so") - 32], SOURCE)
    kept.unlink()
    (cache / foreign).write_bytes(SOURCE.read_bytes())
    build(FAST)
    assert [path.read_bytes() for path in cache.iterdir()] == [wanted]


SOURCE = native.SOURCES / "engine.c"


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("change", ["others may write", "another's", "a link"])
def test_a_library_that_others_may_have_written_is_not_loaded(cache, change, monkeypatch, tmp_path):
    build(FAST)
    (kept,) = cache.iterdir()
    if change == "others may write":
        kept.chmod(0o666)
    elif change == "a link":
        kept.rename(tmp_path / "library.so")
        kept.symlink_to(tmp_path / "library.so")
    else:
        is_own = native._is_own
        monkeypatch.setattr(native, "_is_own", lambda path: path != kept and is_own(path))
    compiled = []
    compile_ = native._compile
    monkeypatch.setattr(native, "_compile", lambda *given: compiled.append(given) or compile_(*given))
    build(FAST)
    assert len(compiled) == 1
    monkeypatch.undo()
    assert [stat.S_IMODE(path.lstat().st_mode) for path in cache.iterdir()] == [0o600]


@needs_compiler
def test_a_folder_below_one_that_anybody_can_rename_in_is_not_used(cache, tmp_path):
    tmp_path.chmod(0o777)
    build(FAST)
    assert list(cache.iterdir()) == []
    tmp_path.chmod(0o1777)  # as /tmp: only owners rename
    build(FAST)
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_a_relative_cache_folder_is_ignored(cache, tmp_path, monkeypatch):
    """As the specification of XDG_CACHE_HOME has it: no library is taken from where one happens to be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    build(FAST)
    assert not Path("here").exists()
    assert len(list((tmp_path / "home" / ".cache" / "heedful").iterdir())) == 1


@needs_compiler
def test_libraries_of_other_processors_are_other_libraries(cache, monkeypatch):
    build(FAST)
    monkeypatch.setattr(native, "identity", lambda: "another")
    build(FAST)
    assert len(list(cache.iterdir())) == 2


# What a machine may refuse --------------------------------------------------------------------------


def refuse(number):
    def refused(*_, **__):
        raise OSError(number, os.strerror(number))

    return refused


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, of which nothing may remain."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@needs_compiler
def test_without_a_home_the_library_is_not_cached(temporary, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    build(FAST)


@needs_compiler
@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC, errno.EROFS])
def test_without_room_in_the_cache_the_library_is_made_and_not_kept(cache, temporary, monkeypatch, number):
    monkeypatch.setattr(tempfile, "mkstemp", refuse(number))
    build(FAST)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_without_room_for_all_of_it_nothing_remains(cache, temporary, monkeypatch):
    monkeypatch.setattr(native, "sync", refuse(errno.EDQUOT))
    build(FAST)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_without_a_temporary_folder_there_is_none(cache, monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", refuse(errno.ENOENT))
    with pytest.raises(UnavailableError, match="cannot be built"):
        build(FAST)


def test_an_invalid_compiler_command_is_reported(cache, monkeypatch):
    monkeypatch.setenv("CC", 'gcc "-O2')
    with pytest.raises(UnavailableError, match=r'CC=gcc "-O2 is not a command: No closing quotation'):
        build(FAST)


@needs_compiler
def test_a_compiler_that_makes_another_library_is_refused(cache, tmp_path, monkeypatch):
    other = tmp_path / "source"
    other.mkdir()
    (other / "engine.c").write_text("int other;")
    monkeypatch.setattr(native, "SOURCES", other)
    with pytest.raises(UnavailableError, match="lacks heedful_run, heedful_rank"):
        build(FAST)


@needs_compiler
def test_two_builders_at_once_leave_one_library(cache):
    processes = [
        subprocess.Popen([sys.executable, "-c", BUILD], env={**os.environ, "PYTHONPATH": SRC})
        for _ in range(3)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_compiler_errors_are_reported(cache):
    with pytest.raises(UnavailableError, match=r"cannot compile it: .*no-such-flag"):
        build([*FAST, "--no-such-flag"])
    assert list(cache.iterdir()) == []


def test_without_a_compiler_there_is_none(cache, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnavailableError, match="no C compiler"):
        build()


def test_it_can_be_disabled(monkeypatch):
    monkeypatch.setenv("HEEDFUL_NATIVE", "0")
    with pytest.raises(UnavailableError, match="HEEDFUL_NATIVE=0"):
        build()
