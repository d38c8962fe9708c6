"""Where the loop gets its samples from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heedful.data.batch import Batch
from heedful.data.cursor import Cursor, updates
from heedful.data.plan import Lengths, Samples, plan, split


class TrainingData(Protocol):
    """Samples grouped into updates, and batches made of them."""

    def updates(self, cursor: Mapping[str, Any] | None) -> Iterator[tuple[Sequence[int], Mapping[str, Any]]]:
        """The samples of each update from ``cursor`` on (None: the beginning), and the cursor after it.

        A cursor is JSON and has an ``epoch``; that of a finished epoch is the start of the next one.
        No update holds samples of two epochs. Going on from a cursor gives what would have come.
        """
        ...

    def split(self, samples: Sequence[int], n_parts: int) -> Sequence[Sequence[int]]:
        """The samples of an update as micro-batches; some are empty if there are too few samples."""
        ...

    def collate(self, samples: Sequence[int], epoch: int) -> Batch:
        """A batch on the CPU; whatever is random in it is a function of seed, epoch and sample."""
        ...


@dataclass(frozen=True)
class PlannedData:
    """A corpus of known lengths, grouped by `heedful.data.plan`.

    Args:
        lengths: ``[N]`` or ``[N, columns]``, tokens of each sample on each side.
        make: builds the batch of some samples in some epoch.
        tokens_per_update: the budget of an update.
        seed: of the order.
    """

    lengths: Lengths
    make: Callable[[Sequence[int], int], Batch]
    tokens_per_update: int
    seed: int

    def epoch(self, number: int) -> list[Samples]:
        """The updates of an epoch from its beginning."""
        return plan(self.lengths, tokens_per_update=self.tokens_per_update, seed=self.seed, epoch=number)

    def updates(self, cursor: Mapping[str, Any] | None) -> Iterator[tuple[Sequence[int], Mapping[str, Any]]]:
        """See `TrainingData`."""
        start = Cursor() if cursor is None else Cursor.from_dict(cursor)
        for samples, after in updates(self.lengths, start, self.tokens_per_update, self.seed):
            yield samples.tolist(), after.to_dict()

    def split(self, samples: Sequence[int], n_parts: int) -> Sequence[Sequence[int]]:
        """See `TrainingData`."""
        # numpy takes a list of sample numbers as it is.
        return [part.tolist() for part in split(samples, self.lengths, n_parts)]  # type: ignore[arg-type]

    def collate(self, samples: Sequence[int], epoch: int) -> Batch:
        """See `TrainingData`."""
        return self.make(samples, epoch)
