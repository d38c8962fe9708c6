"""Fuzz the native engine with invalid calls; run as a script, under a sanitizer.

A valid call of a small model's decoder, with caches, rows and instructions of every kind, is mutated in
single numbers. The engine trusts memory sizes (`Call.n_lines`, ``n_weights`` …): these are only decreased,
and addresses only set to null. Everything else may take any value.

The argument is JSON: compiler flags, number of trials and seed. The script prints the numbers of calls that
ran and that were refused, and then reads out of bounds on purpose through a wrong size: a working sanitizer
ends it there.
"""

import ctypes
import json
import random
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from heedful.engine import native
from heedful.engine.running import Engine, KeyValueCaches, Rows, Runner, compile_model
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig

V, LINES, CAPACITY, SOURCE_LINES, SOURCE_CAPACITY, SEQUENCES = 37, 5, 23, 3, 19, 7
ROWS = ("ids", "positions", "cache_lines", "sequences", "n_visible", "ancestors", "sources", "source_lengths")
WEIGHTS = ("weights", "bias", "scales", "sums")
SIZES = ("n_weights", "n_bias", "n_scales", "n_sums")
NUMBERS = [-(2**31), -1000, -2, -1, 0, 1, 2, 3, 7, 16, 31, 32, 255, 256, 4099, 2**20, 2**24, 2**31 - 1]
LARGE = [*NUMBERS, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63)]


def engine_of(library: native.Library, precision: str, norm: str) -> Engine:
    """Return the engine of a small encoder-decoder, compiled for this library."""
    torch.manual_seed(1)
    original_library, native.library = native.library, lambda: library
    config = TransformerConfig(
        d_model=14,
        n_layers=1,
        dropout=0.0,
        layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}, "norm": norm},
    )
    try:
        return compile_model(build_model(config, V, V).eval(), precision)
    finally:
        native.library = original_library


@dataclass
class CallCase:
    """A valid call and its parts."""

    runner: Runner
    cache_pair: tuple[KeyValueCaches, KeyValueCaches]
    rows: Rows

    @property
    def call(self) -> native.Call:
        """Return the call structure."""
        return self.runner.call

    @property
    def code(self) -> Any:
        """Return the instructions."""
        return self.runner._code

    @property
    def caches(self) -> Any:
        """Return the key-value caches."""
        return self.runner._caches

    def index(self, op: int, nth: int = 0) -> int:
        """Return the index of the nth instruction with opcode ``op``."""
        return [i for i, each in enumerate(self.code) if each.op == op][nth]

    def run(self) -> None:
        """Run the call."""
        self.runner.engine.library.run(self.call)


def build_case(engine: Engine, n: int, n_threads: int = 1) -> CallCase:
    """Build a valid call of ``n`` rows with all of its memory filled."""
    rng = np.random.default_rng(n)
    small = lambda high, *shape: rng.integers(0, high, shape, dtype=np.int32)  # noqa: E731
    own_caches, source_caches = (
        KeyValueCaches(engine.own_cache_shapes, LINES, CAPACITY),
        KeyValueCaches(engine.source_cache_shapes, SOURCE_LINES, SOURCE_CAPACITY),
    )
    for tensor in (*own_caches.keys, *own_caches.values, *source_caches.keys, *source_caches.values):
        tensor.normal_()
    rows = Rows(
        rng.integers(0, V, n),
        small(CAPACITY, n),
        small(LINES, n),
        small(SEQUENCES, n),
        1 + small(CAPACITY, n),
        small(LINES, SEQUENCES, CAPACITY),
        small(SOURCE_LINES, n),
        small(SOURCE_CAPACITY + 1, n),
    )
    runner = Runner(engine, engine.decoder, n, n_threads)
    for buffer in runner.buffers:
        buffer.normal_()
    runner.attach(own_caches, source_caches, CAPACITY)
    runner.use(rows, linked=True)
    runner.run()
    return CallCase(runner, (own_caches, source_caches), rows)


Change = tuple[Any, Any, Any]
"""An object or array, its field or index, and the new value."""


def random_change(base: CallCase, rng: random.Random) -> Change:
    """Return a random change of one number of a call."""
    call, kind = base.call, rng.randrange(5)
    if kind == 0:  # an operand of an instruction
        op = rng.choice(base.code)
        names = [n for n, _ in native.Instruction._fields_ if n not in (*WEIGHTS, *SIZES, "number")]
        name = rng.choice(names)
        near_values = [getattr(op, name) + d for d in (-1, 1)] + [2 * getattr(op, name)]
        return op, name, rng.choice(near_values if rng.random() < 0.3 else NUMBERS)
    if kind == 1:  # missing or shorter weights
        op = rng.choice(base.code)
        if rng.random() < 0.3:
            return op, rng.choice(WEIGHTS), None
        name = rng.choice(SIZES)
        return op, name, rng.choice([-1, 0, getattr(op, name) - 1, getattr(op, name) // 2])
    if kind == 2:  # a cache
        cache = rng.choice(base.caches)
        name, small_values = (
            rng.choice(["capacity", "lines", "keys", "values", "n_keys", "n_values"]),
            [-1, 0, 1],
        )
        if name in ("keys", "values"):
            return cache, name, None
        current = getattr(cache, name)
        return (
            cache,
            name,
            rng.choice(
                [*small_values, current - 1, *(() if name.startswith("n_") else (current + 1, *LARGE))]
            ),
        )
    if kind == 3:  # a row
        array = getattr(base.rows, rng.choice(ROWS)).reshape(-1)
        choices = LARGE if array.dtype == np.int64 else NUMBERS
        return (
            array,
            rng.randrange(len(array)),
            rng.choice([V, LINES, CAPACITY, CAPACITY + 1, *choices][:-1]),
        )
    return random_of_call(call, base.runner, rng)


def random_of_call(call: native.Call, runner: Runner, rng: random.Random) -> Change:
    """Return a random change of the call structure, its buffers or their widths."""
    kind = rng.randrange(4)
    if kind == 0:
        names = [*ROWS, "program", "buffers", "widths", "caches", "converted", "row_scales", "scores"]
        return call, rng.choice(names), None
    if kind == 1:
        name = rng.choice(["n_rows", "n_threads", "linked"])
        current = getattr(call, name)
        # Threads are started before rows are validated.
        return (
            call,
            name,
            rng.choice(
                [-1, 0, 1, current - 1, *LARGE] if name != "n_rows" else [-1, 0, 1, current + 1, *LARGE[-6:]]
            ),
        )
    if kind == 2:
        names = ["n_instructions", "n_buffers", "n_lines", "n_caches", "n_sequences", "n_ancestors"]
        name = rng.choice([*names, "most_threads", "n_converted", "n_scores"])
        return call, name, rng.choice([-(2**63), -1, 0, 1, getattr(call, name) - 1])
    i = rng.randrange(len(runner._widths))
    if rng.random() < 0.3:
        return runner._addresses, i, None
    return runner._widths, i, rng.choice([-(2**62), -1, 0, 1, int(runner._widths[i]) - 1])


def one_instruction(base: CallCase, rng: random.Random) -> list[Change]:
    """Return changes that reduce the program to one instruction, so that the others check nothing."""
    address = base.runner._first + rng.randrange(len(base.code)) * ctypes.sizeof(native.Instruction)
    return [(base.call, "program", address), (base.call, "n_instructions", 1)]


def old_value(owner: Any, name: Any) -> Any:
    """Return the value before a change."""
    return getattr(owner, name) if isinstance(name, str) else owner[name]


def put(change: Change) -> None:
    """Apply a change."""
    owner, name, value = change
    if isinstance(name, str):
        setattr(owner, name, value)
    else:
        owner[name] = value


def outcome(base: CallCase, changes: list[Change]) -> bool:
    """Run the call with these changes, then undo them; return False if the engine refused it."""
    old_values = [(owner, name, old_value(owner, name)) for owner, name, _ in changes]
    try:
        for change in changes:
            put(change)
        base.run()
        return True
    except ValueError:
        return False
    finally:
        for change in reversed(old_values):
            put(change)


def sweep(library: native.Library, n: int, seed: int) -> dict[str, int]:
    """Run ``n`` mutated calls; return how many ran and how many were refused."""
    rng, counts = random.Random(seed), {"done": 0, "refused": 0}
    shapes = [
        ("fp32", "layer", 1, 1),
        ("fp32", "batch", 13, 3),
        ("bf16", "layer", 4, 2),
        ("int8", "layer", 9, 1),
    ]
    bases = [
        build_case(engine_of(library, precision, norm), rows, threads)
        for precision, norm, rows, threads in shapes
    ]
    for trial in range(n):
        base = bases[trial % len(bases)]
        changes = [random_change(base, rng) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        if rng.random() < 0.3:  # the number of instructions is trusted: it must not grow again
            rest = [change for change in changes if change[1] not in ("program", "n_instructions")]
            changes = [*one_instruction(base, rng), *rest]
        counts["done" if outcome(base, changes) else "refused"] += 1
    for base in bases:
        base.run()  # all changes undone
    return counts


def read_out_of_bounds(library: native.Library) -> None:
    """Read out of bounds: claim a larger embedding table than there is."""
    base = build_case(engine_of(library, "fp32", "layer"), 1)
    base.code[0].n_weights *= 2
    base.rows.ids[0] = V
    base.run()


def main() -> None:
    """Run the sweep, then read out of bounds."""
    flags, n, seed = json.loads(sys.argv[1])
    try:
        library = native.Library(native.build(flags))
    except native.UnavailableError as error:
        print(json.dumps({"unavailable": str(error)}))
        return
    print(json.dumps(sweep(library, n, seed)), flush=True)
    read_out_of_bounds(library)


if __name__ == "__main__":
    main()
