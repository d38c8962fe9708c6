"""Task heads on text models: conversion of their settings from and to config.json.

| here | config.json |
|---|---|
| the labels, or the tags | id2label |
| a number | one label, problem_type regression |
| whether inputs are pairs, whether a question may have no answer | finetuning_task; task_specific_params |

Each format defines the transformers class and the tensors of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heedful.config import Config
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.configuration import label_names, read_labels, write_labels
from heedful.interop.format import recipe_of
from heedful.interop.names import Pair, affine, linear, pair
from heedful.objectives.classification import ANSWER
from heedful.objectives.regression import VALUE
from heedful.runs.loading import LoadedRun
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.inputs.labels import LABEL
from heedful.tasks.inputs.processor import Scale, TaskProcessor, TextProcessor
from heedful.tasks.inputs.texts import text_columns
from heedful.tasks.inputs.words import TAGS, WORDS
from heedful.tasks.question_answering.answering import PASSAGE, QUESTION
from heedful.tasks.question_answering.task import WindowsConfig
from heedful.tasks.regression import NumberProcessor
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject

CLASSES, NUMBERS = "classification", "regression"
TAGGING, ANSWERING = "tagging", "question-answering"

# Data sets of text pairs (GLUE); finetuning_task often names one of them.
_PAIRS = {"mnli", "mrpc", "qnli", "qqp", "rte", "snli", "stsb", "sts-b", "wnli"}


@dataclass(frozen=True)
class Head:
    """A task head; created by a format.

    Args:
        task: name of the task in heedful.
        architecture: class of transformers with this head.
        rows: rows of the name table, given the processor of the run.
        pooled: whether the head reads the pooled vector of the sequence.
    """

    task: str
    architecture: str
    rows: Callable[[Any], list[Pair]]
    pooled: bool = False


def sequence_heads(architecture: str, theirs: str) -> dict[str, Head]:
    """Return the heads for classification and regression, which have the same layer in transformers.

    heedful predicts standardised numbers, transformers the original ones.

    Args:
        architecture: class of transformers.
        theirs: their name of the layer.
    """

    def number_rows(processor: NumberProcessor) -> list[Pair]:
        weight, bias = (
            affine(processor.scale.deviation),
            affine(processor.scale.deviation, processor.scale.mean),
        )
        ours = f"heads.{VALUE}.1"
        return [
            pair(f"{ours}.weight", f"{theirs}.weight", form=weight),
            pair(f"{ours}.bias", f"{theirs}.bias", form=bias),
        ]

    def class_rows(processor: LabelProcessor) -> list[Pair]:
        return linear("heads.class.1", theirs)

    return {
        CLASSES: Head(CLASSES, architecture, class_rows, pooled=True),
        NUMBERS: Head(NUMBERS, architecture, number_rows, pooled=True),
    }


def task_of_sequence(settings: Settings) -> str:
    """Return the task of a head on whole sequences: classification or regression."""
    is_number = settings.get("problem_type", str) == "regression" or len(label_names(settings)) == 1
    return NUMBERS if is_number else CLASSES


def heedful_options(settings: Settings) -> JsonMapping:
    """Return what an export of heedful adds to config.json, since transformers has no keys for it."""
    options = settings.get("task_specific_params", dict, {}).get("heedful", {})
    return options if isinstance(options, dict) else {}


def read_head(
    task: str, description: str, checkpoint: Checkpoint, tokenizer: Tokenizer, config: Config
) -> tuple[JsonObject, TaskProcessor]:
    """Return the recipe, as plain data, and the processor of a run with a task head.

    Raises:
        RequestError: a setting is not supported.
    """
    settings = checkpoint.config
    exported = heedful_options(settings)
    options: JsonObject = {"kind": task}
    sections: JsonObject = {}
    columns: tuple[str, ...]
    processor: TaskProcessor
    if task == TAGGING:
        processor, columns = LabelProcessor(tokenizer, read_labels(settings)), (WORDS, TAGS)
    elif task == ANSWERING:
        options["unanswerable"] = bool(exported.get("unanswerable"))
        longest = settings.positive_int("max_position_embeddings", 512) // 3
        sections = {"windows": {"longest_question": max(1, min(WindowsConfig().longest_question, longest))}}
        processor, columns = TextProcessor(tokenizer), (QUESTION, PASSAGE, ANSWER)
    else:
        pairs = bool(exported.get("pairs")) or settings.get("finetuning_task", str, "").lower() in _PAIRS
        options["pairs"] = pairs
        columns = (*text_columns(pairs), LABEL)
        if task == NUMBERS:
            processor = NumberProcessor(tokenizer, Scale(0.0, 1.0))
        else:
            labels = read_labels(settings)
            options["labels"] = list(labels)
            processor = LabelProcessor(tokenizer, labels)
    data = {"kind": "jsonl", "paths": "{}.jsonl", "columns": {column: column for column in columns}}
    return recipe_of(
        description, checkpoint, options, data, **model_sections(tokenizer, config), **sections
    ), processor


def model_sections(tokenizer: Tokenizer, config: Config) -> JsonObject:
    """Return the sections ``tokenizer`` and ``model`` of a recipe for an imported model."""
    subwords = tokenizer.model.config.model_dump(mode="json")
    text = tokenizer.preprocessing.model_dump(mode="json")
    return {"tokenizer": {"subwords": subwords, "text": text}, "model": config.model_dump(mode="json")}


def write_head(run: LoadedRun) -> JsonObject:
    """Return the keys of config.json for the task of a run; the inverse of `read_head`."""
    task, processor = run.recipe.task, run.processor
    if task.kind == TAGGING:
        return write_labels(processor.labels)
    if task.kind == ANSWERING:
        return {"task_specific_params": {"heedful": {"unanswerable": task.unanswerable}}}
    # For regression, transformers has one label that is a placeholder.
    labels = write_labels(processor.labels if task.kind == CLASSES else ["LABEL_0"])
    kind = {} if task.kind == CLASSES else {"problem_type": "regression"}
    return labels | kind | {"task_specific_params": {"heedful": {"pairs": task.pairs}}}
