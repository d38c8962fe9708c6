"""Experiments of the lab: a claim, a measurement, a verdict, and a control that must give another verdict.

A verdict never depends on wall time. For claims about time, wall times are reported, but operation counts and
the depth of dependencies decide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from heedful.lab.drawing import Panel

Size = Literal["short", "long"]
"""``short``: a few seconds, enough for the verdict; ``long``: up to a few minutes, for the figure."""

Verdict = Literal["holds", "holds with conditions", "is wrong"]


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
class Outcome:
    """Outcome of an experiment.

    Args:
        verdict: verdict on the claim.
        statement: the correct statement: the claim with its conditions, or what is true instead.
        measured: the measurements behind the verdict, most informative first.
        table: further rows by column name, for readers.
        panels: panels of the figure, from left to right.
    """

    verdict: Verdict
    statement: str
    measured: Sequence[Measured]
    table: Sequence[Mapping[str, str | float]] = ()
    panels: Sequence[Panel] = ()


@dataclass(frozen=True)
class Experiment:
    """A claim that can be tested.

    Args:
        name: lower-case name with hyphens.
        title: one-line title.
        claim: the claim as stated in the lectures.
        source: where it is stated: the lecture (S0 to S4), and the paper with its section.
        items: numbers of the lectures' items (`docs/lectures.yaml`) it belongs to.
        run: measures and returns the verdict.
        control: the same measurement under a condition that must lead to a different verdict.
        changed: what the control changes.
        expected: expected verdicts of the experiment and of its control.
        asked: whether the lecture asks a question, so that a wrong claim is not an error of the lecture.
    """

    name: str
    title: str
    claim: str
    source: str
    items: tuple[int, ...]
    run: Callable[[Size], Outcome]
    control: Callable[[Size], Outcome]
    changed: str
    expected: tuple[Verdict, Verdict] = field(default=("holds", "is wrong"))
    asked: bool = False

    @property
    def stated(self) -> str:
        """The claim, marked if it is a question."""
        return f"{self.claim} (A question.)" if self.asked else self.claim
