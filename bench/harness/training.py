"""Run a training benchmark: measure speed in turn, then memory, and write the tables."""

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
from harness.runners import ContenderFactory
from harness.turns import Lock, log, measure

FASTEST = 3
"""Number of settings of each library that are measured again with dropout."""

Contenders = Callable[[Any, float, int, str], list[Contender]]


@dataclass(frozen=True)
class Claim:
    """A claim about training.

    Args:
        name: stem of the result files.
        title: title of the table.
        contenders: module-level function; called with shape, dropout, rounds and device.
        shape: sizes of model and batches.
        prepare: sets up the process as heedful does; called before the first tensor is created.
        tokens: returns the target tokens of a round's batch.
        flops: returns the FLOPs of a round's batch.
        dropouts: one table per dropout. The first shows every setting, the others only the fastest
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
    """Parse the command-line options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="one round: check that it runs")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each contender ({rounds})")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dropout", type=float, nargs="+", help="tables for these (training only)")
    parser.add_argument(
        "--patience", type=int, default=10, help="how often a disturbed turn is repeated (10)"
    )
    parser.add_argument(
        "--warm-cache",
        action="store_true",
        help="use the compile cache; compile times are then invalid",
    )
    parser.add_argument("--only", metavar="REGEX", help="contenders whose name matches")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument(
        "--default-malloc", action="store_true", help="do not apply heedful's malloc settings to the peers"
    )
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring, on a shared machine")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.patience = 1, 0
    if not args.warm_cache:
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        # The processes that measure memory inherit it.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name
    return args


def run(claim: Claim, args: argparse.Namespace) -> None:
    """Measure and write the tables of one claim."""
    if not args.default_malloc:
        claim.prepare()
    lock = Lock(args.lock)
    tables: list[Table] = []
    names: set[str] | None = None
    for dropout in claim.dropouts if args.dropout is None else args.dropout:
        tables.append(_table(claim, dropout, names, args, lock))
        names = fastest(tables[0], FASTEST)
        # After each table, so that an interrupted run keeps the tables so far.
        write_tables(claim.name, claim.title, tables, describe(args.device), args.out)


def _table(
    claim: Claim, dropout: float, names: set[str] | None, args: argparse.Namespace, lock: Lock
) -> Table:
    arguments = (claim.shape, dropout, args.rounds, args.device)
    factory = ContenderFactory(claim.contenders, arguments, None if args.default_malloc else claim.prepare)
    with lock.held():
        before = product_peaks(args.device)
    contenders = choose(claim.contenders(*arguments), args.only, "bf16" in before)
    contenders = [c for c in contenders if names is None or c.name in names]
    timings = measure(
        contenders,
        rounds=args.rounds,
        factory=factory,
        device=args.device,
        patience=args.patience,
        lock=lock,
    )
    with lock.held():
        peaks = {name: max(peak, before[name]) for name, peak in product_peaks(args.device).items()}
    rows = []
    for contender in contenders:
        timing = timings[contender.name]
        used = None
        if not (args.no_memory or timing.failure or args.device != "cpu"):
            with lock.held():
                # heedful's malloc settings would increase the memory of the peers.
                ours = contender.library == "heedful"
                used = memory.added_memory(
                    factory if ours else replace(factory, prepare=None), contender.name, 2
                )
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
