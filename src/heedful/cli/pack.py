"""The commands ``heedful pack`` and ``heedful clean``."""

import sys
from pathlib import Path

import typer

from heedful.cli.options import Run
from heedful.cli.output import log, result
from heedful.errors import RequestError


def pack(
    run: Run,
    out: Path = typer.Argument(..., metavar="OUT", help="Folder to create; must be new or empty."),
) -> None:
    """Copy a finished run without what only training needs: checkpoints, tokenised data, logs.

    The copy predicts, evaluates and explains as the run does, and cannot be resumed.
    """
    from heedful.runs.packing import pack as pack_run

    folder = pack_run(run, out)
    size = sum(path.stat().st_size for path in folder.path.iterdir())
    log(f"{size:,} bytes")
    log(f"predict:     heedful predict {out}")
    result(str(out))


def clean(
    run: Run,
    resumable: bool = typer.Option(
        False, "--resumable", help="Keep the checkpoints that continuing the training needs."
    ),
    yes: bool = typer.Option(False, "--yes", help="Remove without asking."),
) -> None:
    """Remove the checkpoints and the tokenised data of a finished run, after asking."""
    from heedful.runs.packing import cleaning, remove_all

    with cleaning(run, resumable=resumable) as removable:
        for line in removable.lines():
            result(line)
        if not removable.sizes:
            return
        if not yes:
            if not sys.stdin.isatty():
                raise RequestError("clean: nothing is removed without --yes, unless a terminal can be asked")
            consequence = "" if resumable else " (the training can then not be continued)"
            typer.confirm(f"Remove them{consequence}?", abort=True, err=True)
        remove_all(removable)
    log(f"removed {removable.total:,} bytes")
