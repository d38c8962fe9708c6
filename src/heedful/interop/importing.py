"""Import models of other libraries as runs; implements ``heedful import``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from heedful.artifacts.environment import environment
from heedful.artifacts.run_folder import RunFolder, emptied_on_failure, locked, write_json, write_text
from heedful.errors import RequestError
from heedful.files import is_unicode
from heedful.interop.checkpoint import CONFIG, Checkpoint
from heedful.interop.formats import format_of
from heedful.memory import room_for
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml
from heedful.runs.reading import recipe_from
from heedful.runs.train import seal
from heedful.tasks.base import Log
from heedful.typing import JsonObject


def import_run(source: Path, out: Path, log: Log = lambda line: None) -> RunFolder:
    """Convert a model saved by another library to a run.

    Everything is read and checked before anything is written.

    Args:
        source: folder of the model.
        out: run folder; must be empty or not exist.
        log: called with lines about the model and differences to the source.

    Raises:
        RequestError: the folder is not a model, or heedful does not support it.
        DamagedError: a file is damaged.
    """
    refuse_full(out)
    if not is_unicode(source.resolve().name):
        raise RequestError(
            f"{source}: the folder name must be UTF-8, since the recipe contains it; rename the folder"
        )
    checkpoint = Checkpoint(source)
    form = format_of(checkpoint)
    try:
        with room_for(f"{source}: the model does not fit in memory"):
            found = form.read(checkpoint)
    except ValidationError as error:  # a value of config.json that heedful's configuration rejects
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise RequestError(f"{source / CONFIG}: {key}={wrong['input']!r}: {wrong['msg']}") from None
    recipe = recipe_from(Tree.of(found.recipe, Mark(str(source))))
    n = sum(parameter.numel() for parameter in found.model.parameters())
    log(f"{source}: {form.name}, {n:,} parameters, {_sizes(found.processor)}")
    for note in found.notes:
        log(f"note: {note}")
    if names := sorted({*checkpoint.strange}):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        log(f"warning: {names[0]}{more}: contains NaN or infinity; predictions will be meaningless")
    card = {"format": form.name, "name": source.resolve().name, "files": checkpoint.hashes()}
    with filling(out):
        return _write(RunFolder(out), recipe, found.processor, found.model, {"imported": card})


def _sizes(processor: Any) -> str:
    """Describe the number of tokens, and of labels if there are any."""
    labels = getattr(processor, "labels", ())
    tokens = processor.sizes[: -1 if labels else None]
    parts = [f"{' and '.join(f'{size:,}' for size in tokens)} tokens"] if tokens else []
    return ", ".join(parts + ([f"{len(labels)} labels"] if labels else []))


def _write(folder: RunFolder, recipe: Any, processor: Any, model: nn.Module, facts: JsonObject) -> RunFolder:
    """Write the run folder, with run.json last."""
    write_json(folder.environment, environment(torch.device("cpu")))
    write_text(folder.recipe, dump_yaml(recipe.model_dump(mode="json")))
    processor.save(folder)
    seal(folder, recipe, model, facts)
    return folder


def refuse_full(out: Path) -> None:
    """Check that a folder is empty or does not exist.

    Raises:
        RequestError: it is not empty, or it is a file.
    """
    if out.exists() and not out.is_dir():
        raise RequestError(f"{out}: expected a folder, got a file; choose another folder")
    found = sorted(path.name for path in out.iterdir()) if out.exists() else []
    if found:
        raise RequestError(f"{out}: must be empty, but contains {found[0]!r}; choose another folder")


@contextmanager
def filling(out: Path) -> Iterator[None]:
    """Lock an empty folder while it is filled; on failure, remove everything that was written.

    Raises:
        RequestError: another process is writing there, or has written something.
    """
    with locked(out):
        refuse_full(out)
        with emptied_on_failure(out):
            yield
