"""The command ``heedful describe``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from heedful.cli.options import Json
from heedful.cli.output import check_out, json_result, log, result, terminal_width
from heedful.errors import RequestError, escaped
from heedful.files import IMAGES

if TYPE_CHECKING:
    from heedful.model_summary.summary import ModelSummary
    from heedful.runs.learning_rates import LearningRates

ANOTHER_TASK = "expected a run of task "
"""Beginning of the reason of a format for other tasks (`heedful.interop.conversion.obstacles`)."""

WIDEST = 80
"""Maximum number of columns of a chart."""


def describe(
    what: str = typer.Argument(..., metavar="NAME|RECIPE|RUN", help="Model name, recipe or run folder."),
    overrides: list[str] = typer.Argument(
        None,
        metavar="KEY=VALUE",
        help="Override settings: vocab_size=32000, source_vocab, target_vocab, n_classes; n_layers=16 for a "
        "model name; model.n_layers=16 for a recipe or run.",
    ),
    batch: int = typer.Option(None, min=1, metavar="TOKENS", help="Target tokens per batch, for memory."),
    length: int = typer.Option(
        None,
        min=1,
        help="Tokens per sequence.  [default: the model's context, the patches of an image, or 32]",
    ),
    source_length: int = typer.Option(
        None, min=1, help="Tokens per source sequence, if different from --length."
    ),
    memory: str = typer.Option(
        None,
        metavar="SIZE",
        help="Find the training.accumulate that fits into this memory, e.g. 6GiB.  [default: this machine's, "
        "if an update needs more]",
    ),
    time: bool = typer.Option(
        False,
        "--time",
        help="Also run and time a few updates on this machine: on the recipe's data if available and no size "
        "or length is given, else on random tokens.",
    ),
    device: str = typer.Option("auto", help="Device for --time: auto, cpu, cuda or cuda:N."),
    plot: Literal["schedule"] = typer.Option(
        None, help="Show this instead: schedule, the learning rate over the updates of a recipe or run."
    ),
    out: Path = typer.Option(None, metavar="FILE", help="Also draw the plot: .svg or .png."),
    as_json: Json = False,
) -> None:
    """Count parameters, FLOPs and memory of each part of a model; with --time, also time an update.

    For a recipe or run, also show to which formats it can be exported, and the settings that are in the way
    of the others.
    """
    if plot is not None:
        if time:
            raise RequestError("--time: not supported with --plot; remove one of them")
        _plot_schedule(what, overrides or [], out, as_json=as_json)
        return
    if out is not None:
        raise RequestError("--out requires --plot schedule")
    from heedful.memory import parse_size

    available = None if memory is None else parse_size(memory, "--memory")
    if available is not None and (batch or time):
        raise RequestError(
            f"{'--time' if time else '--batch'}: not supported with --memory; remove one of them"
        )
    sizes = length, source_length, batch
    model_description = _summary(what, overrides or [], sizes, available, device if time else None)
    exports = _exports(what, overrides or [])
    if as_json:
        json_result(model_description.to_dict() | ({} if exports is None else {"exports": exports}))
        return
    if sys.stdout.isatty():
        _show(model_description)
    else:
        result(str(model_description))
    for line in _export_lines(exports or {}):
        result(line)


def _summary(
    what: str,
    overrides: Sequence[str],
    sizes: tuple[int | None, int | None, int | None],
    available: int | None,
    device: str | None,
) -> "ModelSummary":
    """Describe a model at a length, a source length and tokens per batch; with a device, also time it."""
    from heedful.model_summary import summary
    from heedful.model_summary.described_model import Extent
    from heedful.recipes.resolve import overrides_tree

    if device is not None:
        return summary.timed(what, Extent(*sizes), overrides, device=device, log=log)
    length, source_length, batch = sizes
    return summary.describe(
        what,
        length=length,
        source_length=source_length,
        tokens=batch,
        available=available,
        overrides=overrides_tree(overrides),
    )


def _exports(what: str, overrides: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the obstacles of a recipe or run to each format of export; None for a model's name."""
    from heedful.interop.conversion import obstacles
    from heedful.model_summary.described_model import RequestedSizes, find_model

    described = find_model(what, RequestedSizes(), overrides)
    return None if described.recipe is None else obstacles(described.recipe, described.model)


def _export_lines(exports: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield to which formats a run can be exported, and for the others of its task what is in the way."""
    if not exports:
        return
    yield ""
    possible = [name for name, reasons in exports.items() if not reasons]
    yield f"export to: {', '.join(possible) or 'none'}"
    for name, reasons in exports.items():
        if reasons and reasons[0].startswith(ANOTHER_TASK):
            continue
        for number, reason in enumerate(reasons):
            yield f"  {name if not number else '':<8}{reason}"


def _show(summary: "ModelSummary") -> None:
    """Print a table for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from heedful.model_summary.text import COLUMNS, LEFT, cells, memory, remarks, timing

    table = Table(title=Text(escaped(summary.name)), title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if i < LEFT else "right", no_wrap=i != 1)
    for row in summary.lines():
        style = "bold" if row.depth == 0 else ("dim" if not row.line.parameters else "")
        table.add_row(*(Text(cell) for cell in cells(row)), style=style)
        if row.line.note:
            table.add_row("", Text(row.line.note, style="yellow italic"))
    needs = Table(box=None, pad_edge=False, show_header=False)
    needs.add_column(no_wrap=True)
    needs.add_column(justify="right", no_wrap=True)
    needs.add_column()
    for part in memory(summary):
        needs.add_row(*map(Text, part))
    console = Console(highlight=False)
    console.print(table)
    console.print()
    for line in remarks(summary):
        console.print(escaped(line), markup=False)
    console.print(f"\ntraining memory for {summary.tokens:,} target tokens per batch, fp32")
    console.print(needs)
    if summary.fit is not None:
        console.print(f"\n{summary.fit}", markup=False)
    for number, line in enumerate(timing(summary)):
        console.print(line if number else f"\n{line}", markup=False)


def _plot_schedule(what: str, overrides: Sequence[str], out: Path | None, *, as_json: bool) -> None:
    """Show the learning rate of a recipe or run over its updates, and draw it if requested.

    Raises:
        RequestError: ``what`` is only a model, or the file name is not that of an image.
    """
    check_out(out, IMAGES)
    from heedful.model_summary.described_model import RequestedSizes, find_model
    from heedful.runs.learning_rates import learning_rates

    described = find_model(what, RequestedSizes(), overrides)
    if described.recipe is None:
        raise RequestError(f"{what}: --plot schedule needs a recipe or a run; a model has no schedule")
    rates = learning_rates(described.name, described.recipe, described.model)
    if out is not None:
        _draw_schedule(rates, out)
        log(f"wrote {out}")
    if as_json:
        json_result(rates.to_dict())
        return
    for line in _schedule_lines(rates):
        result(line)


def _schedule_lines(rates: "LearningRates") -> Iterator[str]:
    """Yield the chart, its numbers, the groups if there are several, and the notes."""
    from heedful.cli.charts import area_chart

    updates, values = zip(*((point.update, point.rate) for point in rates.points), strict=True)
    yield from area_chart(
        updates, values, min(WIDEST, terminal_width()), "update", f"learning rate ({rates.kind})"
    )
    yield ""
    numbers = {"first": rates.points[0], "peak": rates.peak, "last": rates.points[-1]}
    for name, point in numbers.items():
        yield f"{name:<6}{point.rate:<10.3g} at update {point.update:,}"
    if len(rates.groups) > 1:
        for group in rates.groups:
            peak = group.share * rates.peak.rate
            yield f"share {group.share:<10.3g} peak {peak:.3g}, of {group.parameters:,} parameters"
    for note in rates.notes:
        yield f"note: {note}"


def _draw_schedule(rates: "LearningRates", out: Path) -> None:
    """Draw the rate of each group over the updates."""
    from heedful.explain.drawing.heat_map import save
    from heedful.lab.drawing import Curves, curves_over, draw

    lines = {
        "" if len(rates.groups) == 1 else f"share {group.share:.3g}": [
            group.share * point.rate for point in rates.points
        ]
        for group in rates.groups
    }
    updates = [point.update for point in rates.points]
    title = escaped(f"{rates.name}: {rates.kind}")
    save(draw(Curves(title, "update", "learning rate", curves_over(updates, lines))), out)
