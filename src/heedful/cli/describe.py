"""The command ``heedful describe``."""

import sys
from typing import TYPE_CHECKING

import typer

from heedful.cli.options import Json
from heedful.cli.output import json_result, log, result
from heedful.errors import escaped
from heedful.memory import collection_paused

if TYPE_CHECKING:
    from heedful.model_summary.summary import ModelSummary


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
    time: bool = typer.Option(
        False,
        "--time",
        help="Also run and time a few updates on this machine: on the recipe's data if available and no size "
        "or length is given, else on random tokens.",
    ),
    device: str = typer.Option("auto", help="Device for --time: auto, cpu, cuda or cuda:N."),
    as_json: Json = False,
) -> None:
    """Count parameters, FLOPs and memory of each part of a model; with --time, also time an update."""
    with collection_paused():
        from heedful.model_summary import summary
        from heedful.model_summary.described_model import Extent

    changes = overrides or []
    if time:
        extent = Extent(length, source_length, batch)
        model_description = summary.timed(what, extent, changes, device=device, log=log)
    else:
        with collection_paused():  # tensors without values import torch's compiler
            model_description = summary.describe(
                what, length=length, source_length=source_length, tokens=batch, overrides=changes
            )
    if as_json:
        json_result(model_description.to_dict())
    elif sys.stdout.isatty():
        _show(model_description)
    else:
        result(str(model_description))


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
    for number, line in enumerate(timing(summary)):
        console.print(line if number else f"\n{line}", markup=False)
