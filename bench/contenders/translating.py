"""Run a decoding benchmark."""

import argparse
import statistics

from contenders import ours
from contenders.decoding import Job, contenders
from harness.contender import Contender, choose
from harness.machine import has_bf16
from harness.report import Row, Table
from harness.runners import ContenderFactory
from harness.turns import Lock, Timing, measure


def table(title: str, job: Job, args: argparse.Namespace, lock: Lock) -> Table:
    """Measure tokens per second of the best hypotheses, from source ids to target ids, encoder included."""
    entered, timings = _measure(job, args, lock)
    tokens = job.sentences * job.new_tokens
    rows = [
        Row(
            c.library,
            c.setting,
            [tokens / s for s in timing.seconds],
            disturbed=timing.disturbed,
            failure=timing.failure,
        )
        for c in entered
        for timing in [timings[c.name]]
    ]
    return Table(title, "tokens per second", rows)


def seconds(job: Job, args: argparse.Namespace, lock: Lock) -> dict[str, float]:
    """Return the median seconds of each contender by name."""
    _, timings = _measure(job, args, lock)
    return {name: statistics.median(t.seconds) for name, t in timings.items() if t.seconds}


def _measure(job: Job, args: argparse.Namespace, lock: Lock) -> tuple[list[Contender], dict[str, Timing]]:
    factory = ContenderFactory(contenders, (job, args.device), None if args.default_malloc else ours.prepare)
    entered = choose(contenders(job, args.device), args.only, has_bf16(args.device))
    timings = measure(
        entered, rounds=args.rounds, factory=factory, device=args.device, patience=args.patience, lock=lock
    )
    return entered, timings
