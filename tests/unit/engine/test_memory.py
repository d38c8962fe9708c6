"""The engine's door: what a call would read or write outside its memory is refused."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import hostile_calls
import numpy as np
import pytest
import torch
from hostile_calls import CAPACITY, LINES, SOURCE_CAPACITY, SOURCE_LINES, V, build_case, engine_of, put, sweep

from heedful.engine import native
from heedful.engine.program import Program, UnsupportedError
from heedful.engine.running import Rows

LARGE = 2**31 - 1


@pytest.fixture(scope="module", params=["fp32", "bf16", "int8"])
def base(library, request):
    return build_case(engine_of(library, request.param, "layer"), 5, 2)


def of(op, name, value, nth=0):
    """A change of the nth instruction of a kind."""
    return lambda base: (base.code[base.index(op, nth)], name, value)


def shrunk(op, name, nth=0):
    """One byte less of an instruction's weights than it needs."""

    def change(base):
        instruction = base.code[base.index(op, nth)]
        return instruction, name, getattr(instruction, name) - 1

    return change


def row(name, value):
    return lambda base: (getattr(base.rows, name).reshape(-1), 2, value)


def of_call(name, value):
    return lambda base: (base.call, name, value)


def of_cache(name, value):
    return lambda base: (base.caches[0], name, value)


PROGRAMS = {
    "no such operation": (of(native.NORM, "op", 6), "operation"),
    "no such kind of weights": (of(native.LINEAR, "kind", 3), "operation"),
    "no such activation": (of(native.LINEAR, "activation", -1), "operation"),
    "no such buffer": (of(native.NORM, "target", 99), "columns"),
    "a buffer before the first": (of(native.LINEAR, "source", -1), "columns"),
    "added from no buffer": (of(native.LINEAR, "add", -2), "columns"),
    "zero inputs": (of(native.LINEAR, "n_in", 0), "columns"),
    "negative outputs": (of(native.LINEAR, "n_out", -5), "columns"),
    "inputs wider than the buffer": (of(native.LINEAR, "n_in", LARGE), "columns"),
    "outputs wider than the buffer": (of(native.LINEAR, "n_out", LARGE), "columns"),
    "a norm wider than the buffer": (of(native.NORM, "n_in", 4099), "columns"),
    "an embedding wider than the buffer": (of(native.EMBED, "n_out", 4099), "columns"),
    "queries beyond the buffer": (of(native.ATTEND, "first_query", LARGE), "columns"),
    "keys beyond the buffer": (of(native.STORE, "first_key", 4099), "columns"),
    "values before the buffer": (of(native.STORE, "first_value", -1), "columns"),
    "heads that do not divide": (of(native.ATTEND, "n_heads", 3), "columns"),
    "no heads": (of(native.ATTEND, "n_kv_heads", 0), "columns"),
    "heads too wide for the stack": (of(native.ATTEND, "d_k", native.WIDEST_KEY + 1), "columns"),
    "no weights": (of(native.LINEAR, "weights", None), "weights"),
    "weights too short": (shrunk(native.LINEAR, "n_weights"), "weights"),
    "bias too short": (of(native.LINEAR, "n_bias", 3), "weights"),
    "gamma too short": (of(native.NORM, "n_weights", 3), "weights"),
    "no such cache": (of(native.STORE, "cache", 2), "cache"),
    "a cache before the first": (of(native.ATTEND, "cache", -1), "cache"),
    "more lines than the cache holds": (of_cache("lines", LINES + 1), "cache"),
    "more positions than the cache holds": (of_cache("capacity", 2**62), "cache"),
    "wider keys than the cache holds": (of(native.ATTEND, "d_k", 17), "cache|columns"),
    "no cache": (of_cache("keys", None), "cache"),
    "working memory too narrow": (of_call("n_converted", 3), "working memory"),
    "scores too narrow": (of_call("n_scores", 0), "working memory"),
    "a negative width of scores": (of_call("n_scores", -(2**63)), "sizes"),
    "a negative width of working memory": (of_call("n_converted", -(2**63)), "sizes"),
    "more rows than lines": (of_call("n_rows", 6), "sizes"),
    "negative rows": (of_call("n_rows", -1), "sizes"),
    "more threads than there is room for": (of_call("n_threads", 3), "sizes"),
    "no threads": (of_call("n_threads", 0), "sizes"),
    "no ids": (of_call("ids", None), "sizes"),
    "no sources": (of_call("sources", None), "sizes"),
    "an id behind the table": (row("ids", V), "token id"),
    "an id of 2**63 - 1": (row("ids", 2**63 - 1), "token id"),
    "a negative id": (row("ids", -1), "token id"),
    "a position behind the table": (row("positions", 2**20), "position"),
    "a position behind the cache": (row("positions", CAPACITY), "position"),
    "a negative position": (row("positions", -1), "position"),
    "written behind the cache": (row("cache_lines", LINES), "line"),
    "no such sequence": (row("sequences", LARGE), "line"),
    "an ancestor behind the cache": (
        lambda b: (b.rows.ancestors, (int(b.rows.sequences[2]), 0), LINES),
        "line",
    ),
    "a source behind the cache": (row("sources", SOURCE_LINES), "line"),
    "a source before the cache": (row("sources", -1), "line"),
    "more seen than there are": (row("n_visible", CAPACITY + 1), "sees more"),
    "a negative number seen": (row("n_visible", -1), "sees more"),
    "a source that is too long": (row("source_lengths", SOURCE_CAPACITY + 1), "sees more"),
}


def put_back(change):
    owner, name, _ = change
    return owner, name, hostile_calls.old_value(owner, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_leaves_its_memory_is_refused_before_anything_is_done(base, name):
    make, reason = PROGRAMS[name]
    base.run()
    change = make(base)
    before = put_back(change)
    buffers = [buffer.clone() for buffer in base.runner.buffers]
    put(change)
    try:
        with pytest.raises(ValueError, match=f"the engine refuses .*({reason})"):
            base.run()
    finally:
        put(before)
    for ours, theirs in zip(base.runner.buffers, buffers, strict=True):
        assert torch.equal(ours, theirs)
    base.run()


@pytest.mark.parametrize("name", ["n_scores", "n_converted"])
def test_widths_of_working_memory_are_checked_though_no_instruction_uses_it(library, name):
    """Threads that take rows of their own multiply them all the same."""
    base = build_case(engine_of(library, "fp32", "layer"), 13, 3)
    base.call.program = base.runner._first + base.index(native.NORM) * ctypes.sizeof(native.Instruction)
    base.call.n_instructions = 1
    base.run()
    setattr(base.call, name, -(2**63))
    with pytest.raises(ValueError, match=r"the engine refuses .*sizes"):
        base.run()


@pytest.mark.parametrize("name", ["scales", "sums"])
def test_what_int8_needs_is_required(library, name):
    base = build_case(engine_of(library, "int8", "layer"), 5)
    put(
        shrunk(native.LINEAR, f"n_{name}")(base)
        if name == "sums"
        else of(native.LINEAR, f"n_{name}", 3)(base)
    )
    with pytest.raises(ValueError, match="weights are missing or smaller"):
        base.run()


def test_a_call_without_rows_reads_nothing(base):
    before = base.call.n_rows
    for name in ("ids", "n_visible", "sources"):
        put((base.call, name, None))
    base.call.n_rows = 0
    try:
        base.run()
    finally:
        base.call.n_rows = before
        base.runner._rows = None
        base.runner.use(base.rows, linked=True)


def test_a_program_without_an_embedding_does_not_read_ids(base):
    """The head alone runs for hidden states of any rows."""
    base.call.ids = base.call.positions = None
    base.runner.run_head(3)
    base.runner._rows = None
    base.runner.use(base.rows, linked=True)


WRONG_ROWS = {
    "of another length": lambda x: x[:-1],
    "of another type": lambda x: x.astype(np.int16),
    "with gaps": lambda x: np.repeat(x, 2)[::2],
}


@pytest.mark.parametrize("wrong", WRONG_ROWS.values(), ids=WRONG_ROWS)
@pytest.mark.parametrize(
    "name", ["ids", "cache_lines", "sequences", "n_visible", "sources", "source_lengths"]
)
def test_rows_must_be_arrays_of_one_length(base, name, wrong):
    rows = Rows(**{**vars(base.rows), name: wrong(getattr(base.rows, name))})
    with pytest.raises(ValueError, match=f"{name} must be contiguous int"):
        base.runner.use(rows, linked=True)
    base.runner._rows = None
    base.runner.use(base.rows, linked=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"n_in": 2**31},
        {"bias": torch.zeros(3, dtype=torch.float64)},
        {"weights": torch.zeros(3, dtype=torch.int32)},
        {"kind": native.BF16, "weights": torch.zeros(3)},
    ],
)
def test_programs_hold_no_number_or_tensor_that_the_engine_reads_otherwise(changed):
    with pytest.raises(UnsupportedError):
        Program("fp32").write(native.LINEAR, **changed)


def test_weights_with_gaps_are_copied():
    program = Program("fp32")
    wide = torch.arange(1.0).expand(64)
    instruction = program.write(native.NORM, weights=wide)
    assert instruction.n_weights == 4 * 64
    assert instruction.weights != wide.data_ptr()


@pytest.mark.parametrize(
    "logits, forbidden, k",
    [
        (np.zeros((2, 3)), np.zeros(0, np.int64), 1),
        (np.zeros((3, 2), np.float32).T, np.zeros(0, np.int64), 1),
        (np.zeros(3, np.float32), np.zeros(0, np.int64), 1),
        (np.zeros((2, 3), np.float32), np.zeros(1, np.int32), 1),
        (np.zeros((2, 3), np.float32), np.zeros(0, np.int64), 0),
        (np.zeros((2, 0), np.float32), np.zeros(0, np.int64), 1),
    ],
)
def test_ranking_refuses_what_it_would_misread(library, logits, forbidden, k):
    with pytest.raises(ValueError, match="must be"):
        library.rank(logits, forbidden, k, 1)


# Under sanitizers of addresses and undefined behaviour ------------------------------------------------

_FLAGS = ["-O1", "-g", "-std=gnu11", "-fPIC", "-shared", "-w", "-fopenmp"]
_FLAGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
SUPPORT = Path(hostile_calls.__file__)
ROOT = SUPPORT.parents[2]


@cache
def sanitizer():
    """The sanitizer of the compiler, which a process must load first; None: there is none."""
    compiler = next((found for name in ("cc", "gcc") if (found := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        return None
    done = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True)
    path = Path(done.stdout.strip())
    return path if path.is_absolute() and path.is_file() else None


@pytest.fixture
def sanitized(tmp_path):
    """Runs Python under the sanitizers."""
    if sanitizer() is None:
        pytest.skip("the C compiler has no address sanitizer")

    def run(*arguments):
        environment = {
            **os.environ,
            "LD_PRELOAD": str(sanitizer()),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",  # so that every array has a border
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(SUPPORT.parent)]),
        }
        environment.pop("CC", None)
        return subprocess.run(
            [sys.executable, *map(str, arguments)], env=environment, capture_output=True, text=True, cwd=ROOT
        )

    return run


MACHINES = ["-march=native", *(["-march=x86-64-v3", "-march=x86-64"] if "86" in os.uname().machine else [])]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hostile_calls_neither_read_nor_write_outside_their_memory(sanitized, amount):
    n = amount(600, 30_000)
    for seed, machine in enumerate(MACHINES[: amount(1, 3)]):
        done = sanitized(SUPPORT, json.dumps([[*_FLAGS, machine], n, seed]))
        assert done.stdout, done.stderr[-4000:]
        found = json.loads(done.stdout)
        if "unavailable" in found:
            pytest.skip(f"the sanitizers cannot be used here: {found['unavailable']}")
        assert found["done"] + found["refused"] == n
        assert min(found.values()) > n / 4
        # The last call was told a wrong size: the sanitizer is at work.
        assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
        assert " in embed " in done.stderr


TESTS = """
import sys
import pytest
from heedful.engine import native
native._ATTEMPTS = [sys.argv[1].split()]
sys.exit(pytest.main([*sys.argv[2:], "-q", "-x", "-p", "no:cacheprovider", "-k", "not avx2 and not sse"]))
"""


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_laws_of_the_engine_hold_under_sanitizers(sanitized):
    files = [
        "tests/laws/test_engine.py",
        "tests/unit/engine/test_products.py",
        "tests/unit/engine/test_rank.py",
    ]
    done = sanitized("-c", TESTS, " ".join([*_FLAGS, "-march=native"]), *files)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_sweep_refuses_and_carries_out(library):
    """The same calls on the libraries in all ways of compiling them."""
    found = sweep(library, 300, 5)
    assert min(found.values()) > 75
