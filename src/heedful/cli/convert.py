"""The commands ``heedful import`` and ``heedful export``."""

from pathlib import Path

import typer

from heedful.cli.output import log, result
from heedful.errors import RequestError


def import_(
    source: Path = typer.Argument(
        ..., metavar="SOURCE", help="Folder with config.json, model.safetensors and the tokenizer files."
    ),
    run: Path = typer.Argument(..., metavar="RUN", help="Run folder to create."),
) -> None:
    """Convert a GPT-2, BERT, ViT or Marian model saved by transformers to a run."""
    from heedful.api.conversion import import_model

    import_model(source, run, log=log)
    log(f"predict:     heedful predict {run}")
    result(str(run))


def export(
    run: Path = typer.Argument(..., metavar="RUN", help="Run folder."),
    folder: Path = typer.Argument(
        None, metavar="OUT", help="Folder to create. [default: RUN-FORMAT]", show_default=False
    ),
    to: str = typer.Option(
        ...,
        "--to",
        metavar="FORMAT",
        help="gpt2 (language models), marian (translation), bert (masked language models and text encoders "
        "with task heads) or vit (image classification).",
    ),
    out: Path = typer.Option(None, help="The same as OUT."),
) -> None:
    """Export weights, configuration and tokenizer of a run to a folder that transformers can load."""
    from heedful.api import conversion

    if folder is not None and out is not None:
        raise RequestError(f"--out {out}: OUT is {folder} already; remove one of them")
    result(str(conversion.export(run, to, folder or out, log=log)))
