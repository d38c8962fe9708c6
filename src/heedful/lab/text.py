"""Text reports of experiments for the terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

from heedful.lab.experiment import Experiment, Measured, Result, column_names
from heedful.tables import columns

LABEL = 10  # characters before the text of a paragraph
INDENT = "  "


def number(value: float) -> str:
    """Format with four significant digits, or in full if it is an integer."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if value == round(value) and size < 1e12:
        return f"{round(value):,}"
    if 1e3 <= size < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}" if 1e-3 <= size < 1e3 else f"{value:.2e}"


def cell(value: str | float) -> str:
    """Format a table cell; strings are returned unchanged."""
    return value if isinstance(value, str) else number(value)


def value_of(measured: Measured) -> str:
    """Format a measured value with its unit."""
    return f"{number(measured.value)} {measured.unit}".rstrip()


def listing(experiments: Sequence[Experiment]) -> str:
    """List names, titles and lecture items, under their headings."""
    name, title = (
        max(map(len, texts), default=0)
        for texts in ([e.name for e in experiments], [e.claim.title for e in experiments])
    )
    sections = []
    for heading, own in by_heading(experiments).items():
        lines = [f"{e.name:<{name}}  {e.claim.title:<{title}}  {items(e)}".rstrip() for e in own]
        sections.append([heading, *(INDENT + line for line in lines)] if heading else lines)
    return "\n\n".join("\n".join(section) for section in sections)


def by_heading(experiments: Iterable[Experiment]) -> dict[str, list[Experiment]]:
    """Group experiments by heading; headings are in the order of their first experiments."""
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault(experiment.heading, []).append(experiment)
    return groups


def items(experiment: Experiment) -> str:
    """Format the lecture items: ``item 14`` or ``items 14, 16``."""
    numbers = ", ".join(map(str, experiment.claim.items))
    return f"item{'s' if len(experiment.claim.items) > 1 else ''} {numbers}" if numbers else ""


def report(result: Result, width: int = 80) -> str:
    """Format a full report: claim, source, measurements, table, verdict and correct statement."""
    experiment = result.experiment
    paragraphs = [("claim", experiment.claim.stated), ("source", experiment.claim.source)]
    if result.control:
        paragraphs.append(("control", experiment.claim.control))
    lines = [f"{experiment.name}{' (control)' if result.control else ''}: {experiment.claim.title}", ""]
    lines += [paragraph(name, text, width) for name, text in paragraphs]
    lines += ["", *_figures(result.measured), ""]
    if result.table:
        lines += [*aligned(result.table), ""]
    lines.append(paragraph("verdict", verdict(result), width))
    lines.append(paragraph("", result.statement, width))
    return "\n".join(lines)


def verdict(result: Result) -> str:
    """Format the verdict, followed by the expected one if it differs."""
    expectation = "" if result.as_expected else f" (expected: {result.expected})"
    return f"{result.verdict}{expectation}"


def paragraph(name: str, text: str, width: int) -> str:
    """Wrap text next to its label."""
    first = f"{INDENT}{name:<{LABEL}}"
    return fill(text, max(width, 40), initial_indent=first, subsequent_indent=" " * len(first))


def _figures(measured: Sequence[Measured]) -> list[str]:
    rows: list[dict[str, str | float]] = [
        {
            "measured": value.name,
            " ": value_of(value),
            "expected": "" if value.expected is None else number(value.expected),
        }
        for value in measured
    ]
    return aligned(rows)


def aligned(table: Sequence[Mapping[str, str | float]]) -> list[str]:
    """Format rows below their column names; numeric columns except the first are right-aligned."""
    names, numeric = column_names(table), numeric_columns(table)
    rows = [[cell(row.get(name, "")) for name in names] for row in table]
    right = [i for i, name in enumerate(names) if i > 0 and name in numeric]
    return [INDENT + line for line in columns([names, *rows], right)]


def numeric_columns(table: Sequence[Mapping[str, str | float]]) -> set[str]:
    """Return the names of the columns with numbers."""
    return {name for row in table for name, value in row.items() if cell_is_number(value)}


def cell_is_number(value: str | float) -> bool:
    """Return whether a cell is a number, or a string that starts with a digit."""
    return not isinstance(value, str) or value[:1].isdigit()
