"""Convert models of other libraries to runs and back: ``heedful import`` and ``heedful export``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import nn

from heedful.artifacts.environment import environment
from heedful.artifacts.run_folder import RunFolder, emptied_on_failure, locked, write_json, write_text
from heedful.errors import DataError, RequestError, nearest
from heedful.files import is_unicode, write_bytes
from heedful.interop.bert import BERT
from heedful.interop.checkpoint import CONFIG, Checkpoint, write_checkpoint
from heedful.interop.format import Format
from heedful.interop.gpt2 import GPT2
from heedful.interop.marian import Marian
from heedful.interop.unread import unread_notes
from heedful.interop.vit import ViT
from heedful.memory import memory_errors_as
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml
from heedful.runs.loading import load_run
from heedful.runs.reading import recipe_from
from heedful.runs.train import seal
from heedful.tasks.base import Log
from heedful.tasks.inputs.labels import placeholder_note
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.text.subwords import TokenTooLongError

FORMATS: dict[str, Format] = {each.name: each for each in (GPT2(), Marian(), BERT(), ViT())}

_ENCODER, _DECODER, _BOTH = "of encoders, only BERT is", "of language models, only GPT-2 is", "Marian is"
UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), f"its positions begin at 2; {_ENCODER}"),
    "distilbert": f"it has no segments and other names; {_ENCODER}",
    "albert": f"its layers share their weights; {_ENCODER}",
    **dict.fromkeys(("electra", "deberta", "deberta-v2", "modernbert"), _ENCODER),
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"),
        f"RMS norms, rotary positions and gated layers can be trained here, but not imported; {_DECODER}",
    ),
    **dict.fromkeys(("gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "mamba"), _DECODER),
    **dict.fromkeys(("t5", "mt5"), f"its positions are relative; of encoder-decoders, only {_BOTH}"),
    **dict.fromkeys(("bart", "mbart", "m2m_100", "pegasus"), f"of encoder-decoders, only {_BOTH}"),
    **dict.fromkeys(("deit", "swin", "clip", "dinov2", "beit"), "of image models, only ViT is"),
}
"""Why models of other kinds cannot be imported, by ``model_type``."""


def format_called(name: str) -> Format:
    """Return the format with the given name.

    Raises:
        RequestError: the name is unknown.
    """
    if name not in FORMATS:
        names = ", ".join(FORMATS)
        raise RequestError(f"format {name}: unknown{nearest(name, FORMATS)}; expected one of {names}")
    return FORMATS[name]


def format_of(checkpoint: Checkpoint) -> Format:
    """Return the format given by ``model_type`` of a folder.

    Raises:
        RequestError: it is missing or not supported.
    """
    settings = checkpoint.config
    kind = settings.get("model_type", str)
    names = ", ".join(FORMATS)
    if kind is None:
        raise RequestError(f"{settings.source}: model_type: required key is missing; expected one of {names}")
    if kind not in FORMATS:
        reason = UNSUPPORTED.get(kind, "")
        suggestion = f": {reason}" if reason else nearest(kind, FORMATS)
        raise settings.error("model_type", f"{kind!r} is not supported{suggestion}; expected one of {names}")
    return FORMATS[kind]


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
    require_empty(out)
    if not is_unicode(source.resolve().name):
        raise RequestError(
            f"{source}: the folder name must be UTF-8, since the recipe contains it; rename the folder"
        )
    checkpoint = Checkpoint(source)
    model_format = format_of(checkpoint)
    try:
        with memory_errors_as(f"{source}: the model does not fit in memory"):
            imported = model_format.read(checkpoint)
    except TokenTooLongError as error:
        raise DataError(f"{source}: {error}") from None
    except ValidationError as error:  # a value of config.json that heedful's configuration rejects
        details = error.errors()[0]
        key = ".".join(map(str, details["loc"]))
        raise RequestError(f"{source / CONFIG}: {key}={details['input']!r}: {details['msg']}") from None
    recipe = recipe_from(Tree.of(imported.recipe, Mark(str(source))))
    n_parameters = sum(parameter.numel() for parameter in imported.model.parameters())
    log(f"{source}: {model_format.name}, {n_parameters:,} parameters, {_sizes(imported.processor)}")
    unnamed = placeholder_note(getattr(imported.processor, "labels", ()))
    notes = [*imported.notes, unnamed, *unread_notes(checkpoint, model_format.harmless)]
    for note in filter(None, notes):
        log(f"note: {note}")
    card = {"format": model_format.name, "name": source.resolve().name, "files": checkpoint.hashes()}
    with filling(out):
        folder = RunFolder(out)
        write_json(folder.environment, environment(torch.device("cpu")))
        write_text(folder.recipe, dump_yaml(recipe.model_dump(mode="json")))
        imported.processor.save(folder)
        seal(folder, recipe, imported.model, {"imported": card})
        return folder


def _sizes(processor: TaskProcessor) -> str:
    """Describe the number of tokens, and of labels if there are any."""
    answers = "labels" if hasattr(processor, "labels") else None
    tokens = processor.sizes[: -1 if answers else None]
    parts = [f"{' and '.join(f'{size:,}' for size in tokens)} tokens"] if tokens else []
    return ", ".join(parts + ([f"{processor.sizes[-1]} {answers}"] if answers else []))


def require_empty(out: Path) -> None:
    """Check that a folder is empty or does not exist.

    Raises:
        RequestError: it is not empty, or it is a file.
    """
    if out.exists() and not out.is_dir():
        raise RequestError(f"{out}: expected a folder, got a file; choose another folder")
    entries = sorted(path.name for path in out.iterdir()) if out.exists() else []
    if entries:
        raise RequestError(f"{out}: must be empty, but contains {entries[0]!r}; choose another folder")


@contextmanager
def filling(out: Path) -> Iterator[None]:
    """Lock an empty folder while it is filled; on failure, remove everything that was written.

    Raises:
        RequestError: another process is writing there, or has written something.
    """
    with locked(out):
        require_empty(out)
        with emptied_on_failure(out):
            yield


def _task_obstacle(model_format: Format, task: str) -> str | None:
    """Return why a format does not support a task; None: it does."""
    if task in model_format.loaders:
        return None
    suitable = [name for name, candidate in FORMATS.items() if task in candidate.loaders]
    remedy = f"; use {' or '.join(suitable)}" if suitable else ""
    return f"expected a run of task {' or '.join(model_format.loaders)}, got {task}{remedy}"


def obstacles(recipe: Recipe, model: nn.Module) -> dict[str, list[str]]:
    """Return, for each format by name, all settings of a recipe or run that it does not support.

    A format without obstacles can be exported to. Of a run, the tokenizer and the weights may still have
    parts that a format lacks, which the export names.

    Args:
        recipe: the recipe.
        model: its model; the weights are not read.
    """
    found = {}
    for name, model_format in FORMATS.items():
        reason = _task_obstacle(model_format, recipe.task.kind)
        found[name] = model_format.obstacles(recipe, model) if reason is None else [reason]
    return found


def export_run(path: Path, to: str, out: Path | None = None, log: Log = lambda line: None) -> Path:
    """Export a run to the format of another library.

    Args:
        path: run folder.
        to: name of the format.
        out: folder to write; must be empty or not exist. Defaults to RUN-FORMAT beside the run.
        log: called with lines about differences to the run.

    Returns:
        The folder.

    Raises:
        RequestError: the format is unknown or does not support the run.
    """
    model_format = format_called(to)
    run_path = path if path.name not in ("", "..") else path.resolve()
    folder = out or run_path.with_name(f"{run_path.name}-{model_format.name}")
    require_empty(folder)
    run = load_run(path, device="cpu")
    task = run.recipe.task.kind
    if (reason := _task_obstacle(model_format, task)) is not None:
        raise RequestError(f"format {to}: {reason}")
    exported = model_format.write(run)
    for note in exported.notes:
        log(f"note: {note}")
    with filling(folder):
        try:
            for name in (CONFIG, *exported.files):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"{folder}: cannot create the folder ({error.strerror})") from None
        for name, content in exported.files.items():
            write_bytes(folder / name, content.encode() if isinstance(content, str) else content)
        write_checkpoint(folder, exported.config, exported.tensors)
    log(f'load with:   {model_format.loaders[task]}.from_pretrained("{folder}")')
    return folder
