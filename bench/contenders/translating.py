"""The course of the decoding benchmarks."""

import argparse
import statistics

from contenders.decoding import Job, contenders
from harness.contender import choose
from harness.machine import has_bf16
from harness.report import Row, Table
from harness.turns import Lock, measure


def table(title: str, job: Job, chosen: argparse.Namespace, lock: Lock) -> Table:
    """Tokens of the best hypotheses a second, from source ids to target ids, the encoder included."""
    entered = choose(contenders(job, chosen.device), chosen.only, has_bf16(chosen.device))
    timings = measure(
        entered, rounds=chosen.rounds, device=chosen.device, patience=chosen.patience, lock=lock
    )
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


def seconds(job: Job, chosen: argparse.Namespace, lock: Lock) -> dict[str, float]:
    """The median time of each contender, by name."""
    entered = choose(contenders(job, chosen.device), chosen.only, has_bf16(chosen.device))
    timings = measure(
        entered, rounds=chosen.rounds, warm_up=2, device=chosen.device, patience=chosen.patience, lock=lock
    )
    return {name: statistics.median(t.seconds) for name, t in timings.items() if t.seconds}
