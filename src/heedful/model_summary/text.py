"""Format a model summary as text: cells of its table, and aligned columns."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from heedful.memory import gibibytes, machine_memory

if TYPE_CHECKING:
    from heedful.model_summary.summary import ModelSummary, Row

COLUMNS = ("part", "formula", "each", "times", "parameters", "FLOPs/token")
LEFT = 2  # number of left-aligned columns; the others are numbers


def cells(row: "Row") -> tuple[str, ...]:
    """Return the cells of a row of the table."""
    line = row.line
    return (
        "  " * row.depth + line.name,
        line.formula,
        f"{line.each:,}" if line.times > 1 else "",
        f"x {line.times}" if line.times > 1 else "",
        f"{line.parameters:,}",
        f"{row.flops_per_token:,.0f}",
    )


def remarks(summary: "ModelSummary") -> list[str]:
    """Return the lines below the table."""
    lengths = f"{summary.target_length} tokens"
    if summary.source_length != summary.target_length:
        lengths = f"{summary.source_length} source and {summary.target_length} target tokens"
    lines = [
        *summary.notes,
        f"FLOPs for each target token, in sentences of {lengths}; training takes about 3 times as many: "
        f"{summary.training_flops_per_token:,.0f}",
    ]
    if summary.layers:
        lecture = " (lecture S0: 42, as 6 x 3 + 6 x 4)" if summary.layers == 42 else ""
        lines.append(f"{summary.layers} layers, with two for each feed-forward{lecture}")
    if summary.trainable != summary.parameters:
        lines.append(f"{summary.trainable:,} of the parameters are trained")
    return lines


def memory(summary: "ModelSummary") -> list[tuple[str, str, str]]:
    """Return name, size and formula of each part of training's memory, of the sum, and of resident memory."""
    rows = [(part.name, _bytes(part.bytes), part.formula) for part in summary.memory]
    total, available = sum(part.bytes for part in summary.memory), machine_memory()
    explanation = "on a CPU: also freed blocks that no other tensor fits"
    if available is not None and summary.resident > available:
        explanation += f"; more than this machine's {gibibytes(available)}"
    return [*rows, ("sum", _bytes(total), ""), ("resident", _bytes(summary.resident), explanation)]


def timing(summary: "ModelSummary") -> list[str]:
    """Return the lines of measured times; none if nothing was measured."""
    measured = summary.timing
    if measured is None:
        return []
    compiled = ", compiled" if measured.compiled else ""
    speed = measured.tokens_per_second * summary.training_flops_per_token / 1e9
    data = "of its own data" if measured.own_data else "made up"
    rows = "" if measured.row_stride == 1 else f"1 in {measured.row_stride} rows of "
    lines = [
        f"measured by {rows}{measured.updates_timed} updates of {measured.tokens:,} target tokens, {data}, "
        f"on {measured.device} in {measured.precision}{compiled}, threads: {measured.threads}",
        f"  an update    {measured.seconds:.3g} s, {measured.tokens_per_second:,.0f} target tokens/s, about "
        f"{speed:,.0f} GFLOP/s",
    ]
    if rows:
        lines.append("  cut short: whole updates are too slow to time; an update is estimated by its tokens")
    if measured.training_seconds is not None:
        total = timedelta(seconds=round(measured.training_seconds))
        reason = "max_minutes"
        if (
            measured.max_updates is not None
            and measured.training_seconds == measured.max_updates * measured.seconds
        ):
            reason = f"{measured.max_updates:,} updates"
        lines.append(f"  the training {total} at most ({reason}), and its validations")
    elif measured.max_epochs is not None:
        lines.append(
            f"  the training {measured.max_epochs} epochs; the number of updates depends on the data"
        )
    if measured.memory is not None:
        whole_process = (
            "" if measured.process is None else f"; {_bytes(measured.process)} with Python and torch"
        )
        lines.append(
            f"  memory       {_bytes(measured.memory)} for model and updates at their peak{whole_process}"
        )
    return lines


def _bytes(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB"


def as_text(summary: "ModelSummary") -> str:
    """Return the whole summary in columns; notes follow their lines."""
    table = [COLUMNS, *(cells(row) for row in summary.lines())]
    widths = [max(len(row[i]) for row in table) for i in range(len(COLUMNS))]
    lines = [summary.name, "", _aligned(COLUMNS, widths)]
    for row in summary.lines():
        note = f"   <- {row.line.note}" if row.line.note else ""
        lines.append(_aligned(cells(row), widths) + note)
    lines += [
        "",
        *remarks(summary),
        "",
        f"memory for training on {summary.tokens:,} target tokens at once, fp32",
    ]
    lines += [f"  {name:<12} {size:>14}   {formula}".rstrip() for name, size, formula in memory(summary)]
    if summary.fit is not None:
        lines += ["", str(summary.fit)]
    if summary.timing is not None:
        lines += ["", *timing(summary)]
    return "\n".join(lines)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(row[:LEFT], widths, strict=False)]
    right = [cell.rjust(width) for cell, width in zip(row[LEFT:], widths[LEFT:], strict=True)]
    return "  ".join([*left, *right])
