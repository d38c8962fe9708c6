"""Assign samples to updates, and the position in the data: pure functions of lengths, budget, seed and epoch.

All ranks and all restarts compute the same plan, so a position is a count of samples and not a count of
batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError, RequestError
from heedful.typing import JsonMapping, JsonObject

Lengths = NDArray[np.integer]
Samples = NDArray[np.int64]

OFFSETS, MASKS, IMAGES, CROPS, INPUTS, CLASSES = 1, 2, 3, 4, 5, 6
"""Separate random streams with the same key from each other and from those of plans."""

POOL_UPDATES = 1024
"""The number of updates in a pool that is sorted by length.

Measured share of non-padding tokens if both sides are padded, at 4096 target tokens an update. Random pairs
(log-normal lengths, mean 25, the sides differing by a factor of standard deviation 0.18): 0.927 with
93 updates in the pool, 0.944 with 184, 0.981 with 1043; a single column: 0.980, 0.988, 0.998.
Multi30k, English to German, 86 updates: 0.966, and 0.987 when each is split into four.
"""


class Draw:
    """Random numbers that depend only on the key and the stream, never on a global generator.

    They are raw Philox output, whose sequence numpy keeps stable between versions.
    """

    def __init__(self, *key: int, stream: int | None = MASKS) -> None:
        spawn_key = () if stream is None else (stream,)
        self._bits = np.random.Philox(np.random.SeedSequence(list(key), spawn_key=spawn_key))

    def raw(self, n: int) -> NDArray[np.uint64]:
        """Draw ``n`` integers of 64 bits."""
        return self._bits.random_raw(n)

    def floats(self, n: int) -> NDArray[np.float64]:
        """Draw ``n`` numbers in [0, 1)."""
        return (self.raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, size: int) -> int:
        """Draw an integer from 0 to ``size`` - 1."""
        return int(self.floats(1)[0] * size)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return the integers from 0 to ``n`` - 1 in random order."""
        return np.argsort(self.raw(n), kind="stable") if n else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class BalancedSampling:
    """The samples of an epoch in which all classes that occur are equally frequent.

    Each of C classes is drawn ceil(N / C) times, so an epoch has about as many samples as the data. The draws
    from a class follow its rounds through all epochs: a round is a permutation of its samples. So none is
    drawn again before all others of its class were: those of a frequent class take several epochs, those of a
    rare class repeat within one.

    Args:
        classes: ``[N]``, the class of each sample.
        seed: determines all randomness together with the epoch.
    """

    classes: NDArray[np.integer]
    seed: int

    def __call__(self, epoch: int) -> Samples:
        """Return the samples of an epoch, sorted; those drawn repeatedly are repeated."""
        counts = np.bincount(self.classes)
        groups = np.split(np.argsort(self.classes, kind="stable"), np.cumsum(counts)[:-1])
        n_draws = -(-len(self.classes) // int(np.count_nonzero(counts)))
        start, end = epoch * n_draws, (epoch + 1) * n_draws
        drawn = [self._drawn(k, group, start, end) for k, group in enumerate(groups) if len(group)]
        return np.sort(np.concatenate(drawn))

    def _drawn(self, number: int, samples: Samples, start: int, end: int) -> Samples:
        """Return draws ``start`` to ``end`` from a class; only a round that is cut needs its permutation."""
        n = len(samples)
        (first, begin), (last, rest) = divmod(start, n), divmod(end, n)
        if first == last:
            return samples[self._round(number, first, n)[begin:rest]]
        cut = self._round(number, first, n)[begin:], self._round(number, last, n)[:rest]
        return np.concatenate([*[samples] * (last - first - 1), *(samples[indices] for indices in cut)])

    def _round(self, number: int, index: int, n: int) -> Samples:
        return Draw(self.seed, index, number, stream=CLASSES).permutation(n)


def plan(
    lengths: Lengths, *, tokens_per_update: int, seed: int, epoch: int, remaining: Samples | None = None
) -> list[Samples]:
    """Split an epoch into updates of samples with similar lengths; each sample is in exactly one.

    The samples are shuffled and split into pools, each pool is sorted by length (equal lengths stay
    in random order), the sorted pools are cut greedily, and the updates are shuffled.

    Args:
        lengths: ``[N]`` or ``[N, columns]``, the number of tokens of each sample on each side.
        tokens_per_update: the maximum number of tokens of an update in the last column. A longer sample gets
            its own update.
        seed: determines all randomness together with ``epoch``; both at least 0.
        epoch: see ``seed``.
        remaining: the samples that are left in the epoch, by default all; one that is repeated is in as many
            updates, or several times in one.

    Raises:
        ValueError: if the budget is below 1.
    """
    if tokens_per_update < 1:
        raise ValueError(f"tokens_per_update must be at least 1, got {tokens_per_update}")
    table = _as_table(lengths)
    samples = np.arange(len(table)) if remaining is None else np.asarray(remaining, dtype=np.int64)
    draw = Draw(seed, epoch, stream=None)
    samples = samples[draw.permutation(len(samples))]
    n_pools = max(1, round(int(table[samples, -1].sum()) / (tokens_per_update * POOL_UPDATES)))
    flips = (draw.raw(n_pools + 1) >> np.uint64(63)).astype(np.int64)
    order = _sort_pools(samples, table, n_pools, flips)
    updates = _split_greedily(order, table, tokens_per_update)
    return [updates[i] for i in draw.permutation(len(updates))]


def in_order(lengths: Lengths, tokens_per_batch: int) -> list[Samples]:
    """Split a corpus into batches of increasing length, for evaluation; lengths and budget as for `plan`."""
    table = _as_table(lengths)
    return _split_greedily(_by_length(np.arange(len(table)), table, flip=0), table, tokens_per_batch)


def split(samples: Samples, lengths: Lengths, n_parts: int) -> list[Samples]:
    """Split an update into micro-batches, one for each rank and accumulation step.

    The samples are sorted by length and cut into parts of about equal numbers of tokens (of all sides): no
    part has more than an equal share plus one sample. A part is empty only if there are fewer samples than
    parts.

    Args:
        samples: the sample numbers of one update.
        lengths: ``[N]`` or ``[N, columns]`` of the whole corpus.
        n_parts: the number of parts.

    Raises:
        ValueError: if there is less than one part.
    """
    if n_parts < 1:
        raise ValueError(f"n_parts must be at least 1, got {n_parts}")
    table = _as_table(lengths)
    ordered = _by_length(np.sort(samples), table, flip=0)
    sizes = table[ordered].sum(axis=1).astype(np.int64)
    ends = np.cumsum(sizes)
    # A sample belongs to the part that contains its middle; scaled by 2 n_parts to stay in integers.
    middles = (2 * ends - sizes) * n_parts
    bounds = np.searchsorted(middles, 2 * sizes.sum() * np.arange(1, n_parts))
    return np.split(ordered, _keep_apart(bounds, len(ordered), n_parts))


def _as_table(lengths: Lengths) -> Lengths:
    """Return lengths as ``[N, columns]``."""
    table = np.asarray(lengths)
    return table[:, None] if table.ndim == 1 else table


def _sort_pools(samples: Samples, table: Lengths, n_pools: int, flips: Samples) -> Samples:
    """Sort pools alternately up and down, so that an update across two pools has similar lengths."""
    pools = []
    for number, pool in enumerate(np.array_split(samples, n_pools)):
        ordered = _by_length(pool, table, flip=int(flips[number]))
        pools.append(ordered if (number + flips[-1]) % 2 == 0 else ordered[::-1])
    return np.concatenate(pools)


def _by_length(samples: Samples, table: Lengths, *, flip: int) -> Samples:
    """Sort by the longest side, then by how much longer the first side is than the last.

    The second key alternately ascends and descends from one longest side to the next (``flip`` selects the
    order of the first), so that neighbours are similar on both sides even where the first key changes. Ties
    keep their order.
    """
    longest = table[samples].max(axis=1)
    excess = table[samples, 0].astype(np.int64) - table[samples, -1]
    return samples[np.lexsort((np.where((longest + flip) % 2 == 0, excess, -excess), longest))]


def _split_greedily(order: Samples, table: Lengths, budget: int) -> list[Samples]:
    """Cut ``order`` greedily into runs, each as long as the budget allows and at least one sample."""
    ends = np.cumsum(table[order, -1], dtype=np.int64)
    updates, start = [], 0
    while start < len(order):
        tokens_before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, tokens_before + budget, side="right")))
        updates.append(order[start:end])
        start = end
    return updates


def _keep_apart(bounds: Samples, n_samples: int, n_parts: int) -> Samples:
    """Move bounds so that every part gets a sample, or only the first parts if there are too few."""
    parts = np.arange(1, n_parts)
    if n_samples < n_parts:
        return np.minimum(parts, n_samples)
    increasing = np.maximum.accumulate(bounds - parts) + parts  # strictly increasing
    return np.minimum(np.maximum(increasing, parts), n_samples - n_parts + parts)


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
        """Restore a cursor from the result of `to_dict`.

        Raises:
            DataError: it has no segments: the data had another form.
        """
        if record.get("segments") is None:
            raise DataError("the position in the training data (training.cursor) has no segments")
        # Segments of older checkpoints have one more key, for a limit that was never set.
        segments = (
            Segment(segment["tokens_per_update"], segment["samples"]) for segment in record["segments"]
        )
        return cls(record["epoch"], tuple(segments))


def updates(
    lengths: Lengths,
    cursor: Cursor,
    tokens_per_update: int,
    seed: int,
    sampling: Callable[[int], Samples] | None = None,
) -> Iterator[tuple[Samples, Cursor]]:
    """Yield updates endlessly, each with the position after it; arguments as for `plan`.

    ``sampling`` returns the samples of an epoch (`BalancedSampling`); by default, each sample once.

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
        samples_of_epoch = np.arange(len(lengths)) if sampling is None else sampling(cursor.epoch)
        remaining, completed, n_used = _resume(lengths, samples_of_epoch, cursor, tokens_per_update, seed)
        for index, samples in enumerate(remaining, start=1):
            n_used += len(samples)
            next_cursor = Cursor(cursor.epoch, (*completed, Segment(tokens_per_update, n_used)))
            yield samples, Cursor(cursor.epoch + 1) if index == len(remaining) else next_cursor
        cursor = Cursor(cursor.epoch + 1)


def _resume(
    lengths: Lengths, remaining: Samples, cursor: Cursor, tokens_per_update: int, seed: int
) -> tuple[list[Samples], tuple[Segment, ...], int]:
    """Return the remaining updates of the epoch, the completed segments, and the use of the open one.

    ``remaining`` are all samples of the epoch.
    """

    def planned(tokens: int, remaining: Samples) -> list[Samples]:
        return plan(lengths, tokens_per_update=tokens, seed=seed, epoch=cursor.epoch, remaining=remaining)

    remaining_updates: list[Samples] = []
    for segment in cursor.segments:
        remaining_updates = _updates_after(planned(segment.tokens_per_update, remaining), segment.samples)
        remaining = np.sort(np.concatenate([remaining[:0], *remaining_updates]))
    open_segment = cursor.segments[-1:]
    if open_segment and open_segment[0].tokens_per_update == tokens_per_update:
        return remaining_updates, cursor.segments[:-1], open_segment[0].samples
    return planned(tokens_per_update, remaining), cursor.segments, 0


def _updates_after(epoch_updates: list[Samples], n_used: int) -> list[Samples]:
    """Return the updates after the first ``n_used`` samples."""
    ends = np.cumsum([0, *(len(samples) for samples in epoch_updates)])
    index = int(np.searchsorted(ends, n_used))
    if index == len(ends) or ends[index] != n_used:
        raise RequestError(
            f"the saved position in the data ({n_used} samples) does not fit this corpus: "
            "the data, its filter, the tokenizer or the seed has changed; start a new run"
        )
    return epoch_updates[index:]
