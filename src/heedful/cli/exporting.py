"""``heedful export``."""

from pathlib import Path

import typer

from heedful.cli.output import log, result


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("export", short_help="Write a run as transformers reads it.")(export)


def export(
    run: Path = typer.Argument(..., metavar="RUN", help="A run's folder."),
    to: str = typer.Option(
        ...,
        "--to",
        metavar="FORMAT",
        help="gpt2 (language models), marian (translators), bert (masked models, and what answers for texts) "
        "or vit (classifiers of pictures).",
    ),
    out: Path = typer.Option(None, help="The folder to write. [default: RUN-FORMAT]"),
) -> None:
    """Write a run as a folder that transformers loads: its weights, configuration and tokenizer."""
    from heedful.interop.exporting import export_run

    folder = export_run(run, to, out, log)
    result(str(folder))
