"""The position in the data, and the infinite stream of updates from there."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heedful.data.plan import Lengths, Samples, plan
from heedful.errors import RequestError
from heedful.typing import JsonMapping, JsonObject


@dataclass(frozen=True)
class Segment:
    """A part of an epoch with one token budget, and how many samples it used."""

    tokens_per_update: int
    samples: int


@dataclass(frozen=True)
class Cursor:
    """The position in an epoch: how many samples were used under each token budget.

    It does not depend on the budget or the number of ranks of the run that resumes from it. The end of an
    epoch is the start of the next.
    """

    epoch: int = 0
    segments: tuple[Segment, ...] = ()

    @property
    def samples(self) -> int:
        """The number of samples used in this epoch."""
        return sum(segment.samples for segment in self.segments)

    def to_dict(self) -> JsonObject:
        """Convert to JSON values; `from_dict` is the inverse."""
        return {"epoch": self.epoch, "segments": [dict(vars(segment)) for segment in self.segments]}

    @classmethod
    def from_dict(cls, record: JsonMapping) -> "Cursor":
        """Restore a cursor from the result of `to_dict`."""
        # Segments of older checkpoints have one more key, for a limit that was never set.
        segments = (Segment(each["tokens_per_update"], each["samples"]) for each in record["segments"])
        return cls(record["epoch"], tuple(segments))


def updates(
    lengths: Lengths, cursor: Cursor, tokens_per_update: int, seed: int
) -> Iterator[tuple[Samples, Cursor]]:
    """Yield updates endlessly, each with the position after it; arguments as for `plan`.

    Resuming from any position yields the same updates as an uninterrupted run. If the budget has changed,
    the samples already used are derived from the old budgets and the rest of the epoch is planned anew, so
    that no sample is repeated or lost. Lengths and seed must be the same.

    Raises:
        RequestError: if the position does not fit these lengths and seed.
        ValueError: if there are no samples.
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
    """Return the remaining updates of the epoch, the completed segments, and the use of the open one."""

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
    """Return the updates after the first ``used`` samples."""
    ends = np.cumsum([0, *(len(samples) for samples in whole)])
    position = int(np.searchsorted(ends, used))
    if position == len(ends) or ends[position] != used:
        raise RequestError(
            f"the saved position in the data ({used} samples) does not fit this corpus: "
            "the data, its filter, the tokenizer or the seed has changed; start a new run"
        )
    return whole[position:]
