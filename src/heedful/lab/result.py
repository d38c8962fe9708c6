"""An experiment that was made: its outcome, how long it took, whether it is what was expected."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.lab.experiment import Experiment, Outcome, Size, Verdict
from heedful.typing import JsonObject


@dataclass(frozen=True)
class Result:
    """What came out of an experiment, or of its control.

    Args:
        experiment: that was made.
        size: in which form.
        control: whether this is its control.
        outcome: what came out.
        seconds: of wall time; nothing rests on it.
    """

    experiment: Experiment
    size: Size
    control: bool
    outcome: Outcome
    seconds: float

    @property
    def expected(self) -> Verdict:
        """The verdict that must come out."""
        return self.experiment.expected[self.control]

    @property
    def as_expected(self) -> bool:
        """Whether it did."""
        return self.outcome.verdict == self.expected

    @property
    def name(self) -> str:
        """Of the experiment, and whether it is the control."""
        return f"{self.experiment.name} (control)" if self.control else self.experiment.name

    def to_dict(self) -> JsonObject:
        """JSON-ready; numbers that JSON has not are null."""
        return {
            "control": self.control,
            "size": self.size,
            "verdict": self.outcome.verdict,
            "expected": self.expected,
            "statement": self.outcome.statement,
            "measured": [
                {
                    "name": each.name,
                    "value": _finite(each.value),
                    "unit": each.unit,
                    "expected": None if each.expected is None else _finite(each.expected),
                }
                for each in self.outcome.measured
            ],
            "table": [{column: _cell(value) for column, value in row.items()} for row in self.outcome.table],
            "seconds": round(self.seconds, 3),
        }


def perform(experiment: Experiment, size: Size, *, control: bool = False) -> Result:
    """Make an experiment, or its control."""
    began = time.perf_counter()
    outcome = (experiment.control if control else experiment.run)(size)
    return Result(experiment, size, control, outcome, time.perf_counter() - began)


def as_dict(experiments: Sequence[Experiment], results: Sequence[Result] = ()) -> JsonObject:
    """Experiments and what came out of them, as ``docs/schemas/lab.schema.json`` has it."""
    return {
        "version": 1,
        "experiments": [
            {
                "name": each.name,
                "title": each.title,
                "claim": each.stated,
                "source": each.source,
                "items": list(each.items),
                "changed": each.changed,
                "results": [result.to_dict() for result in results if result.experiment is each],
            }
            for each in experiments
        ],
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _cell(value: str | float) -> str | float | None:
    return value if isinstance(value, str) else _finite(value)


def columns(table: Sequence[Mapping[str, str | float]]) -> list[str]:
    """All column names of a table, in the order in which its rows bring them."""
    return list(dict.fromkeys(name for row in table for name in row))
