"""The common course of the training benchmarks: measure in turn, then memory, then the table."""

import argparse
import atexit
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import memory
from harness.contender import Contender, choose
from harness.machine import describe, product_peaks
from harness.report import Row, Table, fastest, markdown, write_tables
from harness.seats import Field
from harness.turns import Lock, log, measure

FASTEST = 3
"""Settings of a library that are tried again at the next dropout."""

Contenders = Callable[[Any, float, int, str], list[Contender]]


@dataclass(frozen=True)
class Claim:
    """A claim about training.

    Args:
        name: of the files with its results.
        title: of the table.
        contenders: a function at the top of a module; called with shape, dropout, rounds and device.
        shape: sizes of model and batches.
        prepare: changes the process as heedful does, before the first tensor is made.
        tokens: target tokens of each round's batch.
        flops: the work of each round's batch.
        dropouts: a table for each. The first shows every setting, those that follow the fastest
            few of each library in the first.
    """

    name: str
    title: str
    contenders: Contenders
    shape: Any
    prepare: Callable[[], None]
    tokens: Callable[[int], int]
    flops: Callable[[int], int]
    dropouts: Sequence[float] = (0.0, 0.1)


def options(description: str, rounds: int) -> argparse.Namespace:
    """The options of every script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="one round: does it run at all?")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each contender ({rounds})")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dropout", type=float, nargs="+", help="tables for these (training only)")
    parser.add_argument(
        "--patience", type=int, default=10, help="how often a turn that others disturbed is taken again (10)"
    )
    parser.add_argument(
        "--warm-cache",
        action="store_true",
        help="use what torch compiled earlier; compile times are void then",
    )
    parser.add_argument("--only", metavar="REGEX", help="contenders whose name matches")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument(
        "--default-malloc", action="store_true", help="do not give everybody heedful's settings of malloc"
    )
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring, on a shared machine")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.patience = 1, 0
    if not chosen.warm_cache:
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        # The processes that measure memory inherit it.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name
    return chosen


def run(claim: Claim, chosen: argparse.Namespace) -> None:
    """Measure and write the tables of one claim."""
    if not chosen.default_malloc:
        claim.prepare()
    lock = Lock(chosen.lock)
    tables: list[Table] = []
    names: set[str] | None = None
    for dropout in claim.dropouts if chosen.dropout is None else chosen.dropout:
        tables.append(_table(claim, dropout, names, chosen, lock))
        names = fastest(tables[0], FASTEST)
        # After each, for whoever has no time for all.
        write_tables(claim.name, claim.title, tables, describe(chosen.device), chosen.out)


def _table(
    claim: Claim, dropout: float, names: set[str] | None, chosen: argparse.Namespace, lock: Lock
) -> Table:
    arguments = (claim.shape, dropout, chosen.rounds, chosen.device)
    field = Field(claim.contenders, arguments, None if chosen.default_malloc else claim.prepare)
    with lock.held():
        before = product_peaks(chosen.device)
    contenders = choose(claim.contenders(*arguments), chosen.only, "bf16" in before)
    contenders = [c for c in contenders if names is None or c.name in names]
    timings = measure(
        contenders,
        rounds=chosen.rounds,
        apart=field,
        device=chosen.device,
        patience=chosen.patience,
        lock=lock,
    )
    with lock.held():
        peaks = {name: max(peak, before[name]) for name, peak in product_peaks(chosen.device).items()}
    rows = []
    for contender in contenders:
        timing = timings[contender.name]
        used = None
        if not (chosen.no_memory or timing.failure or chosen.device != "cpu"):
            with lock.held():
                # What heedful asks of malloc would count against the peers here.
                ours = contender.library == "heedful"
                used = memory.of_contender(field if ours else replace(field, prepare=None), contender.name, 2)
        rates = [claim.tokens(n) / s for n, s in enumerate(timing.seconds)]
        speeds = [claim.flops(n) / s for n, s in enumerate(timing.seconds)]
        rows.append(
            Row(
                contender.library, contender.setting, rates, speeds, used,
                timing.compile_seconds if contender.compiled else None, timing.disturbed, timing.failure,
            )
        )  # fmt: skip
    lock.release()
    table = Table(f"Dropout {dropout:g}", "target tokens per second", rows, peaks)
    log(markdown(table))
    return table
