"""Result of an experiment: its outcome, its wall time, and whether the verdict is the expected one."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.lab.experiment import Experiment, Outcome, Size, Verdict
from heedful.typing import JsonObject


@dataclass(frozen=True)
class Result:
    """Result of an experiment or of its control.

    Args:
        experiment: the experiment that was run.
        size: size at which it was run.
        control: whether the control was run.
        outcome: verdict, measurements and panels.
        seconds: wall time; no verdict depends on it.
    """

    experiment: Experiment
    size: Size
    control: bool
    outcome: Outcome
    seconds: float

    @property
    def expected(self) -> Verdict:
        """The expected verdict."""
        return self.experiment.expected[self.control]

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.outcome.verdict == self.expected

    @property
    def name(self) -> str:
        """Name of the experiment, marked if this is the control."""
        return f"{self.experiment.name} (control)" if self.control else self.experiment.name

    def to_dict(self) -> JsonObject:
        """Return a JSON-ready dictionary; NaN and infinite values become null."""
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
    """Run an experiment, or its control."""
    began = time.perf_counter()
    outcome = (experiment.control if control else experiment.run)(size)
    return Result(experiment, size, control, outcome, time.perf_counter() - began)


def as_dict(experiments: Sequence[Experiment], results: Sequence[Result] = ()) -> JsonObject:
    """Return experiments and their results in the format of ``docs/schemas/lab.schema.json``."""
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
    """Return all column names of a table, in order of first appearance."""
    return list(dict.fromkeys(name for row in table for name in row))
