"""Import and export of runs: ``heedful.import_model`` and ``heedful.export``."""

import os
from pathlib import Path

from heedful.api.checks import folder_of, run_folder
from heedful.api.run import Run, load
from heedful.runs.loading import LoadedRun
from heedful.tasks.base import Log


def import_model(source: Path | str, out: Path | str, *, log: Log = lambda line: None) -> Run:
    """Convert a GPT-2, BERT, ViT or Marian model saved by ``transformers`` to a run, and load it.

    Args:
        source: a folder with ``config.json``, ``model.safetensors`` and the files of the tokenizer.
        out: the run's folder, which must be new or empty.
        log: called with lines about what is converted.

    Raises:
        RequestError: something cannot be converted; the message has its key or file.
    """
    from heedful.interop.conversion import import_run

    return load(import_run(Path(os.path.expanduser(source)), folder_of(out, "out"), log).path)


def export(
    run: LoadedRun | Path | str, to: str, out: Path | str | None = None, *, log: Log = lambda line: None
) -> Path:
    """Export a run to a folder that ``transformers`` loads; return the folder.

    Args:
        run: a run, or its folder.
        to: ``gpt2``, ``marian``, ``bert`` or ``vit``.
        out: the folder; by default next to the run, for example ``runs/lm-gpt2``.
        log: called with lines about what is converted.

    Raises:
        RequestError: the run cannot be converted; the message has the key of the recipe.
    """
    from heedful.interop.conversion import export_run

    return export_run(run_folder(run), to, None if out is None else folder_of(out, "out"), log)
