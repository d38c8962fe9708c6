"""How much memory there is; what is freed stays; large pages are asked for unless the user decided."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.errors import RequestError
from heedful.memory import keep_freed_memory, machine_memory, parse_size

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


LARGE = """
import ctypes
from pathlib import Path
from heedful.memory import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
keep_freed_memory()
ctypes.memset(libc.malloc(64 << 20), 1, 64 << 20)
maps = Path("/proc/self/smaps").read_text().split("[heap]")[1:]
print(sum(int(part.split("AnonHugePages:")[1].split()[0]) for part in maps) >> 10)
"""


def large_pages(limit="", **variables):
    """MiB of the heap in large pages, of a process that wrote 64."""
    command = f"{limit} exec {sys.executable} -c '{LARGE}'"
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"} | variables
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


def asks_for_large_pages():
    """Whether Linux gives large pages to those, and only to those, who ask."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[madvise]" in setting.read_text(encoding="ascii")


@pytest.mark.skipif(not asks_for_large_pages(), reason="Linux gives large pages to nobody, or to all")
def test_the_heap_has_large_pages_unless_the_user_decided():
    assert large_pages() >= 56
    assert large_pages(THP_MEM_ALLOC_ENABLE="0") == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the C library of Linux")
def test_a_limit_of_the_address_space_is_not_used_up():
    large_pages("ulimit -v 2000000;")  # the process has memory left for its 64 MiB


def test_elsewhere_nothing_is_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory.__wrapped__()


LIMITS = {
    "none is told": ({}, None),
    "a group above has the least": (
        {"proc/self/cgroup": "0::/a/b\n", "a/b/memory.max": "max\n", "a/memory.max": "5000\n"},
        5000,
    ),
    "the group's own": (
        {"proc/self/cgroup": "0::/a\n", "a/memory.max": "4000\n", "memory.max": "7000"},
        4000,
    ),
    "a container sees the top alone": ({"proc/self/cgroup": "0::/a/b\n", "memory.max": "3000\n"}, 3000),
    "version 1": (
        {"proc/self/cgroup": "4:cpu,memory:/a\n0::/\n", "memory/a/memory.limit_in_bytes": "6000\n"},
        6000,
    ),
    "what is no group of memory": (
        {"proc/self/cgroup": "4:cpu:/a\n", "memory/memory.limit_in_bytes": "1\n"},
        None,
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_a_process_has_what_its_control_groups_allow(tmp_path, case):
    files, most = LIMITS[case]
    for name, text in files.items():
        path = tmp_path / (name if name.startswith("proc") else f"sys/fs/cgroup/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert machine_memory(tmp_path) == (machine_memory(tmp_path / "nowhere") if most is None else most)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux")
def test_a_process_has_at_most_its_address_space_and_the_memory_of_the_machine(tmp_path):
    told = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    assert machine_memory(tmp_path) <= int(told.split()[1]) * 1024
    code = "from heedful.memory import machine_memory as m; import resource as r; "
    code += "r.setrlimit(r.RLIMIT_AS, (1 << 30, r.RLIM_INFINITY)); print(m())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("6GiB", 6 << 30),
        ("0.5 gib", 1 << 29),
        ("512MiB", 512 << 20),
        ("2GB", 2 * 10**9),
        ("1.5MB", 1_500_000),
    ],
)
def test_sizes_have_units(text, size):
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize("text", ["", "6", "GiB", "-1GiB", "0MiB", "6 giraffes", "1e3GiB", "nanGiB", "٣GiB"])
def test_other_texts_are_no_sizes(text):
    with pytest.raises(RequestError, match=r"^--memory .*: expected a size such as 6GiB"):
        parse_size(text, "--memory")
