"""What was measured, as tables and as JSON."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.report import grid, number


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Args:
        what: what it is.
        values: its value in each repeat; the table has the median, and the range of all.
        unit: its unit.
        at_most, at_least: the aim, if there is one; the median is compared with it.
    """

    what: str
    values: Sequence[float]
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def median(self) -> float:
        """The number in the table."""
        return statistics.median(self.values) if self.values else float("nan")

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is reached; None: there is none."""
        if self.at_most is None and self.at_least is None:
            return None
        above = self.at_least is None or self.median >= self.at_least
        return above and (self.at_most is None or self.median <= self.at_most)

    def cells(self) -> list[str]:
        """Return the cells of its row."""
        spread = f"{shown(min(self.values))}–{shown(max(self.values))}" if len(self.values) > 1 else ""
        aims = [f"≤ {shown(self.at_most)}"] if self.at_most is not None else []
        aims += [f"≥ {shown(self.at_least)}"] if self.at_least is not None else []
        aim = " and ".join(aims) + ("" if self.is_met is not False else ": **missed**")
        return [self.what, f"{shown(self.median)} {self.unit}".strip(), spread, aim]


@dataclass
class Section:
    """One measurement: its table, and what must be known to read it.

    Args:
        title: heading.
        notes: sentences above the table.
        figures: rows of the table.
    """

    title: str
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def add(
        self,
        what: str,
        values: "float | Sequence[float]",
        unit: str = "",
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Add a row."""
        numbers = [float(values)] if isinstance(values, int | float) else [*map(float, values)]
        self.figures.append(Figure(what, numbers, unit, at_most, at_least))

    def markdown(self) -> str:
        """Return notes and table."""
        table = grid(["", "median", "range", "aim"], [figure.cells() for figure in self.figures])
        return "\n\n".join([" ".join(self.notes), table] if self.notes else [table])

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, which has no number for what is not one."""
        found = asdict(self)
        for figure, row in zip(self.figures, found["figures"], strict=True):
            row["values"] = [value if math.isfinite(value) else None for value in figure.values]
            row["is_met"] = figure.is_met
        return found


def shown(value: float) -> str:
    """Format a number; whole ones without decimals."""
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else number(value)
