"""Heads that answer to texts, whatever model they stand on: what configurations say of them, both ways.

| here | config.json |
|---|---|
| the labels, or the tags | id2label |
| a number | one label, problem_type regression |
| whether inputs are pairs, whether a question may have no answer | finetuning_task; task_specific_params |

Each format says which class of transformers a head is, and which tensors are its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from heedful.interop.checkpoint import Settings
from heedful.interop.encoders import labels_of, written_labels
from heedful.interop.names import Affine, Pair, linear, pair
from heedful.objectives.answering import ANSWER
from heedful.objectives.regression import VALUE
from heedful.runs.question_answering.recipe import WindowsConfig
from heedful.runs.run import Run
from heedful.tasks.answering import PASSAGE, QUESTION, PassageProcessor
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.labels import LABEL
from heedful.tasks.regression import NumberProcessor
from heedful.tasks.tagging import TAGS, WORDS, TagProcessor
from heedful.tasks.texts import text_columns
from heedful.text.tokenizer import Tokenizer

# Data sets of pairs (GLUE): whoever fine-tuned on one has often written its name down.
_PAIRS = {"mnli", "mrpc", "qnli", "qqp", "rte", "snli", "stsb", "sts-b", "wnli"}

Lines = Callable[[Any], list[Pair]]


@dataclass(frozen=True)
class Answers:
    """What a configuration says of a task.

    Args:
        task: the recipe's section.
        columns: of the data.
        processor: of the run.
        sections: others of the recipe.
    """

    task: dict[str, Any]
    columns: tuple[str, ...]
    processor: Any
    sections: dict[str, Any] = field(default_factory=dict)


class Head(Protocol):
    """One of them; made by a format."""

    task: ClassVar[str]
    """heedful's."""

    pooled: ClassVar[bool]
    """Whether it stands on the vector of the sequence."""

    @property
    def architecture(self) -> str:
        """The class of transformers that has this head."""
        ...

    @property
    def lines(self) -> Lines:
        """Its lines of the table of names, by the processor of the run."""
        ...

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """What a configuration says.

        Raises:
            RequestError: it says something that heedful cannot express.
        """
        ...

    def write(self, run: Run) -> dict[str, Any]:
        """What config.json says of it."""
        ...


@dataclass(frozen=True)
class Classes:
    """See `Head`."""

    task: ClassVar[str] = "classification"
    pooled: ClassVar[bool] = True
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Labels of texts, or of pairs."""
        labels, pairs = labels_of(settings), _reads_pairs(settings)
        task = {"kind": self.task, "pairs": pairs, "labels": list(labels)}
        return Answers(task, (*text_columns(pairs), LABEL), LabelProcessor(tokenizer, labels))

    def write(self, run: Run) -> dict[str, Any]:
        """The labels."""
        return {**written_labels(run.processor.labels), **own_facts(pairs=run.recipe.task.pairs)}


@dataclass(frozen=True)
class Numbers:
    """See `Head`."""

    task: ClassVar[str] = "regression"
    pooled: ClassVar[bool] = True
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """A number for texts, or for pairs."""
        pairs = _reads_pairs(settings)
        processor = NumberProcessor(tokenizer, mean=0.0, deviation=1.0)
        return Answers({"kind": self.task, "pairs": pairs}, (*text_columns(pairs), LABEL), processor)

    def write(self, run: Run) -> dict[str, Any]:
        """One label, which has no meaning."""
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
        """A tag for every word, told at its first token."""
        return Answers({"kind": self.task}, (WORDS, TAGS), TagProcessor(tokenizer, labels_of(settings)))

    def write(self, run: Run) -> dict[str, Any]:
        """The tags."""
        return written_labels(run.processor.tags)


@dataclass(frozen=True)
class Passages:
    """See `Head`."""

    task: ClassVar[str] = "question-answering"
    pooled: ClassVar[bool] = False
    architecture: str
    lines: Lines

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Whether there may be no answer, transformers has no key for."""
        task = {"kind": self.task, "unanswerable": bool(facts(settings).get("unanswerable"))}
        room = settings.whole("max_position_embeddings", 512) // 3
        windows = {"longest_question": max(1, min(WindowsConfig().longest_question, room))}
        processor = PassageProcessor(tokenizer)
        return Answers(task, (QUESTION, PASSAGE, ANSWER), processor, {"windows": windows})

    def write(self, run: Run) -> dict[str, Any]:
        """Whether there may be no answer."""
        return own_facts(unanswerable=run.recipe.task.unanswerable)


def class_lines(theirs: str) -> Lines:
    """Of a layer that makes a logit for every label, which they call ``theirs``."""
    return lambda processor: linear("heads.class.1", theirs)


def number_lines(theirs: str) -> Lines:
    """Of a row that makes the number: heedful's makes standardised ones, theirs those of the labels' unit."""
    ours = f"heads.{VALUE}.1"

    def lines(processor: NumberProcessor) -> list[Pair]:
        weight, bias = Affine(processor.deviation), Affine(processor.deviation, processor.mean)
        return [
            pair(f"{ours}.weight", f"{theirs}.weight", form=weight),
            pair(f"{ours}.bias", f"{theirs}.bias", form=bias),
        ]

    return lines


def of_texts(settings: Settings) -> str:
    """Which task a head on the vector of a text is for: it has labels, or makes a number."""
    labels: Mapping[str, Any] = settings.get("id2label", dict, {})
    is_number = settings.get("problem_type", str) == "regression" or len(labels) == 1
    return Numbers.task if is_number else Classes.task


def own_facts(**facts: bool) -> dict[str, Any]:
    """What transformers has no key for."""
    return {"task_specific_params": {"heedful": facts}}


def facts(settings: Settings) -> Mapping[str, Any]:
    """What `own_facts` wrote."""
    found = settings.get("task_specific_params", dict, {}).get("heedful", {})
    return found if isinstance(found, dict) else {}


def _reads_pairs(settings: Settings) -> bool:
    """Whether inputs are pairs, as far as the configuration tells."""
    name = settings.get("finetuning_task", str, "")
    return bool(facts(settings).get("pairs")) or name.lower() in _PAIRS
