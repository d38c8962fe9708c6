import os
import stat

import pytest

from heedful.native import building
from heedful.native.building import UnavailableError, build


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "heedful"


def has_compiler():
    try:
        return bool(building._compiler())
    except UnavailableError:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler here")
FAST = ["-O0", "-std=gnu11", "-fPIC", "-shared", "-w"]


@needs_compiler
def test_it_is_compiled_once_and_kept_for_nobody_else_to_change(cache, monkeypatch):
    build(FAST)
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    monkeypatch.setattr(building, "_compile", lambda *_: pytest.fail("compiled again"))
    build(FAST)
    assert list(cache.iterdir()) == [kept]


@needs_compiler
def test_other_sources_give_another_library(cache, tmp_path, monkeypatch):
    build(FAST)
    changed = tmp_path / "source"
    changed.mkdir()
    for path in building.SOURCES.iterdir():
        (changed / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(building, "SOURCES", changed)
    build(FAST)
    assert len(list(cache.iterdir())) == 2


@needs_compiler
def test_a_folder_that_others_may_write_to_is_not_used(cache):
    cache.mkdir()
    cache.chmod(0o777)
    build(FAST)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_without_numbers_of_users_the_library_is_kept_for_this_process_alone(cache, monkeypatch):
    """As on Windows, where nothing tells whose a folder is."""
    monkeypatch.delattr(os, "getuid")
    build(FAST)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_what_the_compiler_says_is_told(cache):
    with pytest.raises(UnavailableError, match=r"cannot compile it: .*no-such-flag"):
        build([*FAST, "--no-such-flag"])
    assert list(cache.iterdir()) == []


def test_without_a_compiler_there_is_none(cache, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnavailableError, match="no C compiler"):
        build()


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("HEEDFUL_NATIVE", "0")
    with pytest.raises(UnavailableError, match="HEEDFUL_NATIVE=0"):
        build()
