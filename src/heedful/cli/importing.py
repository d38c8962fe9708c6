"""The command ``heedful import``."""

from pathlib import Path

import typer

from heedful.cli.output import log, result


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("import", short_help="Convert a Hugging Face transformers model to a run.")(import_)


def import_(
    source: Path = typer.Argument(
        ..., metavar="SOURCE", help="Folder with config.json, model.safetensors and the tokenizer files."
    ),
    run: Path = typer.Argument(..., metavar="RUN", help="Run folder to create."),
) -> None:
    """Convert a GPT-2, BERT, ViT or Marian model saved by transformers to a run."""
    from heedful.interop.conversion import import_run

    import_run(source, run, log)
    log(f"predict:     heedful predict {run}")
    result(str(run))
