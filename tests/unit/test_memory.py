"""What is freed stays with the process, and large pages are asked for unless the user decided."""

import os
import subprocess
import sys

import pytest

from heedful.memory import ask_for_large_pages

KEEPS = """
from pathlib import Path
import ctypes
from heedful.memory import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
if {keep}:
    assert keep_freed_memory()
before = resident()
block = libc.malloc(64 << 20)
ctypes.memset(block, 1, 64 << 20)
libc.free(block)
print((resident() - before) * 4096 / (64 << 20))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the C library of Linux")
@pytest.mark.parametrize("keep", [True, False])
def test_freed_memory_is_kept_when_asked_for(keep):
    done = subprocess.run(
        [sys.executable, "-c", KEEPS.format(keep=keep)], capture_output=True, text=True, check=True
    )
    share = float(done.stdout)
    assert share > 0.9 if keep else share < 0.1


def test_large_pages_are_asked_for_unless_the_user_decided(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    ask_for_large_pages()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "1"
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    ask_for_large_pages()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "0"


def test_elsewhere_nothing_is_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    ask_for_large_pages()
    assert "THP_MEM_ALLOC_ENABLE" not in os.environ
