"""Training data: samples are grouped into updates, split into micro-batches and collated."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from heedful.data.batch import Batch
from heedful.data.plan import Cursor, Lengths, Samples, plan, split, updates
from heedful.typing import JsonMapping


@dataclass(frozen=True)
class PlannedData:
    """Samples of known lengths, grouped into updates by `heedful.data.plan`.

    Args:
        lengths: ``[N]`` or ``[N, columns]``, number of tokens of each sample on each side.
        make: builds a batch from sample indices and an epoch.
        tokens_per_update: the token budget of an update.
        seed: seed of the sample order.
    """

    lengths: Lengths
    make: Callable[[Sequence[int], int], Batch]
    tokens_per_update: int
    seed: int

    def epoch(self, number: int) -> list[Samples]:
        """Return all updates of an epoch."""
        return plan(self.lengths, tokens_per_update=self.tokens_per_update, seed=self.seed, epoch=number)

    def updates(self, cursor: JsonMapping | None) -> Iterator[tuple[Sequence[int], JsonMapping]]:
        """Yield the samples of each update from ``cursor`` on (None: the beginning), and the cursor after it.

        A cursor is a JSON object with an ``epoch``; after the last update of an epoch it is the start of the
        next one. No update has samples of two epochs. Resuming from a cursor yields the same updates as an
        uninterrupted iteration.
        """
        start = Cursor() if cursor is None else Cursor.from_dict(cursor)
        for samples, after in updates(self.lengths, start, self.tokens_per_update, self.seed):
            yield samples.tolist(), after.to_dict()

    def split(self, samples: Sequence[int], n_parts: int) -> Sequence[Sequence[int]]:
        """Split the samples of an update into micro-batches; some are empty if there are too few samples."""
        # numpy also accepts a list of sample indices.
        return [part.tolist() for part in split(samples, self.lengths, n_parts)]  # type: ignore[arg-type]

    def collate(self, samples: Sequence[int], epoch: int) -> Batch:
        """Build a batch on the CPU; its randomness depends only on seed, epoch and sample."""
        return self.make(samples, epoch)
