"""Measure the service: `heedful serve` under load that is made on this machine.

    python bench/serve.py all --write docs/benchmarks/serving.md    everything, in a quarter of an hour
    python bench/serve.py cost stream                               some of it
    python bench/serve.py all --quick                               small models, a moment each: does it run?

| measurement | what |
|---|---|
| equal | answers to many clients at a time, compared with ``heedful predict --jsonl`` |
| cost | processor time of the front, time alone, throughput compared with ``Run.predict`` |
| contender | throughput compared with CTranslate2 behind the same front |
| stream | streamed continuations of many clients, compared with one by one |
| overload | an open loop of more than the service bears |
| leavers | clients that vanish, or stop reading |
| memory | growth over many requests |
| engines | engines that are killed or stopped, and SIGTERM, under load |
| start | until the service lives, and is ready |

What strangers may send is tested, not measured (``tests/attack/test_hostile_requests.py``).
"""

import argparse
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from harness.machine import Machine, describe
from harness.quiet import Watch
from harness.report import public
from harness.turns import Lock, log
from serving.answers import measure_equal
from serving.bench import QUICK, Amounts, Bench
from serving.costs import measure_contender, measure_cost, measure_memory, measure_start, measure_stream
from serving.figures import Section
from serving.strain import measure_engines, measure_leavers, measure_overload

MEASUREMENTS: Mapping[str, Callable[[Bench], Section]] = {
    "equal": measure_equal,
    "cost": measure_cost,
    "contender": measure_contender,
    "stream": measure_stream,
    "overload": measure_overload,
    "leavers": measure_leavers,
    "memory": measure_memory,
    "engines": measure_engines,
    "start": measure_start,
}


BUSY = 0.1
"""Cores that other processes may use, on average, before the page says so."""


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=["all", *MEASUREMENTS], help="what is measured")
    parser.add_argument("--quick", action="store_true", help="small models and amounts: check that it runs")
    parser.add_argument("--rounds", type=int, help="repeats of what is compared (3)")
    parser.add_argument("--clients", type=int, help="clients at a time (32); equal has twice as many")
    parser.add_argument("--requests", type=int, help="requests of equal (1,000) and of memory (20,000)")
    parser.add_argument("--seconds", type=float, help="of overload (30)")
    parser.add_argument("--run", type=Path, help="a trained translator in place of the Tiny one")
    parser.add_argument("--texts", type=Path, help="its inputs, one a line (Multi30k, from $HEEDFUL_DATA)")
    parser.add_argument("--precision", default="auto", help="of all models (auto)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON (-: print)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables in this page")
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring, on a shared machine")
    return parser.parse_args(arguments)


def bench_of(args: argparse.Namespace, folder: Path) -> Bench:
    """Return amounts, runs and texts."""
    amounts = QUICK if args.quick else Amounts()
    bench = Bench(amounts, folder, args.run, args.texts, args.precision)
    return bench.changed(
        rounds=args.rounds,
        clients=args.clients,
        requests=args.requests,
        memory_requests=args.requests,
        overload_seconds=args.seconds,
    )


def conditions(machine: Machine, arguments: list[str]) -> str:
    """Say by which command, when and where the tables were made."""
    command = shlex.join(["python", "bench/serve.py", *public(arguments)])
    return f"`{command}`, {datetime.now(UTC).date().isoformat()}.  \n{machine}"


def begin(name: str) -> str:
    """Return the line of a page before the table of a measurement."""
    return f"<!-- measured: {name} -->"


END = "<!-- end of measured -->"
"""The line after it."""


def placed(page: str, name: str, text: str) -> str:
    """Return a page with a text in place of the one between the marks of a measurement.

    Raises:
        ValueError: the page has no such marks.
    """
    pattern = re.compile(f"{re.escape(begin(name))}\n.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no line {begin(name)}")
    return pattern.sub(lambda found: f"{begin(name)}\n\n{text}\n\n{END}", page, count=1)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write; return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    args = options(given)
    os.environ["OMP_NUM_THREADS"] = "1"  # of all processes that are compared
    torch.set_num_threads(1)
    names = [name for name in MEASUREMENTS if name in args.what or "all" in args.what]
    prints_json = args.json is not None and str(args.json) == "-"
    where, lock = conditions(machine := describe(), given), Lock(args.lock)
    sections: dict[str, dict[str, Any]] = {}
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        bench = bench_of(args, Path(folder))
        for name in names:
            begun, watch = time.perf_counter(), Watch()
            try:
                with lock.held():
                    section = MEASUREMENTS[name](bench)
            except Exception:
                traceback.print_exc()
                failures.append(name)
                continue
            # All processes of the measurement have ended, so what is left is that of others.
            seconds, others = time.perf_counter() - begun, watch.others()
            log(f"{name}: {seconds:.0f} s")
            if others > BUSY:
                section.notes.append(f"**Other processes used {others:.1f} cores meanwhile.**")
            sections[name] = {**section.as_dict(), "seconds": seconds, "others": others}
            if not prints_json:
                print(f"## {section.title}\n\n{section.markdown()}\n", flush=True)
            # After each one, so that an interrupted run keeps the tables so far.
            if args.write is not None:
                page = args.write.read_text(encoding="utf-8")
                text = f"{section.markdown()}\n\n{where}"
                args.write.write_text(placed(page, name, text), encoding="utf-8")
            record = {"machine": machine.as_dict(), "conditions": where, "results": sections}
            if args.json is not None and not prints_json:
                args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if prints_json:
        print(json.dumps({"machine": machine.as_dict(), "conditions": where, "results": sections}, indent=1))
    if failures:
        log(f"failed: {', '.join(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # services are ended on the way out
    sys.exit(main())
