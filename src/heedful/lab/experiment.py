"""Experiments of the lab: a claim, a measurement, a verdict, and a control that must give another verdict.

A measurement is a function of the size that returns a `Series`. It is marked by `measures` with the name of
the experiment, under which ``claims/*.yaml`` has the claim and the rules that decide about it.

A verdict never depends on wall time. For claims about time, wall times are reported, but operation counts and
the depth of dependencies decide.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from heedful.lab.claims import Claim, Verdict
from heedful.lab.drawing import Name, Panel
from heedful.typing import JsonObject

Size = Literal["short", "long"]
"""``short``: a few seconds, enough for the verdict; ``long``: up to a few minutes, for the figure."""


@dataclass(frozen=True)
class Measured:
    """A measured value.

    Args:
        name: the measured quantity.
        value: its value.
        unit: unit of the value; empty for a dimensionless number.
        expected: value given by a formula or a paper, if any.
    """

    name: str
    value: float
    unit: str = ""
    expected: float | None = None


@dataclass(frozen=True)
class Series:
    """What an experiment or its control measured.

    Args:
        values: values by identifier, for the rules and statements of the claim, most informative first;
            readers see those that are `Measured`.
        rows: rows of a table by column name, for readers.
        panels: panels of the figure, from left to right.
    """

    values: Mapping[str, object]
    rows: Sequence[Mapping[str, str | float]] = ()
    panels: Sequence[Panel] = ()


Value = TypeVar("Value")


def named_each(pattern: str, values: Mapping[Name, Value]) -> dict[str, Value]:
    """Return the values under longer names; ``{}`` in the pattern stands for the name of each."""
    return {pattern.format(name): value for name, value in values.items()}


def table_of(columns: Mapping[str, Iterable[str | float]]) -> list[dict[str, str | float]]:
    """Return the rows of a table given by its columns, which must be equally long.

    A mapping as a column stands for its keys.
    """
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def measured_each(
    name: str,
    values: Mapping[Name, float],
    unit: str = "",
    expected: Mapping[str, float] | float | None = None,
) -> dict[str, Measured]:
    """Return the same quantity of several things; ``{}`` in its name stands for theirs.

    Args:
        name: the measured quantity.
        values: value by name of the thing.
        unit: unit of the values.
        expected: expected value of all, or of some by name.
    """
    expected_by_name = expected if isinstance(expected, Mapping) else dict.fromkeys(values, expected)
    full_names = {key: name.format(key) for key in values}
    return {
        full_names[key]: Measured(full_names[key], value, unit, expected_by_name.get(key))
        for key, value in values.items()
    }


Measure = TypeVar("Measure", bound=Callable[..., Series])

MEASUREMENTS: dict[str, tuple[Callable[..., Series], tuple[dict[str, object], dict[str, object]]]] = {}
"""For each experiment, the function that measures, and its arguments for the experiment and its control."""


def measures(name: str, /, **arguments: tuple[object, object]) -> Callable[[Measure], Measure]:
    """Mark a function of the size as the measurement of a claim; it can be used for several claims.

    Args:
        name: name of the experiment, under which ``claims/*.yaml`` has the claim.
        arguments: arguments of the function: each as a pair of its value in the experiment and its value in
            the control.
    """

    def mark(measure: Measure) -> Measure:
        if name in MEASUREMENTS:
            raise ValueError(f"experiment names must be unique, but two functions measure {name}")
        run_arguments, control_arguments = ({key: pair[i] for key, pair in arguments.items()} for i in (0, 1))
        MEASUREMENTS[name] = measure, (run_arguments, control_arguments)
        return measure

    return mark


@dataclass(frozen=True)
class Experiment:
    """A claim that can be tested.

    Args:
        name: lower-case name with hyphens.
        claim: the claim, and the expected verdicts.
        measure: the function that measures, given the size.
        arguments: its further arguments for the experiment and for its control, a condition that must lead to
            a different verdict.
        heading: heading of the lab under which it is listed.
    """

    name: str
    claim: Claim
    measure: Callable[..., Series]
    arguments: tuple[Mapping[str, object], Mapping[str, object]]
    heading: str = ""

    def run(self, size: Size, *, control: bool = False) -> "Result":
        """Measure, and judge the claim by what was measured; ``control``: under the changed condition."""
        start = time.perf_counter()
        series = self.measure(size=size, **self.arguments[control])
        seconds = time.perf_counter() - start
        measured = [value for value in series.values.values() if isinstance(value, Measured)]
        verdict, statement = self.claim.judge(
            {
                name: value.value if isinstance(value, Measured) else value
                for name, value in series.values.items()
            }
        )
        return Result(self, size, control, verdict, statement, measured, series.rows, series.panels, seconds)


@dataclass(frozen=True)
class Result:
    """Result of an experiment or of its control.

    Args:
        experiment: the experiment.
        size: size at which it was run.
        control: whether the control was run.
        verdict: verdict on the claim.
        statement: the correct statement: the claim with its conditions, or what is true instead.
        measured: the measurements behind the verdict, most informative first.
        table: further rows by column name, for readers.
        panels: panels of the figure, from left to right.
        seconds: wall time; no verdict depends on it.
    """

    experiment: Experiment
    size: Size
    control: bool
    verdict: Verdict
    statement: str
    measured: Sequence[Measured]
    table: Sequence[Mapping[str, str | float]]
    panels: Sequence[Panel]
    seconds: float

    @property
    def expected(self) -> Verdict:
        """The expected verdict."""
        return self.experiment.claim.expected[self.control]

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict == self.expected

    @property
    def name(self) -> str:
        """Name of the experiment, marked if this is the control."""
        return f"{self.experiment.name} (control)" if self.control else self.experiment.name

    def to_dict(self) -> JsonObject:
        """Return a JSON-ready dictionary; NaN and infinite values become null."""
        return {
            "control": self.control,
            "size": self.size,
            "verdict": self.verdict,
            "expected": self.expected,
            "statement": self.statement,
            "measured": [
                {
                    "name": measured.name,
                    "value": _finite(measured.value),
                    "unit": measured.unit,
                    "expected": None if measured.expected is None else _finite(measured.expected),
                }
                for measured in self.measured
            ],
            "table": [{column: _finite(value) for column, value in row.items()} for row in self.table],
            "seconds": round(self.seconds, 3),
        }


def as_dict(experiments: Sequence[Experiment], results: Sequence[Result] = ()) -> JsonObject:
    """Return experiments and their results in the format of ``docs/schemas/lab.schema.json``."""
    return {
        "version": 1,
        "experiments": [
            {
                "name": experiment.name,
                "title": experiment.claim.title,
                "claim": experiment.claim.stated,
                "source": experiment.claim.source,
                "items": list(experiment.claim.items),
                "changed": experiment.claim.control,
                "results": [result.to_dict() for result in results if result.experiment is experiment],
            }
            for experiment in experiments
        ],
    }


def _finite(value: str | float) -> str | float | None:
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else None


def column_names(table: Sequence[Mapping[str, str | float]]) -> list[str]:
    """Return all column names of a table, in order of first appearance."""
    return list(dict.fromkeys(name for row in table for name in row))
