"""The course of the decoding benchmarks."""

import argparse
import statistics

from contenders import ours
from contenders.decoding import Job, contenders
from harness.contender import Contender, choose
from harness.machine import has_bf16
from harness.report import Row, Table
from harness.seats import Field
from harness.turns import Lock, Timing, measure


def table(title: str, job: Job, chosen: argparse.Namespace, lock: Lock) -> Table:
    """Tokens of the best hypotheses a second, from source ids to target ids, the encoder included."""
    entered, timings = _measure(job, chosen, lock)
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
    _, timings = _measure(job, chosen, lock)
    return {name: statistics.median(t.seconds) for name, t in timings.items() if t.seconds}


def _measure(job: Job, chosen: argparse.Namespace, lock: Lock) -> tuple[list[Contender], dict[str, Timing]]:
    field = Field(contenders, (job, chosen.device), None if chosen.default_malloc else ours.prepare)
    entered = choose(contenders(job, chosen.device), chosen.only, has_bf16(chosen.device))
    timings = measure(
        entered, rounds=chosen.rounds, apart=field, device=chosen.device, patience=chosen.patience, lock=lock
    )
    return entered, timings
