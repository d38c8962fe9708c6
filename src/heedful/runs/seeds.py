"""Runs of one setting with several seeds: which belong together, and how much their scores vary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import mean, stdev
from typing import TYPE_CHECKING

from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.runs.comparing import TrainedRun

SEED = "training.seed"


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a metric over seeds.

    Args:
        mean: the mean.
        deviation: the standard deviation of a sample (divided by n - 1).
    """

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return those of at least two values."""
        return cls(mean(values), stdev(values))

    def __str__(self) -> str:
        """Return ``mean ± deviation``, both with the digits that the deviation leaves."""
        digits = 2 if abs(self.mean) >= 10 else 4
        return f"{self.mean:.{digits}f} ± {self.deviation:.{digits}f}"


@dataclass(frozen=True)
class SeedGroup:
    """Runs whose settings differ in the seed alone.

    Args:
        name: the beginning that their names have in common.
        runs: their names.
        metrics: of their best validations, those that all have.
    """

    name: str
    runs: Sequence[str]
    metrics: Mapping[str, Spread]

    def to_dict(self) -> JsonObject:
        """Return an entry of ``groups`` in ``docs/schemas/comparison.schema.json``."""
        metrics = {
            name: {"mean": spread.mean, "deviation": spread.deviation}
            for name, spread in self.metrics.items()
        }
        return {"runs": [*self.runs], "metrics": metrics}


def seed_groups(runs: Sequence["TrainedRun"]) -> list[SeedGroup]:
    """Return the groups of at least two runs that differ in the seed alone and have been validated."""
    settings = [{key: value for key, value in run.settings.items() if key != SEED} for run in runs]
    numbers: list[list[int]] = []
    for i, own in enumerate(settings):
        group = next((group for group in numbers if settings[group[0]] == own), None)
        if group is None:
            numbers.append([i])
        elif runs[i].settings.get(SEED) not in {runs[j].settings.get(SEED) for j in group}:
            group.append(i)
    found = []
    for group in numbers:
        best = [runs[i].reached for i in group]
        scores = [validation.metrics for validation in best if validation is not None]
        if len(scores) < 2 or len(scores) < len(group):
            continue
        names = [runs[i].name for i in group]
        common = _common_beginning(names).rstrip("-_./ ")
        shared = [name for name in scores[0] if all(name in other for other in scores)]
        metrics = {name: Spread.of([other[name] for other in scores]) for name in shared}
        found.append(SeedGroup(common or ", ".join(names), names, metrics))
    return found


def _common_beginning(names: Sequence[str]) -> str:
    characters = takewhile(lambda column: len({*column}) == 1, zip(*names, strict=False))
    return "".join(column[0] for column in characters)


def seed_table(groups: Sequence[SeedGroup]) -> list[Sequence[str]]:
    """Return the rows of a table with mean ± standard deviation of each metric; empty without groups."""
    if not groups:
        return []
    metrics = list(dict.fromkeys(name for group in groups for name in group.metrics))
    rows = [
        [group.name, str(len(group.runs)), *(str(group.metrics.get(name, "–")) for name in metrics)]
        for group in groups
    ]
    return [["mean ± standard deviation", "seeds", *metrics], *rows]
