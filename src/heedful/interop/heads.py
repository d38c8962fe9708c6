"""Task heads on text encoders: conversion of their settings from and to config.json.

| here | config.json |
|---|---|
| the labels, or the tags | id2label |
| a number | one label, problem_type regression |
| whether inputs are pairs, whether a question may have no answer | finetuning_task; task_specific_params |

Each format defines the transformers class and the tensors of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from heedful.interop.checkpoint import Settings
from heedful.interop.encoders import labels_of, written_labels
from heedful.interop.names import Affine, Pair, linear, pair
from heedful.objectives.classification import ANSWER
from heedful.objectives.regression import VALUE
from heedful.runs.run import Run
from heedful.tasks.answering import PASSAGE, QUESTION
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.labels import LABEL
from heedful.tasks.processor import Scale, TextProcessor
from heedful.tasks.question_answering import WindowsConfig
from heedful.tasks.regression import NumberProcessor
from heedful.tasks.texts import text_columns
from heedful.tasks.words import TAGS, WORDS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject

# Data sets of text pairs (GLUE); finetuning_task often names one of them.
_PAIRS = {"mnli", "mrpc", "qnli", "qqp", "rte", "snli", "stsb", "sts-b", "wnli"}

Lines = Callable[[Any], list[Pair]]


@dataclass(frozen=True)
class Answers:
    """Task settings read from a configuration.

    Args:
        task: section ``task`` of the recipe.
        columns: columns of the data.
        processor: processor of the run.
        sections: other sections of the recipe.
    """

    task: JsonObject
    columns: tuple[str, ...]
    processor: Any
    sections: JsonObject = field(default_factory=dict)


class Head(Protocol):
    """A task head; created by a format."""

    task: ClassVar[str]
    """Name of the task in heedful."""

    pooled: ClassVar[bool]
    """Whether the head reads the pooled vector of the sequence."""

    @property
    def architecture(self) -> str:
        """Class of transformers with this head."""
        ...

    @property
    def lines(self) -> Lines:
        """Rows of the name table, given the processor of the run."""
        ...

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Read the task settings from a configuration.

        Raises:
            RequestError: a setting is not supported.
        """
        ...

    def write(self, run: Run) -> JsonObject:
        """Return the keys of config.json for this head."""
        ...


@dataclass(frozen=True)
class Classes:
    """See `Head`."""

    task: ClassVar[str] = "classification"
    pooled: ClassVar[bool] = True
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Read the labels, and whether inputs are pairs."""
        labels, pairs = labels_of(settings), _reads_pairs(settings)
        task = {"kind": self.task, "pairs": pairs, "labels": list(labels)}
        return Answers(task, (*text_columns(pairs), LABEL), LabelProcessor(tokenizer, labels))

    def write(self, run: Run) -> JsonObject:
        """Return the labels."""
        return {**written_labels(run.processor.labels), **own_facts(pairs=run.recipe.task.pairs)}


@dataclass(frozen=True)
class Numbers:
    """See `Head`."""

    task: ClassVar[str] = "regression"
    pooled: ClassVar[bool] = True
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Read whether inputs are pairs."""
        pairs = _reads_pairs(settings)
        processor = NumberProcessor(tokenizer, Scale(0.0, 1.0))
        return Answers({"kind": self.task, "pairs": pairs}, (*text_columns(pairs), LABEL), processor)

    def write(self, run: Run) -> JsonObject:
        """Return one placeholder label, as transformers does for regression."""
        return {
            **written_labels(["LABEL_0"]),
            "problem_type": "regression",
            **own_facts(pairs=run.recipe.task.pairs),
        }


@dataclass(frozen=True)
class Tags:
    """See `Head`."""

    task: ClassVar[str] = "tagging"
    pooled: ClassVar[bool] = False
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Read the tags; each word is tagged at its first token."""
        return Answers({"kind": self.task}, (WORDS, TAGS), LabelProcessor(tokenizer, labels_of(settings)))

    def write(self, run: Run) -> JsonObject:
        """Return the tags."""
        return written_labels(run.processor.labels)


@dataclass(frozen=True)
class Passages:
    """See `Head`."""

    task: ClassVar[str] = "question-answering"
    pooled: ClassVar[bool] = False
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Read whether questions may be unanswerable, for which transformers has no key."""
        task = {"kind": self.task, "unanswerable": bool(facts(settings).get("unanswerable"))}
        longest = settings.whole("max_position_embeddings", 512) // 3
        windows = {"longest_question": max(1, min(WindowsConfig().longest_question, longest))}
        processor = TextProcessor(tokenizer)
        return Answers(task, (QUESTION, PASSAGE, ANSWER), processor, {"windows": windows})

    def write(self, run: Run) -> JsonObject:
        """Return whether questions may be unanswerable."""
        return own_facts(unanswerable=run.recipe.task.unanswerable)


def class_lines(theirs: str) -> Lines:
    """Map the layer with one logit per label, called ``theirs`` in transformers."""
    return lambda processor: linear("heads.class.1", theirs)


def number_lines(theirs: str) -> Lines:
    """Map the regression layer; heedful predicts standardised values, transformers the original ones."""
    ours = f"heads.{VALUE}.1"

    def lines(processor: NumberProcessor) -> list[Pair]:
        scale = processor.scale
        weight, bias = Affine(scale.deviation), Affine(scale.deviation, scale.mean)
        return [
            pair(f"{ours}.weight", f"{theirs}.weight", form=weight),
            pair(f"{ours}.bias", f"{theirs}.bias", form=bias),
        ]

    return lines


def of_texts(settings: Settings) -> str:
    """Return the task of a sequence-level head: classification or regression."""
    labels: JsonMapping = settings.get("id2label", dict, {})
    is_number = settings.get("problem_type", str) == "regression" or len(labels) == 1
    return Numbers.task if is_number else Classes.task


def own_facts(**facts: bool) -> JsonObject:
    """Return settings for which transformers has no key."""
    return {"task_specific_params": {"heedful": facts}}


def facts(settings: Settings) -> JsonMapping:
    """Read the settings written by `own_facts`."""
    found = settings.get("task_specific_params", dict, {}).get("heedful", {})
    return found if isinstance(found, dict) else {}


def _reads_pairs(settings: Settings) -> bool:
    """Return whether inputs are pairs according to the configuration."""
    name = settings.get("finetuning_task", str, "")
    return bool(facts(settings).get("pairs")) or name.lower() in _PAIRS
