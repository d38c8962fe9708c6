"""The position in the data, and the endless stream of updates from there on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful.data.plan import Lengths, Samples, plan
from heedful.errors import RequestError


@dataclass(frozen=True)
class Segment:
    """A stretch of an epoch under one budget: how many samples it used."""

    tokens_per_update: int
    samples: int


@dataclass(frozen=True)
class Cursor:
    """What of an epoch has been used: counts of samples, under the budgets that ordered them.

    It does not depend on the budget or the number of ranks of the run that goes on from it. A
    finished epoch is the start of the next one.
    """

    epoch: int = 0
    segments: tuple[Segment, ...] = ()

    @property
    def samples(self) -> int:
        """Samples used in this epoch."""
        return sum(segment.samples for segment in self.segments)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` is the inverse."""
        return {"epoch": self.epoch, "segments": [dict(vars(segment)) for segment in self.segments]}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Cursor":
        """From what `to_dict` made."""
        # Those of older checkpoints have a further key, of a bound that was never set.
        segments = (Segment(each["tokens_per_update"], each["samples"]) for each in record["segments"])
        return cls(record["epoch"], tuple(segments))


def updates(
    lengths: Lengths, cursor: Cursor, tokens_per_update: int, seed: int
) -> Iterator[tuple[Samples, Cursor]]:
    """Updates without end, each with the position after it; arguments as for `plan`.

    Going on from any position gives what would have come without the stop. When the budget has
    changed, what the epoch has used is worked out under the old budgets, and the rest of the epoch
    is planned anew: no sample is repeated or lost. Lengths and seed must be the same.

    Raises:
        RequestError: the position does not fit these lengths and seed.
        ValueError: there are no samples.
    """
    if len(lengths) == 0:
        raise ValueError("no samples to plan updates from")
    while True:
        rest, done, used = _resume(lengths, cursor, tokens_per_update, seed)
        for position, samples in enumerate(rest, start=1):
            used += len(samples)
            after = Cursor(cursor.epoch, (*done, Segment(tokens_per_update, used)))
            yield samples, Cursor(cursor.epoch + 1) if position == len(rest) else after
        cursor = Cursor(cursor.epoch + 1)


def _resume(
    lengths: Lengths, cursor: Cursor, tokens_per_update: int, seed: int
) -> tuple[list[Samples], tuple[Segment, ...], int]:
    """The updates left in the epoch, the segments closed before them, and the use of the open one."""

    def planned(tokens: int, remaining: Samples) -> list[Samples]:
        return plan(lengths, tokens_per_update=tokens, seed=seed, epoch=cursor.epoch, remaining=remaining)

    remaining: Samples = np.arange(len(lengths))
    rest: list[Samples] = []
    for segment in cursor.segments:
        rest = _after(planned(segment.tokens_per_update, remaining), segment.samples)
        remaining = np.sort(np.concatenate([remaining[:0], *rest]))
    last = cursor.segments[-1:]
    if last and last[0].tokens_per_update == tokens_per_update:
        return rest, cursor.segments[:-1], last[0].samples
    return planned(tokens_per_update, remaining), cursor.segments, 0


def _after(whole: list[Samples], used: int) -> list[Samples]:
    """The updates that follow the first ``used`` samples."""
    ends = np.cumsum([0, *(len(samples) for samples in whole)])
    position = int(np.searchsorted(ends, used))
    if position == len(ends) or ends[position] != used:
        raise RequestError(
            f"the saved position in the data ({used} samples) does not fit this corpus: "
            "the data, its filter or tokenizer, or the seed has changed since; start a new run"
        )
    return whole[position:]
