"""What an experiment of the lab is: a claim, a measurement, a verdict, and a control that says the opposite.

A verdict never rests on a clock: where a claim is about time, wall times are shown, and operation counts and
the depth of dependencies decide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from heedful.lab.drawing import Panel

Size = Literal["short", "long"]
"""``short``: a few seconds, enough for the verdict; ``long``: up to a few minutes, for the image."""

Verdict = Literal["holds", "holds with conditions", "is wrong"]


@dataclass(frozen=True)
class Measured:
    """One figure.

    Args:
        name: what was measured.
        value: of it.
        unit: of the value; nothing for a pure number.
        expected: what a formula or a paper says it is, where one does.
    """

    name: str
    value: float
    unit: str = ""
    expected: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What came out.

    Args:
        verdict: on the claim.
        statement: the correct statement: the claim, with its conditions, or what is true instead.
        measured: what the verdict rests on, first the most telling.
        table: further rows under column names, for people.
        panels: of the image, from left to right.
    """

    verdict: Verdict
    statement: str
    measured: Sequence[Measured]
    table: Sequence[Mapping[str, str | float]] = ()
    panels: Sequence[Panel] = ()


@dataclass(frozen=True)
class Experiment:
    """A claim that can be checked.

    Args:
        name: of the experiment, in small letters with hyphens.
        title: a line for people.
        claim: as the lectures have it.
        source: where it stands: the lecture (S0 to S4), and the paper with its section.
        items: numbers of the lectures' items (`docs/lectures.yaml`) that it is about.
        run: measures and judges.
        control: the same under a condition in which another verdict must come out.
        changed: what the control changes.
        expected: the verdict, and that of the control.
        asked: whether the lecture only asks, so that a wrong claim is no error of its.
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
        """The claim, and whether it is a question."""
        return f"{self.claim} (A question.)" if self.asked else self.claim
