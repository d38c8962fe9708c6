"""The command ``heedful export``."""

from pathlib import Path

import typer

from heedful.cli.output import log, result


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("export", short_help="Export a run for Hugging Face transformers.")(export)


def export(
    run: Path = typer.Argument(..., metavar="RUN", help="Run folder."),
    to: str = typer.Option(
        ...,
        "--to",
        metavar="FORMAT",
        help="gpt2 (language models), marian (translation), bert (masked language models and text encoders "
        "with task heads) or vit (image classification).",
    ),
    out: Path = typer.Option(None, help="Output folder. [default: RUN-FORMAT]"),
) -> None:
    """Export weights, configuration and tokenizer of a run to a folder that transformers can load."""
    from heedful.interop.conversion import export_run

    folder = export_run(run, to, out, log)
    result(str(folder))
