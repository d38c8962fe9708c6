"""The requests that wait in an engine, and which of them are answered together.

There is no time for which a batch waits: a batch is what waits when the engine is free. The oldest request
determines the batch, so that none waits forever; those with the same verb and options that wait, too, join it
up to a number of tokens. Answers do not depend on it: models on the native engine give the same bits in every
batch, and what is drawn at random is drawn by the numbers that a request has alone.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Job:
    """A request that waits.

    Args:
        number: of the request.
        cost: its tokens, with all hypotheses.
        key: requests with an equal key may be answered together; None: this one is answered alone.
        content: what is to be done.
    """

    number: int
    cost: int
    key: Hashable
    content: Any = None


@dataclass
class JobQueue:
    """Jobs in the order in which they came.

    Args:
        budget: maximum cost of a batch; a job that costs more is answered alone.
    """

    budget: int
    _jobs: dict[int, Job] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Add a job at the end."""
        self._jobs[job.number] = job

    def remove(self, number: int) -> bool:
        """Remove a job that nobody waits for any more; return whether it was here."""
        return self._jobs.pop(number, None) is not None

    def next_batch(self) -> list[Job]:
        """Remove and return the jobs to answer next, in their order; empty if none waits."""
        jobs = iter(self._jobs.values())
        first = next(jobs, None)
        if first is None:
            return []
        batch = [first]
        if first.key is not None:
            batch += _fitting(jobs, lambda job: job.key == first.key, self.budget - first.cost)
        for job in batch:
            del self._jobs[job.number]
        return batch


def _fitting(jobs: Iterable[Job], joins: Callable[[Job], bool], budget: int) -> list[Job]:
    """Return the jobs that join a batch with this budget left, without letting one overtake another."""
    found = []
    for job in jobs:
        if joins(job):
            if job.cost > budget:
                break
            budget -= job.cost
            found.append(job)
    return found
