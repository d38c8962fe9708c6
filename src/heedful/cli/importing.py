"""``heedful import``."""

from pathlib import Path

import typer

from heedful.cli.output import log, result


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("import", short_help="Make a run of a model of transformers.")(import_)


def import_(
    source: Path = typer.Argument(
        ..., metavar="SOURCE", help="A folder with config.json, model.safetensors and the tokenizer."
    ),
    run: Path = typer.Argument(..., metavar="RUN", help="The run's folder, which is made."),
) -> None:
    """Make a run of a model that transformers saved: a GPT-2, BERT or ViT, or one of Marian's translators."""
    from heedful.interop.importing import import_run

    import_run(source, run, log)
    log(f"use it:      heedful predict {run}")
    result(str(run))
